"""One engine step after the other: submit, schedule one stage's batch, execute, update.

The rules are those of the public vllm-rlt scheduler before its change of the admission accounting (`count_restores` and
`blocked_checks_limit` off) and after it (both on). A step runs one stage: prefill, prelude (embedding), recurrent (one
loop over the layers) or coda (head and sampling).
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from tests.reference_rlt.pages import Page, PagePool

STAGES = ("prefill", "prelude", "recurrent", "coda")


@dataclass(eq=False)
class Request:
    id: str
    order: int  # submission order
    arrival: int
    prompt: list[int]
    max_tokens: int
    priority: int
    depths: list[int] | None
    output_tokens: int  # samples its end token as this output, max_tokens at the latest
    stage: str = "waiting"
    saved_stage: str | None = None  # of a preempted request
    saved_pages: int = 0
    saved_tasks: "list[Task]" = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)
    prefilled: int = 0
    outputs: int = 0
    loops_done: int = 0
    bypasses: int = 0
    written: list[int] = field(default_factory=list)  # per depth: prompt tokens whose KV is there (wavefront)
    preemptions: int = 0
    cached: list[int] = field(default_factory=list)  # prefix hit of its admission
    computed: int = 0
    waiting_since: int = 0
    longest_wait: int = 0
    longest_wait_end: int = 0
    first_scheduled: int = -1
    token_times: list[int] = field(default_factory=list)
    finish: int = -1

    @property
    def position(self) -> int:
        """Token position a decode step works on."""
        return len(self.prompt) + self.outputs - 1

    @property
    def capacity(self) -> int:
        """Positions it can ever hold: the last sample never enters the cache."""
        return len(self.prompt) + self.max_tokens - 1

    def exit_depth(self, loops: int) -> int:
        """Loops the output now in the making runs through."""
        if self.depths is None or self.outputs >= len(self.depths):
            return loops
        return self.depths[self.outputs]


@dataclass(eq=False)
class Task:
    """Wavefront prefill: one range of prompt tokens at one depth."""

    request: Request
    start: int
    count: int
    depth: int


@dataclass(eq=False)
class Item:
    """What a batch holds: a request, or a task of one."""

    request: Request
    start: int
    count: int
    depth: int
    task: Task | None = None


class Engine:
    def __init__(self, config: dict[str, Any], count_restores: bool, blocked_checks_limit: bool):
        self.cfg = config
        self.count_restores = count_restores
        self.blocked_checks_limit = blocked_checks_limit
        self.loops = config["max_loops"]
        self.planes = self.loops if config["layout"] == "last_exited" else 1
        self.pool = PagePool(config["num_blocks"], self.planes)
        self.requests: list[Request] = []
        self.waiting: list[Request] = []
        self.queues: dict[str, deque[Any]] = {stage: deque() for stage in STAGES}  # prefill: tasks under wavefront
        self.phase = "fill"
        self.prefills_since_recurrent = 0
        self.preemptions = 0
        self.resumptions = 0
        self.ineffective_preemptions = 0
        self.moved_out = 0  # blocks swapped in the current step
        self.moved_in = 0
        self.swaps = 0
        self.events: list[list[Any]] = []
        self.now = 0

    # --- sizes ---

    def pages_for(self, tokens: int) -> int:
        size: int = self.cfg["block_size"]
        return -(-tokens // size)

    def required(self, tokens: int) -> int:
        return self.pages_for(tokens) * self.planes

    def held(self, request: Request) -> int:
        return len(request.pages) * self.planes

    def active(self) -> list[Request]:
        return [r for r in self.requests if r.stage in STAGES]

    # --- submission ---

    def submit(self, request: Request) -> None:
        if self.required(request.capacity) > self.cfg["num_blocks"]:
            request.stage = "rejected"
            return
        request.waiting_since = self.now
        request.written = [0] * self.loops
        self.requests.append(request)
        self.waiting.append(request)

    # --- preemption ---

    def victim(self, candidates: list[Request]) -> Request | None:
        """Worst priority, then largest footprint, then submitted first."""
        if not candidates:
            return None
        return max(candidates, key=lambda r: (r.priority, self.required(r.position + 1), -r.order))

    def preempt(self, request: Request) -> None:
        """Swap out: everything is kept on the host, all pages are given back."""
        queue = self.queues[request.stage]
        if self.cfg["wavefront"] and request.stage == "prefill":
            request.saved_tasks = [task for task in queue if task.request is request]
            for task in request.saved_tasks:
                queue.remove(task)
        else:
            queue.remove(request)
        request.saved_stage = request.stage
        request.saved_pages = len(request.pages)
        self.moved_out += self.held(request)
        self.swaps += 1
        for page in request.pages:
            self.pool.release(page)
        request.pages = []
        request.stage = "waiting"
        request.waiting_since = self.now
        request.preemptions += 1
        self.preemptions += 1
        self.waiting.append(request)

    def restore(self, request: Request) -> bool:
        """Swap in: exactly the saved number of pages, with no regard to anybody's budget."""
        pages = self.pool.claim(request.saved_pages)
        if pages is None:
            return False
        request.pages = pages
        assert request.saved_stage is not None
        request.stage, request.saved_stage = request.saved_stage, None
        if self.cfg["wavefront"] and request.stage == "prefill":
            self.queues["prefill"].extend(request.saved_tasks)
            request.saved_tasks = []
        else:
            self.queues[request.stage].append(request)
        self.moved_in += self.held(request)
        self.swaps += 1
        self.resumptions += 1
        self.end_wait(request)
        return True

    def end_wait(self, request: Request) -> None:
        if self.now - request.waiting_since > request.longest_wait:
            request.longest_wait = self.now - request.waiting_since
            request.longest_wait_end = self.now
        if request.first_scheduled < 0:
            request.first_scheduled = self.now

    # --- admission ---

    def prefix_keys(self, request: Request) -> list[tuple[int, ...]]:
        """Keys of the prompt pages that may be shared: never the one with the last prompt token."""
        size = self.cfg["block_size"]
        return [tuple(request.prompt[: size * (k + 1)]) for k in range((len(request.prompt) - 1) // size)]

    def growth(self) -> int:
        """Blocks promised to requests that were admitted and have not taken them yet."""
        if not self.cfg["incremental"]:
            return 0
        if self.cfg["enable_preemption"]:
            return sum(self.required(len(r.prompt)) - self.held(r) for r in self.active() if r.stage == "prefill")
        return sum(self.required(r.capacity) - self.held(r) for r in self.active())

    def try_admit(self, request: Request, active: int) -> bool:
        """Admit a fresh request if its whole budget fits beside what was promised to others."""
        cfg = self.cfg
        prompt = len(request.prompt)
        hits = self.pool.lookup(self.prefix_keys(request)) if cfg["prefix_caching"] else []
        cached = len(hits) * cfg["block_size"]
        budget = prompt if cfg["incremental"] and cfg["enable_preemption"] else request.capacity
        headroom = int(cfg["watermark_ratio"] * cfg["num_blocks"]) if active > 0 else 0
        cached_claim = self.planes * sum(page.holders == 0 for page in hits)
        total = self.required(budget) - self.planes * len(hits) + self.growth() + headroom + cached_claim
        if total > self.pool.free_blocks():
            return False
        tokens = min(prompt, cached + cfg["prefill_chunk_size"]) if cfg["incremental"] else request.capacity
        self.pool.pin(self.prefix_keys(request), hits)
        new = self.pool.claim(self.pages_for(tokens) - len(hits))
        assert new is not None
        request.pages = hits + new
        request.prefilled = cached
        request.cached.append(cached)
        request.stage = "prefill"
        if cfg["wavefront"]:
            request.written = [cached] * self.loops
            self.queues["prefill"].append(self.first_task(request, cached))
        else:
            self.queues["prefill"].append(request)
        self.events.append(["admit", request.id, cached, total])
        self.end_wait(request)
        return True

    def admit(self) -> None:
        cfg = self.cfg
        if cfg["policy"] == "priority":
            self.waiting.sort(key=lambda r: r.priority)
        active = len(self.active())
        limit = cfg["max_admission_bypasses"]
        deferred: list[Request] = []
        slot_requesters: list[Request] = []
        for _ in range(min(len(self.waiting), cfg["admission_scan_limit"])):
            head = self.waiting[0]
            if active >= cfg["max_num_seqs"]:
                worse = [r for r in self.active() if r.priority > head.priority]
                victim = self.victim(worse)
                if cfg["policy"] != "priority" or not cfg["enable_preemption"] or victim is None:
                    self.events.append(["stop", "slots"])
                    break
                self.events.append(["preempt", "slot", head.id, victim.id])
                self.preempt(victim)
                slot_requesters.append(head)
                active -= 1
            self.waiting.pop(0)
            counted = True
            if head.saved_stage is not None:
                if not self.restore(head):
                    self.events.append(["blocked", head.id, head.bypasses])
                    deferred.append(head)
                    if self.blocked_checks_limit and head.bypasses >= limit:
                        self.events.append(["stop", "blocked_limit"])
                        break
                    continue
                self.events.append(["restore", head.id])
                counted = self.count_restores
            elif not self.try_admit(head, active):
                self.events.append(["defer", head.id, head.bypasses])
                deferred.append(head)
                if head.bypasses >= limit:
                    self.events.append(["stop", "defer_limit"])
                    break
                continue
            active += 1
            if counted:
                for passed in deferred:
                    passed.bypasses += 1
                if any(passed.bypasses >= limit for passed in deferred):
                    self.events.append(["stop", "bypass_limit"])
                    break
        self.waiting[:0] = deferred
        self.ineffective_preemptions += sum(r.stage == "waiting" for r in slot_requesters)

    # --- the stage of a step ---

    def decode_due(self) -> bool:
        limit: int = self.cfg["max_prefill_batches_before_decode"]
        return self.prefills_since_recurrent >= limit

    def coda_ready(self) -> bool:
        coda = len(self.queues["coda"])
        return coda > 0 and bool(coda >= self.cfg["min_coda_batch_size"] or not self.queues["recurrent"])

    def choose_refill(self) -> str | None:
        if self.queues["prelude"]:
            return "prelude"
        if self.coda_ready():
            return "coda"
        if self.queues["recurrent"] and self.decode_due():
            return "recurrent"
        self.admit()
        if self.queues["prefill"]:
            return "prefill"
        if self.queues["prelude"]:
            return "prelude"
        if self.coda_ready():
            return "coda"
        return "recurrent" if self.queues["recurrent"] else None

    def choose_no_refill(self) -> str | None:
        if self.phase == "core":
            if self.queues["recurrent"]:
                return "recurrent"
            self.phase = "coda"
        if self.phase == "coda":
            if self.queues["coda"]:
                return "coda"
            self.phase = "fill"
        if self.decode_due():
            if self.queues["prelude"]:
                return "prelude"
            if self.queues["recurrent"]:
                self.phase = "core"
                return "recurrent"
        self.admit()
        for stage in ("prefill", "coda", "prelude"):
            if self.queues[stage]:
                return stage
        if self.queues["recurrent"]:
            self.phase = "core"
            return "recurrent"
        return None

    # --- the batch ---

    def grow(self, request: Request, tokens: int, selected: list[Item]) -> bool:
        """Pages for positions below `tokens`; one victim at most is swapped out to get them."""
        missing = self.pages_for(tokens) - len(request.pages)
        if missing <= 0:
            return True
        new = self.pool.claim(missing)
        if new is None and self.cfg["enable_preemption"]:
            spared = {item.request for item in selected} | {request}
            victim = self.victim([r for r in self.active() if r not in spared])
            if victim is not None:
                self.events.append(["preempt", "grow", request.id, victim.id])
                self.preempt(victim)
                new = self.pool.claim(missing)
        if new is None:
            self.events.append(["nogrow", request.id])
            return False
        request.pages += new
        return True

    def form_batch(self, stage: str) -> list[Item]:
        cfg = self.cfg
        queue = self.queues[stage]
        budget = cfg["max_num_batched_tokens"]
        batch: list[Item] = []
        for _ in range(len(queue)):
            if len(batch) >= cfg["max_num_seqs"] or budget <= 0 or not queue:
                break
            entry = queue.popleft()
            if isinstance(entry, Task):
                request = entry.request
                item = Item(request, entry.start, entry.count, entry.depth, entry)
                if request.written[entry.depth] < entry.start or entry.count > budget:
                    queue.append(entry)
                    continue
            elif stage == "prefill":
                request = entry
                left = len(request.prompt) - request.prefilled
                item = Item(request, request.prefilled, min(budget, cfg["prefill_chunk_size"], left), -1)
            else:
                request = entry
                item = Item(request, request.position, 1, request.loops_done if stage == "recurrent" else -1)
            if stage != "coda" and not self.grow(request, item.start + item.count, batch):
                queue.append(entry)
                continue
            batch.append(item)
            budget -= item.count
        return batch

    # --- after execution ---

    def first_task(self, request: Request, start: int) -> Task:
        return Task(request, start, min(self.cfg["prefill_chunk_size"], len(request.prompt) - start), 0)

    def after_prefill_task(self, task: Task) -> None:
        request, end = task.request, task.start + task.count
        request.written[task.depth] = end
        if task.depth + 1 < self.loops:
            self.queues["prefill"].append(Task(request, task.start, task.count, task.depth + 1))
        if task.depth == 0:
            request.computed += task.count
            if end < len(request.prompt):
                self.queues["prefill"].append(self.first_task(request, end))
        if task.depth == self.loops - 1:
            self.after_prefill(request, end)

    def after_prefill(self, request: Request, end: int) -> None:
        request.prefilled = end
        if self.cfg["prefix_caching"]:
            for key, page in list(zip(self.prefix_keys(request), request.pages, strict=False)):
                if len(key) <= end:
                    self.pool.register(key, page)
        if end == len(request.prompt):
            request.stage = "coda"
            self.queues["coda"].append(request)
        elif not self.cfg["wavefront"]:
            self.queues["prefill"].append(request)

    def move(self, request: Request, stage: str) -> None:
        request.stage = stage
        self.queues[stage].append(request)

    def update(self, stage: str, batch: list[Item], end_time: int) -> tuple[list[str], list[str]]:
        tokens: list[str] = []
        finished: list[str] = []
        for item in batch:
            request = item.request
            if item.task is not None:
                self.after_prefill_task(item.task)
            elif stage == "prefill":
                request.computed += item.count
                self.after_prefill(request, item.start + item.count)
            elif stage == "prelude":
                request.loops_done = 0
                self.move(request, "recurrent")
            elif stage == "recurrent":
                request.loops_done += 1
                self.move(request, "coda" if request.loops_done >= request.exit_depth(self.loops) else "recurrent")
            else:
                if request.outputs > 0:
                    request.computed += 1
                request.outputs += 1
                request.token_times.append(end_time)
                tokens.append(request.id)
                if request.outputs < request.output_tokens:
                    self.move(request, "prelude")
                    continue
                for page in request.pages:
                    self.pool.release(page)
                request.pages = []
                request.stage = "finished"
                request.finish = end_time
                finished.append(request.id)
        if stage == "prefill":
            self.prefills_since_recurrent += 1
        elif stage == "recurrent":
            self.prefills_since_recurrent = 0
        return tokens, finished

    def fingerprint(self) -> Any:
        """All that decides the next step, monotone totals excluded."""
        tasks = [(t.request.id, t.start, t.depth) for t in self.queues["prefill"] if isinstance(t, Task)]
        return (
            [(r.id, r.stage, r.saved_stage, r.prefilled, r.outputs, r.loops_done, len(r.pages)) for r in self.requests],
            [(r.id, r.bypasses) for r in self.waiting],
            {s: [r.id for r in q if isinstance(r, Request)] for s, q in self.queues.items()},
            tasks,
            (self.pool.unused_blocks(), self.pool.free_blocks(), len(self.pool.cache), self.phase),
        )


def is_repeated(history: list[Any]) -> bool:
    """Whether the last of some consecutive states is that of the step before, or of the latest anchor.

    States number 0, 1, 3, 7, ... are anchors, each for the states behind it up to the next one.
    """
    last = len(history) - 1
    if last < 1:
        return False
    anchor = 2 ** (last.bit_length() - 1) - 1
    return bool(history[last] in (history[last - 1], history[anchor]))


TICKS = {
    **{f"{stage}_us": 1.0 for stage in (*STAGES, "wavefront", "empty")},
    **{f"{stage}_us_per_token": 0.0 for stage in (*STAGES, "wavefront")},
    "swap_us": 0.0,
    "swap_us_per_block": 0.0,
}
"""Step times under which the clock counts engine steps."""


def step_time(engine: Engine, stage: str | None, batch: list[Item], latency: dict[str, float]) -> int:
    """Duration of a step in microseconds, at least one."""
    swap = latency["swap_us"] * engine.swaps + latency["swap_us_per_block"] * (engine.moved_out + engine.moved_in)
    if not batch or stage is None:
        return max(1, int(latency["empty_us"] + swap))
    name = "wavefront" if batch[0].task is not None else stage
    tokens = sum(item.count for item in batch)
    return max(1, int(latency[f"{name}_us"] + latency[f"{name}_us_per_token"] * tokens + swap))


def simulate(
    config: dict[str, Any],
    workload: list[dict[str, Any]],
    *,
    count_restores: bool,
    blocked_checks_limit: bool,
    horizon: int,
    latency: dict[str, float] | None = None,
    stop_at_livelock: bool = False,
) -> dict[str, Any]:
    """Run until nothing is left or the next step would start at or after `horizon`.

    Returns `summary`, `steps` (one row a step and, in ticks, one an idle tick) and `requests` (by workload order).
    """
    in_ticks = latency is None
    latency = latency or TICKS
    engine = Engine(config, count_restores, blocked_checks_limit)
    everyone = [
        Request(
            w["id"],
            -1,
            w["arrival"],
            w["prompt"],
            w["max_tokens"],
            w["priority"],
            w.get("depths"),
            w.get("output_tokens", w["max_tokens"]),
        )
        for w in workload
    ]
    pending = deque(sorted(everyone, key=lambda r: r.arrival))  # stable: list order among equals
    for order, request in enumerate(pending):
        request.order = order
    rows: list[dict[str, Any]] = []
    finish_order: list[str] = []
    idle = steps = 0
    swapped_out = swapped_in = busy = kv_time = active_time = peak = 0
    history: list[Any] = []
    livelock: int | None = None
    unfinished: list[Request] = []
    t = 0
    while t < horizon:
        engine.now = t
        arrivals = []
        while pending and pending[0].arrival <= t:
            request = pending.popleft()
            engine.submit(request)
            arrivals.append(request.id)
        unfinished = [r for r in engine.requests if r.stage != "finished"]
        if not unfinished and not pending:
            break
        engine.events = []
        engine.swaps = engine.moved_out = engine.moved_in = 0
        stage: str | None = None
        batch: list[Item] = []
        tokens: list[str] = []
        finished: list[str] = []
        duration = 1 if in_ticks else max(0, pending[0].arrival - t) if pending else 0
        if unfinished:
            steps += 1
            stage = engine.choose_refill() if config["mode"] == "refill" else engine.choose_no_refill()
            if stage is not None:
                batch = engine.form_batch(stage)
            duration = step_time(engine, stage, batch, latency)
            used = engine.cfg["num_blocks"] - engine.pool.free_blocks()
            peak = max(peak, used)
            kv_time += used * duration
            active_time += len(engine.active()) * duration
            if batch:
                assert stage is not None
                busy += duration
                tokens, finished = engine.update(stage, batch, t + duration)
            else:
                stage = None
                idle += 1
            swapped_out += engine.moved_out
            swapped_in += engine.moved_in
        finish_order += finished
        rows.append(
            {
                "engine_step": bool(unfinished),
                "step": t,
                "arrivals": arrivals,
                "stage": stage,
                "items": [[i.request.id, i.start, i.count, i.depth] for i in batch],
                "events": engine.events,
                "tokens": tokens,
                "finished": finished,
                "free_blocks": engine.pool.free_blocks(),
                "waiting": [r.id for r in engine.waiting],
                "active": len(engine.active()),
                "bypasses": {r.id: r.bypasses for r in engine.requests if r.bypasses and r.stage != "finished"},
                "preemptions": engine.preemptions,
            }
        )
        t += duration
        is_empty = bool(unfinished) and stage is None
        unfinished = [r for r in unfinished if r.stage != "finished"]
        if not is_empty or any(event[0] == "admit" for event in engine.events):
            history = []
        if is_empty:
            history.append(engine.fingerprint())
            if is_repeated(history) and livelock is None and not pending:
                livelock = steps - 1
                if stop_at_livelock:
                    break
    return {
        "summary": {
            "finished": len(finish_order),
            "total": len(workload),
            "steps": t,
            "idle": idle,
            "preemptions": engine.preemptions,
            "resumptions": engine.resumptions,
            "order": finish_order,
            "free_end": engine.pool.free_blocks(),
            "snapshots_end": sum(r.saved_stage is not None for r in engine.requests),
        },
        "steps": rows,
        "requests": everyone,
        "totals": {
            "steps": steps,
            "end_us": pending[0].arrival if pending and not unfinished else t,  # an idle engine looks no further
            "livelock_step": -1 if livelock is None else livelock,
            "ineffective_preemptions": engine.ineffective_preemptions,
            "swapped_out_blocks": swapped_out,
            "swapped_in_blocks": swapped_in,
            "busy_us": busy,
            "kv_block_us": kv_time,
            "running_us": active_time,
            "kv_peak_blocks": peak,
        },
    }
