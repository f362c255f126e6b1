"""Times between tokens, kept per step instead of per token.

BLIS pools the inter-token times of all completed requests, of the life that completed. A request that decodes through a
step has that step's time as a gap; so it is enough to write down each step's time once (consecutive equal ones as one
*segment*) and, when a request completes, the range of segments through which it decoded: +1 where it began, -1 behind
its end. A running sum at the end of the run gives how often each gap occurred.

A request that a step passes over has its range cut there. Its next gap then includes the steps it waited: that is what
a client sees, and goes into the histogram; BLIS counts the last step alone, which is what the segments give.
"""

from fastsim._jit import helper
from fastsim.engines.blis.codes import MORE_RANGES, MORE_SEGMENTS, NONE
from fastsim.engines.outputs import itl_bin, record_gaps


@helper
def log_steps(st, g):
    """Write down `count` steps of `step_time_us` in which somebody decoded."""
    step_us = st["step_time_us"]
    count = st["count"]
    last = st["segments"] - 1
    if last >= 0 and not st["sealed"] and g.step_us[last] == step_us:
        g.steps[last] += count
        return
    if st["segments"] == g.steps.shape[0] - 1:
        st["status"] = MORE_SEGMENTS
        return
    g.step_us[last + 1] = step_us
    g.steps[last + 1] = count
    g.weight[last + 2] = 0
    st["segments"] = last + 2
    st["sealed"] = 0


@helper
def start_gaps(st, s, i):
    """`i` begins to decode with the next step."""
    s.req.gap_start[i] = st["segments"]
    s.req.stall_us[i] = 0
    s.req.ranges[i] = NONE
    st["sealed"] = 1


@helper
def cut_gaps(st, s, i, end):
    """`i` is passed over by the step just written down: its range ended before segment `end`."""
    g = s.gaps
    if s.req.gap_start[i] < end:
        node = st["range_free"]
        if node != NONE:
            st["range_free"] = g.range_next[node]
        elif st["ranges"] == g.range_start.shape[0]:
            st["status"] = MORE_RANGES
            return
        else:
            node = st["ranges"]
            st["ranges"] += 1
        g.range_start[node] = s.req.gap_start[i]
        g.range_end[node] = end
        g.range_stall_us[node] = s.req.stall_us[i]
        g.range_next[node] = s.req.ranges[i]
        s.req.ranges[i] = node
        s.req.stall_us[i] = 0
    s.req.gap_start[i] = st["segments"]
    s.req.stall_us[i] += st["step_time_us"]
    st["sealed"] = 1


@helper
def _count_range(g, tot, itl, start, end, stall_us):
    g.weight[start] += 1
    g.weight[end] -= 1
    if stall_us > 0:
        plain_us = g.step_us[start]
        record_gaps(tot, itl, stall_us + plain_us, 1)
        itl.histogram[itl_bin(plain_us)] -= 1
        tot["itl_count"] -= 1
        tot["itl_sum_us"] -= plain_us


@helper
def count_gaps(st, s, tot, itl, i):
    """`i` has completed: its gaps count."""
    g = s.gaps
    node = s.req.ranges[i]
    while node != NONE:
        _count_range(g, tot, itl, g.range_start[node], g.range_end[node], g.range_stall_us[node])
        node = g.range_next[node]
    if s.req.gap_start[i] < st["segments"]:
        _count_range(g, tot, itl, s.req.gap_start[i], st["segments"], s.req.stall_us[i])
    st["sealed"] = 1
    drop_gaps(st, s, i)


@helper
def drop_gaps(st, s, i):
    """The gaps of this life will not be needed any more."""
    g = s.gaps
    node = s.req.ranges[i]
    while node != NONE:
        following = g.range_next[node]
        g.range_next[node] = st["range_free"]
        st["range_free"] = node
        node = following
    s.req.ranges[i] = NONE


@helper
def is_stalled(s, i, segment):
    """Whether the step before the one of `segment` passed the decoding request `i` over."""
    return s.req.stall_us[i] > 0 and s.req.gap_start[i] == segment


@helper
def finish_gaps(st, g, tot, itl):
    """Turn the changes into counts: `weight` becomes the number of gaps as long as the segment's steps."""
    requests = 0
    for segment in range(st["segments"]):
        requests += g.weight[segment]
        count = requests * g.steps[segment]
        g.weight[segment] = count
        if count > 0:
            record_gaps(tot, itl, g.step_us[segment], count)


@helper
def reset_gaps(st, g):
    """Nothing written down."""
    g.weight[0] = 0
    st["segments"] = 0
    st["sealed"] = 1
    st["ranges"] = 0
    st["range_free"] = NONE
