"""The decode batch; retraction when it does not fit."""

from fastsim._jit import helper
from fastsim.engines.sglang.batches import add_decodes, decode_fits, drop_certain_ends
from fastsim.engines.sglang.codes import ABORTED, BY_PRIORITY
from fastsim.engines.sglang.memory import put_back, release
from fastsim.engines.sglang.waiting import append_waiting, urgency


@helper
def decode(cfg, st, s):
    """Build the batch in which everybody running decodes."""
    somebody_left = drop_certain_ends(cfg, st, s)
    if st["num_running"] == 0:
        return
    if decode_fits(cfg, st, s):
        st["ratio"] = max(st["ratio"] - cfg["decay"], cfg["min_ratio"])
    elif somebody_left:
        return
    else:
        retract(cfg, st, s)
    if st["num_running"] > 0:
        add_decodes(cfg, st, s)


@helper
def stays_before(cfg, s, i, j):
    """Whether `i` is retracted later than `j`: more generated, then a shorter prompt; urgency first if it counts."""
    if cfg["retraction_policy"] == BY_PRIORITY:
        a = urgency(cfg, s, i)
        b = urgency(cfg, s, j)
        if a != b:
            return a > b
    if s.req.generated[i] != s.req.generated[j]:
        return s.req.generated[i] > s.req.generated[j]
    return s.wl.prompt_tokens[i] < s.wl.prompt_tokens[j]


@helper
def sort_running(cfg, st, s):
    """Those that stay longest first; stable. The order remains."""
    running = s.lists.running
    for k in range(1, st["num_running"]):
        i = running[k]
        at = k
        while at > 0 and stays_before(cfg, s, i, running[at - 1]):
            running[at] = running[at - 1]
            at -= 1
        running[at] = i


@helper
def retract(cfg, st, s):
    """Put requests back until the rest can decode; abort the last one if it cannot even alone."""
    running = s.lists.running
    sort_running(cfg, st, s)
    while st["num_running"] > 1:
        st["num_running"] -= 1
        i = running[st["num_running"]]
        put_back(cfg, st, s, i, st["num_running"])
        s.req.retractions[i] += 1
        s.lists.retracted[st["num_retracted"]] = i
        st["num_retracted"] += 1
        if decode_fits(cfg, st, s):
            break
    if not decode_fits(cfg, st, s):
        abort_last(cfg, st, s)
    generated = 0
    declared = 0
    for k in range(st["num_running"]):
        generated += s.req.generated[running[k]]
        declared += s.req.limit[running[k]]
    expected = generated + cfg["retract_decode_steps"] * st["num_running"]
    st["ratio"] = min(1.0, expected / (declared + 1))
    for k in range(st["num_retracted"]):
        append_waiting(st, s, s.lists.retracted[k], st["now_us"])
    st["full"] = 0


@helper
def abort_last(cfg, st, s):
    """The one request left does not fit: it ends here."""
    i = s.lists.running[0]
    release(cfg, st, s, i)
    s.req.status[i] = ABORTED
    s.log.finish_us[i] = st["now_us"]
    st["aborted"] = i
    st["num_running"] = 0
    st["unfinished"] -= 1
