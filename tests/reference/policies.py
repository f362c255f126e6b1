"""Every knob with its default, and the policies that a knob chooses between: one function or small class each."""

import math
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from tests.reference.kv_groups import ceil_div, least_blocks, most_blocks
from tests.reference.requests import Request, RequestState

ENGINES = ("vllm-0.33.0", "vllm-0.16.0", "vllm-0.33.0-async")

DEFAULTS: dict[str, Any] = {
    "engine": "vllm-0.33.0",
    # vLLM's own
    "block_size": 16,
    "num_gpu_blocks": None,  # required; counts the null block
    "max_num_seqs": 256,
    "max_num_batched_tokens": 2048,
    "max_num_scheduled_tokens": None,
    "max_model_len": 8192,
    "long_prefill_token_threshold": 0,
    "long_prefill_token_threshold_adaptive": False,
    "enable_chunked_prefill": True,
    "enable_prefix_caching": True,
    "policy": "fcfs",
    "scheduler_reserve_full_isl": None,  # true, but false under 0.16.0
    "watermark": 0.0,
    "max_num_active_seqs": None,
    "prefill_schedule_interval": 1,
    "kv_cache_groups": None,  # one full-attention group of block_size
    "prefix_cache_retention_interval": 0,
    "spec_method": None,
    "num_speculative_tokens": 0,
    "spec_lookahead_hashes": True,
    "spec_accept_permille": [],
    "spec_seed": 0,
    "spec_draft": "fixed",
    "spec_draft_us": 0.0,
    "spec_draft_us_per_token": 0.0,
    "max_num_queued_reqs": None,
    "max_num_queued_tokens": None,
    # what a preemption costs, and who is preempted
    "preemption_mode": "recompute",
    "swap_space_blocks": 0,
    "swap_us_per_block": 0.0,
    "victim": None,  # policy's
    "boost_after": 0,
    "seed": 0,
    "policy_file": None,  # of one's own: see policy_file.py
    # who is admitted
    "queue_order": None,  # policy's
    "aging_per_s": 0.1,
    "admission": "greedy",
    "projection": "oracle",
    "overcommit": 1.0,
    "bypass": False,
    "admission_scan_limit": 64,
    "max_admission_bypasses": 8,
    "count_restores": True,
    "blocked_checks_limit": True,
    "slot_preempt": False,
    "slot_preempt_preflight": True,
    # how many run, and what is refused
    "running_cap": "fixed",
    "feedback_rule": "threshold",
    "feedback_window": 100,
    "feedback_threshold": 0.1,
    "feedback_recovery": 100,
    "backpressure_threshold": 0.0,
    "backpressure_action": "reject",
    "backpressure_window": 100,
    "unservable": "reject",
    # step time
    "b0_us": 5752.71,
    "b1_us_per_prefill_token": 17.25,
    "b2_us_per_decode_token": 6.0,
    "b3_us_per_context_token": 0.0,
    "b4_us_per_prefill_pair": 0.0,
    "b5_us_per_prefill_step": 0.0,
    "b6_us_per_window_token": 0.0,
    "window_tokens": 0,
    "table_tokens": (),
    "table_us": (),
    "table_scale": 1.0,
    "max_cudagraph_capture_size": 0,
    # clients and the run
    "concurrency": None,
    "timeout_s": None,
    "retry_after_s": 1.0,
    "horizon_us": None,
    "max_steps": 10**8,
    "detect_livelock": True,
    "livelock_steps": None,
}


def complete(config: dict[str, Any]) -> SimpleNamespace:
    """The configuration with every default filled in; a key nobody knows is an error."""
    unknown = sorted(set(config) - set(DEFAULTS))
    if unknown:
        raise KeyError(f"unknown keys: {unknown}")
    full = SimpleNamespace(**(DEFAULTS | config))
    if full.engine not in ENGINES:
        raise ValueError(f"unknown engine {full.engine!r}")
    if full.num_gpu_blocks is None:
        raise ValueError("num_gpu_blocks is required")
    if full.scheduler_reserve_full_isl is None:
        full.scheduler_reserve_full_isl = full.engine != "vllm-0.16.0"
    full.victim = full.victim or {"fcfs": "tail", "priority": "priority"}[full.policy]
    full.queue_order = full.queue_order or full.policy
    _check_groups(full)
    return full


def _check_groups(config: SimpleNamespace) -> None:
    """What groups and drafts cannot be combined with."""
    groups = config.kv_cache_groups or []
    if not (groups or config.spec_method):
        return
    thresholds = config.long_prefill_token_threshold
    for refused, why in (
        (config.engine == "vllm-0.16.0", "the rules are those of 0.33.0"),
        (config.preemption_mode != "recompute", "swap and restart know one full-attention group and no drafts"),
        (config.slot_preempt and not config.slot_preempt_preflight, "slot preemption tests first"),
        (
            config.spec_method and 0 < thresholds < 1 + config.num_speculative_tokens,
            "vLLM fails when a long-prefill threshold cuts a padded decode",
        ),
        (config.spec_draft == "hashed" and config.engine.endswith("-async"), "asynchronous drafts are always k"),
        (
            not config.spec_lookahead_hashes and any(group["kind"] == "chunked" for group in groups),
            "block drop and chunked attention exclude each other",
        ),
    ):
        if refused:
            raise ValueError(why)


def is_unservable(config: SimpleNamespace, request: Request) -> bool:
    """It is refused before the first step: under every setting if its prompt is too long for the model.

    Under `unservable = "reject"` also if it needs more KV than there is. The last sampled token needs none.
    """
    if request.prompt_tokens >= config.max_model_len:
        return True
    total = min(request.prompt_tokens + request.output_tokens, config.max_model_len)
    usable = config.num_gpu_blocks - 1
    outgrows_pool = least_blocks(config, request.prompt_tokens, total) > usable
    return bool(config.unservable == "reject" and outgrows_pool)


# --- Who is preempted -----------------------------------------------------------------------------------------------


def is_protected(config: SimpleNamespace, request: RequestState) -> bool:
    """`boost_after` preemptions of any kind protect a request for good."""
    return bool(config.boost_after) and request.num_preemptions >= config.boost_after


def _last_of(running: Sequence[RequestState], key: Callable[[RequestState], Any]) -> RequestState:
    """The running request with the largest key; the later position on ties."""
    return max(enumerate(running), key=lambda pair: (key(pair[1]), pair[0]))[1]


VICTIMS: dict[str, Callable[[Sequence[RequestState]], RequestState]] = {
    "tail": lambda running: running[-1],
    # `max` returns the first of equals, as vLLM's does: the one exception to "the later position on ties".
    "priority": lambda running: max(running, key=lambda r: (r.priority, r.arrival_us)),
    "least_computed": lambda running: _last_of(running, lambda r: -r.num_computed),
    "most_computed": lambda running: _last_of(running, lambda r: r.num_computed),
    "least_generated": lambda running: _last_of(running, lambda r: -r.generated),
    "most_blocks": lambda running: _last_of(running, lambda r: len(r.blocks)),
}
"""Victim of a list of candidates in running order. C is that before the step; blocks are those held at this moment,
with those the victim was given in this step."""


def splitmix64(x: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014), after its increment."""
    mask = 2**64 - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


class VictimChooser:
    """The policy `victim` under the protection of `boost_after`.

    `random` is splitmix64((seed * 0x9E3779B97F4A7C15 + number of the decision) mod 2**64) modulo the number of
    candidates, which are in running order. Only decisions of this kind are numbered, from 0: one that finds every
    running request protected is made by the protected rule and has no number.
    """

    def __init__(self, config: SimpleNamespace, own: Any = None) -> None:
        self.config = config
        self.own = own
        self.random_decisions = 0

    def __call__(self, running: Sequence[RequestState]) -> RequestState:
        candidates = [r for r in running if not is_protected(self.config, r)] if self.config.boost_after else running
        if not candidates:
            return max(running, key=lambda r: (r.arrival_us, r.index))
        if self.own is not None and self.own.victim_key is not None:
            return self.own.choose_victim(running, candidates)
        if self.config.victim == "random":
            number = (self.config.seed * 0x9E3779B97F4A7C15 + self.random_decisions) % 2**64
            self.random_decisions += 1
            return candidates[splitmix64(number) % len(candidates)]
        return VICTIMS[self.config.victim](candidates)


def slot_victim(
    config: SimpleNamespace, running: Sequence[RequestState], candidate: RequestState
) -> RequestState | None:
    """Whom `candidate` may push off a slot: unprotected, strictly less urgent; least urgent, then latest arrival.

    The first in running order on ties, as in vLLM's priority victim. A request admitted in this very step may be it.
    """
    less_urgent = [r for r in running if r.priority > candidate.priority and not is_protected(config, r)]
    return max(less_urgent, key=lambda r: (r.priority, r.arrival_us), default=None)


# --- In which order requests wait -----------------------------------------------------------------------------------


class WaitingQueue:
    """The waiting requests, always sorted: protected ones by (arrival, index), then the others by `queue_order`.

    Under fcfs the others stand as they were pushed: arrivals at the back, preempted ones at the front. Every other
    order is by a key fixed for life, ties by (arrival, index), and the front is no privilege.
    """

    def __init__(self, config: SimpleNamespace, own: Any = None) -> None:
        self.config = config
        self.own = own
        self.keys: dict[int, tuple[Any, ...]] = {}
        self.requests: list[RequestState] = []
        self.front_ticket = 0
        self.back_ticket = 0

    def _place(self, request: RequestState, ticket: int) -> tuple[Any, ...]:
        if is_protected(self.config, request):
            return (0, request.arrival_us, request.index)
        if self.own is not None and self.own.queue_key is not None:
            waiting = len(self.requests) + (request.index not in self.keys)
            return (1, self.own.order_key(request, waiting), request.arrival_us, request.index)
        match self.config.queue_order:
            case "fcfs":
                return (1, ticket)
            case "priority":
                key: float = request.priority
            case "sjf":
                key = request.prompt
            case "aging":
                key = request.priority + self.config.aging_per_s * (request.arrival_us / 1e6)
        return (1, key, request.arrival_us, request.index)

    def compute_keys_anew(self) -> None:
        """The file says that its keys change: before every scan."""
        for request in self.requests:
            self.keys[request.index] = self._place(request, 0)
        self.requests.sort(key=lambda r: self.keys[r.index])

    def _insert(self, request: RequestState, ticket: int) -> None:
        self.keys[request.index] = self._place(request, ticket)
        insort(self.requests, request, key=lambda r: self.keys[r.index])

    def push(self, request: RequestState) -> None:
        self.back_ticket += 1
        self._insert(request, self.back_ticket)

    def push_preempted(self, request: RequestState) -> None:
        self.front_ticket -= 1
        self._insert(request, self.front_ticket)

    def remove(self, request: RequestState) -> None:
        del self.keys[request.index]
        self.requests.remove(request)

    def place(self, request: RequestState) -> int:
        """How many stand before it."""
        return self.requests.index(request)

    def __iter__(self) -> Iterator[RequestState]:
        return iter(self.requests)

    def __len__(self) -> int:
        return len(self.requests)

    def __contains__(self, request: RequestState) -> bool:
        return request.index in self.keys


# --- Who is admitted ------------------------------------------------------------------------------------------------


class Projection:
    """`admission = "projected"`: will everybody who runs still fit when grown to the expected length?

    `mean` is the mean output of the whole workload, rounded up. A request without declared `max_tokens` is expected to
    use all that max_model_len leaves.
    """

    def __init__(self, config: SimpleNamespace, workload: Sequence[Request]) -> None:
        self.config = config
        self.limit = config.overcommit * (config.num_gpu_blocks - 1)
        self.mean_output = ceil_div(sum(r.output_tokens for r in workload), max(len(workload), 1))

    def expected_blocks(self, request: RequestState) -> int:
        match self.config.projection:
            case "oracle":
                output = request.spec.output_tokens
            case "max_tokens":
                declared = request.spec.max_tokens
                output = self.config.max_model_len - request.prompt if declared is None else declared
            case "mean":
                output = self.mean_output
        total = min(max(request.prompt + output, request.num_tokens + 1), self.config.max_model_len)
        return most_blocks(self.config, total)

    def admits(self, candidate: RequestState, running: Sequence[RequestState]) -> bool:
        """With nobody running it never blocks."""
        if self.config.admission == "greedy" or not running:
            return True
        return bool(sum(map(self.expected_blocks, [*running, candidate])) <= self.limit)


# --- How many run ---------------------------------------------------------------------------------------------------


class RunningCap:
    """The policy's limit on running requests: fixed, auto (from the mean lengths), or fed back from preemptions.

    `consecutive` looks at the same rate as the other rules (preemptions of the last `feedback_window` non-empty steps
    over the window) and fires when it has been above 1.0 after ten non-empty steps in a row. A firing sets the cap to
    its formula even where that is more than the cap was. Recovery counts steps without a preemption in a row.
    """

    CONSECUTIVE_RATE = 1.0
    CONSECUTIVE_STEPS = 10

    def __init__(self, config: SimpleNamespace, workload: Sequence[Request]) -> None:
        self.config = config
        self.cap = config.max_num_seqs
        if config.running_cap == "auto" and workload:
            tokens = sum(r.prompt_tokens + r.output_tokens for r in workload)
            blocks_each = most_blocks(config, ceil_div(tokens, len(workload)))
            self.cap = min(config.max_num_seqs, max(1, (config.num_gpu_blocks - 1) // blocks_each))
        self.window: deque[int] = deque(maxlen=config.feedback_window)
        self.calm_steps = 0
        self.hot_steps = 0
        self.cap_min = self.cap
        self.cap_steps = 0

    def after_step(self, preemptions: int, running: int) -> None:
        """Called after each non-empty step with the requests that run then."""
        self.cap_steps += self.cap
        if self.config.running_cap == "feedback":
            self._feed_back(preemptions, running)
            self.cap_min = min(self.cap_min, self.cap)

    def _feed_back(self, preemptions: int, running: int) -> None:
        self.window.append(preemptions)
        rate = sum(self.window) / self.config.feedback_window
        full = len(self.window) == self.config.feedback_window
        self.hot_steps = self.hot_steps + 1 if full and rate > self.CONSECUTIVE_RATE else 0
        if self.config.feedback_rule == "consecutive":
            fires = self.hot_steps >= self.CONSECUTIVE_STEPS
        else:
            fires = full and rate > self.config.feedback_threshold
        if fires:
            target = running - 1
            if self.config.feedback_rule == "proportional":
                target = math.floor(running * (1.0 - rate))
            self.cap = max(target, 1)
            self.window.clear()
            self.calm_steps = self.hot_steps = 0
            return
        self.calm_steps = self.calm_steps + 1 if preemptions == 0 else 0
        if self.calm_steps == self.config.feedback_recovery:
            self.cap = min(self.cap + 1, self.config.max_num_seqs)
            self.calm_steps = 0

    def state(self) -> tuple[Any, ...]:
        return (self.cap, tuple(self.window), self.calm_steps, self.hot_steps)


# --- What is refused ------------------------------------------------------------------------------------------------


class Backpressure:
    """Preemptions per non-empty step over the last `backpressure_window` of them; steps not yet made count as calm."""

    def __init__(self, config: SimpleNamespace) -> None:
        self.config = config
        self.window: deque[int] = deque(maxlen=config.backpressure_window)

    def after_step(self, preemptions: int) -> None:
        """Called after each non-empty step."""
        if self.config.backpressure_threshold:
            self.window.append(preemptions)

    def exceeded(self) -> bool:
        if not self.config.backpressure_threshold:
            return False
        return bool(sum(self.window) / self.config.backpressure_window > self.config.backpressure_threshold)

    def clear(self) -> None:
        self.window.clear()
