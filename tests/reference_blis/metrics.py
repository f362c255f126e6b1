"""BLIS's aggregate metrics, and the totals fastsim keeps beside them."""

from itertools import pairwise


def percentile(values, p):
    """Linear interpolation at p/100 (n - 1) on the sorted values, in milliseconds."""
    ordered = sorted(values)
    rank = p / 100 * (len(ordered) - 1)
    low = int(rank)
    high = min(low + 1, len(ordered) - 1)
    return (ordered[low] + (ordered[high] - ordered[low]) * (rank - low)) / 1000


def mean(values):
    return sum(values) / len(values) / 1000


def aggregate(simulator):
    requests = simulator.requests
    finished = [r for r in requests if r.status == "finished"]
    ttfts = [r.reported_ttft_us for r in requests if r.reported_ttft_us]
    delays = [r.scheduling_delay_us for r in requests if r.scheduling_delay_us is not None]
    e2es = [r.reported_e2e_us for r in requests if r.reported_e2e_us]
    gaps = [gap for r in finished for gap in r.itls_us]
    duration_s = simulator.clock_us / 1e6
    values = {
        "completed_requests": len(finished),
        "still_queued": len(simulator.waiting),
        "still_running": len(simulator.running),
        "injected_requests": simulator.injected,
        "total_input_tokens": simulator.total_input_tokens,
        "total_output_tokens": simulator.total_output_tokens,
        "vllm_estimated_duration_s": duration_s,
        "responses_per_sec": len(finished) / duration_s if finished else 0,
        "tokens_per_sec": simulator.total_output_tokens / duration_s if finished else 0,
        "preemption_count": simulator.preemptions,
        "cache_hit_rate": simulator.cache.hit_rate(),
        "dropped_unservable": sum(r.status in ("unservable", "dropped") for r in requests),
        "length_capped_requests": 0,  # a request that could reach the cap is never admitted
        "timed_out_requests": sum(r.status == "timed_out" for r in requests),
        "kv_allocation_failures": simulator.allocation_failures,
    }
    for name, population in (("e2e", e2es), ("ttft", ttfts), ("itl", gaps)):
        shown = population if finished else []
        values[f"{name}_mean_ms"] = mean(shown) if shown else 0
        for p in (90, 95, 99):
            values[f"{name}_p{p}_ms"] = percentile(shown, p) if shown else 0
    values["scheduling_delay_p99_ms"] = percentile(delays, 99) if finished and delays else 0
    return values


def itl_ms(request):
    if request.status != "finished" or request.output_tokens == 0:
        return 0
    return sum(request.itls_us) / max(request.output_tokens - 1, 1) / 1000


def time_of_each_step(simulator):
    """How long each step is the latest one that has begun, until all are over, or the run is.

    Steps overlap: a request that is queued while the last step executes starts one of its own.
    """
    moments = [now for now, *_ in simulator.step_log] + [simulator.clock_us]
    until = 0
    times = []
    for (now, us, *_), following in zip(simulator.step_log, moments[1:], strict=True):
        until = max(until, now + us)
        times.append(min(until, following) - now)
    return times


def starved_gaps(simulator):
    """Times between completions, that before the first left out, of which recomputation took a fifth."""
    b1_us = simulator.config.beta[1]
    for before, after in pairwise(simulator.books):
        elapsed_us, prefill, decode, recomputed, discarded = (b - a for a, b in zip(before, after, strict=True))
        decoded_again = min(discarded, recomputed, decode)
        again_us = b1_us * (recomputed - decoded_again)
        if decoded_again:
            again_us += max(elapsed_us - b1_us * prefill, 0.0) * decoded_again / decode
        if again_us >= 0.2 * elapsed_us:
            yield elapsed_us


def totals(simulator):
    """fastsim's own counters, from the log of steps and the requests."""
    log = simulator.step_log
    times = time_of_each_step(simulator)
    finished = [r for r in simulator.requests if r.status == "finished"]
    gaps = [b - a for r in finished for a, b in pairwise(r.token_times_us)]
    return {
        "steps": simulator.steps,
        "empty_steps": sum(p + d == 0 for _, _, p, d, _, _ in log),
        "prefill_tokens": sum(p for _, _, p, _, _, _ in log),
        "decode_tokens": sum(d for _, _, _, d, _, _ in log),
        "preemptions": simulator.preemptions,
        "completed": len(finished),
        "end_us": simulator.clock_us,
        "recomputed_tokens": simulator.recomputed_tokens,
        "discarded_tokens": simulator.discarded_tokens,
        "salvaged_tokens": simulator.salvaged_tokens,
        "kv_block_us": sum(used * us for (*_, used, _), us in zip(log, times, strict=True)),
        "kv_peak_blocks": max((used for *_, used, _ in log), default=0),
        "running_us": sum(running * us for (*_, running), us in zip(log, times, strict=True)),
        "running_peak": max((running for *_, running in log), default=0),
        "batch_tokens_peak": max((p + d for _, _, p, d, _, _ in log), default=0),
        "busy_us": sum(us for (_, _, p, d, *_), us in zip(log, times, strict=True) if p + d),
        "waiting_peak": simulator.waiting_peak,
        "timed_out": sum(r.status == "timed_out" for r in simulator.requests),
        "unservable": sum(r.status == "unservable" for r in simulator.requests),
        "livelock_step": simulator.livelock_step,
        "livelock_us": simulator.livelock_us,
        "livelock_kind": int(simulator.livelock_step >= 0),
        "first_completion_us": simulator.books[0][0] if simulator.books else -1,
        "starved_gap_us": max([0, *starved_gaps(simulator)]),
        "itl_count": len(gaps),
        "itl_sum_us": sum(gaps),
        "itl_max_us": max(gaps, default=0),
    }
