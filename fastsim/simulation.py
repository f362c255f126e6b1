"""From configurations and a workload to rows, whatever the engines: each runs its own share of a chunk.

`fastsim run` is a chunk of one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from fastsim.config import Config, check_rules, resolved
from fastsim.engines import engines, folders_of
from fastsim.engines.contract import DecisionInterval, plain_rows, runtime_of
from fastsim.engines.contract import Rows as Rows
from fastsim.engines.outputs import RequestLog, Status
from fastsim.engines.tape import Tape
from fastsim.errors import InputError
from fastsim.fleet.runs import Replicas, fleet_rows, fleet_run
from fastsim.metrics import INT_COLUMNS, float_columns, named_values
from fastsim.metrics.params import ClassBounds
from fastsim.records import Records as Records
from fastsim.records import Share
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
    intervals
        Of some knobs: the values with which all decisions would have been the same. Empty where a run does not tell.
    replicas
        Of a fleet: what its replicas did.
    """

    config: Config
    workload: Workload
    metrics: dict[str, Any]
    requests: RequestLog
    totals: dict[str, int]
    steps: list[Any] | None
    tape: Tape | None
    kernel_ms: float
    intervals: tuple[DecisionInterval, ...] = ()
    replicas: Replicas | None = None

    def of_replica(self, replica: int) -> dict[str, Any]:
        """The result row of one replica of a fleet, as a dict by column name."""
        assert self.replicas is not None
        one = slice(replica, replica + 1)
        rows = plain_rows(self.replicas.floats[one].copy(), self.replicas.ints[one].copy())
        return named_values(rows.floats[0], rows.ints[0])

    def to_polars(self) -> "pl.DataFrame":
        """One row a request: the workload's columns and the log's, times in microseconds, null for never."""
        import polars as pl

        columns: dict[str, Any] = {"request": np.arange(self.workload.num_requests)}
        for name in ("prompt_tokens", "output_tokens", "priority", "prefix_group", "prefix_tokens"):
            columns[name] = getattr(self.workload, name)
        if self.workload.request_class is not None:
            columns["class"] = np.array(self.workload.class_names)[self.workload.request_class]
        if self.replicas is not None:
            columns["replica"] = self.replicas.of_request
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
    shares = list(_shares(records))
    if len(shares) == 1:
        (share,) = shares
        return _share_rows(workload, share, records, bounds, fast_forward)
    count = len(records)
    columns = float_columns(workload.class_names)
    rows = Rows(np.empty((count, len(columns))), np.empty((count, len(INT_COLUMNS)), np.int64))
    for share in shares:
        mine = None if bounds is None else bounds.at(share.places)
        found = _share_rows(workload, share, records, mine, fast_forward)
        rows.floats[share.places], rows.ints[share.places] = found.floats, found.ints
    return rows


def _shares(records: Records) -> Iterator[Share]:
    """What each engine runs alone, and what it runs as fleets."""
    for share in records.shares:
        many = records.fleet["replicas"][share.places] > 1
        if many.any() and not many.all():
            yield Share(share.engine, share.places[~many], share.records[~many])
            yield Share(share.engine, share.places[many], share.records[many])
        else:
            yield share


def _share_rows(
    workload: Workload, share: Share, records: Records, bounds: ClassBounds | None, fast_forward: bool
) -> Rows:
    """Rows of one engine's share, all single or all fleets; `bounds` are those of its configurations."""
    runtime = runtime_of(share.engine)
    params, fleet = records.params[share.places], records.fleet[share.places]
    if len(fleet) == 0 or fleet["replicas"][0] == 1:
        return runtime.rows(workload, share.records, params, bounds, fast_forward=fast_forward)
    columns = _columns_that_add_up(share.engine)
    return fleet_rows(runtime, columns, workload, share.records, fleet, params, bounds, fast_forward=fast_forward)


def _columns_that_add_up(folder: str) -> frozenset[str]:
    engine = next(engine for engine in engines() if engine.folder == folder)
    return frozenset(column.name for column in engine.columns if column.adds_up)


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
        if (largest.fleet["replicas"] > 1).any():
            raise InputError("calibration knows one replica, but fleet.replicas is more")
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
    runtime = runtime_of(share.engine)
    replicas = None
    if config.fleet.replicas > 1:
        if record_steps:
            raise InputError(
                f"steps are recorded of one replica, but fleet.replicas = {config.fleet.replicas}: set it to 1, or "
                "leave --steps and --timeline out"
            )
        run, replicas = fleet_run(
            runtime,
            _columns_that_add_up(share.engine),
            offered,
            share.records,
            records.fleet,
            records.params,
            records.bounds(offered.class_names) if offered.class_names else None,
            fast_forward=fast_forward,
            repeat=repeat,
        )
    else:
        run = runtime.run(
            offered,
            share.records,
            records.params,
            records.bounds(offered.class_names) if offered.class_names else None,
            fast_forward=fast_forward,
            record_steps=record_steps,
            repeat=repeat,
        )
    full = resolved(config)
    return Result(
        config=full,
        workload=offered,
        metrics=named_values(run.rows.floats[0], run.rows.ints[0], offered.class_names) | dict(run.own),
        requests=run.log,
        totals={name: int(run.totals[name][0]) for name in run.totals.dtype.names or ()},
        steps=run.steps,
        tape=run.tape,
        kernel_ms=run.kernel_ms,
        intervals=() if config.fleet.replicas > 1 else run.intervals(full),
        replicas=replicas,
    )


def compile_kernels(grid: Any) -> float:
    """Compile the kernels of a grid's engines, or load them from the cache. Returns the seconds it took."""
    start = perf_counter()
    for engine in folders_of(grid.possible("engine.name")):
        runtime_of(engine).compile_kernels()
    return perf_counter() - start
