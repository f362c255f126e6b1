"""Runs whatever an analysis asks for: any indices of a grid, any configurations over any load, counted.

A search decides what to run next from what it has seen, so there is no folder and nothing is resumed; the rows are
those that a sweep stores.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim import _notice
from fastsim.analysis.evaluate.loads import Load, LoadPlan
from fastsim.config import Config
from fastsim.engines import runtime_module
from fastsim.errors import InputError, WorkError
from fastsim.metrics import INT_COLUMNS, float_columns
from fastsim.records import Records, records_at, records_of
from fastsim.simulation import compile_kernels, simulate_chunk
from fastsim.sweeps.grid import Grid
from fastsim.sweeps.runner.pool import WorkerPool
from fastsim.sweeps.worker import Job, TaskRunner

if TYPE_CHECKING:
    import polars as pl

MOST_AT_ONCE = 512
"""Configurations in one kernel call: the arrays of more would only grow."""
POOL_PAYS_S = 6.0
"""Tasks expected to take longer start the worker processes: each first loads the kernels, about two seconds."""


class EvaluatorTask(NamedTuple):
    """A task of workers: some configurations over one load, and where their rows go; int64 of shape (count,)."""

    load: Load
    records: Records
    places: npt.NDArray[np.int64]


class EvaluatorRows(NamedTuple):
    """Rows of a task and their places: floats and ints in the order of the metrics' columns, and the workload's id."""

    places: npt.NDArray[np.int64]
    workload_id: str
    floats: npt.NDArray[np.float64]
    ints: npt.NDArray[np.int64]


@dataclass(frozen=True)
class MetricTable:
    """Rows by column name, without a data frame: what searches read.

    `floats` is float64 of shape (count, len(float_columns(class_names))), NaN standing for null, `ints` int64 of shape
    (count, len(INT_COLUMNS)), -1 standing for null; `workload_ids` has one for each row.
    """

    workload_ids: list[str]
    floats: npt.NDArray[np.float64]
    ints: npt.NDArray[np.int64]
    class_names: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> npt.NDArray[np.float64]:
        """A column as float64, NaN standing for null; shape (count,)."""
        places = _float_places(self.class_names)
        if name in places:
            return self.floats[:, places[name]]
        values = self.ints[:, _INT_PLACES[name]].astype(np.float64)
        return np.where(values == -1, np.nan, values)


@cache
def _float_places(class_names: tuple[str, ...]) -> dict[str, int]:
    return {name: place for place, name in enumerate(float_columns(class_names))}


_INT_PLACES = {name: place for place, name in enumerate(INT_COLUMNS)}


class Evaluator:
    """Runs configurations when they are asked for and counts them; a context manager, which ends the workers.

    Parameters
    ----------
    grid
        Whose configurations `rows` runs; none: only `table` is used.
    workers
        Worker processes; 1 runs everything here. They are started by the first task that is large enough to pay.

    Attributes
    ----------
    runs
        Configurations run so far.
    """

    def __init__(self, grid: Grid | None = None, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise InputError(f"workers = {workers}, but an integer of at least 1 was expected")
        self.grid = grid
        self.workers = workers or 1
        self.runs = 0
        self._plan = LoadPlan()
        self._pool: WorkerPool | None = None
        self._waiting: deque[EvaluatorTask] = deque()
        self._seconds = 0.0
        if grid is not None:
            compile_kernels(grid)

    def __enter__(self) -> "Evaluator":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the worker processes, if there are any."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def rows(self, indices: Iterable[int]) -> "pl.DataFrame":
        """The rows of a sweep for these configurations of the grid, in the order given.

        Those that share a workload run in one kernel call.

        Parameters
        ----------
        indices
            Configurations, in any order.

        Returns
        -------
        pl.DataFrame
            `config_id`, `workload_id`, every axis, every metric: the columns and values that a sweep stores.

        Raises
        ------
        InputError
            When the evaluator has no grid, the grid no such configuration, or a workload cannot be built.
        """
        from fastsim.sweeps.store.schema import part_frame, refused_rows

        if self.grid is None:
            raise InputError("an evaluator without a grid has no rows, but one made with a grid was expected")
        wanted = np.fromiter(indices, np.int64)
        outside = wanted[(wanted < 0) | (wanted >= self.grid.size)]
        if len(outside):
            raise InputError(f"config-id {outside[0]}, but an integer from 0 to {self.grid.size - 1} was expected")
        tasks = []
        workloads = wanted // self.grid.configs_per_workload
        for workload in dict.fromkeys(workloads.tolist()):
            places = np.flatnonzero(workloads == workload)
            load = Load(self.grid.workload_config(workload))
            tasks.append(EvaluatorTask(load, records_at(self.grid, wanted[places]), places))
        found = self._answers(tasks, len(wanted))
        if self.grid.some_refused:
            refused = self.grid.refused(wanted)
            found.floats[refused], found.ints[refused] = refused_rows(int(refused.sum()), self.grid.class_names)
        return part_frame(self.grid, wanted, found.workload_ids, found.floats, found.ints)

    def table(self, pairs: Sequence[tuple[Load, Config]]) -> MetricTable:
        """Metrics of configurations over loads, in the order given.

        Of a configuration's own workload only counts whether it is a closed loop.

        Raises
        ------
        InputError
            When a workload cannot be built, or the loads have different classes.
        """
        by_load: dict[Load, list[int]] = {}
        for place, (load, _) in enumerate(pairs):
            by_load.setdefault(load, []).append(place)
        records: dict[tuple[int, ...], Records] = {}  # making them takes longer than a short run
        tasks = []
        for load, places in by_load.items():
            configs = [pairs[place][1] for place in places]
            key = tuple(map(id, configs))
            if key not in records:
                records[key] = records_of(configs)
            tasks.append(EvaluatorTask(load, records[key], np.array(places)))
        return self._answers(tasks, len(pairs))

    def _answers(self, tasks: list[EvaluatorTask], count: int) -> MetricTable:
        """Run every task; the rows of each go to its places."""
        pieces = [piece for task in tasks for piece in _pieces(task)]
        classes = {task.load.workload.classes.names for task in tasks}
        if len(classes) > 1:
            raise InputError(f"loads with the classes {sorted(classes)}, but the same ones of all loads were expected")
        (class_names,) = classes or {()}
        floats = np.empty((count, len(float_columns(class_names))))
        ints = np.empty((count, len(INT_COLUMNS)), np.int64)
        ids = [""] * count
        expected_s = self._seconds / max(self.runs, 1) * count
        if self._pool is None and self.workers > 1 and len(pieces) > 1 and expected_s > POOL_PAYS_S:
            engines = frozenset(share.engine for task in tasks for share in task.records.shares)
            self._pool = WorkerPool(EvaluatorJob(engines), self._next_task, self.workers, self.workers)
            self._pool.start()
        started = time.perf_counter()
        answers = (run_task(self._plan, piece) for piece in pieces) if self._pool is None else self._pooled(pieces)
        for answer in answers:
            floats[answer.places], ints[answer.places] = answer.floats, answer.ints
            for place in answer.places.tolist():
                ids[place] = answer.workload_id
        self._seconds += (time.perf_counter() - started) * (1 if self._pool is None else self.workers)
        self.runs += count
        return MetricTable(ids, floats, ints, class_names)

    def _next_task(self) -> EvaluatorTask | None:
        return self._waiting.popleft() if self._waiting else None

    def _pooled(self, pieces: list[EvaluatorTask]) -> Iterator[EvaluatorRows]:
        """Answers of the workers, in any order. When one cannot be had, the workers end.

        Raises
        ------
        FastsimError
            What a task raised.
        WorkError
            When a worker died.
        """
        assert self._pool is not None
        self._waiting.extend(pieces)
        try:
            for event in self._pool.events():
                if event.kind == "done":
                    yield event.value
                elif event.kind == "note":
                    if _notice.tell is not None:
                        _notice.tell(event.value)
                elif event.kind == "failed":
                    raise event.value
                elif event.kind == "broken":
                    raise RuntimeError(f"in a worker:\n{event.value}")
                elif event.kind == "died" and (event.task or event.unstarted):
                    raise WorkError(f"a worker process died ({event.value}); fewer workers need less memory")
        except BaseException:
            self._waiting.clear()
            self._pool.close(kill=True)
            self._pool = None
            raise


@dataclass(frozen=True)
class EvaluatorJob(Job):
    """Batches of an evaluator: the folders of the engines that they need are known when the workers start."""

    engines: frozenset[str]

    @property
    def modules(self) -> list[str]:
        """Those that run these engines."""
        return ["fastsim.sweeps.worker", "fastsim.simulation", *map(runtime_module, sorted(self.engines))]

    def prepare(self) -> None:
        """Nothing: a task loads its kernels when it runs."""

    def start(self) -> TaskRunner:
        """What runs tasks, keeping the last loads."""
        plan = LoadPlan()
        return lambda task, announce, asked: run_task(plan, task)


def _pieces(task: EvaluatorTask) -> Iterator[EvaluatorTask]:
    """A task in kernel calls of bounded size."""
    for start in range(0, len(task.records), MOST_AT_ONCE):
        stop = start + MOST_AT_ONCE
        yield EvaluatorTask(task.load, task.records.part(start, stop), task.places[start:stop])


def run_task(plan: LoadPlan, task: EvaluatorTask) -> EvaluatorRows:
    """Rows of a task, in this process."""
    workload = plan.build(task.load)
    rows = simulate_chunk(workload, task.records)
    return EvaluatorRows(task.places, workload.workload_id, rows.floats, rows.ints)
