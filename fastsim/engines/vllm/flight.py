"""The batch whose output is not known yet ("the flight"), and the next one: what is in flight for a request.

A batch in flight is the list of its explicit requests and the number of those that decode on the clock. Somebody who
leaves the clock while it flies becomes an entry of its list (`lanes.write_out_flight`).
"""

from fastsim._jit import inlined
from fastsim.engines.outputs import Status
from fastsim.engines.vllm.blocks import cache_blocks
from fastsim.engines.vllm.codes import NO_LIMIT, PreemptionMode
from fastsim.engines.vllm.gaps import tick
from fastsim.engines.vllm.lanes import advance_clock, lane_remove, length
from fastsim.engines.vllm.update import (
    deliver_token,
    finish_noted,
    grow_computed,
    note_finished,
    start_clock,
)

RUNNING = int(Status.RUNNING)
TIMED_OUT = int(Status.TIMED_OUT)
NO_TIMEOUT = int(NO_LIMIT)
RESTART = int(PreemptionMode.RESTART)


@inlined
def next_base(st, q):
    """Where the list of the batch behind the flight starts: the other half."""
    return 0 if st["flight_base"] > 0 else q.flight_request.shape[0] // 2


@inlined
def send_batch(cfg, st, req, q):
    """After schedule(): C grows, the tokens are in flight, and whoever misses nothing more will get a token.

    From then on it is certain that it decodes in every later call until its last token is in flight, so it enters the
    clock here, before the token has come.
    """
    st["submitted_clocked"] = st["clocked"]
    advance_clock(cfg, st, 1)
    base = next_base(st, q)
    for k in range(st["scheduled"]):
        i = q.scheduled[k]
        whole = length(cfg, req, i)
        grow_computed(req, i)
        samples = req.num_computed_tokens[i] == whole
        q.flight_request[base + k] = i
        q.flight_samples[base + k] = samples
        req.flights[i] += 1
        req.mid_prefill[i] = not samples
        if samples and st["use_clock"]:
            left = req.final_tokens[i] - whole - 1
            if left > 0:
                start_clock(cfg, st, req, q, i, left)


@inlined
def hand_over(st, q, tokens):
    """The batch just submitted is the flight now."""
    st["flight_base"] = next_base(st, q)
    st["flight_size"] = st["scheduled"]
    st["flight_clocked"] = st["submitted_clocked"]
    st["flight_tokens"] = tokens
    st["flight_preempted"] = st["preempted"]
    st["flight_end_us"] = st["submitted_end_us"]


@inlined
def receive_output(cfg, st, tot, wl, req, q, blk, log, itl, rec):
    """update_from_output() for the flight, at its end."""
    end_us = st["flight_end_us"]
    st["finished"] = 0
    tick(cfg, st, tot, itl, end_us - st["clock_token_us"], st["flight_clocked"], 1)
    st["clock_token_us"] = end_us
    st["clock_step"] = tot["steps"]
    base = st["flight_base"]
    for k in range(base, base + st["flight_size"]):
        i = q.flight_request[k]
        if cfg["timeout_us"] == NO_TIMEOUT or log.status[i] != TIMED_OUT:
            _receive_entry(cfg, st, tot, wl, req, q, blk, log, itl, i, q.flight_samples[k])
    if st["finished"] > 0:
        finish_noted(cfg, st, tot, wl, req, q, blk, log, rec, end_us)


@inlined
def _receive_entry(cfg, st, tot, wl, req, q, blk, log, itl, i, samples):
    """Tokens of request `i` return. One preempted meanwhile gets its token all the same, unless its life is over."""
    req.flights[i] -= 1
    stale = req.stale[i]
    if stale:
        req.stale[i] = 0
    if not samples:
        return
    if stale and cfg["preemption_mode"] == RESTART:
        tot["discarded_tokens"] += 1
        return
    delivered = req.num_tokens[i] + 1
    deliver_token(cfg, st, tot, req, log, itl, i, delivered, st["flight_end_us"])
    # If it is in the next batch, too, that call has hashed as much; if on the clock, `leave_clock` will see to it
    if cfg["enable_prefix_caching"] and not stale and req.flights[i] == 0 and req.lane[i] == cfg["block_size"]:
        cache_blocks(cfg, st, wl, req, blk, i, (delivered - 1) // cfg["block_size"])
    if delivered >= req.final_tokens[i]:
        if log.status[i] == RUNNING:
            lane_remove(req, q, i)
        note_finished(st, q, i)
