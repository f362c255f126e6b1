"""The per-step record: as `fastsim.engines.vllm.recorder`, with blocks by group and drafts."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fastsim._jit import helper
from fastsim.engines.tape import Tape
from fastsim.engines.vllm.groups.state import Record
from fastsim.engines.vllm.recorder import new_recorder, record_call
from fastsim.engines.vllm.recorder import record_update as record_update
from fastsim.engines.vllm.state import NONE
from fastsim.engines.vllm.tape import recorded_steps, recorded_tape


def new_record(capacity: int, num_groups: int) -> Record:
    """Room for `capacity` steps, scheduled entries, preemptions, completions and verifications each."""
    return Record(
        *new_recorder(capacity),
        np.zeros(capacity * num_groups, np.int32),
        np.zeros((capacity, 3), np.int32),
        np.zeros(capacity, np.int32),
    )


def recorded(rec: Record, scalars: npt.NDArray[np.void], num_groups: int, drafting: bool) -> Tape:
    """The record read back."""
    plain = recorded_steps(rec, scalars)
    verified = list(map(tuple, rec.verified[: int(scalars["rec_verified"])].tolist()))
    held = rec.held[: len(plain) * num_groups].reshape(len(plain), num_groups).tolist()
    steps = []
    at = 0
    for step, held_blocks, count in zip(plain, held, rec.steps_verified.tolist(), strict=False):
        steps.append(replace(step, held_blocks=held_blocks, verified=verified[at : at + count]))
        at += count
    return recorded_tape(rec, scalars, steps, drafting)


@helper
def record_has_room(s):
    """Whether any possible next step fits; of preemptions and events, whether those until now did."""
    n = s.wl.prompt_tokens.shape[0]
    return (
        s.st["rec_steps"] + s.st["in_flight"] < s.rec.steps.shape[0]
        and s.st["rec_scheduled"] + n <= s.rec.scheduled.shape[0]
        and s.st["rec_preempted"] <= s.rec.preempted.shape[0]
        and s.st["rec_finished"] + n <= s.rec.finished.shape[0]
        and s.st["rec_verified"] + n <= s.rec.verified.shape[0]
        and s.st["rec_events"] <= s.rec.events.shape[0]
    )


@helper
def record_schedule(s, base, start_us, end_us):
    """After schedule(): the batch that stands from `base` on, free blocks, and blocks by group."""
    row = s.st["rec_steps"] + s.st["in_flight"]
    first = s.st["rec_scheduled"]
    for k in range(s.st["scheduled"]):
        s.rec.scheduled[first + k, 0] = s.q.batch_request[base + k]
        s.rec.scheduled[first + k, 1] = s.q.batch_tokens[base + k]
    s.st["rec_scheduled"] += s.st["scheduled"]
    s.rec.steps[row, 0] = s.st["now_us"]
    s.rec.steps[row, 1] = s.st["scheduled"]
    s.rec.steps[row, 2] = s.st["preempted"]
    s.rec.steps[row, 4] = s.st["free"]
    s.rec.steps[row, 8] = start_us
    s.rec.steps[row, 9] = end_us
    s.rec.steps_verified[row] = 0
    num_groups = s.cfg["num_groups"]
    for j in range(num_groups):
        held = 0
        i = s.st["running_head"]
        while i != NONE:
            held += s.tab.live[s.req.row[i] * num_groups + j]
            i = s.req.run_next[i]
        s.rec.held[row * num_groups + j] = held
    record_call(s, row)
