"""The computing of one task: workload by workload, configuration by configuration where one of them fails."""

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.engines import folders_of, runtime_module
from fastsim.errors import PolicyError, WorkError
from fastsim.sweeps.grid import Grid, Part
from fastsim.sweeps.store import PartRecord, write_part
from fastsim.sweeps.worker.task import Job, Outcome, Piece, Task, TaskRunner, building
from fastsim.workload import WorkloadPlan

Int64Array = npt.NDArray[np.int64]

MAX_TRACEBACKS = 3
STEP_S = 0.2
"""About how long a worker computes between two looks at whether it is asked to share."""
FIRST_STEP_ROWS = 32


@dataclass
class Pace:
    """How many rows make a step: follows what rows cost. It only cuts the work, it decides no number."""

    seconds_per_row: float = STEP_S / FIRST_STEP_ROWS
    step_s: float = STEP_S

    def rows(self) -> int:
        """Rows of the next step."""
        return max(1, int(self.step_s / max(self.seconds_per_row, 1e-9)))

    def note(self, rows: int, seconds: float) -> None:
        """A step is done. The estimate falls slowly: one quick step does not lead to a very long one."""
        self.seconds_per_row = max(seconds / rows, self.seconds_per_row / 4)


@dataclass(frozen=True)
class SweepJob(Job):
    """The parts of a sweep. `folder` is where workers store them; None when they hand them in as bytes."""

    grid: Grid
    folder: Path | None

    @property
    def modules(self) -> list[str]:
        """Those that run the engines of the grid."""
        engines = folders_of(self.grid.possible("engine.name"))
        return ["fastsim.sweeps.worker", "fastsim.simulation", *map(runtime_module, engines)]

    def prepare(self) -> None:
        """Load or compile the kernels of the grid."""
        from fastsim.simulation import compile_kernels

        compile_kernels(self.grid)

    def start(self) -> TaskRunner:
        """What computes parts, one after the other."""
        plan, pace = WorkloadPlan(), Pace()
        return lambda task, announce, asked: PartRun(self, plan, task, announce, asked, pace).run()

    def simulate(self, workload: Any, indices: Int64Array) -> tuple[npt.NDArray[np.float64], Int64Array]:
        """Rows of configurations of the grid that share a workload: floats and ints of the metrics."""
        from fastsim.simulation import records_at, simulate_chunk

        rows = simulate_chunk(workload, records_at(self.grid, indices))
        return rows.floats, rows.ints


class PartRun:
    """One task being computed.

    Parameters
    ----------
    job, plan, task
        The sweep, the cache of workloads that this worker keeps, and what to do.
    announce
        Called with each configuration before it runs, if it runs alone, and with `building` before its workload is
        built.
    asked_to_share
        Says whether somebody waits for a share of this task.
    pace
        What rows cost this worker so far.
    """

    def __init__(
        self,
        job: SweepJob,
        plan: WorkloadPlan,
        task: Task,
        announce: Callable[[int], None],
        asked_to_share: Callable[[], bool] = lambda: False,
        pace: Pace | None = None,
    ) -> None:
        from fastsim.sweeps.store import schema

        self.job = job
        self.plan = plan
        self.task = task
        self.announce = announce
        self.asked_to_share = asked_to_share
        self.pace = pace or Pace()
        self.workload_ids: list[str | None] = []
        self.floats, self.ints = schema.empty_rows(task.end - task.first, job.grid.class_names)
        self.errors: dict[int, str] = {}
        self.tracebacks: list[str] = []

    def run(self) -> Outcome:
        """Compute the rows; a whole part is also stored, or made a file's bytes."""
        done = 0
        for group in self._groups():
            while len(group):
                now, group = group[: self.pace.rows()], group[self.pace.rows() :]
                before = time.perf_counter()
                self._run_group(now, done)
                self.pace.note(len(now), time.perf_counter() - before)
                done += len(now)
                if self._shares(done):
                    return self._outcome(done)
        return self._outcome(done)

    def _shares(self, done: int) -> bool:
        """Whether to leave the rest to others: not when it would take no longer than handing it over."""
        rest = len(self.floats) - done
        return rest > 1 and rest * self.pace.seconds_per_row > self.pace.step_s / 2 and self.asked_to_share()

    def _outcome(self, done: int) -> Outcome:
        out = Outcome(self.task, None, None, None, self.pace.seconds_per_row, self.errors, self.tracebacks)
        piece = Piece(self.task.first, self.workload_ids, self.floats[:done], self.ints[:done])
        if done < self.task.part.rows:
            out.piece = piece
            return out
        data = part_data(self.job.grid, self.task.part, [piece])
        if self.job.folder is None:
            out.data = data
        else:
            out.record = self._written(self.job.folder, data)
        return out

    def _written(self, folder: Path, data: bytes) -> PartRecord:
        try:
            return write_part(folder, self.task.part, data, self.errors)
        except OSError as error:
            reason = error.strerror or error
            raise WorkError(f"{folder}: part {self.task.part.index} cannot be stored ({reason})") from None

    def _groups(self) -> list[Int64Array]:
        """The task's configurations, cut where the workload changes."""
        indices = self.task.part.indices()[self.task.first : self.task.end]
        workloads = indices // self.job.grid.configs_per_workload
        return np.split(indices, np.flatnonzero(np.diff(workloads)) + 1)

    def _run_group(self, group: Int64Array, row: int) -> None:
        """Run configurations that share a workload, from a row on; if they fail together, one by one."""
        grid = self.job.grid
        index = grid.workload_index(int(group[0]))
        if building(index) in self.task.skip:
            self.workload_ids += [None] * len(group)
            self.errors.update(dict.fromkeys(group.tolist(), "its workload keeps killing workers"))
            return
        if self.task.alone:
            self.announce(building(index))
        try:
            workload = self.plan.build(grid.workload_config(index))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - it becomes rows of status error, and is reported with them
            self.workload_ids += [None] * len(group)
            self._note(group.tolist(), error)
            return
        self.workload_ids += [workload.workload_id] * len(group)
        if self.task.alone or not self.task.skip.isdisjoint(group.tolist()):
            self._run_alone(workload, group, row)
            return
        try:
            self._simulate(workload, group, row)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - the next line finds out which configuration it was
            self._run_alone(workload, group, row)

    def _run_alone(self, workload: Any, group: Int64Array, first: int) -> None:
        for row, index in enumerate(group.tolist(), first):
            if index in self.task.skip:
                self.errors[index] = "it keeps killing workers"
                continue
            self.announce(index)
            try:
                self._simulate(workload, np.array([index]), row)
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - it becomes a row of status error, and is reported with it
                self._note([index], error)

    def _simulate(self, workload: Any, group: Int64Array, row: int) -> None:
        """Fill the rows from a row on; those that vLLM would not start with stay null."""
        places = np.arange(row, row + len(group))
        if self.job.grid.some_refused:
            from fastsim.sweeps.store.schema import refused_rows

            refused = self.job.grid.refused(group)
            self.floats[places[refused]], self.ints[places[refused]] = refused_rows(
                int(refused.sum()), self.job.grid.class_names
            )
            places, group = places[~refused], group[~refused]
        if len(group):
            self.floats[places], self.ints[places] = self.job.simulate(workload, group)

    def _note(self, indices: list[int], error: Exception) -> None:
        if isinstance(error, PolicyError):  # of the user's making, and said in the user's lines
            self.errors.update(dict.fromkeys(indices, str(error)))
            return
        self.errors.update(dict.fromkeys(indices, f"{type(error).__name__}: {error}"))
        if len(self.tracebacks) < MAX_TRACEBACKS:
            self.tracebacks.append("".join(traceback.format_exception(error)))


def part_data(grid: Grid, part: Part, pieces: list[Piece]) -> bytes:
    """The file of a part, from pieces that follow each other from its first row to its last."""
    from fastsim.sweeps.store import schema

    if [piece.first for piece in pieces] != [0, *(piece.stop for piece in pieces[:-1])] or pieces[-1].stop != part.rows:
        raise AssertionError(f"part {part.index}: pieces do not make {part.rows} rows")
    workload_ids = [name for piece in pieces for name in piece.workload_ids]
    floats = np.concatenate([piece.floats for piece in pieces])
    ints = np.concatenate([piece.ints for piece in pieces])
    frame = schema.part_frame(grid, part.indices(), workload_ids, floats, ints)
    return schema.part_bytes(frame, schema.file_metadata(grid))
