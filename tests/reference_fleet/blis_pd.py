"""BLIS's cluster with a prefill and a decode pool.

A disaggregated request is a parent of two sub-requests: one without output in the prefill pool, and one in the decode
pool that begins behind its prompt. Both have the parent's arrival. The parent's row is put together at the end.
"""

import math

from tests.reference_blis.requests import Request
from tests.reference_fleet.blis_cluster import ADMISSION, ARRIVES, ROUTING, Cluster, Decision, Replica

PREFILL_ROUTING, TRANSFER_START, TRANSFER_END = range(ROUTING + 1, ROUTING + 4)
KV_BYTES_PER_TOKEN = 131_072  # 8 KV heads of 128 values, 2 bytes each, keys and values, in 32 layers


class PrefillRequest(Request):
    @property
    def id(self):
        return f"{super().id}_prefill"


class DecodeRequest(Request):
    """It starts with its whole prompt computed; once preempted, from nothing."""


def sub_request(kind, parent, output_tokens):
    return kind(
        parent.index,
        parent.arrival_us,
        parent.prompt_tokens,
        output_tokens,
        parent.slo_class,
        parent.prefix_group,
        parent.prefix_tokens,
    )


class PoolReplica(Replica):
    def reserve(self, request):
        """Fresh blocks for the whole prompt, findable by others at once. False: there is no room."""
        if math.ceil(request.prompt_tokens / self.config.block_size) > self.cache.num_free:
            return False
        self.cache.allocate(request, 0, request.prompt_tokens)
        return True

    def receive(self, now, request):
        """The blocks are there. There is no queueing delay for a second time."""
        request.progress = request.prompt_tokens
        request.status = "waiting"
        request.waiting_since_us = now
        self.requests.append(request)
        self.in_flight.add(request)
        self.waiting.append(request)
        if not self.step_pending:
            self.schedule_step(now)

    def admission(self, request):
        if isinstance(request, DecodeRequest):
            return request.progress, 1, ()  # after a preemption, too: one token, and no look into the cache
        return super().admission(request)

    def admit(self, request, hit_tokens):
        if not isinstance(request, DecodeRequest):
            super().admit(request, hit_tokens)
            return
        super().admit(request, 0)
        if request.progress == request.prompt_tokens:
            request.ttft_us = request.scheduling_delay_us  # its prefill is over; from here its gaps count


class PoolCluster(Cluster):
    """The first replicas are the prefill pool, the next ones the decode pool."""

    replica_class = PoolReplica

    def __init__(self, config, latency, requests, ties=None):
        super().__init__(config, latency, requests, ties)
        c = self.config
        assert c.prefill_instances + c.decode_instances == c.instances
        assert c.prefill_routing_scorers == c.decode_routing_scorers == "", "no recording has scorers of a pool"
        assert all(request.deadline_us == 0 for request in requests), "no recording has deadlines and pools"
        self.prefill_pool = self.replicas[: c.prefill_instances]
        self.decode_pool = self.replicas[c.prefill_instances :]
        self.parents = {}  # by prefill request
        self.prefill_of = {}
        self.decode_of = {}
        self.dropped_us = {}
        self.transfer_started_us = {}
        self.transfers = 0  # in flight

    def handlers(self):
        return {
            ARRIVES: self.arrive,
            ADMISSION: self.admit,
            ROUTING: self.route,
            PREFILL_ROUTING: self.route_prefill,
            TRANSFER_START: self.start_transfer,
            TRANSFER_END: self.end_transfer,
        }

    # --- decisions ------------------------------------------------------------------------------------------------

    def route(self, now, request):
        """The decode replica is chosen first, and the decider looks at what it has cached."""
        self.look(now)
        replica, seen = self.choose(request, self.decode_pool)
        disaggregated = self.disaggregates(request, replica)
        self.note("decode" if disaggregated else "local", request, now, replica, seen)
        if disaggregated:
            self.schedule(now, PREFILL_ROUTING, request)
        else:
            replica.send(now, request)

    def disaggregates(self, request, replica):
        match self.config.pd_decider:
            case "never":
                return False
            case "always":
                return True
            case "prefix-threshold":
                cached = replica.cached_blocks(request) * self.config.block_size
                return request.prompt_tokens - cached > self.config.pd_prefix_threshold
        raise AssertionError(self.config.pd_decider)

    def route_prefill(self, now, parent):
        self.look(now)
        request = self.prefill_of[parent] = sub_request(PrefillRequest, parent, output_tokens=0)
        self.parents[request] = parent
        replica, seen = self.choose(request, self.prefill_pool)
        self.note("prefill", request, now, replica, seen)
        replica.send(now, request)

    # --- transfers ------------------------------------------------------------------------------------------------

    def note_done(self, now, requests):
        """Prefills that have ended, which is at the START of their last step, start their transfers."""
        ended = [self.parents[r] for r in requests if r in self.parents and r.status == "finished"]
        for parent in sorted(ended, key=lambda r: r.id):  # as strings: request_10 before request_9
            self.schedule(now, TRANSFER_START, parent)

    def start_transfer(self, now, parent):
        replica = self.replicas[self.replica_of[parent]]
        request = sub_request(DecodeRequest, parent, parent.output_tokens)
        if not replica.reserve(request):
            self.dropped_us[parent] = now
            self.decisions.append(Decision("drop", parent.id, now, replica.number))
            return
        self.decode_of[parent] = request
        self.transfer_started_us[parent] = now
        self.transfers += 1
        self.schedule(now + self.transfer_us(parent), TRANSFER_END, parent)

    def transfer_us(self, parent):
        """The share of the bandwidth is that of the start, this transfer counted, for all of its time."""
        c = self.config
        blocks = math.ceil(parent.prompt_tokens / c.block_size)
        bytes_per_us = c.pd_transfer_bandwidth_gbps * 1000
        if c.pd_transfer_contention:
            bytes_per_us /= self.transfers
        us = c.pd_transfer_base_latency_ms * 1000 + blocks * c.block_size * KV_BYTES_PER_TOKEN / bytes_per_us
        return max(1, math.ceil(us))

    def end_transfer(self, now, parent):
        self.transfers -= 1
        replica = self.replicas[self.replica_of[parent]]
        self.decisions.append(Decision("transferred", parent.id, now, replica.number))
        self.decisions.append(Decision("transfer_start", parent.id, self.transfer_started_us[parent], replica.number))
        replica.receive(now, self.decode_of[parent])

    # --- what is reported -----------------------------------------------------------------------------------------

    def run(self):
        super().run()
        for parent, prefill in self.prefill_of.items():
            self.put_together(parent, prefill)
        return self

    def put_together(self, parent, prefill):
        """One that neither ended nor was dropped has no row."""
        decode = self.decode_of.get(parent)
        if parent in self.dropped_us:
            parent.status = "dropped"
            parent.reported_ttft_us = prefill.reported_ttft_us
            parent.reported_e2e_us = self.dropped_us[parent] - parent.arrival_us
        elif decode is not None and decode.status == "finished":
            parent.status = "finished"
            parent.itls_us = decode.itls_us
            parent.reported_ttft_us = prefill.reported_ttft_us
            if decode.itls_us:
                parent.reported_ttft_us = decode.scheduling_delay_us + decode.itls_us[0]
            parent.reported_e2e_us = decode.reported_e2e_us
        elif prefill.status == "unservable":
            parent.status = "unservable"
        if parent.status in ("dropped", "finished"):
            parent.scheduling_delay_us = prefill.scheduling_delay_us
