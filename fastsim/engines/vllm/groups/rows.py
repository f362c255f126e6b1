"""The entry of these kernels: configurations over one workload, into rows."""

from collections.abc import Callable
from statistics import median
from time import perf_counter_ns
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim._jit import borrow, constant, entry
from fastsim.engines.outputs import TOTALS_DTYPE, RequestLog
from fastsim.engines.tape import Tape
from fastsim.engines.vllm.codes import CONFIG_DTYPE
from fastsim.engines.vllm.groups.codes import GroupKind
from fastsim.engines.vllm.groups.layout import Group, GroupRecords, Layout, group_records
from fastsim.engines.vllm.groups.loop import run_configuration
from fastsim.engines.vllm.groups.memory import Memory, new_memory, place_tables
from fastsim.engines.vllm.groups.recorder import new_record, recorded
from fastsim.engines.vllm.groups.state import Record, State
from fastsim.engines.vllm.loop import LOG_FULL
from fastsim.engines.vllm.memory import workload_arrays
from fastsim.engines.vllm.state import WorkloadArrays
from fastsim.engines.vllm.tape import recorder_holds
from fastsim.metrics import new_rows
from fastsim.metrics.columns import PARAMS_DTYPE
from fastsim.metrics.scratch import new_scratch
from fastsim.metrics.summary import summarise
from fastsim.workload import Workload


@entry
def run_groups(configs, params, groups, memory, wl, rec, scratch, floats, ints, left):
    """Run configurations over one workload and fill their rows. Returns how many: the next needs a larger record."""
    grp = borrow(groups)
    wl = borrow(wl)
    req = borrow(memory.requests)
    q = borrow(memory.queues)
    tab = borrow(memory.tables)
    pool = borrow(memory.pool)
    log = borrow(memory.log)
    gaps = borrow(memory.gaps)
    rec = borrow(rec)
    scratch = borrow(scratch)
    st = borrow(memory.scalars[0])
    totals = memory.totals[0]
    for c in range(configs.shape[0]):
        state = State(constant(configs[c]), params[c], st, borrow(totals), wl, req, q, grp, tab, pool, log, gaps, rec)
        if run_configuration(state) == LOG_FULL:
            return c
        summarise(
            log, wl.prompt_tokens, wl.output_tokens, totals, gaps.histogram, params[c], scratch, floats[c], ints[c]
        )
        left[c] = totals
    return configs.shape[0]


def run_part(
    records: GroupRecords,
    params: npt.NDArray[np.void],
    workload: WorkloadArrays,
    memory: Memory,
    record: Record,
    rows: tuple[npt.NDArray[np.void], npt.NDArray[np.void], npt.NDArray[np.void]],
) -> int:
    """One call of the kernel, which fills `rows`: floats, integers, totals. Returns how many configurations it did."""
    scratch = new_scratch(len(workload.prompt_tokens))
    return int(run_groups(records.engine, params, records.groups, memory, workload, record, scratch, *rows))


Left = tuple[RequestLog, npt.NDArray[np.void], npt.NDArray[np.int64], npt.NDArray[np.void], npt.NDArray[np.void]]
"""A run's log, totals, histogram of gaps, and its row as records, floats and integers."""
AfterEach = Callable[[slice, Left], None]
"""Is told which row a run fills, and what it left."""

RECORD_CAPACITY = 4096
"""Steps and list entries a record first has room for; it is made four times larger until the run fits."""


class GroupRun(NamedTuple):
    """One run: what it left in memory, its row as records, its tape if recorded, and milliseconds (median)."""

    memory: Memory
    floats: npt.NDArray[np.void]
    ints: npt.NDArray[np.void]
    tape: Tape | None
    kernel_ms: float


def run_recorded(
    records: GroupRecords,
    params: npt.NDArray[np.void],
    offered: Workload,
    *,
    fast_forward: bool,
    record_steps: bool,
    repeat: int = 1,
) -> GroupRun:
    """Run one configuration and keep its memory; the record grows until the run fits."""
    workload = workload_arrays(offered)
    records.engine["fast_forward"] = fast_forward
    records.engine["record"] = record_steps
    place_tables(records, workload)
    memory = new_memory(records, workload)
    num_groups = int(records.engine["num_groups"][0])
    capacity = max(RECORD_CAPACITY, offered.num_requests + 1) if record_steps else 1
    compile_kernels()
    times: list[float] = []
    rows = (*new_rows(1), np.zeros(1, TOTALS_DTYPE))
    while len(times) < repeat:
        record = new_record(capacity, num_groups)
        start = perf_counter_ns()
        done = run_part(records, params, workload, memory, record, rows)
        if done and (not record_steps or recorder_holds(record, memory.scalars[0])):
            times.append((perf_counter_ns() - start) / 1e6)
        else:
            capacity *= 4
    tape = recorded(record, memory.scalars[0], num_groups, bool(records.engine["k"][0])) if record_steps else None
    return GroupRun(memory, rows[0], rows[1], tape, median(times))


def run_rows(
    records: GroupRecords,
    params: npt.NDArray[np.void],
    offered: Workload,
    *,
    fast_forward: bool,
    after_each: AfterEach | None = None,
) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void], npt.NDArray[np.void]]:
    """Rows of configurations over one workload, as records, and their totals.

    `after_each` is told of each run before the next one overwrites its log.
    """
    workload = workload_arrays(offered)
    records.engine["fast_forward"] = fast_forward
    records.engine["record"] = 0
    place_tables(records, workload)
    rows = (*new_rows(len(params)), np.zeros(len(params), TOTALS_DTYPE))
    memory, record = new_memory(records, workload), new_record(1, 1)
    at_once = len(params) if after_each is None else 1
    for first in range(0, len(params), at_once):
        part = slice(first, first + at_once)
        mine = (rows[0][part], rows[1][part], rows[2][part])
        few = GroupRecords(records.engine[part], records.groups)
        done = run_part(few, params[part], workload, memory, record, mine)
        assert done == len(mine[0])
        if after_each is not None:
            after_each(part, (memory.log, memory.totals, memory.gaps.histogram, mine[0], mine[1]))
    return rows


def compile_kernels() -> None:
    """Compile the kernel, or load it from the cache; nothing if done before."""
    if getattr(run_groups, "signatures", True):  # interpreted: nothing to compile
        return
    plain = np.zeros(1, CONFIG_DTYPE)
    plain["num_gpu_blocks"] = 2
    plain["max_num_seqs"] = plain["max_num_batched_tokens"] = plain["max_model_len"] = 1
    records = group_records(plain, [Layout((Group(GroupKind.FULL, 1),))])
    nothing = np.zeros(0, np.int64)
    run_rows(records, np.ones(1, PARAMS_DTYPE), Workload.from_arrays(nothing, nothing, nothing), fast_forward=True)
