"""What happens in a worker process: take a part, run its configurations, store its rows, say so.

This module is preloaded by the fork server, from which workers are forked, so importing it must not start threads:
polars comes in later, in the worker itself.
"""

import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fastsim.grid import Grid, Part
from fastsim.store import PartRecord, write_part
from fastsim.workload import WorkloadPlan

MAX_TRACEBACKS = 3
OUT_OF_MEMORY = 137


@dataclass(frozen=True)
class Job:
    """What every worker of a sweep needs to know. `simulation` names the module that runs a chunk."""

    grid: Grid
    folder: Path
    simulation: str = "fastsim.simulation"


@dataclass(frozen=True)
class Task:
    """A part to compute.

    `alone`: run one configuration at a time and announce each, to find out which one kills workers. `skip`: those
    that are known to, and become rows of status `error` unrun.
    """

    part: Part
    alone: bool = False
    skip: frozenset[int] = frozenset()


@dataclass
class Outcome:
    """A part that is stored. `errors` says of each configuration that failed why."""

    record: PartRecord
    errors: dict[int, str] = field(default_factory=dict)
    tracebacks: list[str] = field(default_factory=list)


class PartRun:
    """One part being computed.

    Parameters
    ----------
    job, plan, task
        The sweep, the cache of workloads that this worker keeps, and what to do.
    announce
        Called with each configuration before it runs, if it runs alone.
    """

    def __init__(self, job: Job, plan: WorkloadPlan, task: Task, announce: Callable[[int], None]) -> None:
        from fastsim.store import schema

        self.job = job
        self.plan = plan
        self.task = task
        self.announce = announce
        self.simulation = import_module(job.simulation)
        self.workload_ids: list[str | None] = []
        self.floats, self.ints = schema.empty_rows(task.part.rows)
        self.errors: dict[int, str] = {}
        self.tracebacks: list[str] = []

    def run(self) -> Outcome:
        """Compute every row and store the part."""
        from fastsim.store import schema

        row = 0
        for start, stop in self._groups():
            self._run_group(start, stop, row)
            row += stop - start
        indices = self.task.part.indices()
        frame = schema.part_frame(self.job.grid, indices, self.workload_ids, self.floats, self.ints)
        record = write_part(self.job.folder, self.task.part, schema.part_bytes(frame))
        return Outcome(record, self.errors, self.tracebacks)

    def _groups(self) -> Iterator[tuple[int, int]]:
        """The part's ranges, cut where the workload changes."""
        length = self.job.grid.configs_per_workload
        for start, stop in self.task.part.ranges:
            while start < stop:
                end = min(stop, (start // length + 1) * length)
                yield start, end
                start = end

    def _run_group(self, start: int, stop: int, row: int) -> None:
        """Run neighbours that share a workload; if they fail together, one by one."""
        grid = self.job.grid
        try:
            workload = self.plan.build(grid.workload_config(grid.workload_index(start)))
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


def limit_threads() -> dict[str, str]:
    """Environment in which every library a worker loads keeps to one thread."""
    names = ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    return dict.fromkeys(names, "1")


def main(connection: Connection, job: Job) -> None:
    """The life of a worker: announce that it is ready, then a reply for every task until the other end closes.

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
    threading.Thread(target=_receive, args=(connection, tasks), daemon=True).start()
    send("ready", import_module(job.simulation).compile_kernels())
    plan = WorkloadPlan()
    while True:
        task = tasks.get()
        send("started", task.part.index)
        try:
            outcome = PartRun(job, plan, task, lambda index: send("at", index)).run()
        except OSError as error:
            send("full", f"{job.folder}: part {task.part.index} cannot be stored ({error.strerror or error})")
        except MemoryError:
            os._exit(OUT_OF_MEMORY)  # as if the kernel had killed it: the part is tried again by a fresh worker
        except Exception:  # noqa: BLE001 - a bug: the parent raises it with this traceback
            send("broken", traceback.format_exc())
        else:
            send("done", outcome)


def _receive(connection: Connection, tasks: "queue.SimpleQueue[Task]") -> None:
    """Move tasks to the queue. When the parent is gone, end at once, whatever the kernels are doing."""
    try:
        while True:
            tasks.put(connection.recv())
    except (EOFError, OSError):
        sys.stdout.flush()
        os._exit(0)
