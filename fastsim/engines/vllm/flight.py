"""The batch whose output is not known yet ("the flight"), and the next one: what is in flight for a request.

A batch in flight is the list of its explicit requests and the number of those that decode on the clock. Somebody who
leaves the clock while it flies becomes an entry of its list (`lanes.write_out_flight`).
"""

from fastsim._jit import helper
from fastsim.engines.outputs import Status
from fastsim.engines.vllm.blocks import cache_blocks
from fastsim.engines.vllm.codes import PreemptionMode
from fastsim.engines.vllm.lanes import final_length, lane_remove, length
from fastsim.engines.vllm.update import (
    count_gaps,
    deliver_token,
    finish_noted,
    grow_computed,
    note_finished,
    start_clock,
)

RUNNING = int(Status.RUNNING)
TIMED_OUT = int(Status.TIMED_OUT)
RESTART = int(PreemptionMode.RESTART)


@helper
def next_base(st, q):
    """Where the list of the batch behind the flight starts: the other half."""
    return 0 if st["flight_base"] > 0 else q.flight_request.shape[0] // 2


@helper
def send_batch(cfg, st, tot, wl, req, q, log):
    """After schedule(): C grows, the tokens are in flight, and whoever misses nothing more will get a token.

    From then on it is certain that it decodes in every later call until its last token is in flight, so it enters the
    clock here, before the token has come.
    """
    st["submitted_clocked"] = st["clocked"]
    st["clock"] += 1
    base = next_base(st, q)
    for k in range(st["scheduled"]):
        i = q.scheduled[k]
        tokens = req.scheduled[i]
        whole = length(cfg, req, i)
        grow_computed(tot, req, log, i)
        samples = req.num_computed_tokens[i] == whole
        q.flight_request[base + k] = i
        q.flight_tokens[base + k] = tokens
        q.flight_samples[base + k] = samples
        req.inflight_tokens[i] += tokens
        req.mid_prefill[i] = not samples
        if samples:
            req.placeholders[i] += 1
            left = final_length(cfg, wl, i) - whole - 1
            if left > 0 and st["use_clock"]:
                start_clock(cfg, st, tot, req, q, log, i, left)


@helper
def hand_over(st, q, tokens):
    """The batch just submitted is the flight now."""
    st["flight_base"] = next_base(st, q)
    st["flight_size"] = st["scheduled"]
    st["flight_clocked"] = st["submitted_clocked"]
    st["flight_tokens"] = tokens
    st["flight_preempted"] = st["preempted"]
    st["flight_end_us"] = st["submitted_end_us"]


@helper
def receive_output(cfg, st, tot, wl, req, q, blk, log, itl, rec):
    """update_from_output() for the flight, at its end."""
    end_us = st["flight_end_us"]
    st["finished"] = 0
    if st["flight_clocked"] > 0:
        count_gaps(st, tot, itl, end_us - st["clock_token_us"], st["flight_clocked"])
    st["clock_token_us"] = end_us
    st["clock_step"] = tot["steps"]
    base = st["flight_base"]
    for k in range(base, base + st["flight_size"]):
        i = q.flight_request[k]
        if log.status[i] != TIMED_OUT:
            _receive_entry(cfg, st, tot, wl, req, q, blk, log, itl, i, q.flight_tokens[k], q.flight_samples[k])
    if st["finished"] > 0:
        finish_noted(cfg, st, tot, wl, req, q, blk, log, rec, end_us)


@helper
def _receive_entry(cfg, st, tot, wl, req, q, blk, log, itl, i, tokens, samples):
    """Tokens of request `i` return. One preempted meanwhile gets its token all the same, unless its life is over."""
    req.inflight_tokens[i] -= tokens
    stale = req.stale[i]
    req.stale[i] = 0
    if not samples:
        return
    if stale and cfg["preemption_mode"] == RESTART:
        tot["discarded_tokens"] += 1
        return
    generated_length = req.num_tokens[i] + 1
    deliver_token(st, tot, wl, req, log, itl, i, generated_length, st["flight_end_us"])
    if not stale:
        req.placeholders[i] -= 1
        if cfg["enable_prefix_caching"] and req.lane[i] == cfg["block_size"]:
            returned = req.num_computed_tokens[i] - req.inflight_tokens[i]
            cache_blocks(cfg, st, wl, req, blk, i, returned // cfg["block_size"])
    if generated_length >= final_length(cfg, wl, i):
        if log.status[i] == RUNNING:
            lane_remove(req, q, i)
        note_finished(st, q, i)
