"""Writing requests as the plain CSV, which `load_trace` reads back without loss."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastsim.errors import InputError
from fastsim.workload.prefix_tree import PrefixTree
from fastsim.workload.workload import Report, Workload

if TYPE_CHECKING:
    import polars as pl


def write_plain(workload: Workload, path: str | Path) -> None:
    """Write the requests as `arrival_s,prompt_tokens,output_tokens` and what else they have.

    A closed loop's clients and their thinking are not part of the file.

    Raises
    ------
    InputError
        When the file cannot be written.
    """
    frame = plain_table(workload)
    try:
        frame.write_csv(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None


def plain_table(workload: Workload) -> "pl.DataFrame":
    """The plain CSV's columns; those that say nothing are left out."""
    import polars as pl

    us = pl.lit(pl.Series(workload.arrival_us))
    seconds = pl.concat_str(
        (us // 1_000_000).cast(pl.String), (us % 1_000_000).cast(pl.String).str.zfill(6), separator="."
    )
    columns: dict[str, Any] = {
        "prompt_tokens": workload.prompt_tokens,
        "output_tokens": workload.output_tokens,
    }
    for name in ("max_tokens", "priority"):
        if getattr(workload, name).any():
            columns[name] = getattr(workload, name)
    if (workload.prefix_group >= 0).any():
        if workload.groups.is_flat:
            columns["prefix_group"] = workload.prefix_group
        else:
            texts = [*group_paths(workload.groups), None]  # the last for -1
            columns["prefix_path"] = [texts[group] for group in workload.prefix_group.tolist()]
        columns["prefix_tokens"] = workload.prefix_tokens
    frame = pl.DataFrame(columns)
    return frame.select(seconds.alias("arrival_s"), *frame.columns)


def group_paths(tree: PrefixTree) -> list[str]:
    """`group:start` of each group after those that it extends, such as `0:0/7:512`."""
    paths: list[str] = []
    for group, (parent, start) in enumerate(zip(tree.parent.tolist(), tree.start_tokens.tolist(), strict=True)):
        paths.append((paths[parent] + "/" if parent >= 0 else "") + f"{group}:{start}")
    return paths


def merged(workloads: Sequence[Workload]) -> Workload:
    """Classes of requests as one workload, in order of arrival; each keeps its own prefix groups.

    Raises
    ------
    InputError
        When a class is a closed loop, whose arrivals are not known.
    """
    offsets = np.cumsum([0, *(each.groups.num_groups for each in workloads)])
    if any(each.concurrency for each in workloads):
        raise InputError(
            "a closed loop cannot be merged with other requests, but workloads with arrivals were expected"
        )
    order = np.argsort(np.concatenate([each.arrival_us for each in workloads]), kind="stable")

    def joined(name: str) -> Any:
        return np.concatenate([getattr(each, name) for each in workloads])[order]

    groups = [
        np.where(each.prefix_group >= 0, each.prefix_group + offset, -1)
        for each, offset in zip(workloads, offsets[:-1], strict=True)
    ]
    parents = [
        np.where(each.groups.parent >= 0, each.groups.parent + offset, -1)
        for each, offset in zip(workloads, offsets[:-1], strict=True)
    ]
    reports = [each.report for each in workloads]
    unusable: dict[str, int] = {}
    for report in reports:
        for reason, count in report.unusable.items():
            unusable[reason] = unusable.get(reason, 0) + count
    return Workload.from_arrays(
        joined("arrival_us"),
        joined("prompt_tokens"),
        joined("output_tokens"),
        max_tokens=joined("max_tokens"),
        priority=joined("priority"),
        prefix_group=np.concatenate(groups)[order],
        prefix_tokens=joined("prefix_tokens"),
        groups=PrefixTree(
            np.concatenate(parents).astype(np.int32),
            np.concatenate([each.groups.start_tokens for each in workloads]),
        ),
        report=Report(
            sum(report.rows_read for report in reports),
            sum(report.rows_used for report in reports),
            unusable,
            tuple(dict.fromkeys(note for report in reports for note in report.notes)),
        ),
    )
