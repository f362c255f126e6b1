"""One pass of the scheduler: what the last batch left, then a prefill batch or else a decode batch."""

from fastsim._jit import helper
from fastsim.engines.sglang.admission import prefill
from fastsim.engines.sglang.batches import open_batch
from fastsim.engines.sglang.codes import NONE, RUNNING
from fastsim.engines.sglang.decode import decode
from fastsim.engines.sglang.memory import checkpoint


@helper
def schedule(cfg, st, s):
    """Build the next batch in the open slot, if there is one to build. False: the pool ran over."""
    open_batch(st, s)
    st["num_retracted"] = 0
    st["num_preempted"] = 0
    st["aborted"] = NONE
    stash(cfg, st, s)
    merge(st, s)
    drop_finished(st, s)
    slot = st["batch"]
    st["put_off"] = 0
    if st["passes_since_prefill"] < cfg["prefill_decode_interval"]:
        st["put_off"] = 1
        st["passes_since_prefill"] += 1
    else:
        if not prefill(cfg, st, s):
            return False
        if s.batches.num_extends[slot] > 0:
            st["passes_since_prefill"] = 0
    if s.batches.num_extends[slot] == 0 and st["num_running"] > 0:
        decode(cfg, st, s)
    return True


@helper
def stash(cfg, st, s):
    """Give the last chunk of the request in the middle of its prompt to the tree."""
    i = st["chunked"]
    if i != NONE and s.req.chunk_end[i] != NONE:
        end = s.req.chunk_end[i]
        checkpoint(cfg, st, s, i, end)
        s.req.prefix[i] = end
        s.req.chunk_end[i] = NONE


@helper
def merge(st, s):
    """Who was prefilled in the last batch decodes from now on."""
    slot = st["last"]
    if slot == NONE:
        return
    b = s.batches
    if b.num_extends[slot] == 0:
        return
    before = st["num_running"]
    first = slot * st["num_requests"]
    for k in range(b.num_extends[slot]):
        append_running(st, s, slot, b.extend[first + k])
    for k in range(b.num_decodes[slot]):
        append_running(st, s, slot, b.decode[first + k])
    everybody = b.num_extends[slot] + b.num_decodes[slot]
    if before == 0 or st["num_running"] - before < everybody:
        st["full"] = 0


@helper
def append_running(st, s, slot, i):
    """Request `i` of the last batch decodes, unless it has ended or its prompt has not."""
    if s.req.status[i] == RUNNING and i != s.batches.chunked[slot] and i != st["chunked"]:
        s.lists.running[st["num_running"]] = i
        st["num_running"] += 1


@helper
def drop_finished(st, s):
    """Who has ended leaves `running`."""
    kept = 0
    for k in range(st["num_running"]):
        i = s.lists.running[k]
        if s.req.status[i] == RUNNING:
            s.lists.running[kept] = i
            kept += 1
    if kept < st["num_running"]:
        st["full"] = 0
    st["num_running"] = kept
