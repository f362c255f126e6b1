"""The plain CSV: `arrival_s,prompt_tokens,output_tokens` and optional columns; `fastsim workload convert` writes it.

Arrivals are seconds from the start of the run. Optional are `max_tokens`, `priority`, `prefix_tokens` with either
`prefix_group` (groups that stand alone) or `prefix_path` (a chain of groups that extend one another, each with the
token at which it starts: `0:0/7:512/9:2048`), and what was measured: `ttft_s` and `e2e_s`. An empty optional cell
means none.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from fastsim.errors import InputError
from fastsim.workload.prefix_tree import PrefixTree
from fastsim.workload.readers.table import (
    Floats,
    TraceRows,
    has_columns,
    length_faults,
    microseconds,
    not_whole,
    numbers,
    optional_numbers,
    read_table,
)
from fastsim.workload.trace import Format, Trace
from fastsim.workload.workload import LATEST_US, Int32Array

REQUIRED = ("arrival_s", "prompt_tokens", "output_tokens")
OPTIONAL = ("max_tokens", "priority", "prefix_group", "prefix_path", "prefix_tokens", "ttft_s", "e2e_s")
PATH = r"^\d{1,9}:0(/\d{1,9}:\d{1,9})*$"


def read(path: Path) -> Trace:
    """Read a plain CSV.

    Raises
    ------
    InputError
        When the file is not CSV or has no rows, or prefix paths contradict each other.
    """
    table = read_table(path, REQUIRED, OPTIONAL, _batch)
    arrays = table.arrays

    def kept(name: str) -> Int32Array | None:
        return arrays[name].astype(np.int32) if name in arrays else None

    def measured(name: str) -> Floats | None:
        return arrays[name] * 1e6 if name in arrays else None

    group, tokens, tree = kept("prefix_group"), kept("prefix_tokens"), None
    if "prefix_path" in arrays and tokens is not None:
        group, tree = _paths(path, arrays["prefix_path"])
    elif group is not None and len(group) and tokens is not None:
        group = _dense(group)
    if group is None or tokens is None:
        group = tokens = None
    return table.trace(
        path,
        FORMAT.name,
        microseconds(arrays["arrival_s"]),
        max_tokens=kept("max_tokens"),
        priority=kept("priority"),
        prefix_group=group,
        prefix_tokens=tokens,
        groups=tree,
        ttft_us=measured("ttft_s"),
        e2e_us=measured("e2e_s"),
    )


def _batch(frame: pl.DataFrame) -> TraceRows:
    arrival_s, prompt, output = (numbers(frame, name) for name in REQUIRED)
    faults = [
        ("an arrival_s that is not a number of at least 0", ~((arrival_s >= 0) & (arrival_s * 1e6 <= LATEST_US))),
        *length_faults(prompt, output, "prompt_tokens", "output_tokens"),
    ]
    arrays: dict[str, npt.NDArray[Any]] = {
        "arrival_s": arrival_s,
        "prompt_tokens": prompt,
        "output_tokens": output,
    }
    whole = (
        ("priority", 0, -(2**31), "a priority that is not a whole number"),
        ("max_tokens", 0, 0, "max_tokens that are not a whole number of at least 0"),
        ("prefix_group", -1, -1, "a prefix_group that is not a whole number of at least -1"),
        ("prefix_tokens", 0, 0, "prefix_tokens that are not a whole number of at least 0"),
    )
    for name, default, low, reason in whole:
        if name in frame.columns:
            arrays[name] = optional_numbers(frame, name, default)
            faults.append((reason, not_whole(arrays[name], low)))
    for name in ("ttft_s", "e2e_s"):
        if name in frame.columns:
            values = optional_numbers(frame, name, np.nan)
            arrays[name] = np.where(np.isfinite(values) & (values >= 0), values, np.nan)
    if "prefix_path" in frame.columns:
        texts = frame["prefix_path"].fill_null("")
        valid = ((texts == "") | texts.str.contains(PATH)).to_numpy()
        faults.append(("a prefix_path that is not group:start/group:start/...", ~valid))
        arrays["prefix_path"] = texts.to_numpy()
    return TraceRows(faults, arrays)


def _dense(group: Int32Array) -> Int32Array:
    """Group numbers as 0, 1, 2, ... in their order; -1 stays."""
    values, index = np.unique(np.concatenate([[-1], group]), return_inverse=True)
    return (index[1:] - 1).astype(np.int32) if len(values) else group


def _paths(path: Path, texts: npt.NDArray[Any]) -> tuple[Int32Array, PrefixTree]:
    """Last group of each path, renumbered so that parents come first, and the tree."""
    parent_of: dict[int, tuple[int, int]] = {}
    distinct, index = np.unique(texts.astype(str), return_inverse=True)
    leaves = np.full(len(distinct), -1, np.int64)
    for row, text in enumerate(distinct.tolist()):
        before = -1
        for part in text.split("/") if text else ():
            name, start = (int(number) for number in part.split(":"))
            if parent_of.setdefault(name, (before, start)) != (before, start):
                raise InputError(
                    f"{path}: prefix_path {text} says that group {name} extends group {before} from token {start}, "
                    f"but group {parent_of[name][0]} from token {parent_of[name][1]} was expected as in another row"
                )
            before = name
        leaves[row] = before
    order = sorted(parent_of, key=lambda name: parent_of[name][1])
    number = {name: k for k, name in enumerate(order)} | {-1: -1}
    tree = PrefixTree(
        np.array([number[parent_of[name][0]] for name in order], np.int32),
        np.array([parent_of[name][1] for name in order], np.int32),
    )
    return np.array([number[leaf] for leaf in leaves.tolist()], np.int32)[index], tree


FORMAT = Format("plain", "plain CSV", REQUIRED, has_columns(*REQUIRED), read)
