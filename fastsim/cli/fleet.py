"""What each replica of a fleet did, below the figures of a run."""

from typing import TYPE_CHECKING

from fastsim.cli.run_text import percent
from fastsim.cli.tables import number, table, wrapped

if TYPE_CHECKING:
    from fastsim.simulation import Result

SHOWN_REPLICAS = 16


def fleet_text(result: "Result") -> str:
    """How evenly the replicas were loaded, and a table with one row a replica."""
    metrics, fleet = result.metrics, result.config.fleet
    text = (
        f"fleet       {fleet.replicas} replicas, {fleet.router}: the busiest one was busy "
        f"{percent(metrics['hottest_replica_share'])} of the time, the mean one {percent(metrics['busy_share'])}; "
        f"most over mean of requests {number(metrics['imbalance_requests'])}, of tokens "
        f"{number(metrics['imbalance_tokens'])}, of busy time {number(metrics['imbalance_busy'])}"
    )
    rows = []
    for replica in range(min(fleet.replicas, SHOWN_REPLICAS)):
        m = result.of_replica(replica)
        rows.append(
            [
                str(replica),
                m["num_requests"],
                m["completed"],
                m["scheduled_tokens"],
                percent(m["busy_share"]),
                percent(m["kv_use_peak"]),
                m["preemptions"],
                percent(m["prefix_hit_share"]),
                m["ttft_p99_ms"],
            ]
        )
    header = ["replica", "sent", "done", "tokens", "busy", "KV peak", "preemptions", "prefix hits", "ttft_p99_ms"]
    lines = [wrapped(text, indent=12), "", table(header, rows)]
    if fleet.replicas > SHOWN_REPLICAS:
        lines.append(f"({fleet.replicas - SHOWN_REPLICAS} more replicas: --requests has who served each request)")
    return "\n".join(lines)
