"""Which configurations of a grid a sweep computes, and how they are cut into parts.

A part is a fixed range of indices: it depends on the spec and on what was selected, never on workers, chunks or
shards. Parts end where a workload ends, or cut a workload evenly when it has too many configurations.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import numpy.typing as npt

from fastsim.errors import InputError
from fastsim.sweeps.grid.sample import sample_indices

Int64Array = npt.NDArray[np.int64]

MAX_PARTS = 2**20
"""In one folder: the manifest lists them all."""
MAX_SAMPLE = 2**24
"""A sample is held in memory."""


@dataclass(frozen=True)
class Part:
    """The selected configurations in [start, stop): file `part-{index:06d}.parquet`."""

    index: int
    start: int
    stop: int
    ranges: tuple[tuple[int, int], ...]

    @property
    def rows(self) -> int:
        """Number of selected configurations."""
        return sum(stop - start for start, stop in self.ranges)

    def indices(self) -> Int64Array:
        """The selected configurations, ascending; int64, shape (rows,)."""
        return np.concatenate([np.arange(start, stop, dtype=np.int64) for start, stop in self.ranges])


@dataclass(frozen=True)
class PartPlan:
    """The index ranges of all parts of a grid, from a few numbers.

    Parts of about `rows` indices: whole workloads, or equal shares of one that has more configurations than that.
    """

    grid_size: int
    configs_per_workload: int
    rows: int

    @property
    def _pieces(self) -> int:
        """Parts of one workload, when it is cut."""
        return -(-self.configs_per_workload // self.rows)

    @property
    def length(self) -> int:
        """Indices of a part; the last part of a workload or of the grid may have fewer."""
        if self._pieces > 1:
            return -(-self.configs_per_workload // self._pieces)
        return self.rows // self.configs_per_workload * self.configs_per_workload

    @property
    def count(self) -> int:
        """Number of parts of the whole grid."""
        return self.part_of(self.grid_size - 1) + 1

    def part_of(self, index: int) -> int:
        """The part that holds a configuration."""
        if self._pieces == 1:
            return index // self.length
        workload, inside = divmod(index, self.configs_per_workload)
        return workload * self._pieces + inside // self.length

    def bounds(self, part: int) -> tuple[int, int]:
        """First index of a part, and the one after its last."""
        if self._pieces == 1:
            return part * self.length, min((part + 1) * self.length, self.grid_size)
        workload, piece = divmod(part, self._pieces)
        first = workload * self.configs_per_workload
        return first + piece * self.length, first + min((piece + 1) * self.length, self.configs_per_workload)


@dataclass(frozen=True, eq=False)
class Selection:
    """Part of a grid's configurations: disjoint ascending index ranges, cut into parts.

    `name` says how it was chosen, and belongs to a sweep's identity. `ranges` has shape (n, 2), int64: start and stop
    of each range. `only` is `(i, n)` for shard i of n, counted from 1.
    """

    name: str
    ranges: Int64Array
    plan: PartPlan
    only: tuple[int, int] = (1, 1)

    @property
    def size(self) -> int:
        """Number of configurations over all shards."""
        return int((self.ranges[:, 1] - self.ranges[:, 0]).sum())

    def shard(self, shard: int, of: int) -> "Selection":
        """Every `of`-th part: shard 1 to `of`. The shards together are the whole.

        Raises
        ------
        InputError
            When `shard` is not from 1 to `of`.
        """
        if not 1 <= shard <= of:
            raise InputError(f"--shard {shard}/{of}, but I/N with I from 1 to N was expected")
        return replace(self, only=(shard, of))

    @property
    def rows(self) -> int:
        """Number of configurations of this shard."""
        return self.size if self.only == (1, 1) else sum(part.rows for part in self.parts())

    def part(self, index: int) -> Part | None:
        """A part of this shard; None when it is another shard's, or holds no selected configuration."""
        if not 0 <= index < self.plan.count or index % self.only[1] != self.only[0] - 1:
            return None
        start, stop = self.plan.bounds(index)
        low = int(np.searchsorted(self.ranges[:, 1], start, side="right"))
        high = int(np.searchsorted(self.ranges[:, 0], stop, side="left"))
        ranges = tuple((max(a, start), min(b, stop)) for a, b in self.ranges[low:high].tolist())
        return Part(index, start, stop, ranges) if ranges else None

    def parts(self) -> Iterator[Part]:
        """The parts of this shard in ascending order; parts without selected configurations are left out."""
        return (part for index in self._indices() if (part := self.part(index)) is not None)

    def check_parts(self) -> None:
        """Refuse a sweep of more parts than a folder can list.

        Raises
        ------
        InputError
            With what to do instead.
        """
        if (count := len(self._indices())) > MAX_PARTS:
            raise InputError(
                f"{self.size} configurations are {count} files, but at most {MAX_PARTS} were expected: "
                "pick from them with --limit, --sample or --shard"
            )

    def _indices(self) -> range:
        """Indices among which this shard's parts are."""
        shard, of = self.only
        first, last = (self.plan.part_of(int(index)) for index in (self.ranges[0, 0], self.ranges[-1, 1] - 1))
        return range(first + (shard - 1 - first) % of, last + 1, of)


def chosen(name: str, digits: Sequence[int], spec_hash: str) -> Int64Array:
    """The index ranges that a selection's name stands for, `all`, `limit N` or `sample N`, in a grid of such digits."""
    kind, _, number = name.partition(" ")
    if kind == "all":
        return np.array([[0, prod(digits)]], np.int64)
    if kind == "limit":
        return np.array([[0, int(number)]], np.int64)
    picks = sample_indices(digits, int(number), int(spec_hash, 16))
    ends = np.flatnonzero(np.diff(picks) != 1)
    return np.stack([picks[np.append(0, ends + 1)], picks[np.append(ends, len(picks) - 1)] + 1], axis=1)
