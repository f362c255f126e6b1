"""The scalars of a run: one record, so that kernels change them in place."""

from enum import IntEnum

import numpy as np


class ScanEnd(IntEnum):
    """The first reason that stopped the waiting loop of a step: what fast-forward may conclude from it.

    Only the tape has those from GATE on, but for POLICY_ADMIT: the kernels take GATE, WATERMARK, PROJECTION and STATE
    for BLOCKS, RUNNING_CAP and POLICY_CAP for CAP, ALIGNED for CHUNKING.
    """

    SKIPPED = 0  # a request was preempted in this step, so there was no scan
    EMPTY = 1
    CAP = 2
    BUDGET = 3
    BLOCKS = 4  # full-sequence gate, need or watermark, or projected admission
    CHUNKING = 5  # chunked prefill off and the head larger than the budget
    DEFERRED = 6  # prefill_schedule_interval
    BYPASS_LIMIT = 7
    SCAN_LIMIT = 8
    GATE = 9
    WATERMARK = 10
    PROJECTION = 11
    RUNNING_CAP = 12  # `running_cap`, not the fixed caps
    IN_FLIGHT = 13  # asynchronous: passed over, its own output is in flight
    POLICY_ADMIT = 14  # `admit` of a policy file
    POLICY_CAP = 15  # its `cap`
    STATE = 16  # groups: its hit is a state that this very step computes
    ALIGNED = 17  # groups: the budget has no room for a chunk that ends at a block boundary


SCALARS_DTYPE = np.dtype(
    [
        (name, np.int64)
        for name in (
            # clock and counters
            "now_us",
            "executed",  # non-empty steps
            "last_prefill",
            "cap_bound",
            "unfinished",
            "decisions",  # random victims drawn so far
            # one of a fleet's engines: what its router sees are the counts at the end of the last step, arrivals let in
            "until_us",  # no step starts at or after it, and who arrives from then on is not known; NO_LIMIT: go on
            "stop",  # why it ended, or GOING_ON
            "seen_waiting",
            "seen_running",
            "seen_free",
            "seen_gone",  # requests it is done with, one way or another
            # arrivals
            "arrival_cursor",
            "dynamic_arrivals",  # size of the arrival heap
            "own_arrivals",  # requests of `order` that arrive by themselves
            "clients",  # closed loop: how many; 0 in an open one
            "next_client",  # closed loop: next index a client sends
            # waiting queue
            "waiting",
            "queue_head",
            "queue_tail",
            "heap_size",
            "waiting_prompt_tokens",
            # running list
            "running",
            "running_head",
            "running_tail",
            "admissions",
            # decode clock
            "use_clock",  # requests that start to decode enter the clock
            "clock",  # D
            "due_lane",  # D modulo block_size
            "clocked",  # requests on it
            "clock_context",  # sum of their offsets
            "window_below",  # requests on it with less context than the sliding window
            "window_below_context",  # sum of their offsets
            "window_fill_clock",  # the clock when the first of them fills it
            "clock_next_end",  # least end_clock among them
            "clock_token_us",  # when they all got their latest token
            "clock_step",  # steps done then
            # dense loop
            "dense",  # this run is made there
            "prefilling",  # the request in the middle of its prefill, the last in running order
            "admitted_arrivals",  # of `arrivals`, those before this place have been admitted
            # asynchronous scheduling: "the flight" is the batch whose output is not known yet at a schedule() call
            "in_flight",  # batches submitted, their output not yet received: at a call 0 or 1; synchronous: always 0
            "gpu_us",  # end of the latest batch that was not empty
            "somebody_finished",  # or was aborted, since the last schedule() call
            "flight_base",  # where its list starts: 0, or half way
            "flight_size",  # explicit entries in it
            "flight_clocked",  # requests in it that decode on the clock
            "flight_tokens",
            "flight_preempted",  # by the call that scheduled it
            "flight_end_us",
            "submitted_clocked",  # of the batch that this call scheduled
            "submitted_end_us",
            "received_tokens",  # of the batch whose output came in this pass; -1: none did
            # block allocator
            "free",
            "usable",
            "free_head",
            "free_tail",
            "node_free",
            "node_used",
            "rows_free",
            "host_blocks",
            # this step
            "token_budget",
            "threshold",
            "defer",
            "scheduled",  # length of the list of explicit scheduled requests
            "visited",  # admission number up to which the running loop has come
            "cursor_explicit",
            "cursor_due",
            "preempted",
            "admitted",
            "finished",
            "prefill_tokens",
            "decode_tokens",
            "context_tokens",
            "window_tokens",  # of the context, those within the sliding window
            "prefill_pairs_doubled",
            "table_knot",  # of the step-time table, where the last step's tokens stood
            "moved_blocks",
            "prefill_ran",
            "scan_end",  # ScanEnd: why the waiting scan stopped
            # inter-token gaps not yet in the histogram
            "gap_us",
            "gap_count",
            # the log of them (restart)
            "tick",  # returns of outputs so far
            "segments",
            "ended_runs",
            # waiting scan
            "deferred",
            "passed_over",
            "scanned",
            "scan_cap",  # the cap it went by; feedback may have set another since
            "mean_output_tokens",
            # policy file: the cap of its own was the one that counted in the last scan; the candidate asked about
            "own_cap_binds",
            "candidate",
            "candidate_computed",
            "candidate_hits",
            "candidate_tokens",
            # running cap and backpressure
            "watched",  # non-empty steps whose output they have seen
            "cap",
            "protected",  # running requests that are protected
            "cap_preemptions",  # in the feedback window
            "cap_window_start",  # watched when it was cleared
            "cap_window_head",
            "cap_window_size",
            "calm_start",  # watched when the cap last had a reason not to rise
            "hot_steps",
            "door_preemptions",
            "door_window_head",
            "door_window_size",
            # front door
            "received",
            "deadline_cursor",
            "held_head",
            "held",
            "completed_since_door",
            "released",
            # decision intervals (`fastsim.engines.vllm.intervals`): whether they are told, and within what
            "intervals",
            "usable_least",
            "usable_most",
            "room_least",
            "room_most",
            "cap_least",
            "cap_most",
            "budget_least",
            "budget_most",
            "gate_free",
            "caching_free",
            # livelock
            "alive_tokens",  # prompt + output of running and waiting
            "progress_step",  # a step in which somebody passed its own highest G
            "quiet",  # the last step ended with nobody to arrive
            "last_cap_bound",
            "state_hash",
            # per-step record: lengths written so far
            "rec_steps",
            "rec_scheduled",
            "rec_preempted",
            "rec_finished",
            "rec_events",
            "rec_called",  # of the events, those that belong to calls
            "refusal",  # of the request refused last: its ScanEnd
            "refused",
            "victim_free",  # free blocks before the preemption under way
        )
    ],
)
"""The mutable scalars of a run, one int64 each."""
