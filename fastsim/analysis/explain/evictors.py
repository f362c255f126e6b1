"""Who evicted whom: the running loop of one step done again, with the victims known and their causes wanted.

A request that lacks blocks preempts until it has them. The record says who was preempted, in order, and who was
scheduled; so each victim falls to the first request, in the loop's order, that needs more than is free by then.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fastsim.engines.vllm.codes import Victim

if TYPE_CHECKING:
    from fastsim.engines.vllm.recorder import Step
    from fastsim.workload import Workload

TAIL = int(Victim.TAIL)


class Cause(NamedTuple):
    """`evictor` (None: not certain), whether for its slot, and how many blocks it lacked."""

    evictor: int | None
    for_slot: bool
    lacked_blocks: int


NOBODY = Cause(None, False, 0)


@dataclass(frozen=True)
class Victims:
    """The state when a schedule() call that preempts began: the running list in order, C, T and whether its last step
    left it in mid-prefill by request, and the free blocks (None: not certain).
    """

    config: Any
    workload: "Workload"
    running: dict[int, None]
    computed: list[int]
    length: list[int]
    mid_prefill: list[bool]
    free_blocks: int | None

    def blocks(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        limited = min(tokens, int(self.config["max_model_len"]))
        return -(-limited // int(self.config["block_size"]))

    def held(self, request: int) -> int:
        """Blocks of a running request."""
        return self.blocks(self.computed[request])

    def shareable(self, request: int) -> int:
        """Of those, at most so many may be held by others too, and do not become free with it."""
        group = int(self.workload.prefix_group[request])
        if group < 0 or not self.config["enable_prefix_caching"]:
            return 0
        return min(self.held(request), int(self.workload.prefix_tokens[request]) // int(self.config["block_size"]))


def evictors(state: Victims, step: "Step") -> list[Cause]:
    """The cause of each preemption of a step, in order."""
    if state.config["slot_preempt"] and any(request not in state.running for request, _ in step.scheduled):
        return _slot_causes(state, step)
    if state.free_blocks is None:
        return [NOBODY] * len(step.preempted)
    freed = [state.held(request) for request in step.preempted]
    taken = sum(
        state.blocks(state.computed[request] + tokens) - state.held(request) for request, tokens in step.scheduled
    )
    shared = state.free_blocks + sum(freed) - taken - step.free_mid
    most = [state.shareable(request) for request in step.preempted]
    if not 0 <= shared <= sum(most):
        return [NOBODY] * len(step.preempted)
    # Blocks that others hold too stay taken, and prefills may have been deferred in this step. Whose blocks they are,
    # and whether it was so, is open: all versions must tell the same story. Between two ways to share the blocks out
    # there are others, so that neither may be dropped as impossible
    splits = {tuple(_less(freed, most, shared)), tuple(_less(freed[::-1], most[::-1], shared)[::-1])}
    may_defer = state.config["prefill_schedule_interval"] > 1 and not any(
        state.mid_prefill[request] for request, _ in step.scheduled
    )
    versions = [_replay(state, step, list(split), defers) for split in splits for defers in {False, may_defer}]
    possible = [version for version in versions if version is not None]
    if not possible or (len(splits) > 1 and len(possible) < len(versions)):
        return [NOBODY] * len(step.preempted)
    return [
        causes[0] if len({cause.evictor for cause in causes}) == 1 else NOBODY for causes in zip(*possible, strict=True)
    ]


def _less(freed: list[int], most: list[int], shared: int) -> list[int]:
    """`freed` with `shared` taken off, from the first on, at most `most` each."""
    out = []
    for blocks, limit in zip(freed, most, strict=True):
        cut = min(limit, shared)
        out.append(blocks - cut)
        shared -= cut
    return out


def _slot_causes(state: Victims, step: "Step") -> list[Cause]:
    """Every victim of a slot made room for one admission; those without a victim came before."""
    admitted = [request for request, _ in step.scheduled if request not in state.running]
    if len(admitted) < len(step.preempted):
        return [Cause(None, True, 0)] * len(step.preempted)
    return [Cause(request, True, 0) for request in admitted[len(admitted) - len(step.preempted) :]]


def _replay(state: Victims, step: "Step", freed: list[int], defers: bool) -> list[Cause] | None:
    """The running loop, preempting as recorded whenever blocks are short. None: it does not come out as recorded."""
    config = state.config
    recorded = dict(step.scheduled)
    victims = dict(zip(step.preempted, freed, strict=True))
    causes: list[Cause] = []
    order = list(state.running)
    allocated: dict[int, int] = {}  # tokens and blocks given in this step to one that is preempted later
    given: dict[int, int] = {}
    budget = int(min(config["max_num_scheduled_tokens"], config["max_num_batched_tokens"]))
    free = state.free_blocks or 0
    place = 0
    while place < len(order) and budget > 0:
        request = order[place]
        tokens: int | None = recorded.get(request, 0)
        if request in victims and config["victim"] == TAIL and config["boost_after"] == 0:
            return causes + [Cause(request, False, 0)] * (len(victims) - len(causes))  # its own victim
        if request not in recorded:
            tokens = 0 if defers and state.mid_prefill[request] else _wanted(state, step, request, budget)
        if tokens is None:
            return [NOBODY] * len(victims)
        if tokens > 0 and request not in recorded and request not in victims:
            return None
        if tokens <= 0:
            place += 1
            continue
        needed = state.blocks(state.computed[request] + tokens) - state.held(request)
        evicted = False
        while needed > free and not evicted:
            if len(causes) == len(victims):
                return None
            victim = step.preempted[len(causes)]
            causes.append(Cause(request, False, needed - free))
            position = order.index(victim)
            order.remove(victim)
            free += victims[victim] + allocated.pop(victim, 0)
            budget += given.pop(victim, 0)
            place -= position < place
            evicted = victim == request
        if evicted:
            if config["victim"] == TAIL or config["self_preemption_stops"]:
                break
            continue
        free -= needed
        budget -= tokens
        if request in victims:
            allocated[request] = needed
            given[request] = tokens
        place += 1
    if len(causes) < len(victims):
        return [Cause(None, True, 0)] * len(victims) if config["slot_preempt"] and not causes else None
    return causes


def _wanted(state: Victims, step: "Step", request: int, budget: int) -> int | None:
    """Tokens asked for by a request that the record does not show, because it was preempted in the same step.

    None: that hangs on something which is not in the record either.
    """
    config = state.config
    computed, length = state.computed[request], state.length[request]
    limit = int(config["max_model_len"])
    final = min(int(state.workload.prompt_tokens[request]) + int(state.workload.output_tokens[request]), limit)
    if length >= final:  # its last token is in flight
        return 0
    tokens = length - computed
    threshold = int(config["long_prefill_token_threshold"])
    if 0 < threshold < tokens:
        if config["asynchronous"]:
            return None
        requests = len(state.running) + step.waiting - len(step.preempted)
        if config["long_prefill_token_threshold_adaptive"]:
            threshold = max(threshold, int(config["max_num_batched_tokens"]) // requests)
        if requests > 1 or config["threshold_always"]:
            tokens = min(tokens, threshold)
    return min(tokens, budget, limit - computed - 1)
