"""What each class of requests got, below the figures of a run."""

from typing import Any

from fastsim.cli.tables import table

_COLUMNS = ("num_requests", "completed", "ttft_p50_ms", "ttft_p99_ms", "e2e_p50_ms", "e2e_p99_ms")


def classes_text(metrics: dict[str, Any], class_names: tuple[str, ...]) -> str:
    """A table with one row a class: some of the columns that each has (`ttft_p99_ms[chat]`)."""
    rows = [[name, *(metrics[f"{column}[{name}]"] for column in _COLUMNS)] for name in class_names]
    return table(["class", "requests", *_COLUMNS[1:]], rows)
