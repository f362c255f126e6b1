"""The capacity scheduler: who may hold KV. Requests come in the order of their arrival."""

from tests.reference_trtllm.requests import Request, Settings


def schedule_capacity(settings: Settings, active: list[Request], free: int) -> tuple[list[Request], list[Request]]:
    """Those that fit, in the order in which they were taken, and those to pause."""
    if settings.capacity_scheduler_policy == "MAX_UTILIZATION":
        return max_utilization(settings, active, free)
    static = settings.capacity_scheduler_policy == "STATIC_BATCH"
    return guaranteed_no_evict(settings, active, free, static), []


def remaining(settings: Settings, request: Request) -> int:
    """Blocks until it is complete."""
    return settings.blocks(request.prompt + request.limit) - request.blocks


def one_step(settings: Settings, request: Request) -> int:
    """Blocks for its next step."""
    if not request.started:
        return settings.blocks(request.context)
    if not request.generates:
        return 0
    return settings.blocks(request.in_kv + 1) - settings.blocks(request.in_kv)


def guaranteed_no_evict(settings: Settings, active: list[Request], free: int, static: bool) -> list[Request]:
    """Everybody's end is reserved, first that of those who generate."""
    taken: list[Request] = []
    pending: list[Request] = []
    available = free
    for request in active:
        if len(taken) == settings.max_batch_size:
            break
        if request.generates:
            taken.append(request)
            available -= remaining(settings, request)
        else:
            pending.append(request)
    if static and taken:
        return taken
    for request in pending:
        need = remaining(settings, request)
        if len(taken) == settings.max_batch_size or need > available:
            break
        taken.append(request)
        available -= need
    return taken


def max_utilization(settings: Settings, active: list[Request], free: int) -> tuple[list[Request], list[Request]]:
    """Only the next step is reserved; the last of those that started makes room."""
    taken: list[Request] = []
    paused: list[Request] = []
    left = list(active)
    used = 0
    while left:
        request = left[0]
        need = one_step(settings, request)
        if len(taken) < settings.max_batch_size and used + need <= free:
            used += need
            taken.append(left.pop(0))
            continue
        started = [each for each in left if each.started]
        if not started:
            break
        victim = started[-1]
        paused.append(victim)
        free += victim.blocks
        left = left[: left.index(victim)]
    return taken, paused
