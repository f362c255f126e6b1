"""Fleets run: each replica on the requests that it is sent, then all of them become one row."""

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter_ns

import numpy as np
import numpy.typing as npt

from fastsim.engines.contract import (
    Batch,
    Records,
    Rows,
    Run,
    Runtime,
    class_columns,
    new_class_columns,
    plain_rows,
    summaries,
)
from fastsim.engines.fleets import Router
from fastsim.engines.outputs import ITL_BINS, TOTALS_DTYPE, RequestLog, new_request_log
from fastsim.fleet.merge import fill_fleet_columns, merged_totals
from fastsim.fleet.routers import assigned, router_draws
from fastsim.metrics.columns import new_rows
from fastsim.metrics.params import ClassBounds
from fastsim.workload import Workload

_FIRST = np.zeros(1, np.intp)
MAX_LOG_ENTRIES = 2**18
"""Requests whose logs are kept at once."""


@dataclass(frozen=True, kw_only=True)
class Replicas:
    """What the replicas of one fleet did.

    `of_request` is who served each request (int64, shape (num_requests,)); `floats` and `ints` are their own rows, as
    records of shape (replicas,): shares of time are of the fleet's time, first arrival to end of run.
    """

    of_request: npt.NDArray[np.int64]
    floats: Records
    ints: Records


class _Left:
    """What `count` fleets with the same way of requests leave, replica by replica."""

    def __init__(self, workload: Workload, count: int, of_request: npt.NDArray[np.int64], replicas: int) -> None:
        n = workload.num_requests
        self.of_request = of_request
        self.sent = np.bincount(of_request, minlength=replicas)
        self.logs = new_request_log(count * n)
        self.lengths = np.zeros((2, count, n), np.int64)
        self.itl_histogram = np.zeros((count, ITL_BINS), np.int64)
        self.totals = np.zeros((count, replicas), TOTALS_DTYPE)
        floats, ints = new_rows(count * replicas)
        self.floats, self.ints = floats.reshape(count, replicas), ints.reshape(count, replicas)
        self.columns: dict[str, npt.NDArray[np.float64]] = {}
        self.kernel_ns = 0

    def add(self, replica: int, members: npt.NDArray[np.intp], batch: Batch, params: Records) -> None:
        """Take over what some runs of a replica left."""
        count, n = self.lengths.shape[1:]
        of_entry = members if batch.order is None else members[batch.order]
        place = np.ix_(batch.places, of_entry)
        for name, theirs in batch.log._asdict().items():
            mine = getattr(self.logs, name)
            mine.reshape(count, n)[place] = theirs.reshape(len(batch.places), len(members))
        self.lengths[0][place] = batch.prompt_tokens
        self.lengths[1][place] = batch.output_tokens
        self.itl_histogram[batch.places] += batch.itl_histogram
        self.totals[batch.places, replica] = batch.totals
        floats, ints = summaries(batch, params[batch.places])
        self.floats[batch.places, replica], self.ints[batch.places, replica] = floats, ints
        for name, values in batch.columns.items():
            self.columns.setdefault(name, np.zeros(count))[batch.places] += values
        self.kernel_ns += batch.kernel_ns

    def batches(self, totals: Records, adds_up: frozenset[str]) -> Iterator[Batch]:
        """The fleets as runs of one engine each; those that see the same lengths of requests together."""
        count, n = self.lengths.shape[1:]
        alike = np.arange(count)
        if (self.lengths != self.lengths[:, :1]).any():
            _, alike = np.unique(np.hstack(list(self.lengths)), axis=0, return_inverse=True)
        else:
            alike = np.zeros(count, np.intp)
        for number in range(int(alike.max(initial=-1)) + 1):
            places = np.flatnonzero(alike == number)
            log = RequestLog(
                **{name: each.reshape(count, n)[places].reshape(-1) for name, each in self.logs._asdict().items()}
            )
            prompt, output = self.lengths[:, places[0]]
            columns = {name: values[places] for name, values in self.columns.items() if name in adds_up}
            yield Batch(places, prompt, output, log, totals[places], self.itl_histogram[places], 0, columns)


def fleet_rows(
    runtime: Runtime,
    adds_up: frozenset[str],
    workload: Workload,
    records: Records,
    fleet: Records,
    params: Records,
    bounds: ClassBounds | None = None,
    *,
    fast_forward: bool = True,
) -> Rows:
    """Rows of fleets over one workload, in the order of `records`.

    `fleet` are FLEET_DTYPE records; `adds_up` are the engine's own columns that do; the rest is as `Runtime.rows`.
    """
    floats, ints = new_rows(len(records))
    classes = None if bounds is None else new_class_columns(len(records), workload)
    at_once = max(1, MAX_LOG_ENTRIES // max(workload.num_requests, 1))
    _, alike = np.unique(fleet, return_inverse=True)
    for number in range(int(alike.max(initial=-1)) + 1):
        those = np.flatnonzero(alike == number)
        ways = Ways(runtime, workload, records[those], fleet[those[:1]])
        for first in range(0, len(those), at_once if ways.of_request is not None else 1):
            some = those[first : first + (at_once if ways.of_request is not None else 1)]
            left = _run(runtime, workload, records[some], params[some], ways, fast_forward)
            mine = None if bounds is None else bounds.at(some)
            rows = _rows_of(runtime, adds_up, workload, left, records[some], params[some], mine)
            floats[some], ints[some] = rows[0], rows[1]
            if classes is not None:
                classes[some] = rows[2]
    return plain_rows(floats, ints, classes)


def fleet_run(
    runtime: Runtime,
    adds_up: frozenset[str],
    workload: Workload,
    records: Records,
    fleet: Records,
    params: Records,
    bounds: ClassBounds | None = None,
    *,
    fast_forward: bool = True,
    repeat: int = 1,
) -> tuple[Run, Replicas]:
    """Run the one fleet there is, timed `repeat` times; compilation is not counted."""
    ways = Ways(runtime, workload, records, fleet)
    times = []
    for _ in range(repeat + 1):  # the first one compiles
        left = _run(runtime, workload, records, params, ways, fast_forward)
        start_ns = perf_counter_ns()
        floats, ints, classes = _rows_of(runtime, adds_up, workload, left, records, params, bounds)
        times.append((perf_counter_ns() - start_ns + left.kernel_ns) / 1e6)
    totals = merged_totals(left.totals, left.floats)
    rows = plain_rows(floats, ints, classes)
    replicas = Replicas(of_request=left.of_request, floats=_of_fleet_time(left, totals)[0], ints=left.ints[0])
    return Run(left.logs, totals, rows, float(np.median(times[1:]))), replicas


class Ways:
    """How the requests of a workload find their replicas, by a FLEET_DTYPE record of shape (1,).

    `of_request` is None where the router looks at them; then there are its `draws` and a `session` for `largest`.
    """

    def __init__(self, runtime: Runtime, workload: Workload, largest: Records, fleet: Records) -> None:
        self.fleet = fleet
        self.replicas = int(fleet["replicas"][0])
        self.of_request = None
        if fleet["router"][0] < Router.POWER_OF_TWO:
            self.of_request = assigned(workload, fleet[0])
            return
        self.draws = router_draws(int(fleet["seed"][0]), workload.num_requests)
        self.session = runtime.fleet_session(workload, largest, self.replicas)


def _run(
    runtime: Runtime, workload: Workload, records: Records, params: Records, ways: Ways, fast_forward: bool
) -> _Left:
    """Run fleets whose requests go the same ways; where the router looks at the replicas, one fleet."""
    alone = params.copy()
    alone["replicas"] = 1
    if ways.of_request is None:
        return _run_looked_at(workload, records, params, alone, ways, fast_forward)
    left = _Left(workload, len(records), ways.of_request, ways.replicas)
    for replica in range(ways.replicas):
        members = np.flatnonzero(ways.of_request == replica)
        for batch in runtime.batches(workload.subset(members), records, alone, fast_forward=fast_forward):
            left.add(replica, members, batch, alone)
    return left


def _run_looked_at(
    workload: Workload, records: Records, params: Records, alone: Records, ways: Ways, fast_forward: bool
) -> _Left:
    """Run one fleet, and make its replicas' rows: their requests stand together in the order of replicas."""
    fleet = ways.session.run(records, params, ways.fleet, ways.draws, fast_forward=fast_forward)
    left = _Left(workload, 1, fleet.of_request.copy(), ways.replicas)
    left.logs = RequestLog(**{name: each.copy() for name, each in fleet.log._asdict().items()})
    left.lengths[0], left.lengths[1] = workload.prompt_tokens, workload.output_tokens
    left.itl_histogram[0] = fleet.itl_histogram.sum(axis=0)
    left.totals[0] = fleet.totals
    left.kernel_ns = fleet.kernel_ns
    order = np.argsort(fleet.of_request, kind="stable")
    log = {name: each[order] for name, each in fleet.log._asdict().items()}
    prompt, output = workload.prompt_tokens[order], workload.output_tokens[order]
    ends = np.cumsum(left.sent)
    for replica, end in enumerate(ends.tolist()):
        part = slice(end - int(left.sent[replica]), end)
        one = slice(replica, replica + 1)
        own_log = RequestLog(**{name: each[part] for name, each in log.items()})
        histogram = fleet.itl_histogram[one]
        batch = Batch(_FIRST, prompt[part], output[part], own_log, fleet.totals[one], histogram, 0)
        floats, ints = summaries(batch, alone)
        left.floats[0, replica], left.ints[0, replica] = floats[0], ints[0]
    return left


def _rows_of(
    runtime: Runtime,
    adds_up: frozenset[str],
    workload: Workload,
    left: _Left,
    records: Records,
    params: Records,
    bounds: ClassBounds | None,
) -> tuple[Records, Records, npt.NDArray[np.float64] | None]:
    """Rows of fleets, and the columns of their classes."""
    totals = merged_totals(left.totals, left.floats)
    floats, ints = new_rows(len(records))
    classes = None if bounds is None else new_class_columns(len(records), workload)
    for batch in left.batches(totals, adds_up):
        own = params[batch.places]
        of_runs = summaries(batch, own)
        if bounds is not None and classes is not None:
            classes[batch.places] = class_columns(workload, batch, own, bounds.at(batch.places), *of_runs)
        floats[batch.places], ints[batch.places] = of_runs
    runtime.correct_rows(records, floats, ints, totals)
    fill_fleet_columns(left.totals, totals, np.broadcast_to(left.sent, left.totals.shape), floats)
    return floats, ints, classes


def _of_fleet_time(left: _Left, totals: Records) -> Records:
    """The replicas' rows with averages over the fleet's time, which is as long for all of them."""
    floats = left.floats.copy()
    duration_us = (totals["end_us"] - totals["first_arrival_us"])[:, None]
    of = left.totals
    for name, area in (
        ("busy_share", of["busy_us"]),
        ("running_mean", of["running_us"]),
        ("kv_use_mean", of["kv_block_us"] / np.maximum(of["usable_blocks"], 1)),
    ):
        floats[name] = np.divide(area, duration_us, out=np.full(area.shape, np.nan), where=duration_us > 0)
    return floats
