"""Recorded cases of BLIS's cluster mode, run by the oracle."""

from tests.reference_blis.requests import Request
from tests.reference_fleet.blis_cluster import Cluster
from tests.reference_fleet.blis_pd import PoolCluster


def simulate_case(case):
    """Run a recorded case, with pools where it has them."""
    requests = [Request(i, *row) for i, row in enumerate(case["requests"])]
    cluster = PoolCluster if case["config"]["prefill_instances"] else Cluster
    return cluster(case["config"], case["latency"], requests, case.get("ties")).run()
