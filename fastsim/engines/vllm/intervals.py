"""Decision intervals: within which values of its knobs a run makes the same decisions.

Every comparison that the dense loop makes with a knob holds on one side of a bound. The run keeps the strictest bounds,
and a configuration within all of them schedules the same tokens at the same times: its row is made of the same log
(`chunk`). By induction over steps: as long as all decisions were the same, the next comparison is the same, too. So the
intervals hold together, not only one knob at a time.

==========  ========================================  ================================================================
knob        compared                                  bounds
==========  ========================================  ================================================================
usable      blocks taken by running requests          without a preemption at least the most that were held; with one,
            (`num_gpu_blocks` - 1)                    the value itself. With hits in the cache, too: eviction decides
room        blocks of a candidate while others run    usable minus watermark: held + needed of the admitted, less than
                                                      that of the refused
cap         requests running, when somebody waits     the most that ran; the value itself where a scan ended there
            (`max_num_seqs`, `max_num_active_seqs`)
budget      tokens of a step                          the most of a step, and what the refused asked for; the value
                                                      itself where it cut
gate        whether all of a prompt must fit          either, while no chunk was cut by the budget
caching     hits                                      either, without shared prefixes and preemptions
==========  ========================================  ================================================================
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim._jit import helper, inlined
from fastsim.engines.step_fields import TABLE_FIELDS
from fastsim.engines.vllm.codes import NO_LIMIT, PreemptionMode, RunningCap
from fastsim.engines.vllm.free_list import blocks_for
from fastsim.engines.vllm.state import NONE

KNOBS = (
    "num_gpu_blocks",
    "watermark_blocks",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_num_scheduled_tokens",
    "scheduler_reserve_full_isl",
    "enable_prefix_caching",
)
"""Fields of the configuration record that intervals are about."""
TABLE_NAMES = tuple(field[0] for field in TABLE_FIELDS)


class KnobValues(NamedTuple):
    """Of some configurations over one workload; int64, shape (count,).

    =======  ============================================================================================
    kind     the same number where all else is the same; below 0: to be run whatever others say
    usable   blocks
    room     usable minus watermark
    cap      requests
    budget   tokens
    gate     0 or 1
    caching  0 or 1
    =======  ============================================================================================
    """

    kind: npt.NDArray[np.int64]
    usable: npt.NDArray[np.int64]
    room: npt.NDArray[np.int64]
    cap: npt.NDArray[np.int64]
    budget: npt.NDArray[np.int64]
    gate: npt.NDArray[np.int64]
    caching: npt.NDArray[np.int64]

    def from_number(self, first: int) -> "KnobValues":
        """Without those before it."""
        return KnobValues(*(values[first:] for values in self))


# --- During a run -----------------------------------------------------------------------------------------------------


@inlined
def begin_intervals(s):
    """Nothing has been compared yet, but for who can run at all."""
    s.st["usable_most"] = NO_LIMIT
    s.st["room_least"] = -NO_LIMIT
    s.st["room_most"] = NO_LIMIT
    s.st["cap_most"] = NO_LIMIT
    s.st["budget_most"] = NO_LIMIT
    s.st["gate_free"] = 1


@inlined
def note_cap(s, running):
    """Somebody waits, and as many run as may."""
    s.st["cap_most"] = running


@inlined
def note_budget(s, budget):
    """The budget cut something: with any other it would have been cut differently."""
    s.st["budget_most"] = budget


@inlined
def note_admission(s, i, tokens, running, budget):
    """Request `i` has been admitted with so many tokens, while `running` others ran.

    Whoever was tested and found room is seen here alone: a test that nobody acts on decides nothing.
    """
    limit = s.st["usable"] - s.st["free"]
    if tokens < s.req.num_tokens[i] - s.req.num_computed_tokens[i]:
        s.st["gate_free"] = 0
        note_budget(s, budget)
        if s.cfg["scheduler_reserve_full_isl"]:  # all of it had to fit, not only what it got
            limit += blocks_for(s, s.req.num_tokens[i]) - s.req.num_blocks[i]
    if running > 0:
        s.st["room_least"] = max(s.st["room_least"], limit)


@inlined
def note_refusal(s, asked, tokens, blocks, running, budget, left):
    """A waiting request that lacks `asked` tokens did not fit with `tokens`; `left` of the budget were left.

    `blocks` must be free for it, beside the watermark if anybody is running. A lower cap, or a budget with nothing
    left, would not have looked at it.
    """
    if tokens == asked:
        s.st["budget_least"] = max(s.st["budget_least"], budget - left + asked)
    else:
        s.st["gate_free"] = 0
        if not s.cfg["scheduler_reserve_full_isl"]:  # else all of it had to fit, whatever the budget
            note_budget(s, budget)
    limit = s.st["usable"] - s.st["free"] + blocks
    if running > 0:
        s.st["room_most"] = min(s.st["room_most"], limit - 1)
    else:
        s.st["usable_most"] = min(s.st["usable_most"], limit - 1)


# --- After a run ------------------------------------------------------------------------------------------------------


@helper
def settle_intervals(s):
    """What is known only at the end of a run in the dense loop. Nothing is told of one under rarer rules."""
    own_rules = s.cfg["preemption_mode"] == PreemptionMode.RECOMPUTE and s.cfg["running_cap"] == RunningCap.FIXED
    s.st["intervals"] = 1 if own_rules else 0
    usable = s.st["usable"]
    longest = 0
    group = NONE
    for i in range(s.wl.prompt_tokens.shape[0]):
        group = max(group, s.wl.prefix_group[i])
        longest = max(longest, s.wl.prompt_tokens[i] + s.wl.output_tokens[i])
    servable = blocks_for(s, min(longest, s.cfg["max_model_len"]) - 1)
    least = max(servable, s.tot["kv_peak_blocks"])
    shared = group != NONE
    s.st["caching_free"] = 1 if s.tot["preemptions"] == 0 and not shared else 0
    is_fixed = s.tot["preemptions"] > 0 or servable > usable
    if is_fixed or (s.cfg["enable_prefix_caching"] and not s.st["caching_free"]):
        least = usable
        s.st["usable_most"] = min(s.st["usable_most"], usable)
    s.st["usable_least"] = least
    s.st["cap_least"] = s.tot["running_peak"]
    s.st["budget_least"] = max(s.st["budget_least"], s.tot["batch_tokens_peak"])
    if s.st["budget_most"] != NO_LIMIT:
        s.st["budget_least"] = s.st["budget_most"]


@inlined
def decides_alike(st, knobs, ran, number):
    """Whether configuration `number` is one of those that decide as the one that just ran."""
    return (
        knobs.kind[number] == knobs.kind[ran]
        and st["cap_least"] <= knobs.cap[number] <= st["cap_most"]
        and st["usable_least"] <= knobs.usable[number] <= st["usable_most"]
        and st["room_least"] <= knobs.room[number] <= st["room_most"]
        and st["budget_least"] <= knobs.budget[number] <= st["budget_most"]
        and knobs.cap[number] <= knobs.budget[number]
        and (st["gate_free"] or knobs.gate[number] == knobs.gate[ran])
        and (st["caching_free"] or knobs.caching[number] == knobs.caching[ran])
    )


@inlined
def as_if_run(totals, config):
    """Totals of the run just made, as this configuration would have left them."""
    totals["usable_blocks"] = config["num_gpu_blocks"] - 1
    totals["cap_min"] = config["max_num_seqs"]
    totals["cap_final"] = config["max_num_seqs"]
    totals["cap_steps"] = config["max_num_seqs"] * totals["steps"]


# --- Before runs ------------------------------------------------------------------------------------------------------


def knob_values(records: npt.NDArray[np.void], params: npt.NDArray[np.void], *, reuse: bool) -> KnobValues:
    """Of some configurations. Without `reuse` each of them is to be run."""
    usable = records["num_gpu_blocks"] - 1
    return KnobValues(
        kind=_kinds(records, params) if reuse else np.full(len(records), -1),
        usable=usable,
        room=usable - records["watermark_blocks"],
        cap=np.minimum(records["max_num_seqs"], records["max_num_active_seqs"]),
        budget=np.minimum(records["max_num_batched_tokens"], records["max_num_scheduled_tokens"]),
        gate=np.ascontiguousarray(records["scheduler_reserve_full_isl"]),
        caching=np.ascontiguousarray(records["enable_prefix_caching"]),
    )


def _kinds(records: npt.NDArray[np.void], params: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    """A number for each combination of all fields that no interval is about, the table of step times included."""
    alike = np.zeros(len(records), np.int64)
    of_records = [records[name] for name in records.dtype.names or () if name not in KNOBS]
    of_table = [params[name] for name in TABLE_NAMES] if params["table_knots"].any() else []
    for values in (*of_records, *of_table):
        if (values == values[0]).all():
            continue
        flat = values.reshape(len(records), -1)
        _, number = np.unique(flat, axis=0, return_inverse=True)
        alike = np.unique(np.stack((alike, number.reshape(-1))), axis=1, return_inverse=True)[1].reshape(-1)
    return alike
