"""From configurations and a workload to rows, whatever the engines: each runs its own share of a chunk.

`fastsim run` is a chunk of one.
"""

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fastsim.config import Config, check_rules, resolved
from fastsim.engines import folders_of
from fastsim.engines.contract import Rows as Rows
from fastsim.engines.contract import runtime_of
from fastsim.engines.outputs import RequestLog, Status
from fastsim.engines.tape import Tape
from fastsim.metrics import INT_COLUMNS, float_columns, named_values
from fastsim.records import Records as Records
from fastsim.records import engine_records as engine_records
from fastsim.records import record_of as record_of
from fastsim.records import records_at as records_at
from fastsim.workload import Workload, build_workload

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Result:
    """What one configuration did.

    Attributes
    ----------
    config
        The configuration, defaults resolved.
    workload
        The requests it was given.
    metrics
        One result row as a dict by column name; None for null. On top what only its engine reports.
    requests
        Per-request results (`RequestLog`), arrays of shape (num_requests,).
    totals
        Counters of the run by name (`TOTALS_DTYPE`), ints.
    steps
        What was decided in each step, as its engine writes it down, or None when it was not asked for.
    tape
        These and all else that explains them, or None: not asked for, or not kept for this configuration.
    kernel_ms
        Wall milliseconds of the kernel call, compilation excluded: the median of the repeats.
    """

    config: Config
    workload: Workload
    metrics: dict[str, Any]
    requests: RequestLog
    totals: dict[str, int]
    steps: list[Any] | None
    tape: Tape | None
    kernel_ms: float

    def to_polars(self) -> "pl.DataFrame":
        """One row a request: the workload's columns and the log's, times in microseconds, null for never."""
        import polars as pl

        columns: dict[str, Any] = {"request": np.arange(self.workload.num_requests)}
        for name in ("prompt_tokens", "output_tokens", "priority", "prefix_group", "prefix_tokens"):
            columns[name] = getattr(self.workload, name)
        if self.workload.request_class is not None:
            columns["class"] = np.array(self.workload.class_names)[self.workload.request_class]
        columns |= self.requests._asdict()
        names = {int(status): status.name.lower() for status in Status}
        never = [name for name in RequestLog._fields if name.endswith("_us") or name == "prefix_hit_tokens_first"]
        return pl.DataFrame(columns).with_columns(
            pl.col("status").replace_strict(names, return_dtype=pl.String),
            *(pl.when(pl.col(name) >= 0).then(pl.col(name)).alias(name) for name in never),
        )


def simulate_chunk(workload: Workload, records: Records, *, fast_forward: bool = True) -> Rows:
    """Rows of many configurations over one workload, in the order of `records`."""
    bounds = records.bounds(workload.class_names) if workload.class_names else None
    if len(records.shares) == 1:
        (share,) = records.shares
        return runtime_of(share.engine).rows(workload, share.records, records.params, bounds, fast_forward=fast_forward)
    count = len(records)
    columns = float_columns(workload.class_names)
    rows = Rows(np.empty((count, len(columns))), np.empty((count, len(INT_COLUMNS)), np.int64))
    for share in records.shares:
        params = records.params[share.places]
        mine = None if bounds is None else bounds.at(share.places)
        found = runtime_of(share.engine).rows(workload, share.records, params, mine, fast_forward=fast_forward)
        rows.floats[share.places], rows.ints[share.places] = found.floats, found.ints
    return rows


class Session:
    """One workload, run again and again in the same memory: for searches that change only numbers.

    Parameters
    ----------
    workload
        The requests.
    largest
        Records of one engine that need no less memory than any that will run.

    Raises
    ------
    InputError
        When the engine has no sessions (`Engine.has_sessions`).
    """

    def __init__(self, workload: Workload, largest: Records) -> None:
        (share,) = largest.shares
        self.runs = 0
        self._session = runtime_of(share.engine).session(workload, share.records)

    def run(self, records: Records, *, fast_forward: bool = True) -> Rows:
        """Rows of some configurations, in the order of `records`."""
        self.runs += len(records)
        return self._session.run(records.engine, records.params, fast_forward=fast_forward)

    @property
    def log(self) -> RequestLog:
        """Per-request results of the last configuration that ran; the next run overwrites these arrays."""
        return self._session.log


def simulate(
    config: Config,
    workload: Workload | None = None,
    *,
    fast_forward: bool = True,
    record_steps: bool = False,
    repeat: int = 1,
) -> Result:
    """Run one configuration.

    Parameters
    ----------
    config
        What to run; `Config(...)` or `load_config(path)`.
    workload
        The requests; by default those that `config.workload` describes.
    fast_forward
        Jump over steps that change nothing but lengths. The results are the same without.
    record_steps
        Keep what the scheduler decided in every step.
    repeat
        Time so many runs; the result is that of the last, and they are all the same.

    Raises
    ------
    InputError
        When keys of the configuration contradict each other, or the workload cannot be built.
    """
    check_rules(config)
    offered = build_workload(config.workload) if workload is None else workload
    records = record_of(config)
    (share,) = records.shares
    run = runtime_of(share.engine).run(
        offered,
        share.records,
        records.params,
        records.bounds(offered.class_names) if offered.class_names else None,
        fast_forward=fast_forward,
        record_steps=record_steps,
        repeat=repeat,
    )
    return Result(
        config=resolved(config),
        workload=offered,
        metrics=named_values(run.rows.floats[0], run.rows.ints[0], offered.class_names) | dict(run.own),
        requests=run.log,
        totals={name: int(run.totals[name][0]) for name in run.totals.dtype.names or ()},
        steps=run.steps,
        tape=run.tape,
        kernel_ms=run.kernel_ms,
    )


def compile_kernels(grid: Any) -> float:
    """Compile the kernels of a grid's engines, or load them from the cache. Returns the seconds it took."""
    start = perf_counter()
    for engine in folders_of(grid.possible("engine.name")):
        runtime_of(engine).compile_kernels()
    return perf_counter() - start
