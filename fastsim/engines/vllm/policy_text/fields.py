"""What a policy's functions are given: `view`, the scheduler at this moment, and `request`, the one asked about.

All are integers. Which of them a function reads, found in its syntax tree, decides which jumps in time stay exact.
"""

from typing import NamedTuple

VICTIM, QUEUE, ADMIT, CAP = "victim_key", "queue_key", "admit", "cap"
HOOKS = (VICTIM, QUEUE, ADMIT, CAP)
"""The functions that a file may define."""


class Hook(NamedTuple):
    """A function that the scheduler asks: its parameters, and what it decides."""

    parameters: tuple[str, ...]
    what: str


SIGNATURES = {
    VICTIM: Hook(("view", "request"), "the running request with the highest key is preempted"),
    QUEUE: Hook(("view", "request"), "the waiting request with the lowest key is first"),
    ADMIT: Hook(("view", "request"), "whether the head of the queue may start, asked when it would otherwise"),
    CAP: Hook(("view",), "the most requests that run, below every other cap; at least 1 counts"),
}


class Field(NamedTuple):
    """One attribute: what it is, and the hooks that can read it."""

    what: str
    hooks: tuple[str, ...] = HOOKS


_RUNNING, _IN_STEP, _OF_REQUESTS = (VICTIM,), (VICTIM, ADMIT, CAP), (VICTIM, QUEUE, ADMIT)

VIEW = {
    "now_us": Field("the clock, in microseconds"),
    "step": Field("schedule() calls before this one"),
    "free_blocks": Field("KV blocks that nobody holds"),
    "usable_blocks": Field("all KV blocks that requests can hold"),
    "block_size": Field("tokens of a block"),
    "running": Field("requests that run"),
    "waiting": Field("requests that wait, the one asked about included"),
    "prefilling": Field("requests that run and are in the middle of their prefill", _IN_STEP),
    "step_prefill_tokens": Field("prefill tokens scheduled in this step so far", _IN_STEP),
}
REQUEST = {
    "index": Field("its number in the workload", _OF_REQUESTS),
    "arrival_us": Field("when it arrived", _OF_REQUESTS),
    "waiting_since_us": Field("when it last entered the queue: its arrival, or a preemption", _OF_REQUESTS),
    "priority": Field("smaller is more urgent", _OF_REQUESTS),
    "prompt_tokens": Field("tokens of its prompt", _OF_REQUESTS),
    "max_tokens": Field("the output limit it declared; none: what max_model_len leaves", _OF_REQUESTS),
    "output_tokens": Field("output tokens it will really generate (no scheduler knows them)", _OF_REQUESTS),
    "generated_tokens": Field("output tokens delivered so far", _OF_REQUESTS),
    "tokens": Field("prompt and generated tokens", _OF_REQUESTS),
    "computed_tokens": Field("tokens whose KV is there at the start of the step; a candidate's hits", _OF_REQUESTS),
    "preemptions": Field("how often it was preempted", _OF_REQUESTS),
    "blocks": Field("KV blocks it holds; for a candidate, those of all its tokens but its hits", (VICTIM, ADMIT)),
    "exclusive_blocks": Field("KV blocks that become free if it goes: those that no other holds", _RUNNING),
    "position": Field("its place in the running list, from 0: the order of admission", _RUNNING),
    "cached_tokens": Field("tokens found in the prefix cache", (ADMIT,)),
    "new_tokens": Field("tokens it would be given in this step", (ADMIT,)),
}
FIELDS = {"view": VIEW, "request": REQUEST}

STEADY = frozenset({"usable_blocks", "block_size", "running"})
"""Fields of the view that no jump changes."""
