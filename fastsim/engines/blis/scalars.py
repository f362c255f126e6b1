"""The scalars of a run: one record that every kernel reads and writes."""

import numpy as np

SCALARS_DTYPE = np.dtype(
    [
        (name, np.int64)
        for name in (
            # events
            "now_us",
            "end_us",  # latest event executed
            "arrival_cursor",
            "enqueued",
            "step_pending",
            "step_us",  # when the pending step starts
            # running and waiting
            "running",
            "prefilling",  # running requests that do not decode yet
            "front",  # next queue key at the front (fcfs)
            "back",  # next queue key at the back (fcfs)
            # decode clock
            "clock",
            "phase",  # clock modulo block size
            "next_end",  # least end_clock of the decoding requests
            "decoded_us",  # sum of all step times so far
            "last_end_us",  # end of the latest step
            # this step
            "budget",
            "cursor",  # running requests that were given tokens
            "preempted",
            "admitted",
            "finished",
            "reloaded",
            "skipped",  # decoding requests passed over
            "blocked",  # why the waiting queue was left: BLOCKED_*
            "prefill_tokens",
            "decode_tokens",
            "step_time_us",
            "count",  # such steps in a row
            "block_steps",  # blocks held, summed over them
            # the latest step, whose time is not counted yet
            "open_since_us",
            "open_until_us",  # latest end of all steps so far
            "open_blocks",
            "open_running",
            "open_busy",
            # block cache
            "free",
            "ring_head",
            "ring_tail",
            "labels",  # labels ever used
            "spare",  # labels given back
            "cached",  # blocks just looked up
            "cached_free",  # those of them that are free
            "keys",  # regular keys; irregular ones are numbered from here
            "hits",
            "misses",
            "self_evictions",  # in a row, by a request that ran alone
            # CPU tier
            "chains",  # irregular keys so far
            "cpu_size",
            "cpu_head",
            "cpu_tail",
            "tier_failures",
            "transfer_us",  # not yet added to a step
            # gaps between tokens
            "segments",
            "sealed",  # the latest segment may not grow
            "ranges",
            "range_free",
            # BLIS's counters
            "injected",
            "total_input_tokens",
            "total_output_tokens",
            "kv_allocation_failures",
            "status",  # RunStatus
        )
    ]
)
"""The mutable scalars of a run, one int64 each."""
