"""The micro-batch scheduler: who of those that fit runs, and with how many tokens."""

from fastsim._jit import helper
from fastsim.engines.trtllm.capacity import generates
from fastsim.engines.trtllm.codes import FIRST_COME, NO_CHUNKS


@helper
def schedule_micro_batch(cfg, st, s):
    """Fill `contexts` (each with its `chunk`) and `decodes`."""
    contexts = 0
    decodes = 0
    tokens = 0
    wanted = 0
    for k in range(st["num_fitting"]):
        i = s.lists.fitting[k]
        if generates(s, i):
            if tokens + 1 > cfg["max_num_tokens"]:
                break
            tokens += 1
            s.lists.decodes[decodes] = i
            decodes += 1
        else:
            rest = s.req.context[i] - s.req.computed[i]
            if cfg["chunking"] == NO_CHUNKS:
                if tokens + rest > cfg["max_num_tokens"]:
                    break
                tokens += rest
            wanted += rest
            s.req.chunk[i] = rest
            s.lists.contexts[contexts] = i
            contexts += 1
        if contexts + decodes >= cfg["max_batch_size"]:
            break
    st["num_decodes"] = decodes
    st["num_contexts"] = contexts
    st["context_tokens"] = wanted
    capacity = cfg["max_num_tokens"] - tokens
    if cfg["chunking"] != NO_CHUNKS and wanted > capacity:
        if cfg["chunking"] == FIRST_COME:
            first_come(cfg, st, s, capacity)
        else:
            equal_progress(cfg, st, s, capacity)
        drop_empty(st, s)


@helper
def first_come(cfg, st, s, capacity):
    """All of the rest in order; what is cut is cut to whole units."""
    for k in range(st["num_contexts"]):
        i = s.lists.contexts[k]
        chunk = min(s.req.chunk[i], capacity)
        if chunk < s.req.chunk[i]:
            chunk = chunk // cfg["chunk_unit"] * cfg["chunk_unit"]
        s.req.chunk[i] = chunk
        capacity -= chunk


@helper
def equal_progress(cfg, st, s, capacity):
    """A unit each, round after round, until nothing more goes in."""
    for k in range(st["num_contexts"]):
        s.req.chunk[s.lists.contexts[k]] = 0
    given = 1
    while given > 0:
        given = 0
        for k in range(st["num_contexts"]):
            i = s.lists.contexts[k]
            more = min(cfg["chunk_unit"], s.req.context[i] - s.req.computed[i] - s.req.chunk[i])
            if more > 0 and more <= capacity:
                s.req.chunk[i] += more
                capacity -= more
                given += more


@helper
def drop_empty(st, s):
    """Contexts without a token do not run in this step."""
    kept = 0
    tokens = 0
    for k in range(st["num_contexts"]):
        i = s.lists.contexts[k]
        if s.req.chunk[i] > 0:
            s.lists.contexts[kept] = i
            kept += 1
            tokens += s.req.chunk[i]
    st["num_contexts"] = kept
    st["context_tokens"] = tokens
