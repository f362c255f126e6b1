"""A sweep's plan in words."""

from typing import Any

from fastsim.cli.tables import counted, wrapped
from fastsim.sweeps.grid import Grid, Selection

SHOWN_VALUES = 6


def describe_plan(grid: Grid, selection: Selection) -> str:
    """Axes, number of configurations, workloads and parts; the first line says how much it is."""
    selection.check_parts()
    parts = rows = workloads = 0
    last = -1
    for part in selection.parts():
        parts += 1
        rows += part.rows
        for start, stop in part.ranges:
            first, last = max(last + 1, grid.workload_index(start)), grid.workload_index(stop - 1)
            workloads += last - first + 1
    chosen = "" if selection.name == "all" else f" of {grid.size:,} ({selection.name})"
    shard = "" if selection.only == (1, 1) else f", shard {selection.only[0]}/{selection.only[1]}"
    lines = [f"{counted(rows, 'configuration')}{chosen}{shard} in {counted(parts, 'part')}"]
    each = f"{'' if rows % workloads == 0 else 'about '}{counted(round(rows / workloads), 'configuration')}"
    lines.append(f"{counted(workloads, 'workload')}, each run by {each}")
    lines += [wrapped(f"  {axis.name}: {_values(axis.values)}", indent=4) for axis in grid.axes]
    return "\n".join(lines)


def _values(values: Any) -> str:
    if len(values) <= SHOWN_VALUES:
        return ", ".join(_shown(value) for value in values)
    first = ", ".join(_shown(value) for value in values[: SHOWN_VALUES - 2])
    return f"{first}, ..., {_shown(values[-1])} ({len(values):,} values)"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else str(value)
