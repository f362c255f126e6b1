"""The micro-batch scheduler: who of those that fit runs, and with how many tokens."""

from tests.reference_trtllm.requests import Request, Settings


def schedule_micro_batch(settings: Settings, fitting: list[Request]) -> tuple[list[tuple[Request, int]], list[Request]]:
    """Contexts with their tokens, and those that generate one."""
    contexts: list[Request] = []
    generation: list[Request] = []
    tokens = 0
    for request in fitting:
        if request.generates:
            if tokens + 1 > settings.max_num_tokens:
                break
            tokens += 1
            generation.append(request)
        elif settings.context_chunking_policy is None:
            if tokens + request.context > settings.max_num_tokens:
                break
            tokens += request.context
            contexts.append(request)
        else:
            contexts.append(request)
        if len(contexts) + len(generation) == settings.max_batch_size:
            break
    rest = {request.index: request.context - request.computed for request in contexts}
    capacity = settings.max_num_tokens - tokens
    if settings.context_chunking_policy is not None and sum(rest.values()) > capacity:
        chunk = first_come if settings.context_chunking_policy == "FIRST_COME_FIRST_SERVED" else equal_progress
        chunks = chunk(rest, capacity, settings.chunk_unit)
    else:
        chunks = rest
    return [(each, chunks[each.index]) for each in contexts if chunks[each.index] > 0], generation


def first_come(rest: dict[int, int], capacity: int, unit: int) -> dict[int, int]:
    """All of the rest in order; what is cut is cut to whole units."""
    chunks = {}
    for index, wanted in rest.items():
        chunk = min(wanted, capacity)
        if chunk < wanted:
            chunk = chunk // unit * unit
        chunks[index] = chunk
        capacity -= chunk
    return chunks


def equal_progress(rest: dict[int, int], capacity: int, unit: int) -> dict[int, int]:
    """A unit each, round after round, until nothing more goes in."""
    chunks = dict.fromkeys(rest, 0)
    changed = True
    while changed:
        changed = False
        for index, wanted in rest.items():
            more = min(unit, wanted - chunks[index])
            if more > 0 and sum(chunks.values()) + more <= capacity:
                chunks[index] += more
                changed = True
    return chunks
