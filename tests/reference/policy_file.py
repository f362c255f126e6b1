"""A policy file in the oracle: its functions as plain Python runs them, and what they are given at each place."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.reference.kv_groups import ceil_div
from tests.reference.requests import RequestState

if TYPE_CHECKING:
    from tests.reference.scheduler import Plan, Scheduler


class PolicyFile:
    """The functions of `engine.policy_file`; a missing one leaves the built-in rule."""

    def __init__(self, config: SimpleNamespace, scheduler: "Scheduler") -> None:
        self.config = config
        self.scheduler = scheduler
        names: dict[str, Any] = {}
        if config.policy_file is not None:
            exec(compile(Path(config.policy_file).read_text(), config.policy_file, "exec"), names)
        self.victim_key: Callable[..., float] | None = names.get("victim_key")
        self.queue_key: Callable[..., float] | None = names.get("queue_key")
        self.admit: Callable[..., bool] | None = names.get("admit")
        self.cap: Callable[..., float] | None = names.get("cap")
        self.first_of_equals = names.get("victim_ties", "last") == "first"
        self.queue_changes = bool(names.get("queue_changes", False)) and self.queue_key is not None

    def view(self, waiting: int | None = None) -> SimpleNamespace:
        """The scheduler at this moment."""
        s = self.scheduler
        prefilling = [r for r in s.running if not _decodes(s, r)]
        return SimpleNamespace(
            now_us=s.now_us,
            step=s.calls,
            free_blocks=s.pool.num_free,
            usable_blocks=s.pool.usable,
            block_size=self.config.block_size,
            running=len(s.running),
            waiting=len(s.waiting) if waiting is None else waiting,
            prefilling=len(prefilling),
            step_prefill_tokens=sum(n for r, n in s.batch.scheduled.items() if not _decodes_in_batch(s, r, n)),
        )

    def request(self, r: RequestState, **known: Any) -> SimpleNamespace:
        """What is the same at every place."""
        limit = r.spec.max_tokens
        return SimpleNamespace(
            index=r.index,
            arrival_us=r.arrival_us,
            waiting_since_us=r.queued_us,
            priority=r.priority,
            prompt_tokens=r.prompt,
            max_tokens=self.config.max_model_len - r.prompt if limit is None else limit,
            output_tokens=r.spec.output_tokens,
            generated_tokens=r.generated,
            tokens=r.prompt + r.generated,
            preemptions=r.num_preemptions,
            **({"computed_tokens": r.num_computed} | known),
        )

    def choose_victim(self, running: Sequence[RequestState], candidates: Sequence[RequestState]) -> RequestState:
        """The highest key of the candidates; the later one on ties, unless the file says the first."""
        assert self.victim_key is not None
        view = self.view()
        best, best_key = None, 0.0
        for candidate in candidates:
            request = self.request(
                candidate,
                blocks=len(candidate.blocks),
                exclusive_blocks=sum(block.ref_count == 1 for block in candidate.blocks),
                position=list(running).index(candidate),
            )
            key = float(self.victim_key(view, request))
            if best is None or key > best_key or (key == best_key and not self.first_of_equals):
                best, best_key = candidate, key
        assert best is not None
        return best

    def order_key(self, r: RequestState, waiting: int) -> float:
        """What orders the queue, in which so many wait, this one included."""
        assert self.queue_key is not None
        return float(self.queue_key(self.view(waiting), self.request(r)))

    def admits(self, r: RequestState, plan: "Plan", running: Sequence[RequestState]) -> bool:
        """Asked about a candidate that passed every other test; never when nobody runs."""
        if self.admit is None or not running:
            return True
        hits = plan.hits.tokens
        request = self.request(
            r,
            computed_tokens=r.num_computed if r.host_blocks else hits,
            cached_tokens=hits,
            new_tokens=plan.tokens,
            blocks=ceil_div(r.num_tokens, self.config.block_size) - hits // self.config.block_size,
        )
        return bool(self.admit(self.view(), request))

    def most_running(self) -> int | None:
        """The cap of this scan."""
        return None if self.cap is None else max(1, int(self.cap(self.view()) // 1))


def _decodes(s: "Scheduler", r: RequestState) -> bool:
    """Whether a running request misses exactly the one token of a decode."""
    return r.num_computed + 1 == s.length(r) and r.num_computed >= r.prompt


def _decodes_in_batch(s: "Scheduler", r: RequestState, n: int) -> bool:
    return n == 1 and _decodes(s, r)
