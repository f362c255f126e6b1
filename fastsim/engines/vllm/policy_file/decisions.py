"""From a policy's functions to what the kernels call: one decision a hook, in a module of its own, and its address.

The module is kept beside the compiled kernels, named by what it is made of. A decision reads only the fields that the
function reads, and has the function inlined.
"""

import importlib.util
import os
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from fastsim._jit import INTERPRETED, helper
from fastsim._jit.cache import cache_folder
from fastsim._jit.indirect import address_of, state_type
from fastsim.engines.vllm.policy_text import checked
from fastsim.engines.vllm.policy_text.fields import ADMIT, CAP, QUEUE, VICTIM
from fastsim.engines.vllm.policy_text.source import PolicySource, load_policy
from fastsim.errors import InputError, PolicyError

WAITING = {
    "index": "i",
    "arrival_us": "s.log.arrival_us[i]",
    "waiting_since_us": "s.req.waiting_since_us[i]",
    "priority": "s.wl.priority[i]",
    "prompt_tokens": "s.wl.prompt_tokens[i]",
    "max_tokens": "output_limit(s, i)",
    "output_tokens": "s.wl.output_tokens[i]",
    "generated_tokens": "s.req.num_tokens[i] - s.wl.prompt_tokens[i]",
    "tokens": "s.req.num_tokens[i]",
    "computed_tokens": "s.req.num_computed_tokens[i]",
    "preemptions": "s.log.num_preemptions[i]",
}
"""Fields of a waiting request."""
REQUEST = {
    QUEUE: WAITING,
    ADMIT: WAITING
    | {
        "computed_tokens": 's.st["candidate_computed"]',
        "cached_tokens": 's.st["candidate_hits"] * s.cfg["block_size"]',
        "new_tokens": 's.st["candidate_tokens"]',
        "blocks": "candidate_blocks(s, i)",
    },
    VICTIM: WAITING
    | {
        "generated_tokens": "generated_tokens(s, i)",
        "tokens": "generated_tokens(s, i) + s.wl.prompt_tokens[i]",
        "computed_tokens": "computed_tokens(s, i)",
        "blocks": "held_blocks(s, i)",
        "exclusive_blocks": "blocks_leaving(s, i)",
        "position": "position",
    },
    CAP: {},
}
"""Fields of the request that a hook is asked about."""
VIEW = {
    "now_us": 's.st["now_us"]',
    "step": 's.tot["steps"] + s.st["in_flight"]',
    "free_blocks": 's.st["free"]',
    "usable_blocks": 's.st["usable"]',
    "block_size": 's.cfg["block_size"]',
    "running": 's.st["running"]',
    "waiting": "waiting_requests(s)",
    "prefilling": "prefilling_requests(s)",
    "step_prefill_tokens": 's.st["prefill_tokens"]',
}

_HEAD = '''"""Decisions of {name} ({digest}), made by fastsim."""

from typing import NamedTuple

import numpy as np

from fastsim.engines.vllm.lanes import computed_tokens
from fastsim.engines.vllm.policy_text.checked import finite
from fastsim.engines.vllm.policy_file.views import (
    candidate_blocks, output_limit, prefilling_requests, waiting_requests
)
from fastsim.engines.vllm.preemption import generated_tokens, held_blocks
from fastsim.engines.vllm.what_ifs import blocks_leaving
'''
_TUPLE = """

class {name}(NamedTuple):
    {fields}
"""
_BODIES = {
    VICTIM: """

def decide_victim_key(s, i):
    view = {view}
    best = -1
    best_key = 0.0
    position = 0
    i = s.st["running_head"]
    while i != -1:
        if not s.req.protected[i]:
            key = finite(victim_key(view, {request}), {where!r})
            if best == -1 or key {beats} best_key:
                best = i
                best_key = key
        position += 1
        i = s.req.run_next[i]
    return float(best)
""",
    QUEUE: """

def decide_queue_key(s, i):
    return finite(queue_key({view}, {request}), {where!r})
""",
    ADMIT: """

def decide_admit(s, i):
    return 1.0 if admit({view}, {request}) else 0.0
""",
    CAP: """

def decide_cap(s, i):
    return finite(cap({view}), {where!r})
""",
}


def module_text(source: PolicySource) -> str:
    """The module of a policy's decisions."""
    text = _HEAD.format(name=source.name, digest=source.digest)
    for hook in source.reads:
        classes, made = given(source, hook, VIEW, REQUEST[hook])
        text += classes + _BODIES[hook].format(
            beats=">=" if source.victim_ties == "last" else ">", where=source.where(hook), **made
        )
    return text


def given(
    source: PolicySource, hook: str, view: Mapping[str, str], request: Mapping[str, str]
) -> tuple[str, dict[str, str]]:
    """What a hook is given, of expressions by field: classes, and the text that makes each of its parameters."""
    classes, made = "", {}
    for name, expressions, read in zip(("View", "Request"), (view, request), source.reads[hook], strict=True):
        fields = [field for field in expressions if field in read] or list(expressions)[:1]
        if fields:
            kind = f"{name}Of{hook.title().replace('_', '')}"
            classes += _TUPLE.format(name=kind, fields="\n    ".join(f"{field}: int" for field in fields))
            made[name.lower()] = f"{kind}({', '.join(f'np.int64({expressions[field]})' for field in fields)})"
    return classes, made


@cache
def addresses_of(source: PolicySource) -> Mapping[str, int]:
    """Addresses of a policy's decisions in this process, by hook; compiled, or read from the cache.

    Raises
    ------
    InputError
        When the compiler does not take a function.
    """
    module = module_of(source, module_text(source))
    kind = None if INTERPRETED else _state_type()
    return {hook: _address(source, hook, getattr(module, f"decide_{hook}"), kind) for hook in source.reads}


def _address(source: PolicySource, hook: str, decision: Any, kind: Any) -> int:
    try:
        return address_of(decision, kind)
    except Exception as error:  # noqa: BLE001 - whatever the compiler says, it is about the user's function
        words = " ".join(str(error).split())[:300]
        raise InputError(f"{source.name}, line {source.lines[hook]}: {hook} does not compile: {words}") from None


def module_of(source: PolicySource, text: str) -> ModuleType:
    """The module of a text, in which a policy's functions have their names."""
    key = blake2b(f"{source.name}\0{source.digest}\0{text}".encode(), digest_size=12).hexdigest()
    name = f"fastsim_policy_{key}"
    path = _written(cache_folder() / "policies" / f"{name}.py", text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if not INTERPRETED:
        _teach()
    vars(module).update(source.functions(helper))
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _written(path: Path, text: str) -> Path:
    """The file with this text. One that is there stays: the compiler's cache goes by its time, too."""
    if not (path.exists() and path.read_text(encoding="utf-8") == text):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, spare = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(spare).replace(path)
    return path


@cache
def _teach() -> None:
    from fastsim._jit.checking import teach

    words = dict.fromkeys(("add", "sub", "mul"), checked.TOO_LARGE) | {"nonzero": checked.BY_ZERO}
    words |= {"finite": checked.NOT_FINITE} | dict.fromkeys(("trunc", "rint", "floor", "ceil"), checked.NOT_WHOLE)
    operations = {operation.__name__: operation for operation in checked.OPERATIONS}
    teach(operations, PolicyError, words, checked.LARGEST)


@cache
def _state_type() -> Any:
    """The type of what kernels hand on: of the arrays of a run without requests."""
    from fastsim.engines.vllm.codes import CONFIG_DTYPE
    from fastsim.engines.vllm.memory import State, new_memory, workload_arrays
    from fastsim.engines.vllm.recorder import new_recorder
    from fastsim.metrics.columns import PARAMS_DTYPE
    from fastsim.workload import Workload

    records = np.zeros(1, CONFIG_DTYPE)
    records["block_size"] = 1
    nothing = workload_arrays(Workload.from_arrays(np.zeros(0, np.int64), np.zeros(0, int), np.zeros(0, int)))
    memory = new_memory(records, nothing)
    parts = (memory.requests, memory.queues, memory.blocks, memory.log, memory.gaps)
    state = State(records, np.zeros(1, PARAMS_DTYPE), memory.scalars, memory.totals, nothing, *parts, new_recorder(1))
    return state_type({"cfg": True, "table": None, "st": False, "tot": False}, state)


def addresses(path: str | None) -> Mapping[str, int]:
    """Addresses of the decisions of a policy file; none: no decisions."""
    return {} if path is None else addresses_of(load_policy(path))
