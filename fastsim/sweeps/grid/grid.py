"""A sweep's configurations as a mixed-radix number: index -> configuration, never materialised."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastsim.config import KEYS, Config, Spec, WorkloadConfig, deployed, load_spec, spec_from_mapping, with_values
from fastsim.config.deployment import FOLLOWS, Hardware, is_given
from fastsim.config.keys import MODEL, POLICY, class_keys, is_file
from fastsim.engines import caveats
from fastsim.errors import InputError
from fastsim.pinned import hold, read_bytes
from fastsim.sweeps.grid.check import all_class_names, check_grid, idle_axes, refusal, refused_at_start
from fastsim.sweeps.grid.columns import Columns, Encode
from fastsim.sweeps.grid.combinations import Pools, combinations, deployments, has_hardware
from fastsim.sweeps.grid.digits import Axis, Digit, labels
from fastsim.sweeps.grid.export import spec_text
from fastsim.sweeps.grid.selection import MAX_SAMPLE, PartPlan, Selection, chosen
from fastsim.sweeps.grid.sweep import read_sweep

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
MAX_SIZE = 2**62
POLICIES = "policies"
"""Folder of the copies of policies, in a sweep's folder."""


class Grid:
    """All configurations of a spec, by index from 0 to size - 1.

    Digits that decide the workload are the most significant ones, so the configurations of one workload are
    neighbours: workload w has the indices from w * configs_per_workload on.

    Parameters
    ----------
    spec : Spec
        The spec, with its `[sweep]` tables.
    axis_options : iterable of str
        `key=v1,v2,...` axes on top of it.

    Raises
    ------
    InputError
        One sentence, when the sweep is malformed, or when any configuration of the grid breaks a rule.
    """

    def __init__(self, spec: Spec, axis_options: Iterable[str] = ()) -> None:
        self.spec = spec
        self.source = spec.source
        self.base: Config = spec.base
        swept = read_sweep(spec, axis_options)
        self._digits: tuple[Digit, ...] = swept.digits(self.base)
        self.size: int = prod(digit.size for digit in self._digits)
        if self.size > MAX_SIZE:
            raise InputError(f"{spec.source}: the grid has {self.size} configurations, but at most 2**62 were expected")
        self.num_workloads: int = prod(digit.size for digit in self._digits if digit.decides_workload)
        self.configs_per_workload: int = self.size // self.num_workloads
        sizes = self.digit_sizes = [digit.size for digit in self._digits]
        self._strides = [prod(sizes[n + 1 :]) for n in range(len(sizes))]
        self._columns = Columns(self.base, self._digits, self._strides)
        check_grid(self.base, self._digits, spec.source)
        self._policies = {path: read_bytes(path) for path in sorted(self.possible(POLICY) - {None})}
        self.warnings: list[str] = [*swept.notes, *idle_axes(self.base, self._digits, spec.source)]
        self.warnings += caveats(sorted(self.possible("engine.name")))
        refused = refused_at_start(self.base, self._digits, spec.source)
        self.some_refused = refused is not None
        if refused is not None:
            self.warnings.insert(0, refused)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """In another process: policies are what they were in the first, whatever their files say by now."""
        self.__dict__.update(state)
        hold(self._policies)

    @classmethod
    def from_toml(cls, path: str | Path | None, sets: Sequence[str] = (), axes: Iterable[str] = ()) -> "Grid":
        """The grid of a spec file with `key=value` settings and `key=v1,v2,...` axes on top."""
        return cls(load_spec(path, sets), axes)

    @classmethod
    def from_mapping(
        cls,
        table: Mapping[str, Any],
        sets: Sequence[str] = (),
        axes: Iterable[str] = (),
        *,
        source: str = "spec",
        folder: str | Path = ".",
    ) -> "Grid":
        """The grid of a mapping of the shape that TOML gives: nested tables or dotted keys, `sweep` among them."""
        return cls(spec_from_mapping(table, sets, source=source, folder=folder), axes)

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """Every axis: its dotted name and what rows show for it, most significant first."""
        return tuple(axis for digit in self._digits for axis in digit.axes)

    @cached_property
    def policies(self) -> dict[str, bytes]:
        """The policy files (`engine.policy_file`) by the names that rows show, and their contents."""
        paths = sorted(self._policies)
        return {
            str(label).replace("..", "up"): self._policies[path]
            for label, path in zip(labels(POLICY, paths), paths, strict=True)
        }

    @property
    def policy_digests(self) -> dict[str, str]:
        """Of each policy file a hash of its content, as `fastsim check-policy` shows it."""
        return {name: _digest(content) for name, content in self.policies.items()}

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes of requests, in the order in which rows have their columns."""
        return tuple(all_class_names(self.base, self._digits))

    # --- one configuration -------------------------------------------------------------------------------------------

    def values(self, index: int) -> dict[str, Any]:
        """What the row of a configuration shows for each axis."""
        return {
            axis.name: axis.values[position]
            for digit, position in zip(self._digits, self._positions(index), strict=True)
            for axis in digit.axes
        }

    def config(self, index: int) -> Config:
        """The configuration of an index, with what its hardware gives.

        Raises
        ------
        InputError
            When the grid has no such index, or its model does not fit on its hardware.
        """
        return deployed(self.written(index))

    def written(self, index: int) -> Config:
        """The configuration of an index as it is written: what it leaves open does not follow its hardware yet."""
        return with_values(self.base, self._settings(index))

    def hardware(self) -> dict[Hardware, Pools]:
        """What is served on what in this grid, and with which KV pools; empty where no hardware is named."""
        return deployments(self.base, self._digits, self.source)

    def refusal(self, index: int) -> str | None:
        """Why no server starts with a configuration; None: one does."""
        return refusal(self.base, self._settings(index))

    def _settings(self, index: int) -> dict[str, Any]:
        """What the axes give for the keys of a configuration."""
        return {
            key: values[position]
            for digit, position in zip(self._digits, self._positions(index), strict=True)
            for key, values in digit.settings.items()
        }

    def refused(self, indices: Int64Array) -> npt.NDArray[np.bool_]:
        """Whether no server starts with each of some configurations; shape (len(indices),)."""
        return np.array([self.refusal(index) is not None for index in indices.tolist()], np.bool_)

    def workload_index(self, index: int) -> int:
        """Which workload a configuration runs."""
        return index // self.configs_per_workload

    def workload_config(self, workload_index: int) -> WorkloadConfig:
        """What a workload is built from."""
        return self.written(workload_index * self.configs_per_workload).workload

    def _positions(self, index: int) -> list[int]:
        if not 0 <= index < self.size:
            raise InputError(f"config-id {index}, but an integer from 0 to {self.size - 1} was expected")
        return [index // stride % digit.size for digit, stride in zip(self._digits, self._strides, strict=True)]

    # --- many configurations, by columns -----------------------------------------------------------------------------

    def digits(self, start: int, stop: int) -> dict[str, Int32Array]:
        """Position on each axis of the configurations in [start, stop); int32, shape (stop - start,)."""
        indices = np.arange(start, stop, dtype=np.int64)
        return {
            axis.name: position
            for n, digit in enumerate(self._digits)
            for position in [self._columns.position(n, indices).astype(np.int32)]
            for axis in digit.axes
        }

    def column(self, name: str, start: int, stop: int, encode: Encode | None = None) -> npt.NDArray[Any]:
        """The values of a key or axis for the configurations in [start, stop); see `take`."""
        return self.take(name, np.arange(start, stop, dtype=np.int64), encode)

    def take(self, name: str, indices: Int64Array, encode: Encode | None = None) -> npt.NDArray[Any]:
        """The values of a key, swept or not, or of an axis for any configurations; shape (len(indices),).

        Defaults that depend on other keys are filled in. The name of an axis that is no key (a choice) gives its
        labels.

        Parameters
        ----------
        name : str
            Dotted key or axis name.
        indices : int64 array
            Configurations.
        encode : callable, optional
            Turns a value into a number. Without it, numbers and booleans come as int64, float64 and bool; text, and
            keys that can be None, come as objects.
        """
        return self._columns.take(name, indices, encode)

    def possible(self, key: str) -> set[Any]:
        """Every value that the spec, its axes or the hardware give a key."""
        return {value for (value,) in combinations(self.base, self._digits, (key,), self.source)}

    # --- identity ----------------------------------------------------------------------------------------------------

    @cached_property
    def spec_hash(self) -> str:
        """Hash of what every configuration is, 32 hex digits; traces count by content, not by name or place."""
        swept = {key for digit in self._digits for key in digit.settings}
        base = {key: self.base.value(key) for key in (*KEYS, *class_keys(self.base)) if key not in swept}
        identity = {
            "format": "fastsim-spec/1",
            # Keys at their defaults are left out, so that a key added later does not rename every older sweep.
            "base": {key: self._identity(key, value) for key, value in base.items() if value != KEYS[key].default},
            **self._left_open(),
            **({"classes": self.base.workload.classes.names} if self.base.workload.classes.names else {}),
            "digits": [
                [
                    [[axis.name, _listed(axis.values)] for axis in digit.axes if axis.name not in KEYS],
                    [[key, self._identity_column(key, values)] for key, values in digit.settings.items()],
                ]
                for digit in self._digits
            ],
        }
        return blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=16).hexdigest()

    def _left_open(self) -> dict[str, Any]:
        """Which keys follow the hardware: one that is given at its default is another configuration."""
        if not has_hardware(self.base, self._digits):
            return {}
        swept = {key for digit in self._digits for key in digit.settings}
        return {"open": [key for key in FOLLOWS if key not in swept and not is_given(self.base, key)]}

    def _identity(self, key: str, value: Any) -> Any:
        if key == POLICY and value is not None:
            return _digest(self._policies[value])
        named = is_file(key) and value is not None and (key != MODEL or Path(value).exists())
        return _file_digest(value) if named else value

    def _identity_column(self, key: str, values: Sequence[Any]) -> Any:
        return [self._identity(key, value) for value in values] if is_file(key) else _listed(values)

    def to_toml(self) -> str:
        """The spec on its own: one file with the same configurations, `extends`, `--set` and `--axis` merged in.

        It expects the policies beside it, in the folder `policies`.
        """
        copies = {path: f"{POLICIES}/{name}" for path, name in zip(sorted(self._policies), self.policies, strict=True)}

        def beside(settings: Mapping[str, Any]) -> dict[str, Any]:
            given = settings.get(POLICY)
            if given is None:
                return dict(settings)
            names = copies[given] if isinstance(given, str) else [copies.get(value, value) for value in given]
            return {**settings, POLICY: names}

        digits = [replace(digit, settings=beside(digit.settings)) for digit in self._digits]
        return spec_text(beside(self.spec.settings), digits, self._answer())

    def _answer(self) -> Any:
        """The raw `[answer]` table, without the axes that a setting gave one value."""
        answer = self.spec.answer
        if not isinstance(answer, Mapping) or not isinstance(answer.get("for_each"), str | list):
            return answer
        axes = {axis.name for axis in self.axes}
        given = answer["for_each"]
        kept = [name for name in ([given] if isinstance(given, str) else given) if name in axes]
        return {**answer, "for_each": kept}

    # --- what to compute ---------------------------------------------------------------------------------------------

    def select(
        self,
        *,
        limit: int | None = None,
        sample: int | None = None,
        shard: tuple[int, int] = (1, 1),
        rows_per_part: int | None = None,
    ) -> Selection:
        """The configurations that a sweep computes.

        Parameters
        ----------
        limit : int, optional
            Only the first so many.
        sample : int, optional
            So many, or all if there are fewer: of each value of each axis, in the grid and in each workload, as many
            as of any other, give or take one. A hash of the spec chooses: always the same ones.
        shard : (int, int)
            `(i, n)`: only the parts of shard i of n, counted from 1.
        rows_per_part : int, optional
            About how many rows a part has; by default a 64th of the selection, but from 64 to 16,384.
        """
        for name, count in (("--limit", limit), ("--sample", sample), ("rows per part", rows_per_part)):
            if count is not None and count < 1:
                raise InputError(f"{name} {count}, but an integer of at least 1 was expected")
        if limit is not None and sample is not None:
            raise InputError(f"--limit {limit} and --sample {sample} are both given, but one of them was expected")
        name = "all"
        if sample is not None and sample < self.size:
            if sample > MAX_SAMPLE:
                raise InputError(f"--sample {sample}, but at most {MAX_SAMPLE} configurations were expected")
            name = f"sample {sample}"
        elif limit is not None and limit < self.size:
            name = f"limit {limit}"
        seed = self.spec_hash if sample is not None else ""
        ranges = chosen(name, self.digit_sizes, seed)
        selected = int((ranges[:, 1] - ranges[:, 0]).sum())
        rows = rows_per_part or min(max(selected // 64, 64), 16_384)
        if name.startswith("sample"):
            # A part covers as many more indices as are left out, or each would hold only a few rows of the sample.
            rows = rows * self.size // selected
        return Selection(name, ranges, PartPlan(self.size, self.configs_per_workload, rows)).shard(*shard)

    def limit(self, count: int) -> Selection:
        """The first `count` configurations."""
        return self.select(limit=count)

    def sample(self, count: int) -> Selection:
        """`count` configurations spread over the grid; see `select`."""
        return self.select(sample=count)

    def shard(self, shard: int, of: int) -> Selection:
        """The parts of shard 1 to `of`."""
        return self.select(shard=(shard, of))


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def _listed(values: Sequence[Any]) -> Any:
    return ["range", values.start, len(values)] if isinstance(values, range) else list(values)


def _file_digest(path: str) -> str:
    """Hash of a trace's content; of a folder's, the files in it with their names."""
    digest = blake2b(digest_size=16)
    try:
        files = sorted(Path(path).iterdir()) if Path(path).is_dir() else []
        for each in files or [Path(path)]:
            if files:
                digest.update(f"\0{each.name}\0".encode(errors="surrogateescape"))
            if each.is_dir():
                continue  # no format has folders in its folder
            with each.open("rb") as file:
                while block := file.read(2**20):
                    digest.update(block)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}), but a trace file was expected") from None
    return digest.hexdigest()
