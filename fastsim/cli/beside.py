"""`fastsim run --beside FILE`: what was measured, with fastsim's figures for it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastsim.cli.tables import number, table, wrapped

if TYPE_CHECKING:
    from fastsim.analysis.beside.blis_metrics import Beside


def beside_objects(rows: "list[Beside]") -> list[dict[str, Any]]:
    """What `--json` says of each metric."""
    return [
        {
            "metric": row.metric,
            "column": row.column,
            "measured": row.measured,
            "fastsim": row.fastsim,
            "relative": row.relative,
        }
        for row in rows
    ]


def beside_text(rows: "list[Beside]", engine: str, path: Path, title: str) -> str:
    """The answer in a sentence, then every metric of both."""
    from fastsim.cli.compare_text import percent

    body = [[row.metric, row.measured, row.fastsim, "same" if row.same else percent(row.relative)] for row in rows]
    head = ["metric", "BLIS" if title == "BLIS" else "measured", f"fastsim, {engine}", "difference"]
    answer = _blis_answer(rows, engine, path) if title == "BLIS" else _answer(rows, engine, title)
    return "\n".join([wrapped(answer), "", table(head, body)])


def _answer(rows: "list[Beside]", engine: str, title: str) -> str:
    """The errors of the means, worst first, in one sentence."""
    told = [row for row in rows if row.relative is not None]
    if not told:
        return f"{engine} has no figure for what {title} says."
    worst = max(told, key=_size)
    middle = sorted(map(_size, told))[len(told) // 2]
    return (
        f"{engine} beside {title}: {len(told)} figures, half of them within {middle:.1%}; {worst.metric} is furthest "
        f"({number(worst.fastsim)} simulated, {number(worst.measured)} measured)."
    )


def _blis_answer(rows: "list[Beside]", engine: str, path: Path) -> str:
    same = sum(row.same for row in rows)
    if same == len(rows):
        return f"All {len(rows)} metrics are those of {path.name}."
    worst = max((row for row in rows if not row.same), key=_size)
    by = {row.metric: row for row in rows}
    done, evicted = by["completed_requests"], by["preemption_count"]
    return (
        f"{engine} completes {number(done.fastsim)} requests with {number(evicted.fastsim)} preemptions, BLIS "
        f"{number(done.measured)} with {number(evicted.measured)}; {same} of {len(rows)} metrics are the same, "
        f"{worst.metric} differs most."
    )


def _size(row: "Beside") -> float:
    return float("inf") if row.relative is None else abs(row.relative)
