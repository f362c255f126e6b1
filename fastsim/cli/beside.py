"""`fastsim run --beside METRICS.json`: BLIS's metrics with fastsim's figures for them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastsim.cli.tables import number, table, wrapped

if TYPE_CHECKING:
    from fastsim.analysis.beside.blis_metrics import Beside


def beside_objects(rows: "list[Beside]") -> list[dict[str, Any]]:
    """What `--json` says of each metric."""
    return [
        {"metric": row.metric, "column": row.column, "blis": row.blis, "fastsim": row.fastsim, "relative": row.relative}
        for row in rows
    ]


def beside_text(rows: "list[Beside]", engine: str, path: Path) -> str:
    """The answer in a sentence, then every metric of both."""
    from fastsim.cli.compare import percent

    body = [[row.metric, row.blis, row.fastsim, "same" if row.same else percent(row.relative)] for row in rows]
    title = ["metric", "BLIS", f"fastsim, {engine}", "difference"]
    return "\n".join([wrapped(_answer(rows, engine, path)), "", table(title, body)])


def _answer(rows: "list[Beside]", engine: str, path: Path) -> str:
    same = sum(row.same for row in rows)
    if same == len(rows):
        return f"All {len(rows)} metrics are those of {path.name}."
    worst = max((row for row in rows if not row.same), key=_size)
    by = {row.metric: row for row in rows}
    done, evicted = by["completed_requests"], by["preemption_count"]
    return (
        f"{engine} completes {number(done.fastsim)} requests with {number(evicted.fastsim)} preemptions, BLIS "
        f"{number(done.blis)} with {number(evicted.blis)}; {same} of {len(rows)} metrics are the same, "
        f"{worst.metric} differs most."
    )


def _size(row: "Beside") -> float:
    return float("inf") if row.relative is None else abs(row.relative)
