"""vLLM 0.33.0's balancer over data-parallel engines: one of the API server's client processes.

Source: `DPLBAsyncMPClient.get_core_engine_for_request` in vllm/v1/engine/core_client.py.
"""

from tests.reference_fleet.load import InFlight


class VllmDataParallel:
    """`route`, `finish` and `snapshot`. `stats[engine]` is [waiting, running, kv_use] of the last snapshot, in which
    the client counts the requests that it has sent since as waiting, once for each client: it expects the others to do
    what it does."""

    def __init__(self, num_engines, num_clients=1, client_index=0):
        self.num_engines = num_engines
        self.num_clients = num_clients
        self.first_looked_at = num_engines * client_index // num_clients
        self.stats = [[0, 0, 0.0] for _ in range(num_engines)]
        self.in_flight = InFlight(num_engines)

    def route(self, request, explicit_rank=None):
        """`explicit_rank`: the engine that the request asks for; the balancer takes it as it is."""
        engine = explicit_rank
        if engine is None:
            order = [(self.first_looked_at + k) % self.num_engines for k in range(self.num_engines)]
            engine = min(order, key=self.score)
            self.stats[engine][0] += self.num_clients
            self.first_looked_at = (self.first_looked_at + 1) % self.num_engines
        self.in_flight.start(request, engine)
        return engine

    def score(self, engine):
        waiting, running, kv_use = self.stats[engine]
        score = max(self.num_clients * self.in_flight.counts[engine], waiting + running)
        return score + waiting * 6.0 * max(0.0, kv_use - 0.5) if waiting > 0 else score

    def finish(self, requests):
        for request in requests:
            self.in_flight.finish(request)

    def snapshot(self, stats):
        """The coordinator's counts replace everything, corrections included."""
        self.stats = [list(row) for row in stats]
