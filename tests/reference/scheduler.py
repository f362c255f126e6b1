"""The vLLM v1 scheduler, synchronous, without LoRA, multimodal input and KV connectors.

The engines "vllm-0.33.0" and "vllm-0.16.0" differ in three rules, each marked `is_0_16`. Whatever a policy adds to
vLLM's own rules stands at the place where vLLM would decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any

from tests.reference.kv_cache import NO_HITS, Hits, KVCache
from tests.reference.kv_groups import ceil_div
from tests.reference.policies import (
    Projection,
    RunningCap,
    VictimChooser,
    WaitingQueue,
    slot_victim,
)
from tests.reference.policy_file import PolicyFile
from tests.reference.requests import Request, RequestState
from tests.reference.speculation import Speculation
from tests.reference.tape import Refusal, Tape


@dataclass
class Batch:
    """What one schedule() call decided. `scheduled` keeps the order of decision: running requests, then admissions."""

    t_us: int
    scheduled: dict[RequestState, int] = field(default_factory=dict)
    preempted: list[RequestState] = field(default_factory=list)
    sampling: set[RequestState] = field(default_factory=set)  # those that get a token when the batch returns
    drafts: dict[RequestState, int] = field(default_factory=dict)  # of the scheduled tokens, those to be verified
    padded: set[RequestState] = field(default_factory=set)  # whose drafts only fill up the batch's shape
    verified: list[tuple[RequestState, int, int]] = field(default_factory=list)  # drafts verified and accepted
    prefill_tokens: int = 0
    decode_tokens: int = 0
    context_tokens: int = 0  # sum of C before the step over the decode requests
    window_tokens: int = 0  # the same, each at most the sliding window
    prefill_pairs_doubled: int = 0  # of a prefill token and one before it, itself counting half
    swapped_blocks: int = 0  # moved in or out
    held_blocks: int = 0  # after schedule(); likewise the next four
    held_by_group: list[int] = field(default_factory=list)  # each holder of a shared block counts it
    free_blocks: int = 0
    running: int = 0
    waiting: int = 0
    start_us: int = 0
    end_us: int = 0

    @property
    def num_tokens(self) -> int:
        return self.prefill_tokens + self.decode_tokens


class Verdict(Enum):
    """What the waiting loop does with the request it looks at."""

    ADMIT = "admit"
    DEFER = "defer"  # it does not fit: head-of-line blocking, or bypass
    STOP = "stop"  # the loop ends whoever is behind it


@dataclass
class Plan:
    """The outcome of the admission tests: `tokens` to schedule on top of the `hits`, `drafts` of them only filling."""

    verdict: Verdict
    tokens: int = 0
    hits: Hits = field(default_factory=Hits)
    drafts: int = 0
    refusal: Refusal | None = None


class Scheduler:
    """Queues, blocks and the rules. The driver owns the clock and decides when to call what."""

    def __init__(self, config: SimpleNamespace, workload: Sequence[Request]) -> None:
        self.config = config
        self.is_0_16 = config.engine == "vllm-0.16.0"
        self.speculation = Speculation(config)
        self.kv = KVCache(config, self.speculation)
        self.pool = self.kv.pool
        self.own_policy = PolicyFile(config, self)
        self.waiting = WaitingQueue(config, self.own_policy)
        self.now_us = 0
        self.calls = 0
        self.batch = Batch(0)
        self.own_cap: int | None = None
        self.running: list[RequestState] = []
        self.running_cap = RunningCap(config, workload)
        self.projection = Projection(config, workload)
        self.choose_victim = VictimChooser(config, self.own_policy)
        self.host_blocks = 0  # of the swap space, in use
        self.tape = Tape()

        # prefill_schedule_interval
        self.executed = 0
        self.last_prefill = -config.prefill_schedule_interval
        self.cap_bound = False

        self.totals: dict[str, int] = dict.fromkeys(
            (
                "preemptions",
                "recomputed_tokens",
                "discarded_tokens",
                "salvaged_tokens",
                "swapped_out_blocks",
                "swapped_in_blocks",
                "swap_fallbacks",
                "ineffective_preemptions",
                "drafts",
                "accepted",
            ),
            0,
        )
        self.recomputed_at_once = 0
        """Tokens computed again, booked when they are scheduled; the total of that name books them when a life ends."""
        self.completions: list[tuple[int, int, int]] = []
        """Of the output being handed out: when requests completed, and the tokens computed again until then."""

    # --- What the asynchronous engine changes: see async_scheduler.py ---------------------------------------------

    def length(self, request: RequestState) -> int:
        """Tokens of a running request once everything in flight has returned."""
        return request.num_tokens

    def last_token_in_flight(self, request: RequestState) -> bool:
        return False

    def in_flight(self, request: RequestState) -> int:
        """Scheduled tokens whose output is not known."""
        return 0

    def on_preempt(self, request: RequestState) -> None:
        """Forget what is in flight for a preempted request."""

    # --- schedule() -----------------------------------------------------------------------------------------------

    def schedule(self, now: int) -> Batch:
        """One schedule() call: running requests first, then admissions unless somebody was preempted."""
        self.batch = batch = Batch(now)
        self.now_us = now
        self.token_budget: int = self.config.max_num_scheduled_tokens or self.config.max_num_batched_tokens
        self.input_budget: int = self.config.max_num_batched_tokens
        self.threshold = self._prefill_threshold()
        self.defers_prefills = self._defers_prefills()
        self.ran_prefill = False  # a mid-prefill running request, or an admission with more than a token to compute
        self.kv.hashed_in_this_call.clear()

        self._schedule_running()
        self.may_pad = not any(r.mid_prefill for r in batch.scheduled)
        self.any_running_scheduled = bool(batch.scheduled)
        self.tape.end_scan("PREEMPTION")
        if not batch.preempted:
            self._schedule_waiting()
            if not self.defers_prefills:
                self.cap_bound = len(self.waiting) > 0
        self._after_schedule(batch)
        if batch.num_tokens:
            self.executed += 1
        if self.ran_prefill:
            self.last_prefill = self.executed
        self.tape.end_call(len(self.running))
        self.calls += 1
        return batch

    def _prefill_threshold(self) -> int:
        queued = self.num_unfinished()
        threshold = int(self.config.long_prefill_token_threshold)
        if not self.is_0_16 and queued <= 1:
            return 0
        if threshold > 0 and self.config.long_prefill_token_threshold_adaptive:
            threshold = max(threshold, self.input_budget // queued)
        return threshold

    def _defers_prefills(self) -> bool:
        interval = self.config.prefill_schedule_interval
        return bool(
            interval > 1
            and not self.cap_bound
            and self.executed + 1 - self.last_prefill < interval
            and any(not r.mid_prefill for r in self.running)
        )

    # --- The running loop ------------------------------------------------------------------------------------------

    def _schedule_running(self) -> None:
        k = 0
        while k < len(self.running) and self.token_budget > 0 and self.input_budget > self.speculation.draft_slots:
            request = self.running[k]
            n = self._tokens_of_running(request)
            if n <= 0:
                k += 1
                continue
            on_its_behalf = 0
            while not self.allocate_slots(request, n):
                victim = self.choose_victim(self.running)
                position = self.running.index(victim)
                needed, _, free = self.kv.needs(request, request.num_computed, n)
                self.preempt_request(victim, request, needed - free)
                if victim is request:
                    break
                on_its_behalf += 1
                if position < k:
                    k -= 1
            else:
                drafts = min(request.drafts, request.num_computed + n - self.length(request))
                self._schedule_tokens(request, n, max(drafts, 0))
                request.drafts = 0
                self.ran_prefill |= request.mid_prefill
                k += 1
                continue
            # The request was its own victim; the preemptions it caused before that were in vain.
            self.totals["ineffective_preemptions"] += on_its_behalf
            is_tail = self.config.victim == "tail" and self.own_policy.victim_key is None
            if is_tail or self.is_0_16:
                break
            # Its successor has slid into position k.

    def _tokens_of_running(self, request: RequestState) -> int:
        """0: skipped in this step."""
        if self.last_token_in_flight(request) or (self.defers_prefills and request.mid_prefill):
            return 0
        computed = request.num_computed
        n = self.length(request) + request.drafts - computed
        if 0 < self.threshold < n:
            n = self.threshold
        room = self.input_budget - self.speculation.draft_slots
        n = min(n, self.token_budget, room, self.config.max_model_len - computed - 1)
        return self.kv.aligned(request, computed, n, request.junction)

    def _schedule_tokens(self, request: RequestState, n: int, drafts: int) -> None:
        """`drafts` of the `n` tokens are drafts to be verified."""
        self.batch.scheduled[request] = n
        if drafts:
            self.batch.drafts[request] = drafts
        self.token_budget -= n
        self.input_budget -= n + self.speculation.draft_slots

    # --- Preemption ------------------------------------------------------------------------------------------------

    def preempt_request(self, request: RequestState, evictor: RequestState, lacked_blocks: int) -> None:
        """Take a running request's blocks away and put it back into the queue; what it keeps is `preemption_mode`'s.

        For `evictor`, who lacks so many blocks (0: a slot). Tokens it was given in this step return to both budgets and
        count nowhere; blocks that they filled stay hashed.
        """
        computed, generated, free = request.num_computed, self.length(request) - request.prompt, self.pool.num_free
        self.running.remove(request)
        returned = self._returned_by(request)
        self.token_budget += returned[0]
        self.input_budget += returned[1]
        self.batch.scheduled.pop(request, None)
        self.batch.drafts.pop(request, None)
        self.batch.padded.discard(request)
        request.drafts = 0
        self.batch.preempted.append(request)
        self.totals["preemptions"] += 1
        request.num_preemptions += 1

        if not (self.config.preemption_mode == "swap" and self._swap_out(request)):
            request.num_computed = 0
        if self.config.preemption_mode == "restart":
            self._discard_output(request)
        self._free(request)
        self.end_life(request)
        self.on_preempt(request)
        request.status = "waiting"
        request.queued_us = self.batch.t_us
        kept = 0 if self.config.preemption_mode == "restart" else generated
        blocks = (self.pool.num_free - free, request.host_blocks)
        self.tape.note("preempted", request, evictor.index, lacked_blocks, computed, generated, kept, *blocks)
        self.waiting.push_preempted(request)
        self.tape.note("queued", request, self.waiting.place(request))

    def _returned_by(self, victim: RequestState) -> tuple[int, int]:
        """Of both budgets, what a victim gives back that was scheduled in this step already."""
        if victim not in self.batch.scheduled:
            return 0, 0
        n = self.batch.scheduled[victim]
        return n, n + self.speculation.draft_slots

    def _swap_out(self, request: RequestState) -> bool:
        """Move the KV of its C tokens to the host; False if it has none, or if the host has no room (counted)."""
        blocks = ceil_div(request.num_computed, self.config.block_size)
        if blocks == 0:
            return False
        if self.host_blocks + blocks > self.config.swap_space_blocks:
            self.totals["swap_fallbacks"] += 1
            return False
        self.host_blocks += blocks
        request.host_blocks = blocks
        self.batch.swapped_blocks += blocks
        self.totals["swapped_out_blocks"] += blocks
        return True

    def _discard_output(self, request: RequestState) -> None:
        """A restart: the life is over, its output tokens will be decoded again."""
        self.totals["discarded_tokens"] += request.generated
        request.num_tokens = request.prompt
        request.generated = 0
        request.first_token_us = -1
        request.gaps_us.clear()

    def _free(self, request: RequestState) -> None:
        self.kv.free(request)

    # --- The waiting loop ------------------------------------------------------------------------------------------

    def _schedule_waiting(self) -> None:
        """Admit in queue order until one does not fit; under `bypass`, look at a bounded number behind it too.

        The request looked at is always the first in queue order that has not been deferred in this call. One with
        stale output in flight is passed over. Only "does not fit" (projection, gate, blocks) is deferred by bypass;
        a missing slot, a prompt that may not be chunked, or a deferred prefill stop the loop.
        """
        deferred: list[RequestState] = []
        scanned = 0
        self.own_cap = self.own_policy.most_running()
        if self.own_policy.queue_changes:
            self.waiting.compute_keys_anew()
        stale: list[RequestState] = []
        while True:
            if not (self.token_budget > 0 and self.input_budget > self.speculation.draft_slots):
                self.tape.end_scan("BUDGET")
                break
            if self._slots_taken() and not self.config.slot_preempt:
                self.tape.end_scan(self._cap_reason())
                break
            candidate = None
            for request in self.waiting:
                if request.stale and request not in stale:
                    stale.append(request)
                    self.tape.refuse(request, Refusal("IN_FLIGHT"))
                elif not request.stale and request not in deferred:
                    candidate = request
                    break
            if candidate is None:
                self.tape.end_scan("EMPTY")
                break
            if self.config.bypass and scanned == self.config.admission_scan_limit:
                self.tape.end_scan("SCAN_LIMIT")
                break
            scanned += 1
            victim = None
            if self._slots_taken():
                victim = self._slot_victim(candidate)
                if victim is None:
                    self.tape.refuse(candidate, Refusal(self._cap_reason(), len(self.running), self._cap()))
                    break
                if self.config.slot_preempt_preflight:
                    plan = self.plan_admission(candidate, leaving=victim)
                    if plan.verdict is Verdict.ADMIT:
                        self.preempt_request(victim, candidate, 0)
                        assert plan == self.plan_admission(candidate), "the preflight was wrong"
                else:
                    self.preempt_request(victim, candidate, 0)
                    plan = self.plan_admission(candidate)
                    self.totals["ineffective_preemptions"] += plan.verdict is not Verdict.ADMIT
            else:
                plan = self.plan_admission(candidate)

            restores = candidate.num_preemptions > 0
            if plan.refusal is not None:
                self.tape.refuse(candidate, plan.refusal)
            match plan.verdict:
                case Verdict.STOP:
                    break
                case Verdict.DEFER:
                    checks = self.config.blocked_checks_limit or not restores
                    if not self.config.bypass:
                        break
                    if checks and self._bypassed_enough(candidate):
                        self.tape.end_scan("BYPASS_LIMIT", candidate)
                        break
                    deferred.append(candidate)
                case Verdict.ADMIT:
                    self.admit(candidate, plan)
                    if self.config.count_restores or not restores:
                        for passed in deferred:
                            passed.bypasses += 1
                        enough = list(filter(self._bypassed_enough, deferred))
                        if enough:
                            self.tape.end_scan("BYPASS_LIMIT", enough[0])
                            break

    def _bypassed_enough(self, request: RequestState) -> bool:
        return bool(request.bypasses >= self.config.max_admission_bypasses)

    def _slots_taken(self) -> bool:
        return len(self.running) >= self._cap()

    def _cap(self) -> int:
        caps = [self._fixed_cap(), self.running_cap.cap]
        return min(caps if self.own_cap is None else [*caps, self.own_cap])

    def _fixed_cap(self) -> int:
        active = self.config.max_num_active_seqs
        return int(min([self.config.max_num_seqs] + ([active] if active is not None else [])))

    def _cap_reason(self) -> str:
        if self.own_cap is not None and self.own_cap < min(self._fixed_cap(), self.running_cap.cap):
            return "POLICY_CAP"
        return "RUNNING_CAP" if self._cap() < self._fixed_cap() else "SLOTS"

    def _slot_victim(self, candidate: RequestState) -> RequestState | None:
        """One victim's slot is enough, even where a lowered cap is exceeded: the candidate takes its place."""
        if not (self.config.slot_preempt and self.config.queue_order in ("priority", "aging")):
            return None
        return slot_victim(self.config, self.running, candidate)

    def plan_admission(self, candidate: RequestState, leaving: RequestState | None = None) -> Plan:
        """All admission tests, without touching anything; as if `leaving` had been preempted already."""
        token_budget, input_budget, running = self.token_budget, self.input_budget, self.running
        if leaving is not None:
            returned = self._returned_by(leaving)
            token_budget, input_budget = token_budget + returned[0], input_budget + returned[1]
            running = [r for r in running if r is not leaving]
        swapped = candidate.host_blocks > 0
        hits = NO_HITS if swapped else self.kv.cached_prefix(candidate)
        computed = candidate.num_computed if swapped else hits.tokens
        if self.defers_prefills and computed < candidate.num_tokens - 1:
            return Plan(Verdict.STOP, refusal=Refusal("DEFERRED"))
        n = candidate.num_tokens - computed
        room = min(token_budget, input_budget - self.speculation.draft_slots)
        drafts = 0
        if n == 1 and self._pads(computed):
            drafts = self.speculation.k
            n += drafts
            if n > room:
                return Plan(Verdict.STOP, refusal=Refusal("CHUNKING", n, room))
        if 0 < self.threshold < n:
            n = self.threshold
        if not self.config.enable_chunked_prefill and n > room:
            return Plan(Verdict.STOP, refusal=Refusal("CHUNKING", n, room))
        n = min(n, room)
        aligned = self.kv.aligned(candidate, computed, n, hits.junction)
        if drafts and aligned < n:
            aligned, drafts = min(aligned, 1), 0
        n = aligned
        if n == 0:
            return Plan(Verdict.STOP, refusal=Refusal("ALIGNED"))
        if not self.projection.admits(candidate, running):
            expected = sum(map(self.projection.expected_blocks, [*running, candidate]))
            return Plan(Verdict.DEFER, refusal=Refusal("PROJECTION", expected, int(self.projection.limit)))
        if self.kv.hits_state_of_this_call(hits):
            return Plan(Verdict.DEFER, refusal=Refusal("STATE"))
        gate = self.config.scheduler_reserve_full_isl and not swapped
        watermark = int(self.config.watermark * self.config.num_gpu_blocks) if running else 0
        blocks = leaving.blocks if leaving is not None else []
        if not self.kv.fits(candidate, computed, n, hits, gate=gate, watermark=watermark, leaving=blocks):
            needs = self.kv.needs(candidate, computed, n, hits, gate=gate, leaving=blocks)
            return Plan(Verdict.DEFER, refusal=self._lack(*needs, watermark))
        plan = Plan(Verdict.ADMIT, n, hits, drafts)
        if not self.own_policy.admits(candidate, plan, running):
            return Plan(Verdict.STOP, refusal=Refusal("POLICY_ADMIT"))
        return plan

    def _lack(self, for_step: int, for_all: int, free: int, watermark: int) -> Refusal:
        """Too few blocks: the watermark was it where they are enough without it, the gate where this step has its."""
        gate = "GATE" if for_step <= free else "BLOCKS"
        why = "WATERMARK" if max(for_step, for_all) <= free else gate
        return Refusal(why, max(for_step, for_all) + watermark, free, watermark)

    def _pads(self, computed: int) -> bool:
        """Whether a request that misses one token is filled up to the shape of a decode with drafts.

        vLLM does so where the batch otherwise has only such decodes: nobody is in the middle of a prefill. Admissions
        of the same step do not count.
        """
        k = self.speculation.k
        return (
            k > 0
            and self.may_pad
            and (self.any_running_scheduled or computed > 0)
            and computed + k + 2 <= self.config.max_model_len
        )

    def admit(self, request: RequestState, plan: Plan) -> None:
        """Take the blocks that the plan found, and run."""
        now = self.batch.t_us
        computed = request.num_computed if request.host_blocks else plan.hits.tokens
        self.tape.note("admitted", request, request.num_tokens, computed, request.host_blocks > 0)
        if request.host_blocks:
            self.host_blocks -= request.host_blocks
            self.batch.swapped_blocks += request.host_blocks
            self.totals["swapped_in_blocks"] += request.host_blocks
            request.host_blocks = 0
        else:
            hit_tokens = plan.hits.tokens
            request.num_computed = hit_tokens
            request.junction = plan.hits.junction
            request.hit_tokens_all += hit_tokens
            if request.hit_tokens_first < 0:
                request.hit_tokens_first = hit_tokens
            if request.num_preemptions:
                self.totals["salvaged_tokens"] += hit_tokens
        self.ran_prefill |= request.num_computed < request.num_tokens - 1
        self.kv.take(request, request.num_computed, plan.tokens, plan.hits)
        self.waiting.remove(request)
        self.running.append(request)
        request.status = "running"
        if request.first_scheduled_us < 0:
            request.first_scheduled_us = now
        if now - request.queued_us > request.admission_wait_us:
            request.admission_wait_us = now - request.queued_us
            request.admission_wait_end_us = now
        self._schedule_tokens(request, plan.tokens, plan.drafts)
        if plan.drafts:
            self.batch.padded.add(request)

    # --- Blocks ----------------------------------------------------------------------------------------------------

    def allocate_slots(self, request: RequestState, n: int) -> bool:
        """Blocks for `n` more tokens of a running request: no gate, no watermark.

        What its groups no longer need is given back first, even if it then does not fit.
        """
        self.kv.evict(request, request.num_computed - self.in_flight(request))
        if not self.kv.fits(request, request.num_computed, n):
            return False
        self.kv.take(request, request.num_computed, n)
        return True

    # --- After schedule(), and the output --------------------------------------------------------------------------

    def _after_schedule(self, batch: Batch) -> None:
        """Count the tokens, advance C, and see who samples."""
        for request, n in batch.scheduled.items():
            length = self.length(request)
            computed = request.num_computed
            if computed + 1 == length and computed >= request.prompt:
                batch.decode_tokens += n
                batch.context_tokens += computed
                batch.window_tokens += min(computed, self.config.window_tokens)
            else:
                batch.prefill_tokens += n
                batch.prefill_pairs_doubled += sum(2 * before + 1 for before in range(computed, computed + n))
            known = computed + n - batch.drafts.get(request, 0)
            again = max(0, min(known, request.most_computed) - computed)
            request.recomputed_tokens += again
            self.recomputed_at_once += again
            request.scheduled_tokens += n
            request.num_computed = computed + n
            if self.speculation.k == 0:
                request.most_computed = max(request.most_computed, request.num_computed)
            request.mid_prefill = request.num_computed < length
            if not request.mid_prefill:
                batch.sampling.add(request)
        batch.held_by_group = [
            sum(len(request.tables[group.number].held()) for request in self.running) for group in self.kv.groups
        ]
        batch.free_blocks = self.pool.num_free
        batch.held_blocks = self.pool.usable - self.pool.num_free
        batch.running = len(self.running)
        batch.waiting = len(self.waiting)

    def update_from_output(self, batch: Batch, now: int) -> list[RequestState]:
        """Hand out the tokens of each request that sampled; free and return the finished ones, in scheduled order."""
        finished: list[RequestState] = []
        for request in batch.scheduled:
            if request not in batch.sampling:
                self.note_computed(request)
            else:
                drafts = batch.drafts.get(request, 0)
                accepted = self.verify_drafts(batch, request, drafts)
                delivered = self.deliver(request, accepted + 1, now)
                request.num_computed -= drafts - accepted + (accepted + 1 - delivered)
                self.kv.hash_blocks(request, request.num_computed)
                self.note_computed(request)
                if request.is_complete(self.config.max_model_len):
                    self.finish(request, now)
                    finished.append(request)
        for request in batch.scheduled:
            if request.status == "running":
                known = request.num_tokens
                request.drafts = 0 if request.mid_prefill else self.speculation.drafts(request.index, known)
        self.leave(finished)
        return finished

    def verify_drafts(self, batch: Batch, request: RequestState, drafts: int) -> int:
        """How many of its drafts are right, which is written down. Those that only fill up never are."""
        if drafts == 0:
            return 0
        accepted = 0
        if request not in batch.padded:
            accepted = self.speculation.accepted(request.index, request.num_tokens, drafts)
        batch.verified.append((request, drafts, accepted))
        request.verified_drafts += drafts
        request.accepted_drafts += accepted
        self.totals["drafts"] += drafts
        self.totals["accepted"] += accepted
        return accepted

    def note_computed(self, request: RequestState) -> None:
        """With drafts, what counts as computed is known when they have been verified."""
        if self.speculation.k:
            request.most_computed = max(request.most_computed, request.num_computed - self.in_flight(request))

    def deliver(self, request: RequestState, tokens: int, now: int) -> int:
        """Hand out `tokens`, or as many as complete the request: how many that were."""
        delivered = max(min(tokens, request.tokens_left(self.config.max_model_len)), 1)
        request.receive_tokens(delivered, now)
        return delivered

    def finish(self, request: RequestState, now: int) -> None:
        """Free its blocks right away; it leaves the queues after the whole batch (`leave`)."""
        request.status = "finished"
        request.finish_us = now
        self._free(request)
        self.end_life(request)
        self.completions.append((now, self.totals["recomputed_tokens"], self.recomputed_at_once))

    def end_life(self, request: RequestState) -> None:
        """A life of it is over: count what it computed for a second time."""
        self.totals["recomputed_tokens"] += request.recomputed_tokens
        request.recomputed_tokens = 0

    def leave(self, requests: Sequence[RequestState]) -> None:
        for request in requests:
            if request in self.waiting:
                self.waiting.remove(request)
            else:
                self.running.remove(request)
            self.host_blocks -= request.host_blocks
            request.host_blocks = 0

    # --- From outside ----------------------------------------------------------------------------------------------

    def add_request(self, request: RequestState, now: int) -> None:
        self.now_us = now
        request.status = "waiting"
        request.tables = self.kv.empty_tables()
        request.queued_us = request.arrival_us
        self.waiting.push(request)
        self.tape.note("queued", request, self.waiting.place(request))

    def abort_request(self, request: RequestState) -> None:
        """The client has gone. Output still in flight for it is dropped."""
        self._free(request)
        self.end_life(request)
        self.leave([request])

    def num_unfinished(self) -> int:
        return len(self.running) + len(self.waiting)

    def state(self) -> tuple[Any, ...]:
        """Everything that decides what the next step does, monotone totals excluded (for livelock detection)."""
        return (
            [(r.index, r.num_computed, r.generated, r.mid_prefill, r.drafts) for r in self.running],
            [(r.index, r.num_computed, r.generated, r.host_blocks, r.bypasses) for r in self.waiting],
            self.pool.free_order(),
            self.running_cap.state(),
            (self.cap_bound, self.executed - self.last_prefill),
            self.host_blocks,
        )
