"""Why a request waited: what stopped the waiting loop of every step that it spent in the queue.

vLLM's waiting loop goes no further than the first request it cannot admit, so whoever stands behind the head waits for
what the head waits for. The tests are done again in the loop's order, with what the record says of the step.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from fastsim.analysis.explain.history import History
from fastsim.engines.outputs import Status
from fastsim.engines.vllm.codes import Admission as AdmissionRule
from fastsim.engines.vllm.codes import PreemptionMode, QueueOrder, RunningCap

FCFS, PRIORITY, SJF = int(QueueOrder.FCFS), int(QueueOrder.PRIORITY), int(QueueOrder.SJF)
RESTART, SWAP = int(PreemptionMode.RESTART), int(PreemptionMode.SWAP)
AUTO, FEEDBACK = int(RunningCap.AUTO), int(RunningCap.FEEDBACK)
NEVER_QUEUED = tuple(int(status) for status in (Status.PENDING, Status.REJECTED, Status.UNSERVABLE, Status.HELD))
Key = tuple[int, float, float, int]


class Reason(StrEnum):
    """What stood between the head of the queue and the running list."""

    BUSY = "the step under way"  # it came, or its own last output did, while a step ran
    PREEMPTION = "a step that preempts admits nobody"
    BUDGET = "token budget of the step"
    SLOTS = "running slots"
    CAP = "fed-back running cap"
    CAP_OR_BLOCKS = "fed-back running cap, or KV blocks"
    DEFERRED = "prefill_schedule_interval, or another rule of admission"
    CHUNKING = "no room for its whole prompt (chunked prefill is off)"
    PROJECTION = "projected admission"
    GATE = "KV blocks for all its tokens (full-sequence gate)"
    BLOCKS = "KV blocks"
    WATERMARK = "KV blocks held free by the watermark"
    BYPASS = "KV blocks, or the limits of bypass"
    OTHER = "KV blocks, or another rule of admission"


class Blocked(NamedTuple):
    """The time from one schedule() call to the next, for a request in the queue with `ahead` others before it.

    `head` is who the waiting loop stopped at, which would have needed `needed_blocks` (prefix hits left out, watermark
    included) where `free_blocks` were.
    """

    row: int
    start_us: int
    end_us: int
    reason: Reason
    ahead: int
    head: int
    needed_blocks: int
    free_blocks: int


class Queue:
    """The waiting queue of a run, replayed row by row."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.members: list[tuple[Key, int]] = []
        self.key: dict[int, Key] = {}
        self.length: dict[int, int] = {}
        self.on_host: set[int] = set()
        self.stale_until: dict[int, int] = {}
        self.evicted: dict[int, int] = {}
        status, arrival = history.log.status, history.log.arrival_us
        coming = [i for i in range(len(status)) if int(status[i]) not in NEVER_QUEUED]
        self.coming = sorted(((int(arrival[i]), i) for i in coming), reverse=True)
        deadlines = [i for i in coming if status[i] == Status.TIMED_OUT]
        self.deadlines = sorted(((int(history.log.finish_us[i]), i) for i in deadlines), reverse=True)
        self.finishing: list[tuple[int, list[int]]] = []
        self.next_eviction = self.next_admission = 0

    def play(self, row: int) -> None:
        """Everything that the schedule() call of `row` found and did."""
        history = self.history
        now_us = history.steps[row].t_us
        while self.finishing and self.finishing[0][0] <= now_us:  # asynchronous: it may finish while it waits
            for request in self.finishing.pop(0)[1]:
                self._remove(request)
        while self.coming and self.coming[-1][0] <= now_us:
            self._insert(self.coming.pop()[1])
        while self.deadlines and self.deadlines[-1][0] <= now_us:
            self._remove(self.deadlines.pop()[1])
        while self.next_admission < len(history.admissions) and history.admissions[self.next_admission].row == row:
            self._remove(history.admissions[self.next_admission].request)
            self.next_admission += 1
        while self.next_eviction < len(history.evictions) and history.evictions[self.next_eviction].row == row:
            self._evict(row)
            self.next_eviction += 1
        if history.steps[row].finished:
            self.finishing.append((history.steps[row].end_us, history.steps[row].finished))

    def head(self, row: int) -> int | None:
        """Who the waiting loop would look at next: not one whose output is still in flight."""
        now_us = self.history.steps[row].t_us
        for _, request in self.members:
            if self.stale_until.get(request, 0) <= now_us:
                return request
        return None

    def ahead(self, request: int) -> int:
        """Requests before this one; -1 when it does not wait."""
        key = self.key.get(request)
        return -1 if key is None else bisect_left(self.members, (key, request))

    def _evict(self, row: int) -> None:
        history = self.history
        eviction = history.evictions[self.next_eviction]
        request = eviction.victim
        self.evicted[request] = self.evicted.get(request, 0) + 1
        self._insert(request, preempted=True)
        if eviction.swapped:
            self.on_host.add(request)
        if history.config["asynchronous"]:
            ran = [span.end_us for span in history.spans[request] if span.steps and span.row < row]
            self.stale_until[request] = ran[-1] if ran else 0

    def _insert(self, request: int, preempted: bool = False) -> None:
        history = self.history
        workload, config = history.workload, history.config
        arrival_us = int(history.log.arrival_us[request])
        order = config["queue_order"]
        key: Key = (2, 0.0, arrival_us, request)
        if config["boost_after"] and self.evicted.get(request, 0) >= config["boost_after"]:
            key = (0, 0.0, arrival_us, request)
        elif order == FCFS and preempted:
            key = (1, -float(self.next_eviction), 0, request)
        elif order != FCFS:
            weight = float(workload.prompt_tokens[request] if order == SJF else workload.priority[request])
            if order not in (PRIORITY, SJF):
                weight += config["aging_per_s"] * (arrival_us / 1e6)
            key = (1, weight, arrival_us, request)
        self.key[request] = key
        insort(self.members, (key, request))
        self.length[request] = int(workload.prompt_tokens[request])
        if preempted and config["preemption_mode"] != RESTART:
            self.length[request] += history.evictions[self.next_eviction].generated_tokens

    def _remove(self, request: int) -> None:
        key = self.key.pop(request, None)
        if key is not None:
            del self.members[bisect_left(self.members, (key, request))]
        self.on_host.discard(request)


def blocked(history: History, request: int) -> Iterator[Blocked]:
    """Every stretch of time between schedule() calls that a request spent in the queue, in time order."""
    queue = Queue(history)
    steps, end_us = history.steps, history.totals["end_us"]
    for row, step in enumerate(steps):
        queue.play(row)
        ahead = queue.ahead(request)
        if ahead < 0:
            continue
        until_us = steps[row + 1].t_us if row + 1 < len(steps) else end_us
        reason, head, needed = why_stopped(queue, row)
        yield Blocked(row, step.t_us, until_us, reason, ahead, head, needed, step.free_mid)


def why_stopped(queue: Queue, row: int) -> tuple[Reason, int, int]:
    """Why the waiting loop of `row` admitted nobody else, who was at the head, and the blocks that one needed."""
    history = queue.history
    config, step = history.config, history.steps[row]
    head = queue.head(row)
    if step.preempted:
        return Reason.PREEMPTION, -1 if head is None else head, 0
    budget = history.budget_tokens - sum(tokens for _, tokens in step.scheduled)
    if budget <= 0:
        return Reason.BUDGET, -1 if head is None else head, 0
    if head is None:
        return Reason.BUSY, -1, 0
    if history.running[row] >= running_cap(history):
        return Reason.SLOTS, head, 0
    if config["bypass"] or config["prefill_schedule_interval"] > 1:
        return Reason.BYPASS if config["bypass"] else Reason.DEFERRED, head, 0
    return _lacking(queue, row, head, budget)


def _lacking(queue: Queue, row: int, head: int, budget: int) -> tuple[Reason, int, int]:
    """What the head of the queue lacked, slots and budget aside. What it might have found in the prefix cache is not
    in the record: it counts for nothing here, and where it could have decided the answer says no more than is certain.
    """
    history = queue.history
    config, free = history.config, history.steps[row].free_mid
    block_size = int(config["block_size"])
    swapped = head in queue.on_host and config["preemption_mode"] == SWAP
    gated = bool(config["scheduler_reserve_full_isl"]) and not swapped
    cached = bool(config["enable_prefix_caching"]) and not swapped
    length = min(queue.length[head], int(config["max_model_len"]))
    watermark = int(config["watermark_blocks"]) if history.running[row] > 0 else 0
    whole = -(-length // block_size)
    first = -(-min(length, budget) // block_size)
    needed = whole if gated or swapped or cached else first
    projected = config["admission"] == int(AdmissionRule.PROJECTED)
    unchunked = not config["enable_chunked_prefill"] and length > budget
    if unchunked:
        certain = not cached and config["long_prefill_token_threshold"] == 0
        return Reason.CHUNKING if certain else Reason.OTHER, head, needed
    fed_back = config["running_cap"] == FEEDBACK
    if needed + watermark <= free:  # an upper bound: it had the blocks
        rules = [reason for reason, on in ((Reason.PROJECTION, projected), (Reason.CAP, fed_back)) if on]
        return rules[0] if len(rules) == 1 else Reason.OTHER, head, needed + watermark
    if fed_back or projected:
        return Reason.CAP_OR_BLOCKS if fed_back and not projected else Reason.OTHER, head, needed + watermark
    if needed <= free:
        return Reason.WATERMARK, head, needed + watermark
    gate_decides = gated and first <= free
    return Reason.GATE if gate_decides else Reason.BLOCKS, head, needed + watermark


def running_cap(history: History) -> int:
    """Most requests that may run: max_num_seqs, max_num_active_seqs, or the KV-safe number. A fed-back cap is lower."""
    config, workload = history.config, history.workload
    cap = int(min(config["max_num_active_seqs"], config["max_num_seqs"]))
    if config["running_cap"] == AUTO and workload.num_requests:
        tokens = int(workload.prompt_tokens.sum(dtype="int64") + workload.output_tokens.sum(dtype="int64"))
        each = -(-tokens // (workload.num_requests * int(config["block_size"])))
        cap = min(cap, max(1, (int(config["num_gpu_blocks"]) - 1) // each))
    return cap
