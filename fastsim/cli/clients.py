"""What a load generator with at most so many requests out did to its own schedule."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastsim.cli.tables import number, wrapped
from fastsim.config import resolved
from fastsim.engines.outputs import Status

if TYPE_CHECKING:
    from fastsim.simulation import Result
    from fastsim.workload import Workload


class ClientWait(NamedTuple):
    """How long requests waited for one of the client's places; milliseconds. No time of the server's holds it."""

    mean_ms: float
    p99_ms: float
    most_ms: float
    waited_share: float
    never_sent: int


def client_wait(result: "Result", workload: "Workload") -> ClientWait | None:
    """Of a run whose requests have a schedule and a cap on those that are out; None: it has no such."""
    if not workload.concurrency or resolved(result.config).workload.arrival.kind == "closed_loop":
        return None
    sent_us = result.requests.arrival_us
    sent = result.requests.status != Status.PENDING
    waits = (sent_us[sent] - workload.arrival_us[sent]) / 1e3
    if not len(waits):
        return None
    return ClientWait(
        float(waits.mean()),
        float(np.percentile(waits, 99)),
        float(waits.max()),
        float(np.mean(waits > 0)),
        int(np.count_nonzero(~sent)),
    )


def client_text(wait: ClientWait, concurrency: int) -> str:
    """A note on the client's own wait."""
    text = (
        f"note: the client had at most {concurrency:,} requests out and held back {wait.waited_share:.1%} of them: its "
        f"own wait, {number(round(wait.mean_ms, 2))} ms on average, p99 {number(round(wait.p99_ms, 2))} ms, at most "
        f"{number(round(wait.most_ms, 2))} ms, comes before every time above"
    )
    if wait.never_sent:
        text += f"; {number(wait.never_sent)} were never sent"
    return wrapped(text, indent=6)
