"""Wavefront prefill: a prompt range runs one loop a step, and ranges follow each other through the depths."""

from fastsim._jit import helper
from fastsim.engines.rlt.codes import NONE, PREFILL
from fastsim.engines.rlt.queues import push, remove


@helper
def range_tokens(cfg, s, task):
    """Prompt tokens of a task's range."""
    return min(cfg["prefill_chunk_size"], s.wl.prompt_tokens[s.wave.request[task]] - s.wave.start[task])


@helper
def reset_wave(cfg, st, s):
    """No tasks; every request gets room for as many as its prompt has ranges."""
    base = 0
    for i in range(st["num_requests"]):
        s.wave.task_base[i] = base
        s.wave.saved_head[i] = NONE
        base += (s.wl.prompt_tokens[i] + cfg["prefill_chunk_size"] - 1) // cfg["prefill_chunk_size"]


@helper
def push_range(s, i, task, start):
    """Queue a range of request `i` at depth 0."""
    s.wave.request[task] = i
    s.wave.start[task] = start
    s.wave.depth[task] = 0
    push(s.stages, PREFILL, s.req.stage.shape[0] + task)


@helper
def start_wave(cfg, s, i, cached):
    """Queue the first range of request `i`; what the prefix cache held is written at every depth."""
    loops = cfg["max_loops"]
    for depth in range(loops):
        s.wave.written[i * loops + depth] = cached
    push_range(s, i, s.wave.task_base[i], cached)


@helper
def is_ready(cfg, s, task):
    """Whether the KV of the task's depth is there up to its range."""
    i = s.wave.request[task]
    return s.wave.written[i * cfg["max_loops"] + s.wave.depth[task]] >= s.wave.start[task]


@helper
def advance_task(cfg, s, task, end):
    """A task has run up to token `end`: its range goes one loop deeper, and behind depth 0 the next range enters.

    True when the range has left the last depth.
    """
    i = s.wave.request[task]
    depth = s.wave.depth[task]
    s.wave.written[i * cfg["max_loops"] + depth] = end
    last = depth + 1 == cfg["max_loops"]
    if not last:
        s.wave.depth[task] = depth + 1
        push(s.stages, PREFILL, s.req.stage.shape[0] + task)
    if depth == 0 and end < s.wl.prompt_tokens[i]:
        push_range(s, i, task + 1, end)
    return last


@helper
def take_tasks(s, i):
    """The tasks of request `i` leave the queue and wait, in their order, for its restore."""
    n = s.req.stage.shape[0]
    links = s.stages
    s.wave.saved_head[i] = NONE
    last = NONE
    element = links.head[PREFILL]
    while element != NONE:
        after = links.next[element]
        if s.wave.request[element - n] == i:
            remove(links, PREFILL, element)
            links.next[element] = NONE
            if last == NONE:
                s.wave.saved_head[i] = element
            else:
                links.next[last] = element
            last = element
        element = after


@helper
def return_tasks(s, i):
    """The saved tasks of request `i` join the tail of the queue in their old order."""
    element = s.wave.saved_head[i]
    while element != NONE:
        after = s.stages.next[element]
        push(s.stages, PREFILL, element)
        element = after
