"""The state of every request, step by step, as the scheduler's own rules have it: what makes a history.

The record holds what schedule() decided; everything else follows. What a prefix-cache hit was worth at a re-admission
is not always in it: then the run is repeated up to that step and its log is read.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastsim.analysis.explain.evictors import Victims, evictors
from fastsim.analysis.explain.history import Admission, Eviction, History, Kind, Span
from fastsim.engines.outputs import NEVER, RequestLog, Status
from fastsim.engines.vllm.codes import PreemptionMode

if TYPE_CHECKING:
    from fastsim.engines.vllm.recorder import Step

SWAP = int(PreemptionMode.SWAP)
RESTART = int(PreemptionMode.RESTART)
TIMED_OUT = int(Status.TIMED_OUT)
NO_ROW = -1

Probe = Callable[[int], RequestLog]
"""`probe(steps)`: the log of the same run when it is stopped after so many steps."""


class LivesBuilder:
    """The state of every request, step by step. `computed` and `length` are vLLM's C and T, in flight included."""

    def __init__(self, history: History, probe: Probe) -> None:
        workload, log = history.workload, history.log
        self.history = history
        self.config = history.config
        self.block_size = int(self.config["block_size"])
        self.probe = probe
        self.prompt: list[int] = workload.prompt_tokens.tolist()
        self.length = list(self.prompt)
        self.computed = [0] * len(self.prompt)
        self.highest = [0] * len(self.prompt)
        self.mid_prefill = [False] * len(self.prompt)
        self.lives = [0] * len(self.prompt)
        self.hits = [0] * len(self.prompt)
        self.host = [0] * len(self.prompt)
        self.host_blocks = 0
        self.since: list[int] = log.arrival_us.tolist()
        self.running: dict[int, None] = {}
        gone = [(int(log.finish_us[i]), i) for i in range(len(self.prompt)) if log.status[i] == TIMED_OUT]
        self.deadlines = sorted(gone, reverse=True)
        self.finishing: list[tuple[int, list[int]]] = []
        self.repeats = 0
        self.left_blocks: int | None = 0  # that those whose clients have gone held, since the last row

    # --- the walk over the record -------------------------------------------------------------------------------------

    def build(self) -> None:
        """All rows, then what is still open at the end of the run."""
        steps = self.history.steps
        last: Any = None
        for row, step in enumerate(steps):
            if step.scheduled is last and not step.preempted:  # a repeated list: everybody in it decodes one token
                self.repeats += 1
            else:
                self._write_repeats(row)
                self.left_blocks = 0
                self._take_leaves(step.t_us)
                self._schedule(row, step)
                last = step.scheduled
            self.history.running.append(len(self.running))
            if step.finished:
                self._write_repeats(row + 1)
                self.finishing.append((step.end_us, step.finished))
                last = None
        self._write_repeats(len(steps))
        end_us = self.history.totals["end_us"]
        self._take_leaves(end_us)
        for request, status in enumerate(self.history.log.status.tolist()):
            if status == int(Status.RUNNING):
                self._close(request, Kind.STALLED, end_us, len(steps))
            elif status == int(Status.WAITING):
                self._close(request, self._waiting_kind(request), end_us, len(steps))

    def _schedule(self, row: int, step: "Step") -> None:
        if step.preempted:
            self._preempt(row, step)
        total = sum(tokens for _, tokens in step.scheduled)
        last = len(step.scheduled) - 1
        for place, (request, tokens) in enumerate(step.scheduled):
            if request not in self.running:
                limited = bool(step.preempted) or (place == last and total >= self.history.budget_tokens)
                self._admit(row, step, request, tokens, limited)
            self._run(row, step, request, tokens)

    def _run(self, row: int, step: "Step", request: int, tokens: int) -> None:
        """`tokens` of one request in one batch; it samples one when nothing is missing any more."""
        computed = self.computed[request]
        decodes = tokens == 1 and computed + 1 == self.length[request] and computed >= self.prompt[request]
        again = max(0, min(computed + tokens, self.highest[request]) - computed)
        self._close(request, Kind.STALLED, step.start_us, row)
        spans = self.history.spans[request]
        kind = Kind.DECODE if decodes else Kind.RECOMPUTE if again else Kind.PREFILL
        if not (decodes and spans and spans[-1].kind is kind and spans[-1].end_us >= step.start_us):
            start_us = max(step.start_us, spans[-1].end_us if spans else self.since[request])
            spans.append(Span(kind, start_us, step.end_us, row))
        span = spans[-1]
        span.end_us = max(span.end_us, step.end_us)
        span.tokens += tokens
        span.steps += 1
        span.recomputed_tokens += again
        self.computed[request] = computed + tokens
        self.highest[request] = max(self.highest[request], computed + tokens)
        self.mid_prefill[request] = self.computed[request] < self.length[request]
        if not self.mid_prefill[request]:
            self.length[request] += 1

    def _write_repeats(self, row: int) -> None:
        """The repeated steps before `row`: as many decodes for everybody in their list."""
        if not self.repeats:
            return
        step = self.history.steps[row - 1]
        for request, _ in step.scheduled:
            span = self.history.spans[request][-1]
            if span.kind is not Kind.DECODE:  # the list itself was the last prefill of one token
                first = self.history.steps[row - self.repeats]
                span = Span(Kind.DECODE, max(span.end_us, first.start_us), first.end_us, row - self.repeats)
                self.history.spans[request].append(span)
            span.end_us = step.end_us
            span.tokens += self.repeats
            span.steps += self.repeats
            again = max(0, min(self.repeats, self.highest[request] - self.computed[request]))
            span.recomputed_tokens += again
            self.computed[request] += self.repeats
            self.length[request] += self.repeats
            self.highest[request] = max(self.highest[request], self.computed[request])
        self.repeats = 0

    # --- coming and going ---------------------------------------------------------------------------------------------

    def _admit(self, row: int, step: "Step", request: int, tokens: int, limited: bool) -> None:
        swapped = self.host[request] > 0
        if swapped:
            self.host_blocks -= self.host[request]
        else:
            self.computed[request] = self._hit_tokens(row, request, tokens, limited)
            self.hits[request] += self.computed[request]
        self._close(request, self._waiting_kind(request), step.t_us, row)
        self.host[request] = 0
        waited_us = step.t_us - self.since[request]
        admission = Admission(
            row,
            step.t_us,
            request,
            self.lives[request],
            waited_us,
            self.length[request],
            self.computed[request],
            swapped,
        )
        self.history.admissions.append(admission)
        self.lives[request] += 1
        self.running[request] = None

    def _hit_tokens(self, row: int, request: int, tokens: int, limited: bool) -> int:
        """Tokens found in the prefix cache: what the chunk leaves out, unless something else cut it."""
        log = self.history.log
        if not self.config["enable_prefix_caching"]:
            return 0
        if log.prefix_hit_tokens_first[request] != NEVER and self.lives[request] == 0:
            return int(log.prefix_hit_tokens_first[request])
        threshold = int(self.config["long_prefill_token_threshold"])
        if not limited and not 0 < threshold <= tokens:
            return int(self.length[request]) - tokens
        if self.lives[request] == int(log.num_preemptions[request]) and self.config["preemption_mode"] != SWAP:
            return int(log.prefix_hit_tokens[request]) - self.hits[request]
        return int(self.probe(row + 1).prefix_hit_tokens[request]) - self.hits[request]

    def _preempt(self, row: int, step: "Step") -> None:
        victims = Victims(
            self.config,
            self.history.workload,
            self.running,
            self.computed,
            self.length,
            self.mid_prefill,
            self._free_before(row),
        )
        found = evictors(victims, step)
        for request, cause in zip(step.preempted, found, strict=True):
            if request not in self.running:  # admitted, and pushed off its slot, by this very call
                self._admit(row, step, request, 0, True)
            computed = self.computed[request]
            blocks = -(-computed // self.block_size)
            room = self.host_blocks + blocks <= self.config["swap_space_blocks"]
            swapped = self.config["preemption_mode"] == SWAP and blocks > 0 and room
            generated = self.length[request] - self.prompt[request]
            self.history.evictions.append(
                Eviction(row, step.t_us, request, *cause, computed, max(generated, 0), blocks, swapped)
            )
            self._close(request, Kind.STALLED, step.t_us, row)
            self.running.pop(request, None)
            self.since[request] = step.t_us
            if swapped:
                self.host[request] = blocks
                self.host_blocks += blocks
            else:
                self.computed[request] = 0
            if self.config["preemption_mode"] == RESTART:
                self.length[request] = self.prompt[request]

    def _take_leaves(self, now_us: int) -> None:
        """Requests whose last output has come, and whose clients have gone, by a schedule() call at `now_us`."""
        while self.finishing and self.finishing[0][0] <= now_us:
            for request in self.finishing.pop(0)[1]:
                self._leave(request)
        while self.deadlines and self.deadlines[-1][0] <= now_us:
            deadline_us, request = self.deadlines.pop()
            kind = self._waiting_kind(request)
            if request in self.running:
                kind = Kind.STALLED
                blocks = -(-self.computed[request] // self.block_size)
                shares = self.config["enable_prefix_caching"] and self.history.workload.prefix_group[request] >= 0
                self.left_blocks = None if shares or self.left_blocks is None else self.left_blocks + blocks
            self._close(request, kind, deadline_us, NO_ROW)
            self._leave(request)

    def _leave(self, request: int) -> None:
        self.running.pop(request, None)
        self.host_blocks -= self.host[request]
        self.host[request] = 0

    def _waiting_kind(self, request: int) -> Kind:
        if self.host[request] > 0:
            return Kind.SWAPPED
        return Kind.PREEMPTED if self.history.spans[request] else Kind.WAITING

    def _close(self, request: int, kind: Kind, until_us: int, row: int) -> None:
        """Fill the time since the last span with one of `kind`."""
        spans = self.history.spans[request]
        start_us = spans[-1].end_us if spans else self.since[request]
        if until_us > start_us:
            spans.append(Span(kind, start_us, until_us, row))

    def _free_before(self, row: int) -> int | None:
        """Free blocks when the schedule() call of `row` began: those after the call, or the output, just before it."""
        if row == 0 or self.left_blocks is None:
            return None
        steps = self.history.steps
        before = steps[row - 1]
        known = before.free_mid
        for step in steps[max(0, row - 3) : row]:
            if before.t_us <= step.end_us <= steps[row].t_us:
                known = step.free_end
        return known + self.left_blocks
