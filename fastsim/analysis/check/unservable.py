"""Requests that can never be served, and what each of them fails at."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastsim.config import Config
from fastsim.workload import Workload

Mask = npt.NDArray[np.bool_]
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cause:
    """Why `count` requests can never be served: `sentence` names the key and the worst of them."""

    count: int
    sentence: str


def causes(config: Config, workload: Workload) -> tuple[Cause, ...]:
    """Every cause there is, each with the requests that it hits first; empty when everybody can be served."""
    found = []
    left = np.ones(workload.num_requests, np.bool_)
    for mask, sentence in _tests(config, workload):
        hit = mask & left
        left &= ~mask
        if count := int(hit.sum()):
            found.append(Cause(count, sentence(hit)))
    return tuple(found)


def causes_text(found: tuple[Cause, ...]) -> str:
    """The causes as a clause."""
    return "; ".join(f"{cause.count:,} {cause.sentence}" for cause in found)


def cause_of(config: Config, workload: Workload, request: int) -> str | None:
    """What one request fails at; None: nothing."""
    only = np.arange(workload.num_requests) == request
    return next((sentence(only) for mask, sentence in _tests(config, workload) if mask[request]), None)


Test = tuple[Mask, Callable[[Mask], str]]


def _tests(config: Config, workload: Workload) -> list[Test]:
    """What the engine asks of a request, in its order: who fails, and how to say it of some of those."""
    engine = config.engine
    prompt = workload.prompt_tokens.astype(np.int64)
    output = workload.output_tokens.astype(np.int64)
    usable, size = engine.usable_blocks, engine.block_size
    if engine.name == "blis":
        limit = int(config.value("engine.blis.max_model_len"))
        whole = prompt + output
        too_long = (prompt >= limit) | (whole > limit) if limit else np.zeros(len(prompt), np.bool_)
        return [
            (too_long, _too_long(whole, limit, "engine.blis.max_model_len", "prompt and output")),
            (-(-prompt // size) > usable, _too_big(-(-prompt // size), usable, "for its prompt")),
        ]
    if engine.name == "vllm-rlt":
        planed = config.value("engine.rlt.layout") == "last_exited"
        planes = int(config.value("engine.rlt.max_loops")) if planed else 1
        held = prompt + np.maximum(workload.max_tokens, output) - 1
        blocks = -(-held // size) * planes
        return [(blocks > usable, _too_big(blocks, usable, "for its prompt and declared output"))]
    if engine.name.startswith("sglang"):
        page = int(config.value("engine.sglang.page_size"))
        given = config.value("engine.sglang.max_total_tokens")
        pool = (usable * size if given is None else int(given)) // page * page
        limit, key = min((engine.max_model_len, "engine.max_model_len"), (pool, "the KV pool"))
        return [(prompt >= limit - 6, _too_long(prompt, limit, key, "prompt"))]
    limit = engine.max_model_len
    blocks = -(-(np.minimum(prompt + output, limit) - 1) // size)
    return [
        (prompt >= limit, _too_long(prompt, limit, "engine.max_model_len", "prompt")),
        (blocks > usable, _too_big(blocks, usable, "at its end")),
    ]


def _too_long(tokens: Int64Array, limit: int, key: str, what: str) -> Callable[[Mask], str]:
    words = "too long a prompt: it leaves no room for an output" if what == "prompt" else f"too long a {what}"

    def sentence(hit: Mask) -> str:
        return f"with {words} in {key} = {limit:,} tokens ({_up_to(tokens[hit])})"

    return sentence


def _too_big(blocks: Int64Array, usable: int, when: str) -> Callable[[Mask], str]:
    def sentence(hit: Mask) -> str:
        return f"with too few KV blocks {when}: {usable:,} are usable, and it takes {_up_to(blocks[hit])}"

    return sentence


def _up_to(values: Int64Array) -> str:
    low, high = int(values.min()), int(values.max())
    return f"{high:,}" if low == high else f"{low:,} to {high:,}"
