"""Engines other than vLLM's: which configurations of a chunk are theirs, and the rows of those.

Their kernels are imported, and compiled, when the first of their configurations runs.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.engines.encode import Take
from fastsim.engines.outputs import RequestLog
from fastsim.errors import InputError
from fastsim.metrics import FLOAT_COLUMNS, INT_COLUMNS, new_rows
from fastsim.metrics.columns import NULL
from fastsim.metrics.summary import scratch_size
from fastsim.workload import Workload

FloatRows = npt.NDArray[np.float64]
IntRows = npt.NDArray[np.int64]

VLLM, BLIS, RLT = range(3)
NO_MODEL_LEN = 2**31 - 1
"""Stands for "no limit to a request's length" where metrics ask for one."""


@dataclass(frozen=True)
class Others:
    """What a chunk holds besides vLLM's engines.

    `family` (int64, one a configuration) says whose each is; `blis`, `blis_timeouts_us` and `rlt` are the records of
    those two engines, in the order of their configurations.
    """

    family: npt.NDArray[np.int64]
    blis: npt.NDArray[np.void]
    blis_timeouts_us: npt.NDArray[np.int64]
    rlt: npt.NDArray[np.void]


class Runs(NamedTuple):
    """Some runs of an engine: configurations in the chunk, lengths, what they left, and how long the kernel took.

    `columns` are result columns that only this engine fills, by name, a value a run.
    """

    places: npt.NDArray[np.intp]
    prompt_tokens: npt.NDArray[Any]
    output_tokens: npt.NDArray[Any]
    batch: Any
    kernel_ns: int
    columns: Mapping[str, npt.NDArray[np.float64]]


class Left(NamedTuple):
    """What one run left, as far as all engines have it: `log` by request, `totals` of TOTALS_DTYPE, shape (1,)."""

    log: RequestLog
    totals: npt.NDArray[np.void]


class OneRun(NamedTuple):
    """One run: its row, what it left, its engine's own metrics, and milliseconds of the kernel (median of repeats)."""

    left: Left
    floats: FloatRows
    ints: IntRows
    own: dict[str, Any]
    kernel_ms: float


def _family(name: str) -> int:
    return {"blis": BLIS, "vllm-rlt": RLT}.get(name, VLLM)


def other_records(take: Take, params: npt.NDArray[np.void]) -> Others | None:
    """Records of the configurations that are not vLLM's; None: there are none.

    `params` (PARAMS_DTYPE) of those is changed where the engine has its own word for what metrics need.
    """
    count = len(params)
    family = np.asarray(take("engine.name", _family), np.int64)
    if not family.any():
        return None
    nothing = np.zeros(0, np.int64)
    blis: npt.NDArray[Any] = nothing
    rlt: npt.NDArray[Any] = nothing
    timeouts_us = nothing
    if (family == BLIS).any():
        from fastsim.engines.blis import records as blis_records

        blis = blis_records.config_records(take, count)[family == BLIS]
        timeouts_us = blis_records.timeouts_us(take)[family == BLIS]
        longest = blis["max_model_len"]
        params["max_model_len"][family == BLIS] = np.where(longest > 0, longest, NO_MODEL_LEN)
    if (family == RLT).any():
        from fastsim.engines.rlt import records as rlt_records

        rlt = rlt_records.config_records(take, count)[family == RLT]
        params["max_model_len"][family == RLT] = NO_MODEL_LEN
    return Others(family, blis, timeouts_us, rlt)


def mixed_rows(
    workload: Workload,
    others: Others,
    params: npt.NDArray[np.void],
    vllm_rows: Callable[[npt.NDArray[np.intp]], tuple[FloatRows, IntRows]],
    fast_forward: bool,
) -> tuple[FloatRows, IntRows]:
    """Rows of a chunk that mixes engines, in its order. `vllm_rows(places)` gives those of vLLM's configurations."""
    floats, ints = new_rows(len(params))
    for runs in _runs(workload, others, fast_forward):
        floats[runs.places], ints[runs.places] = _summaries(runs, params[runs.places])
    _forget_capacity(others, floats, ints)
    plain = plain_rows(floats, ints)
    vllm = np.flatnonzero(others.family == VLLM)
    if len(vllm):
        plain[0][vllm], plain[1][vllm] = vllm_rows(vllm)
    return plain


def run_one(
    workload: Workload,
    others: Others,
    params: npt.NDArray[np.void],
    *,
    fast_forward: bool,
    record_steps: bool,
    repeat: int,
) -> OneRun:
    """Run the one configuration there is; what the first call in a process takes to compile is not counted.

    Raises
    ------
    InputError
        When steps are to be recorded, which only vLLM's engines do.
    """
    if record_steps:
        raise InputError("steps are recorded only with vLLM's engines, but engine.name is another: leave --steps out")
    times = []
    for _ in range(repeat + 1):  # the first one compiles
        (runs,) = _runs(workload, others, fast_forward)
        start_ns = perf_counter_ns()
        floats, ints = _summaries(runs, params)
        times.append((perf_counter_ns() - start_ns + runs.kernel_ns) / 1e6)
    _forget_capacity(others, floats, ints)
    log, own = _left(workload, others, runs)
    return OneRun(Left(log, runs.batch.totals), *plain_rows(floats, ints), own, median(times[1:]))


def _runs(workload: Workload, others: Others, fast_forward: bool) -> Iterator[Runs]:
    """Run everything that is not vLLM's, a few configurations at a time."""
    if len(others.blis):
        from fastsim.engines.blis import rows as blis_rows

        records = others.blis.copy()
        records["fast_forward"] = fast_forward
        mine = np.flatnonzero(others.family == BLIS)
        for places, offered, batch, kernel_ns in blis_rows.run_batches(workload, records, others.blis_timeouts_us):
            columns = blis_rows.own_columns(batch)
            yield Runs(mine[places], offered.prompt_tokens, offered.output_tokens, batch, kernel_ns, columns)
    if len(others.rlt):
        from fastsim.engines.rlt import rows as rlt_rows

        mine = np.flatnonzero(others.family == RLT)
        for places, submitted, left, kernel_ns in rlt_rows.run_batches(workload, others.rlt, fast_forward):
            yield Runs(mine[places], submitted.prompt_tokens, submitted.output_tokens, left, kernel_ns, {})


def _summaries(runs: Runs, params: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
    """Rows of some runs, as records."""
    from fastsim.metrics.runs import Lengths, summarise_runs

    floats, ints = new_rows(len(params))
    summarise_runs(
        runs.batch.log,
        Lengths(runs.prompt_tokens.astype(np.int64), runs.output_tokens.astype(np.int64)),
        runs.batch.totals,
        runs.batch.itl_histogram,
        params,
        np.empty(scratch_size(len(runs.prompt_tokens))),
        floats,
        ints,
    )
    for name, values in runs.columns.items():
        floats[name] = values
    return floats, ints


def _left(workload: Workload, others: Others, runs: Runs) -> tuple[RequestLog, dict[str, Any]]:
    """The log of the one run by request, and the metrics that only its engine has, their names saying so."""
    if len(others.blis):
        from fastsim.engines.blis.rows import own_metrics

        return runs.batch.log, own_metrics(runs.batch)
    from fastsim.engines.rlt.rows import by_request, own_totals

    return by_request(runs.batch.log, workload), own_totals(runs.batch)


def _forget_capacity(others: Others, floats: npt.NDArray[np.void], ints: npt.NDArray[np.void]) -> None:
    """Null what metrics derive from blocks a token, where a token needs a block in each of several depth planes."""
    mine = np.flatnonzero(others.family == RLT)
    planed = mine[others.rlt["planes"] > 1] if len(mine) else mine
    for name in ("kv_capacity_req_per_s", "offered_kv_load", "offered_load"):
        floats[name][planed] = np.nan
    ints["kv_safe_num_seqs"][planed] = NULL


def plain_rows(floats: npt.NDArray[np.void], ints: npt.NDArray[np.void]) -> tuple[FloatRows, IntRows]:
    """Records of columns as two-dimensional arrays."""
    count = len(floats)
    return (
        floats.view(np.float64).reshape(count, len(FLOAT_COLUMNS)),
        ints.view(np.int64).reshape(count, len(INT_COLUMNS)),
    )
