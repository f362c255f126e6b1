"""The decode clock (see `state`): how a request gets on it, is passed over, and leaves."""

from fastsim._jit import helper
from fastsim.engines.blis.codes import NO_LIMIT, NONE
from fastsim.engines.blis.gaps import cut_gaps, drop_gaps, is_stalled, start_gaps
from fastsim.engines.blis.tier import last_room
from fastsim.engines.outputs import NEVER


@helper
def progress_of(st, s, i):
    """Tokens of `i` computed before this step."""
    return s.req.progress[i] + (st["clock"] if s.req.lane[i] != NONE else 0)


@helper
def generated_tokens(st, s, i):
    """Output tokens of the present life of `i`."""
    if s.req.lane[i] == NONE:
        return 0
    return min(progress_of(st, s, i) - s.wl.prompt_tokens[i] + 1, s.wl.output_tokens[i])


@helper
def enter_clock(cfg, st, s, i, end_us):
    """The prefill of `i` ends at `end_us` with its first token. The clock shows the next step already."""
    block_size = cfg["block_size"]
    prompt = s.wl.prompt_tokens[i]
    room = last_room(cfg, s, i) if cfg["kv_cpu_blocks"] > 0 else (s.req.plain_start[i] - prompt) % block_size
    lane = (st["phase"] + room) % block_size
    s.req.lane[i] = lane
    s.lists.lane_size[lane] += 1
    s.req.progress[i] = prompt - st["clock"]
    s.req.end_clock[i] = st["clock"] + max(s.wl.output_tokens[i], 1) - 1
    st["next_end"] = min(st["next_end"], s.req.end_clock[i])
    s.req.decode_start_us[i] = st["decoded_us"]
    st["prefilling"] -= 1
    start_gaps(st, s, i)
    s.blis.ttft_us[i] = end_us + cfg["output_token_us"] - s.wl.arrival_us[i]
    s.log.first_token_us[i] = end_us
    if s.log.first_life_token_us[i] == NEVER:
        s.log.first_life_token_us[i] = end_us


@helper
def pass_over(cfg, st, s, i, segment):
    """The step of segment `segment` gives the decoding request `i` no token: what the clock says of it moves by one.

    Called before the clock advances.
    """
    if not is_stalled(s, i, segment):
        s.log.last_token_us[i] = st["last_end_us"]
    s.lists.lane_size[s.req.lane[i]] -= 1
    lane = (s.req.lane[i] + 1) % cfg["block_size"]
    s.req.lane[i] = lane
    s.lists.lane_size[lane] += 1
    s.req.progress[i] -= 1
    s.req.end_clock[i] += 1
    s.req.decode_start_us[i] += st["step_time_us"]
    cut_gaps(st, s, i, segment)


@helper
def leave_clock(st, s, i):
    """Write out what the log has of the decoding request `i`; `next_end` may be stale afterwards."""
    if not is_stalled(s, i, st["segments"]):
        s.log.last_token_us[i] = st["last_end_us"]
    s.lists.lane_size[s.req.lane[i]] -= 1
    s.req.progress[i] += st["clock"]
    s.req.lane[i] = NONE
    drop_gaps(st, s, i)


@helper
def find_next_end(st, s):
    """Recompute the least `end_clock`."""
    least = NO_LIMIT
    for at in range(st["running"]):
        i = s.lists.running[at]
        if s.req.lane[i] != NONE:
            least = min(least, s.req.end_clock[i])
    st["next_end"] = least
