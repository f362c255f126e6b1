"""What runs an engine: the contract between it and everything that simulates, stores and judges configurations.

`runtime.py` of an engine's folder holds one `RUNTIME`: an instance of its own class, made from `BatchRuntime`, which
asks for three functions (from keys to records, from records to what the runs left, the replay of a recording), or from
`Runtime`, where a kernel fills the rows itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from statistics import median
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.config import Config
from fastsim.engines import runtime_module, supporting
from fastsim.engines.encode import Take, take_of
from fastsim.engines.outputs import TOTALS_DTYPE, RequestLog
from fastsim.engines.policy_report import PolicyReport
from fastsim.engines.tape import Tape
from fastsim.errors import InputError
from fastsim.metrics.columns import CLASS_COLUMNS, FLOAT_COLUMNS, INT_COLUMNS, new_rows
from fastsim.metrics.params import ClassBounds, params_records
from fastsim.workload import Workload

if TYPE_CHECKING:
    from fastsim.metrics.by_class import ClassSummary

NO_MODEL_LEN = 2**31 - 1
"""Stands for "no limit to a request's length" in what metrics know of a configuration."""
Records = npt.NDArray[np.void]
"""Configurations as an engine's kernels read them: a structured array of the engine's own dtype, shape (count,)."""


@dataclass(frozen=True)
class Rows:
    """Result rows.

    `floats` is float64 of shape (count, len(float_columns(classes of the workload))), NaN standing for null, `ints`
    int64 of shape (count, len(INT_COLUMNS)), -1 standing for null, in the order of the names in `fastsim.metrics`.
    """

    floats: npt.NDArray[np.float64]
    ints: npt.NDArray[np.int64]


class Batch(NamedTuple):
    """What a few runs over one workload of n requests left.

    ================  =====================  =========================================================================
    field             shape                  content
    ================  =====================  =========================================================================
    places            (runs,)                which of the records they are
    prompt_tokens     (n,)                   lengths of the requests, in the order of the log
    output_tokens     (n,)
    log               (runs x n,)            RequestLog, run by run
    totals            (runs,)                TOTALS_DTYPE
    itl_histogram     (runs, ITL_BINS)       int64, gaps between tokens
    kernel_ns         ()                     nanoseconds of the kernel call
    columns           each (runs,)           the engine's own result columns (`Engine.columns`), by name
    own               each (runs,)           everything else that only this engine reports, by name
    order             (n,) or None           the request that entry k of a log is about; None: request k
    ================  =====================  =========================================================================
    """

    places: npt.NDArray[np.intp]
    prompt_tokens: npt.NDArray[Any]
    output_tokens: npt.NDArray[Any]
    log: RequestLog
    totals: npt.NDArray[np.void]
    itl_histogram: npt.NDArray[np.int64]
    kernel_ns: int
    columns: Mapping[str, npt.NDArray[np.float64]] = {}
    own: Mapping[str, npt.NDArray[Any]] = {}
    order: npt.NDArray[np.int64] | None = None


class FleetBatch(NamedTuple):
    """What one fleet over a workload of n requests left.

    =============  =================  =================================================================================
    field          shape              content
    =============  =================  =================================================================================
    of_request     (n,)               int64, who served each request
    log            (n,)               RequestLog, request by request
    totals         (replicas,)        TOTALS_DTYPE
    itl_histogram  (replicas, bins)   int64, gaps between tokens
    kernel_ns      ()                 nanoseconds of the kernel call
    =============  =================  =================================================================================
    """

    of_request: npt.NDArray[np.int64]
    log: RequestLog
    totals: npt.NDArray[np.void]
    itl_histogram: npt.NDArray[np.int64]
    kernel_ns: int


class DecisionInterval(NamedTuple):
    """Values of a knob, all others as they are, with which a run makes the same decisions, token for token.

    `value` is that of the run, `least` and `most` the bounds, which belong to it; None: there is none above. Outside
    it the run may differ, or not: nobody tried.
    """

    key: str
    value: bool | int | float
    least: bool | int | float
    most: bool | int | float | None


def _tells_nothing(config: Config) -> tuple[DecisionInterval, ...]:
    return ()


@dataclass(frozen=True)
class Run:
    """What one run left: its log by request, TOTALS_DTYPE totals of shape (1,), its row, milliseconds of the kernel.

    `own` is what only its engine reports, by name, `steps` what was decided in each step, where it was recorded, and
    `tape` all else that an engine knows of these, from which explanations and timelines are made. `intervals` is a
    function of the resolved configuration: for each knob that the run tells of, with which values it is the same.
    """

    log: RequestLog
    totals: npt.NDArray[np.void]
    rows: Rows
    kernel_ms: float
    own: Mapping[str, Any] = field(default_factory=dict)
    steps: list[Any] | None = None
    tape: Tape | None = None
    intervals: Callable[[Config], tuple[DecisionInterval, ...]] = _tells_nothing


class EngineSession(ABC):
    """One workload, run again and again in the same memory: for searches that change only numbers in the records."""

    @abstractmethod
    def run(self, records: Records, params: Records, *, fast_forward: bool = True) -> Rows:
        """Rows of some configurations, in the order of `records`."""

    @property
    @abstractmethod
    def log(self) -> RequestLog:
        """Per-request results of the last configuration that ran; the next run overwrites these arrays."""


class FleetSession(ABC):
    """One workload and the memory of a fleet that is looked at, run again and again."""

    @abstractmethod
    def run(
        self,
        records: Records,
        params: Records,
        fleet: Records,
        draws: npt.NDArray[np.float64],
        *,
        fast_forward: bool,
    ) -> FleetBatch:
        """Run one fleet: records of shape (1,); the next run overwrites what it leaves.

        `fleet` is of FLEET_DTYPE, `draws` two uniform draws a request, shape (num_requests, 2).
        """


class Runtime(ABC):
    """An engine that runs."""

    @abstractmethod
    def config_records(self, take: Take, count: int, params: Records) -> Records:
        """Records of `count` configurations, defaults resolved.

        Parameters
        ----------
        take
            `take(key, encode)` gives a key's encoded values for all of them.
        params
            What metrics know of them (PARAMS_DTYPE): changed in place where this engine has its own word for it.
        """

    @abstractmethod
    def rows(
        self,
        workload: Workload,
        records: Records,
        params: Records,
        bounds: ClassBounds | None = None,
        *,
        fast_forward: bool = True,
    ) -> Rows:
        """Rows of many configurations over one workload, in the order of `records`.

        `bounds` are what the workload's classes must meet; None: classes are not told apart, and have no columns.

        Raises
        ------
        InputError
            When the workload has something that this engine does not.
        """

    @abstractmethod
    def run(
        self,
        workload: Workload,
        records: Records,
        params: Records,
        bounds: ClassBounds | None = None,
        *,
        fast_forward: bool = True,
        record_steps: bool = False,
        repeat: int = 1,
    ) -> Run:
        """Run the one configuration there is, timed `repeat` times; compilation is not counted."""

    @abstractmethod
    def batches(self, workload: Workload, records: Records, params: Records, *, fast_forward: bool) -> Iterator[Batch]:
        """Run every configuration, some at a time, and leave what the rows are made of.

        Raises
        ------
        InputError
            When the workload has something that this engine does not.
        """

    def fleet_session(self, workload: Workload, largest: Records, replicas: int) -> "FleetSession":
        """Memory for fleets of so many replicas whose router looks at them (`Engine.pauses`).

        They need no more of it than the configurations in `largest`.
        """
        raise NotImplementedError

    def correct_rows(  # noqa: B027 - there may be nothing to correct
        self, records: Records, floats: Records, ints: Records, totals: Records
    ) -> None:
        """Change rows (records by column name) where what all engines share is not true of this one.

        `totals` (TOTALS_DTYPE) are those of each row.
        """

    @abstractmethod
    def verify_case(self, case: dict[str, Any]) -> str | None:
        """Replay a recorded case of this engine: None when everything is the same, else one line that says what not."""

    def compile_kernels(self) -> None:  # noqa: B027 - there may be none, or the first run compiles them
        """Compile the kernels, or load them from the cache: what a run would otherwise do first."""

    def session(self, workload: Workload, largest: Records) -> EngineSession:
        """Memory for runs of any records that need no more of it than `largest`."""
        raise InputError(f"calibration runs {supporting('has_sessions')}, but engine.name is another")

    def policy_report(self, path: str, *, quick: bool) -> PolicyReport:
        """What is to be said of a policy file; `quick`: without trying it compiled.

        Raises
        ------
        InputError
            When it is no policy.
        """
        raise InputError(f"policy files are for {supporting('takes_policies')}")

    def installed(self) -> tuple[str, ...]:
        """The names of this engine whose cases the installed package (`Engine.live`) can replay."""
        return ()

    def verify_live(self, case: dict[str, Any]) -> str | None:
        """Compare with what the installed package decides on a case's requests: None, or the first difference."""
        raise NotImplementedError

    def records_of(self, configs: Sequence[Config]) -> tuple[Records, Records]:
        """Records of configurations of this engine, and what metrics know of them (PARAMS_DTYPE)."""
        take = take_of(configs)
        params = params_records(take, len(configs))
        return self.config_records(take, len(configs), params), params


class BatchRuntime(Runtime):
    """An engine that leaves logs, from which the rows are made."""

    @abstractmethod
    def run_batches(self, workload: Workload, records: Records, *, fast_forward: bool) -> Iterator[Batch]:
        """Run every configuration, some at a time.

        Raises
        ------
        InputError
            When the workload has something that this engine does not.
        """

    def batches(self, workload: Workload, records: Records, params: Records, *, fast_forward: bool) -> Iterator[Batch]:
        """The same: what metrics know of a configuration is nothing to the engine."""
        return self.run_batches(workload, records, fast_forward=fast_forward)

    def rows(
        self,
        workload: Workload,
        records: Records,
        params: Records,
        bounds: ClassBounds | None = None,
        *,
        fast_forward: bool = True,
    ) -> Rows:
        """Rows of many configurations over one workload, in the order of `records`."""
        floats, ints = new_rows(len(records))
        classes = None if bounds is None else new_class_columns(len(records), workload)
        totals = np.zeros(len(records), TOTALS_DTYPE)
        for batch in self.run_batches(workload, records, fast_forward=fast_forward):
            own = params[batch.places]
            of_runs = summaries(batch, own)
            if bounds is not None and classes is not None:
                classes[batch.places] = class_columns(workload, batch, own, bounds.at(batch.places), *of_runs)
            floats[batch.places], ints[batch.places] = of_runs
            totals[batch.places] = batch.totals
        self.correct_rows(records, floats, ints, totals)
        return plain_rows(floats, ints, classes)

    def run(
        self,
        workload: Workload,
        records: Records,
        params: Records,
        bounds: ClassBounds | None = None,
        *,
        fast_forward: bool = True,
        record_steps: bool = False,
        repeat: int = 1,
    ) -> Run:
        """Run the one configuration there is, timed `repeat` times; compilation is not counted.

        Raises
        ------
        InputError
            When steps are to be recorded, and this engine records none.
        """
        if record_steps:
            raise InputError(
                f"steps are recorded only with {supporting('records_steps')}, but engine.name is another: leave "
                "--steps out"
            )
        times = []
        for _ in range(repeat + 1):  # the first one compiles
            (batch,) = self.run_batches(workload, records, fast_forward=fast_forward)
            start_ns = perf_counter_ns()
            floats, ints = summaries(batch, params)
            classes = None if bounds is None else class_columns(workload, batch, params, bounds, floats, ints)
            times.append((perf_counter_ns() - start_ns + batch.kernel_ns) / 1e6)
        self.correct_rows(records, floats, ints, batch.totals)
        log = batch.log if batch.order is None else _by_request(batch.log, batch.order)
        own = {name: values[0].item() for name, values in batch.own.items()}
        return Run(log, batch.totals, plain_rows(floats, ints, classes), median(times[1:]), own)


@cache
def runtime_of(folder: str) -> Runtime:
    """What runs the engine of a folder; the first call imports its kernels."""
    runtime: Runtime = import_module(runtime_module(folder)).RUNTIME
    return runtime


def plain_rows(floats: Records, ints: Records, classes: npt.NDArray[np.float64] | None = None) -> Rows:
    """Records of columns as two-dimensional arrays; `classes` are the columns of the workload's classes."""
    count = len(floats)
    plain = floats.view(np.float64).reshape(count, len(FLOAT_COLUMNS))
    return Rows(
        plain if classes is None else np.hstack([plain, classes]),
        ints.view(np.int64).reshape(count, len(INT_COLUMNS)),
    )


def new_class_columns(count: int, workload: Workload) -> npt.NDArray[np.float64]:
    """Room for the columns that the classes of a workload have in so many rows; null so far."""
    return np.full((count, len(CLASS_COLUMNS) * len(workload.class_names)), np.nan)


def class_summary(
    workload: Workload,
    prompt_tokens: npt.NDArray[Any],
    output_tokens: npt.NDArray[Any],
    order: npt.NDArray[np.int64] | None = None,
) -> "ClassSummary":
    """What takes runs over a workload with classes apart; the arguments are in the order of the log, as in `Batch`."""
    from fastsim.metrics.by_class import ClassSummary  # compiled: only a workload with classes asks

    assert workload.request_class is not None
    of = workload.request_class if order is None else workload.request_class[order]
    return ClassSummary(of, len(workload.class_names), prompt_tokens, output_tokens)


def class_columns(
    workload: Workload, batch: Batch, params: Records, bounds: ClassBounds, floats: Records, ints: Records
) -> npt.NDArray[np.float64]:
    """The classes' columns of some runs; corrects the rows of the runs, where a class has bounds of its own."""
    summary = class_summary(workload, batch.prompt_tokens, batch.output_tokens, batch.order)
    return summary.columns(batch.log, batch.totals, params, bounds, floats, ints)


def summaries(batch: Batch, params: Records) -> tuple[Records, Records]:
    """Rows of some runs, as records."""
    from fastsim.metrics.runs import (  # compiled: only an engine without kernels of its own asks
        TrueLengths,
        summarise_runs,
    )
    from fastsim.metrics.scratch import new_scratch

    floats, ints = new_rows(len(params))
    summarise_runs(
        batch.log,
        TrueLengths(batch.prompt_tokens.astype(np.int64), batch.output_tokens.astype(np.int64)),
        batch.totals,
        batch.itl_histogram,
        params,
        new_scratch(len(batch.prompt_tokens)),
        floats,
        ints,
    )
    for name, values in batch.columns.items():
        floats[name] = values
    return floats, ints


def _by_request(log: RequestLog, order: npt.NDArray[np.int64]) -> RequestLog:
    """A log by the requests' own indices."""
    columns: dict[str, Any] = {}
    for name, values in log._asdict().items():
        columns[name] = np.empty_like(values)
        columns[name][order] = values
    return RequestLog(**columns)
