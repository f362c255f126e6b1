"""The recorder: kernels note what they decide on a tape of integers, Python reads it back as steps."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim._jit import helper
from fastsim.engines.rlt.codes import (
    FINISHED,
    NOTE_BYPASSES,
    NOTE_STEP,
    NOTE_WAITING,
    NOTHING,
    NUM_STAGES,
    Note,
    ScanStop,
    Stage,
)
from fastsim.engines.rlt.pages import free_blocks
from fastsim.engines.rlt.queues import num_waiting


@helper
def note(st, tape, code, a, b, c, d):
    """Write one row of the tape. A tape without rows records nothing; a full one counts what it misses."""
    if tape.rows.shape[0] > 0:
        row = st["tape_rows"]
        if row < tape.rows.shape[0]:
            tape.rows[row, 0] = code
            tape.rows[row, 1] = a
            tape.rows[row, 2] = b
            tape.rows[row, 3] = c
            tape.rows[row, 4] = d
        st["tape_rows"] = row + 1


@helper
def note_step(cfg, st, s, stage):
    """Close a step on the tape: the waiting queue, the bypass counts, the totals of the moment."""
    if s.tape.rows.shape[0] > 0:
        for k in range(num_waiting(st)):
            note(st, s.tape, NOTE_WAITING, s.lists.waiting[st["wait_head"] + k], NOTHING, NOTHING, NOTHING)
        for i in range(st["next_arrival"]):
            if s.req.bypasses[i] > 0 and s.req.stage[i] != FINISHED:
                note(st, s.tape, NOTE_BYPASSES, i, s.req.bypasses[i], NOTHING, NOTHING)
        note(st, s.tape, NOTE_STEP, st["now_us"], stage, free_blocks(cfg, st), st["num_active"])


def read_tape(tape: npt.NDArray[np.int64], source: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
    """The steps on a tape, oldest first. `source` maps the kernel's request indices to the caller's.

    Keys of a step: `step` (clock, us), `arrivals`, `stage` (None: nothing selected), `items`
    (request, start, count, depth), `events`, `tokens`, `finished`, `waiting`, `bypasses`, `free_blocks`, `active`,
    `preemptions` (so far). Events are as in the recorded cases, with request indices.
    """
    steps: list[dict[str, Any]] = []
    preemptions = 0
    step = _blank_step()
    for code, a, b, c, d in tape.tolist():
        request = int(source[a]) if code not in (Note.STEP, Note.STOP) else -1
        match code:
            case Note.ARRIVAL:
                step["arrivals"].append(request)
            case Note.ADMIT:
                step["events"].append(["admit", request, b, c])
            case Note.RESTORE | Note.NOGROW:
                step["events"].append([Note(code).name.lower(), request])
            case Note.BLOCKED | Note.DEFER:
                step["events"].append([Note(code).name.lower(), request, b])
            case Note.PREEMPT_SLOT | Note.PREEMPT_GROW:
                reason = "slot" if code == Note.PREEMPT_SLOT else "grow"
                step["events"].append(["preempt", reason, request, int(source[b])])
                preemptions += 1
            case Note.STOP:
                step["events"].append(["stop", ScanStop(a).name.lower()])
            case Note.ITEM:
                step["items"].append([request, b, c, d])
            case Note.TOKEN:
                step["tokens"].append(request)
            case Note.FINISHED:
                step["finished"].append(request)
            case Note.WAITING:
                step["waiting"].append(request)
            case Note.BYPASSES:
                step["bypasses"][request] = b
            case Note.STEP:
                stage = Stage(b).name.lower() if 0 <= b < NUM_STAGES else None
                step |= {"step": a, "stage": stage, "free_blocks": c, "active": d, "preemptions": preemptions}
                steps.append(step)
                step = _blank_step()
    return steps


def _blank_step() -> dict[str, Any]:
    step: dict[str, Any] = {name: [] for name in ("arrivals", "items", "events", "tokens", "finished", "waiting")}
    return step | {"bypasses": {}}
