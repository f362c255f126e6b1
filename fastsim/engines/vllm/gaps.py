"""Inter-token gaps: into the histogram as they come, or, under restart, when it is known which lives have survived.

Under `preemption_mode = "restart"` a preemption discards the tokens of a life, and with them its gaps. So gaps are
logged until the end of the run. A *tick* is one return of outputs; everybody who gets a token at two ticks in a row has
the gap between them. The tokens of a life are *runs* of consecutive ticks, so that a log of ticks (neighbours with
equal gaps are one *segment*), of runs that ended, and of the gap that ended each, holds them all.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim._jit import helper, inlined
from fastsim.engines.outputs import ITL_BINS, NEVER, record_gaps
from fastsim.engines.vllm.codes import PreemptionMode

SEGMENTS_OF_A_PASS = 8
"""More than one pass of a loop and the end of a run can add."""


class GapLog(NamedTuple):
    """Gaps of a run. All but the histogram is filled under restart only, up to the lengths in the scalars.

    ===============  =====  ===========  ============================================================================
    array            dtype  shape        meaning
    ===============  =====  ===========  ============================================================================
    histogram        int64  (ITL_BINS,)  a count a bin
    segment_tick     int64  (capacity,)  first tick of a segment
    segment_gap_us   int64  (capacity,)  time from each tick of it to the one before
    segment_runs     int64  (capacity,)  at the end: runs that begin to cover segments here, less those that end to
    segment_extra    int64  (capacity,)  at the end: ticks of it that runs cover which do not cover it whole
    run_request      int64  (capacity,)  whose run of ticks ended
    run_life         int64  (capacity,)  in which of its lives: its preemptions so far
    run_first        int64  (capacity,)  ticks of the run's first and last token
    run_last         int64  (capacity,)
    run_gap_us       int64  (capacity,)  from there to the life's next token
    ===============  =====  ===========  ============================================================================
    """

    histogram: npt.NDArray[np.int64]
    segment_tick: npt.NDArray[np.int64]
    segment_gap_us: npt.NDArray[np.int64]
    segment_runs: npt.NDArray[np.int64]
    segment_extra: npt.NDArray[np.int64]
    run_request: npt.NDArray[np.int64]
    run_life: npt.NDArray[np.int64]
    run_first: npt.NDArray[np.int64]
    run_last: npt.NDArray[np.int64]
    run_gap_us: npt.NDArray[np.int64]


def new_gap_log(capacity: int) -> GapLog:
    """Room for `capacity` segments and as many runs."""
    sizes = dict.fromkeys(GapLog._fields, capacity) | {"histogram": ITL_BINS}
    return GapLog(**{name: np.zeros(size, np.int64) for name, size in sizes.items()})


@inlined
def gap_log_has_room(s, num_requests):
    """Whether one more pass, and the end of the run, will fit."""
    if s.cfg["preemption_mode"] != PreemptionMode.RESTART:
        return True
    return (
        s.st["segments"] + SEGMENTS_OF_A_PASS <= s.gaps.segment_tick.shape[0]
        and s.st["ended_runs"] + 2 * num_requests <= s.gaps.run_request.shape[0]
    )


@inlined
def ticks_in_room(s):
    """Ticks of different gaps for which there is room, that of a pass left out."""
    return max(s.gaps.segment_tick.shape[0] - SEGMENTS_OF_A_PASS - s.st["segments"], 0)


@inlined
def tick(s, gap_us, decoders, ticks):
    """Outputs return `ticks` times, every `gap_us`, with a token for each of `decoders` requests on the clock."""
    if s.cfg["preemption_mode"] == PreemptionMode.RESTART:
        _log_ticks(s, gap_us, ticks)
    elif decoders > 0:
        count_gaps(s, gap_us, decoders * ticks)


@helper
def _log_ticks(s, gap_us, ticks):
    if ticks == 0:
        return
    segment = s.st["segments"]
    if segment == 0 or s.gaps.segment_gap_us[segment - 1] != gap_us:
        s.gaps.segment_tick[segment] = s.st["tick"] + 1
        s.gaps.segment_gap_us[segment] = gap_us
        s.gaps.segment_runs[segment] = 0
        s.gaps.segment_extra[segment] = 0
        s.st["segments"] = segment + 1
    s.st["tick"] += ticks


@inlined
def count_gaps(s, gap_us, count):
    """Count inter-token gaps; equal ones of neighbouring steps reach the histogram together."""
    if gap_us == s.st["gap_us"]:
        s.st["gap_count"] += count
        return
    _flush_gaps(s)
    s.st["gap_us"] = gap_us
    s.st["gap_count"] = count


@helper
def _flush_gaps(s):
    """Write the gaps still held back into the histogram."""
    if s.st["gap_count"] > 0:
        record_gaps(s.tot, s.gaps, s.st["gap_us"], s.st["gap_count"])
        s.st["gap_count"] = 0


@helper
def log_token(s, i, end_us):
    """Under restart, explicit request `i` gets another token of its life, at this tick."""
    number = s.st["tick"]
    if s.req.token_tick[i] != number - 1:
        run = s.st["ended_runs"]
        s.gaps.run_request[run] = i
        s.gaps.run_life[run] = s.log.num_preemptions[i]
        s.gaps.run_first[run] = s.req.run_tick[i]
        s.gaps.run_last[run] = s.req.token_tick[i]
        s.gaps.run_gap_us[run] = end_us - s.log.last_token_us[i]
        s.st["ended_runs"] = run + 1
        s.req.run_tick[i] = number
    s.req.token_tick[i] = number


@helper
def settle_gaps(s):
    """The end of a run: count whatever has not been counted."""
    if s.cfg["preemption_mode"] != PreemptionMode.RESTART:
        _flush_gaps(s)
        return
    for run in range(s.st["ended_runs"]):
        i = s.gaps.run_request[run]
        if s.log.first_token_us[i] != NEVER and s.gaps.run_life[run] == s.log.num_preemptions[i]:
            _cover(s, s.gaps.run_first[run], s.gaps.run_last[run])
            record_gaps(s.tot, s.gaps, s.gaps.run_gap_us[run], 1)
    for i in range(s.log.first_token_us.shape[0]):
        if s.log.first_token_us[i] != NEVER:
            _cover(s, s.req.run_tick[i], s.req.token_tick[i])
    covering = 0
    for segment in range(s.st["segments"]):
        covering += s.gaps.segment_runs[segment]
        end = s.gaps.segment_tick[segment + 1] if segment + 1 < s.st["segments"] else s.st["tick"] + 1
        count = covering * (end - s.gaps.segment_tick[segment]) + s.gaps.segment_extra[segment]
        if count > 0:
            record_gaps(s.tot, s.gaps, s.gaps.segment_gap_us[segment], count)


@helper
def _cover(s, first, last):
    """Note that a life has the gaps that end at ticks first + 1 .. last."""
    if first == last:
        return
    begin = _segment_of(s, first + 1)
    end = _segment_of(s, last)
    if begin == end:
        s.gaps.segment_extra[begin] += last - first
        return
    s.gaps.segment_extra[begin] += s.gaps.segment_tick[begin + 1] - 1 - first
    s.gaps.segment_extra[end] += last + 1 - s.gaps.segment_tick[end]
    s.gaps.segment_runs[begin + 1] += 1
    s.gaps.segment_runs[end] -= 1


@helper
def _segment_of(s, number):
    """The segment a tick is in."""
    low = 0
    high = s.st["segments"] - 1
    while low < high:
        middle = (low + high + 1) >> 1
        if s.gaps.segment_tick[middle] <= number:
            low = middle
        else:
            high = middle - 1
    return low
