"""The oracle against recorded cases: the first difference."""

from typing import Any

from tests.reference_sglang.driver import simulate


def expand(steps: list[list[Any]]) -> list[list[Any]]:
    """Rows with their batches written out: 0 stands for the batch of the last row that had one."""
    batch = None
    rows = []
    for step in steps:
        row = list(step)
        if row[2] == 0:
            row[2] = batch
        elif row[1] != "-":
            batch = row[2]
        rows.append(row)
    return rows


def first_difference(case: dict[str, Any], got: dict[str, Any]) -> str | None:
    wanted = expand(case["steps"])
    for k, (want, have) in enumerate(zip(wanted, got["steps"], strict=False)):
        for column, (a, b) in enumerate(zip(want, have, strict=True)):
            if a != b:
                return f"step {k} column {column + 1}: expected {a}, got {b}"
    if len(wanted) != len(got["steps"]):
        return f"expected {len(wanted)} rows, got {len(got['steps'])}"
    for i, (want, have) in enumerate(zip(case["requests_out"], got["requests_out"], strict=True)):
        if want != have:
            return f"request {i}: expected {want}, got {have}"
    totals = case["totals"]
    return None if totals == got["totals"] else f"totals: expected {totals}, got {got['totals']}"


def check(case: dict[str, Any]) -> str | None:
    return first_difference(case, simulate(case["config"], case["requests"]))
