"""BLIS's metrics object (`blis run --metrics-path`, or what it printed), laid beside a run of fastsim.

Beside a run of engine `blis` stand that engine's own metrics, which are BLIS's by name and meaning. Beside any other
engine stand the result columns that come closest: percentiles of those that were served, as BLIS takes them.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastsim.errors import InputError, check_regular

_LATENCY_PARTS = ("mean", "p90", "p95", "p99")
COLUMN_OF: Mapping[str, str] = {
    "completed_requests": "completed",
    "still_queued": "waiting",
    "still_running": "running",
    "preemption_count": "preemptions",
    "dropped_unservable": "unservable",
    "timed_out_requests": "timed_out",
    "vllm_estimated_duration_s": "simulated_s",
    "responses_per_sec": "request_throughput_req_per_s",
    **{f"{kind}_{part}_ms": f"{kind}_served_{part}_ms" for kind in ("ttft", "e2e") for part in _LATENCY_PARTS},
    **{f"itl_{part}_ms": f"itl_{part}_ms" for part in _LATENCY_PARTS},
    "scheduling_delay_p99_ms": "queue_time_served_p99_ms",
}
"""Result column that comes closest to a metric of BLIS's. Tokens are left out: BLIS counts completed requests' only."""

REQUIRED = ("completed_requests", "responses_per_sec", "preemption_count")
SAME = 1e-9
"""Relative difference up to which two figures are one: the digits that JSON keeps."""
_PRINTED = re.compile(r"^=== Simulation Metrics ===\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Beside:
    """One metric that another measured, with the figure that fastsim has for it, and where that comes from."""

    metric: str
    column: str
    measured: float
    fastsim: float | None

    @property
    def relative(self) -> float | None:
        """Difference of fastsim's figure to the measured one as a share of that; None where there is no such share."""
        if self.fastsim is None or (self.measured == 0 and self.fastsim != 0):
            return None
        return 0.0 if self.fastsim == self.measured else (self.fastsim - self.measured) / self.measured

    @property
    def same(self) -> bool:
        """Whether the two figures are one."""
        return self.relative is not None and abs(self.relative) <= SAME


def is_blis_metrics(path: Path) -> bool:
    """Whether a file is BLIS's metrics object, or what BLIS printed."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace") if path.is_file() else ""
    except OSError:
        return False
    return _PRINTED.search(text) is not None or ('"responses_per_sec"' in text and '"preemption_count"' in text)


def read_blis_metrics(path: Path) -> dict[str, float]:
    """BLIS's metrics by name: from its JSON, or from its printed output (the cluster's, where there are several).

    Raises
    ------
    InputError
        When the file cannot be read or holds no such object.
    """
    check_regular(path, "BLIS's metrics")
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}), but BLIS's metrics were expected") from None
    objects = _objects(path, text)
    chosen = next((each for each in objects if each.get("instance_id") == "cluster"), objects[-1])
    for name in REQUIRED:
        if not _is_number(chosen.get(name)):
            raise InputError(
                f"{path}: {name} = {chosen.get(name)!r}, but BLIS's metrics object with a number there was expected"
            )
    return {name: value for name, value in chosen.items() if _is_number(value)}


def _objects(path: Path, text: str) -> list[dict[str, Any]]:
    marks = [match.end() for match in _PRINTED.finditer(text)]
    found = []
    for start in marks or [0]:
        body = text[start:].lstrip()
        try:
            value, _ = json.JSONDecoder().raw_decode(body)
        except (json.JSONDecodeError, RecursionError):
            raise InputError(f"{path}: not readable JSON, but BLIS's metrics object was expected") from None
        if isinstance(value, list):
            raise InputError(
                f"{path}: a list of requests (blis replay --results-path), but the metrics object that BLIS prints, "
                "or writes with blis run --metrics-path, was expected"
            )
        if not isinstance(value, dict):
            raise InputError(f"{path}: a {type(value).__name__}, but BLIS's metrics object was expected")
        found.append(value)
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def blis_rows(blis: Mapping[str, float], metrics: Mapping[str, Any]) -> list[Beside]:
    """Every metric of BLIS's for which a run has a figure, in BLIS's order.

    Parameters
    ----------
    blis
        What `read_blis_metrics` gives.
    metrics
        `Result.metrics` of the run.
    """
    own = "blis_completed_requests" in metrics
    columns = {name: f"blis_{name}" if own else COLUMN_OF.get(name, "") for name in blis}
    return [Beside(name, column, blis[name], metrics[column]) for name, column in columns.items() if column in metrics]
