"""The arrays a run works on, allocated once and reset in place by each run."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.engines.outputs import Gaps, RequestLog, new_request_log
from fastsim.engines.trtllm.inputs import I64, TrtllmWorkload


class Requests(NamedTuple):
    """Live state of the requests, each int64 of shape (n,).

    ================  ======  ===================================================================================
    array             unit    meaning
    ================  ======  ===================================================================================
    status            Status
    limit             tokens  it may generate
    target            tokens  at which it ends
    context           tokens  to compute before it can generate: its prompt, after a pause what it generated too
    computed          tokens  of its context
    in_kv             tokens  with a place in the cache
    generated         tokens
    blocks            blocks  it holds; 0: it has not started
    whole             blocks  of its prompt and all it may generate
    most_computed     tokens  most that it ever had in the cache
    pauses            count
    waiting_since_us  us      start of its present or latest wait
    chunk             tokens  of its context in the step under way
    ================  ======  ===================================================================================
    """

    status: I64
    limit: I64
    target: I64
    context: I64
    computed: I64
    in_kv: I64
    generated: I64
    blocks: I64
    whole: I64
    most_computed: I64
    pauses: I64
    waiting_since_us: I64
    chunk: I64


class Lists(NamedTuple):
    """Requests in lists of shape (n,); their lengths are scalars of `SCALARS_DTYPE`.

    `active`: arrived and not finished, by arrival. Of the step under way: `fitting` and `paused` (the capacity
    scheduler's), `contexts` and `decodes` (the micro-batch scheduler's). `sent`: those that clients sent, by arrival.
    `lanes`, shape (tokens of a block,): running requests by the steps until they need a block.
    """

    active: I64
    fitting: I64
    paused: I64
    contexts: I64
    decodes: I64
    sent: I64
    lanes: I64


class Record(NamedTuple):
    """What steps decided, a row a step in arrays of shape (rows,); empty unless recorded."""

    t_us: I64
    context_tokens: I64
    contexts: I64
    decodes: I64
    paused: I64
    free_blocks: I64
    active: I64


class State(NamedTuple):
    """Everything a run works on."""

    wl: TrtllmWorkload
    req: Requests
    lists: Lists
    log: RequestLog
    gaps: Gaps
    record: Record


SCALARS_DTYPE = np.dtype(
    [
        (name, np.int64)
        for name in (
            "num_requests",
            "now_us",
            "next_own",  # place in `order` of the next request that arrives by itself
            "num_own",
            "next_sent",  # place in `sent`
            "num_sent",
            "next_client",  # the request that a client sends next
            "clients",
            "num_active",
            "num_started",  # of them hold blocks
            "num_generating",  # of them have their context
            "free",  # blocks
            "num_fitting",
            "num_paused",
            "num_contexts",
            "num_decodes",
            "context_tokens",
            "finished",  # in the step under way
            "blocked",  # nobody behind the last one that fits can enter before somebody leaves
            "plain",  # in the step before all that fit decoded, and nobody came, was paused or left
            "step_us",  # of the step before
            "waiting_peak",
            "rows",  # of the record
        )
    ]
)
"""Scalars of a run."""


def new_state(
    workload: TrtllmWorkload, tokens_per_block: int, gaps: Gaps, log: RequestLog | None = None, rows: int = 0
) -> State:
    """Arrays for runs on a workload, with blocks of at most `tokens_per_block` tokens."""
    n = workload.num_requests

    def empty(size: int) -> I64:
        return np.zeros(size, np.int64)

    return State(
        workload,
        Requests(*(empty(n) for _ in Requests._fields)),
        Lists(*(empty(tokens_per_block if name == "lanes" else n) for name in Lists._fields)),
        new_request_log(n) if log is None else log,
        gaps,
        Record(*(empty(rows) for _ in Record._fields)),
    )


def new_scalars(num_requests: int) -> npt.NDArray[np.void]:
    """The record of scalars a run works on, as an array of one."""
    scalars = np.zeros(1, SCALARS_DTYPE)
    scalars["num_requests"] = num_requests
    return scalars
