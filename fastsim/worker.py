"""What happens in a worker process: take a part, run its configurations, store its rows, say so.

A part runs in steps of about a fifth of a second. Between two steps a worker can be asked to share: it then hands in
the rows it has, and others help with the rest. What a row says never depends on how its part was cut.

This module is preloaded by the fork server, from which workers are forked, so importing it must not start threads:
polars comes in later, in the worker itself.
"""

import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.grid import Grid, Part
from fastsim.store import PartRecord, write_part
from fastsim.workload import WorkloadPlan

MAX_TRACEBACKS = 3
OUT_OF_MEMORY = 137
STEP_S = 0.2
"""About how long a worker computes between two looks at whether it is asked to share."""
FIRST_STEP_ROWS = 32


@dataclass(frozen=True)
class Job:
    """What every worker of a sweep needs to know.

    `folder` is where workers store parts; None when they hand them in as bytes. `simulation` names the module that
    runs a chunk.
    """

    grid: Grid
    folder: Path | None
    simulation: str = "fastsim.simulation"


@dataclass(frozen=True)
class Task:
    """A part to compute, or its rows from `first` to before `stop`.

    `alone`: build one workload and run one configuration at a time, and announce each, to find out which one kills
    workers. `skip`: those that are known to, and become rows of status `error` unrun (see `building`).
    """

    part: Part
    alone: bool = False
    skip: frozenset[int] = frozenset()
    first: int = 0
    stop: int | None = None

    @property
    def end(self) -> int:
        """The row of the part before which this task ends."""
        return self.part.rows if self.stop is None else self.stop


def building(workload_index: int) -> int:
    """What stands for the building of a workload, where the number of a configuration stands for its run."""
    return -1 - workload_index


@dataclass(frozen=True)
class Piece:
    """Rows of a part, from `first` on, that are computed and not stored; arrays as in `fastsim.store.schema`."""

    first: int
    workload_ids: list[str | None]
    floats: npt.NDArray[np.float64]
    ints: npt.NDArray[np.int64]

    @property
    def stop(self) -> int:
        """The row of the part before which this piece ends."""
        return self.first + len(self.workload_ids)


@dataclass
class Outcome:
    """What came of a task.

    A whole part is stored (`record`) or handed in (`data`, the file's bytes). Otherwise `piece` has the rows that were
    computed: all of the task, or fewer when the worker was asked to share; a row took about `seconds_per_row`. `errors`
    says of each configuration that failed why.
    """

    task: Task
    record: PartRecord | None = None
    data: bytes | None = None
    piece: Piece | None = None
    seconds_per_row: float = 0.0
    errors: dict[int, str] = field(default_factory=dict)
    tracebacks: list[str] = field(default_factory=list)


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
        job: Job,
        plan: WorkloadPlan,
        task: Task,
        announce: Callable[[int], None],
        asked_to_share: Callable[[], bool] = lambda: False,
        pace: Pace | None = None,
    ) -> None:
        from fastsim.store import schema

        self.job = job
        self.plan = plan
        self.task = task
        self.announce = announce
        self.asked_to_share = asked_to_share
        self.pace = pace or Pace()
        self.simulation = import_module(job.simulation)
        self.workload_ids: list[str | None] = []
        self.floats, self.ints = schema.empty_rows(task.end - task.first)
        self.errors: dict[int, str] = {}
        self.tracebacks: list[str] = []

    def run(self) -> Outcome:
        """Compute the rows; a whole part is also stored, or made a file's bytes."""
        done = 0
        for start, stop in self._groups():
            while start < stop:
                end = min(stop, start + self.pace.rows())
                before = time.perf_counter()
                self._run_group(start, end, done)
                self.pace.note(end - start, time.perf_counter() - before)
                done += end - start
                start = end
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
            out.record = write_part(self.job.folder, self.task.part, data, self.errors)
        return out

    def _groups(self) -> Iterator[tuple[int, int]]:
        """The task's ranges of configurations, cut where the workload changes."""
        length = self.job.grid.configs_per_workload
        row = 0
        for start, stop in self.task.part.ranges:
            first = max(start, start + self.task.first - row)
            last = min(stop, start + self.task.end - row)
            row += stop - start
            while first < last:
                end = min(last, (first // length + 1) * length)
                yield first, end
                first = end

    def _run_group(self, start: int, stop: int, row: int) -> None:
        """Run neighbours that share a workload; if they fail together, one by one."""
        grid = self.job.grid
        index = grid.workload_index(start)
        if building(index) in self.task.skip:
            self.workload_ids += [None] * (stop - start)
            self.errors.update(dict.fromkeys(range(start, stop), "its workload keeps killing workers"))
            return
        if self.task.alone:
            self.announce(building(index))
        try:
            workload = self.plan.build(grid.workload_config(index))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - it becomes rows of status error, and is reported with them
            self.workload_ids += [None] * (stop - start)
            self._note(range(start, stop), error)
            return
        self.workload_ids += [workload.workload_id] * (stop - start)
        if self.task.alone or not self.task.skip.isdisjoint(range(start, stop)):
            self._run_alone(workload, start, stop, row)
            return
        try:
            self._simulate(workload, start, stop, row)
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - the next line finds out which configuration it was
            self._run_alone(workload, start, stop, row)

    def _run_alone(self, workload: Any, start: int, stop: int, row: int) -> None:
        for index in range(start, stop):
            if index in self.task.skip:
                self.errors[index] = "it keeps killing workers"
                continue
            self.announce(index)
            try:
                self._simulate(workload, index, index + 1, row + index - start)
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - it becomes a row of status error, and is reported with it
                self._note(range(index, index + 1), error)

    def _simulate(self, workload: Any, start: int, stop: int, row: int) -> None:
        records = self.simulation.engine_records(self.job.grid, start, stop)
        rows = self.simulation.simulate_chunk(workload, records)
        self.floats[row : row + stop - start] = rows.floats
        self.ints[row : row + stop - start] = rows.ints

    def _note(self, indices: range, error: Exception) -> None:
        self.errors.update(dict.fromkeys(indices, f"{type(error).__name__}: {error}"))
        if len(self.tracebacks) < MAX_TRACEBACKS:
            self.tracebacks.append("".join(traceback.format_exception(error)))


def part_data(grid: Grid, part: Part, pieces: list[Piece]) -> bytes:
    """The file of a part, from pieces that follow each other from its first row to its last."""
    from fastsim.store import schema

    if [piece.first for piece in pieces] != [0, *(piece.stop for piece in pieces[:-1])] or pieces[-1].stop != part.rows:
        raise AssertionError(f"part {part.index}: pieces do not make {part.rows} rows")
    workload_ids = [name for piece in pieces for name in piece.workload_ids]
    floats = np.concatenate([piece.floats for piece in pieces])
    ints = np.concatenate([piece.ints for piece in pieces])
    return schema.part_bytes(schema.part_frame(grid, part.indices(), workload_ids, floats, ints))


def limit_threads() -> dict[str, str]:
    """Environment in which every library a worker loads keeps to one thread."""
    names = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    return dict.fromkeys(names, "1")


def main(connection: Connection, job: Job) -> None:
    """The life of a worker: announce that it is ready, then a reply for every task until the other end closes.

    In come tasks, and numbers: of the task, counted from 1, that others wait to share.
    Messages out: ("ready", seconds to compile or load the kernels), ("started", part), ("at", configuration),
    ("done", Outcome), ("full", sentence) when a part cannot be stored, ("broken", traceback) when there is a bug.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    sending = threading.Lock()

    def send(*message: Any) -> None:
        try:
            with sending:
                connection.send(message)
        except OSError:
            os._exit(1)  # nobody is listening any more

    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    asked = Asked()
    threading.Thread(target=_receive, args=(connection, tasks, asked), daemon=True).start()
    send("ready", import_module(job.simulation).compile_kernels())
    plan, pace = WorkloadPlan(), Pace()
    while True:
        task = tasks.get()
        send("started", task.part.index)
        asked.begun += 1
        try:
            outcome = PartRun(job, plan, task, lambda index: send("at", index), asked.current, pace).run()
        except OSError as error:
            send("full", f"{job.folder}: part {task.part.index} cannot be stored ({error.strerror or error})")
        except MemoryError:
            os._exit(OUT_OF_MEMORY)  # as if the kernel had killed it: the part is tried again by a fresh worker
        except Exception:  # noqa: BLE001 - a bug: the parent raises it with this traceback
            send("broken", traceback.format_exc())
        else:
            send("done", outcome)


@dataclass
class Asked:
    """Which of a worker's tasks, counted from 1, is to be shared, and which has begun."""

    share: int = 0
    begun: int = 0

    def current(self) -> bool:
        """Whether the task at hand is to be shared."""
        return self.share == self.begun


def _receive(connection: Connection, tasks: "queue.SimpleQueue[Task]", asked: Asked) -> None:
    """Move tasks to the queue. When the parent is gone, end at once, whatever the kernels are doing."""
    try:
        while True:
            message = connection.recv()
            if isinstance(message, Task):
                tasks.put(message)
            else:
                asked.share = message
    except (EOFError, OSError):
        sys.stdout.flush()
        os._exit(0)
