"""The requests of a run: struct-of-arrays, validated once, read-only from then on."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastsim.errors import InputError
from fastsim.workload.prefix_tree import PrefixTree, check_tree, flat_tree

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

INT32_MAX = 2**31 - 1
LATEST_US = 2**60
"""Clocks are int64 microseconds; arrivals end far below so that sums cannot overflow."""
MAX_GROUPS = 2**26
"""Kernels keep arrays by group number, so that numbers must be near the number of groups."""


class _RequestColumn(NamedTuple):
    dtype: type[np.int32] | type[np.int64]
    low: int
    high: int
    default: int | None


COLUMNS = {
    "arrival_us": _RequestColumn(np.int64, 0, LATEST_US, None),
    "prompt_tokens": _RequestColumn(np.int32, 1, INT32_MAX, None),
    "output_tokens": _RequestColumn(np.int32, 1, INT32_MAX, None),
    "max_tokens": _RequestColumn(np.int32, 0, INT32_MAX, 0),
    "priority": _RequestColumn(np.int32, -(2**31), INT32_MAX, 0),
    "prefix_group": _RequestColumn(np.int32, -1, INT32_MAX, -1),
    "prefix_tokens": _RequestColumn(np.int32, 0, INT32_MAX, 0),
    "think_us": _RequestColumn(np.int64, 0, LATEST_US, 0),
}
"""dtype, range and default of every array of a workload."""


@dataclass(frozen=True)
class Report:
    """What became of a source of requests.

    `rows_read` rows were read, `rows_used` became requests, `unusable` counts the others by reason; `notes` are
    sentences on what else was changed.
    """

    rows_read: int = 0
    rows_used: int = 0
    unusable: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Workload:
    """The requests of a run, by request index; build one with `Workload.from_arrays` or `build_workload`.

    Every array has shape (num_requests,), is C-contiguous and read-only.

    ==============  =====  ======  =================================================================================
    array           dtype  unit    meaning
    ==============  =====  ======  =================================================================================
    arrival_us      int64  us      when the request arrives; with `concurrency`, at the earliest
    prompt_tokens   int32  tokens  prompt, shared prefix included; at least 1
    output_tokens   int32  tokens  output that will be generated; at least 1
    max_tokens      int32  tokens  limit that the request declares; 0: none
    priority        int32          smaller is more urgent
    prefix_group    int32          requests of one group share their first tokens; -1: none
    prefix_tokens   int32  tokens  how many tokens they share
    think_us        int64  us      pause of a closed-loop client before it sends this request
    ==============  =====  ======  =================================================================================

    `groups` is the tree of prefix groups (`PrefixTree`): a group's prefix begins with that of its parent, and
    `prefix_group` is the last group of the chain that a prompt begins with. Without a tree every group stands alone.

    `class_names` are those of the classes that were mixed (`workload.classes`), and `request_class` is the index of
    each request's among them (int32, shape (num_requests,)); None without classes. They are no part of `workload_id`.

    `concurrency` is 0 in an open loop. In a closed loop of N clients the first N requests arrive at their
    `arrival_us`, and each later one, in index order, when a client is free and has thought for `think_us`, but not
    before its `arrival_us`: 0 in a closed loop, else the schedule of a load generator with at most N requests out.
    """

    arrival_us: Int64Array
    prompt_tokens: Int32Array
    output_tokens: Int32Array
    max_tokens: Int32Array
    priority: Int32Array
    prefix_group: Int32Array
    prefix_tokens: Int32Array
    think_us: Int64Array
    groups: PrefixTree
    concurrency: int = 0
    report: Report = Report()
    class_names: tuple[str, ...] = ()
    request_class: Int32Array | None = None

    def __post_init__(self) -> None:
        """Make every array read-only: kernels are compiled for such arrays, others would compile them anew."""
        for name in COLUMNS:
            array = getattr(self, name)
            if array.flags.writeable:
                array = array.view()
                array.flags.writeable = False
                object.__setattr__(self, name, array)

    @classmethod
    def from_arrays(
        cls,
        arrival_us: npt.ArrayLike,
        prompt_tokens: npt.ArrayLike,
        output_tokens: npt.ArrayLike,
        *,
        max_tokens: npt.ArrayLike | None = None,
        priority: npt.ArrayLike | None = None,
        prefix_group: npt.ArrayLike | None = None,
        prefix_tokens: npt.ArrayLike | None = None,
        think_us: npt.ArrayLike | None = None,
        groups: PrefixTree | None = None,
        concurrency: int = 0,
        report: Report | None = None,
    ) -> "Workload":
        """Build a workload from integer arrays (or lists) of one length; `groups` is the tree of prefix groups.

        Raises
        ------
        InputError
            When lengths differ, a value is not an integer, does not fit or is out of its range, or when a request's
            prompt and output together do not fit in int32, or when the prefix groups are no tree.
        """
        given = {
            "arrival_us": arrival_us,
            "prompt_tokens": prompt_tokens,
            "output_tokens": output_tokens,
            "max_tokens": max_tokens,
            "priority": priority,
            "prefix_group": prefix_group,
            "prefix_tokens": prefix_tokens,
            "think_us": think_us,
        }
        count = len(np.atleast_1d(np.asarray(arrival_us)))
        columns: dict[str, Any] = {name: _column(name, values, count) for name, values in given.items()}
        total = columns["prompt_tokens"].astype(np.int64) + columns["output_tokens"]
        if count and int(total.max()) > INT32_MAX:
            worst = int(total.argmax())
            raise InputError(
                f"workload: request {worst} has {int(total[worst])} prompt and output tokens, "
                f"but at most {INT32_MAX} were expected"
            )
        if not 0 <= concurrency <= INT32_MAX:
            raise InputError(
                f"workload: concurrency = {concurrency}, but an integer from 0 to {INT32_MAX} was expected"
            )
        thought_us = float(columns["think_us"].sum(dtype=np.float64))
        if thought_us > LATEST_US:  # without anybody to serve, pauses may follow one another
            raise InputError(
                f"workload: all pauses together last {thought_us / 1e6:.3g} s, but at most {LATEST_US / 1e6:.3g} s was "
                "expected: lower workload.think.mean_s or workload.num_requests"
            )
        highest = int(columns["prefix_group"].max(initial=-1))
        if highest >= MAX_GROUPS:
            raise InputError(f"workload: prefix_group {highest}, but numbers below {MAX_GROUPS} were expected")
        tree = flat_tree(highest + 1) if groups is None else check_tree(groups, highest)
        return cls(**columns, groups=tree, concurrency=int(concurrency), report=report or Report(count, count))

    @property
    def num_requests(self) -> int:
        """Number of requests."""
        return len(self.arrival_us)

    def subset(self, members: npt.NDArray[np.intp]) -> "Workload":
        """Some of the requests, in the order of `members` (indices); prefix groups keep their numbers."""
        columns: dict[str, Any] = {name: getattr(self, name)[members] for name in COLUMNS}
        if self.request_class is not None:
            columns["request_class"] = self.request_class[members]
        return replace(self, **columns)

    @cached_property
    def workload_id(self) -> str:
        """Hash of the content, 16 hex digits: equal workloads have equal ids on every machine."""
        digest = blake2b(digest_size=8)
        digest.update(f"fastsim-workload/1 {self.num_requests} {self.concurrency}".encode())
        for name, column in COLUMNS.items():
            values = getattr(self, name)
            digest.update(np.ascontiguousarray(values, dtype=np.dtype(column.dtype).newbyteorder("<")).tobytes())
        if not self.groups.is_flat:  # groups that stand alone say nothing that `prefix_group` does not
            for part in self.groups:
                digest.update(np.ascontiguousarray(part, dtype="<i4").tobytes())
        return digest.hexdigest()

    @property
    def group_parent(self) -> Int32Array:
        """Group whose prefix each group extends, -1: none; int32, shape (num_groups,)."""
        return self.groups.parent

    @property
    def group_start_tokens(self) -> Int32Array:
        """Where each group's own tokens start; int32, shape (num_groups,)."""
        return self.groups.start_tokens

    @cached_property
    def group_end_tokens(self) -> Int32Array:
        """Longest prefix that any request takes from each group, its descendants' included; int32, (num_groups,)."""
        own = np.zeros(self.groups.num_groups, np.int32)
        member = self.prefix_group >= 0
        np.maximum.at(own, self.prefix_group[member], np.minimum(self.prefix_tokens, self.prompt_tokens)[member])
        return self.groups.end_tokens(own)

    @cached_property
    def mean_prompt_tokens(self) -> float:
        """Mean prompt over all requests; 0 when there are none."""
        return int(self.prompt_tokens.sum(dtype=np.int64)) / max(self.num_requests, 1)

    @cached_property
    def mean_output_tokens(self) -> float:
        """Mean output over all requests; 0 when there are none."""
        return int(self.output_tokens.sum(dtype=np.int64)) / max(self.num_requests, 1)

    def arrival_order(self) -> Int32Array:
        """Request indices by (arrival_us, index); int32, shape (num_requests,)."""
        return np.argsort(self.arrival_us, kind="stable").astype(np.int32)


def _column(name: str, values: npt.ArrayLike | None, count: int) -> npt.NDArray[Any]:
    """One array of a workload: checked, of its dtype, contiguous and read-only."""
    column = COLUMNS[name]
    if values is None:
        out = np.full(count, column.default, column.dtype)
    else:
        raw = np.atleast_1d(np.asarray(values))
        if raw.shape != (count,):
            raise InputError(f"workload: {name} has shape {raw.shape}, but ({count},) was expected")
        if count and raw.dtype.kind not in "iu":
            raise InputError(f"workload: {name} has dtype {raw.dtype}, but integers were expected")
        if count and (int(raw.min()) < column.low or int(raw.max()) > column.high):
            wrong = int(np.flatnonzero((raw < column.low) | (raw > column.high))[0])
            raise InputError(
                f"workload: {name} of request {wrong} is {int(raw[wrong])}, "
                f"but an integer from {column.low} to {column.high} was expected"
            )
        out = np.array(raw, column.dtype, order="C")
    out.flags.writeable = False
    return out
