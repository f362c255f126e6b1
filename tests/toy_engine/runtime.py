"""The toy behind the contract."""

import numpy as np

from fastsim.engines.contract import Batch, BatchRuntime
from fastsim.engines.outputs import ITL_BINS, NEVER, TOTALS_DTYPE, Gaps, Status, new_request_log, record_gaps


class ToyRuntime(BatchRuntime):
    """First come, first served, alone."""

    def config_records(self, take, count, params):
        records = np.zeros(count, [("step_us", np.int64), ("tokens_per_step", np.int64)])
        records["step_us"] = take("latency.b0_us", int)
        records["tokens_per_step"] = take("engine.toy.tokens_per_step", int)
        return records

    def run_batches(self, workload, records, *, fast_forward):
        for place, record in enumerate(records):
            log = new_request_log(workload.num_requests)
            totals = np.zeros(1, TOTALS_DTYPE)
            histogram = np.zeros((1, ITL_BINS), np.int64)
            now_us = idle_us = 0
            for i in workload.arrival_order():
                idle_us += max(int(workload.arrival_us[i]) - now_us, 0)
                now_us = max(now_us, int(workload.arrival_us[i]))
                log.arrival_us[i], log.first_scheduled_us[i] = workload.arrival_us[i], now_us
                log.first_token_us[i] = log.first_life_token_us[i] = now_us + record["step_us"]
                gaps = -(-int(workload.output_tokens[i]) // int(record["tokens_per_step"])) - 1
                record_gaps(totals[0], Gaps(histogram[0]), int(record["step_us"]), gaps)
                now_us += int(record["step_us"]) * (gaps + 1)
                log.last_token_us[i] = log.finish_us[i] = now_us
                log.num_generated[i], log.status[i] = workload.output_tokens[i], Status.FINISHED
                totals["steps"] += gaps + 1
            totals["completed"], totals["end_us"], totals["usable_blocks"] = workload.num_requests, now_us, 1
            for name in ("livelock_step", "livelock_us", "first_completion_us"):
                totals[name] = NEVER
            lengths = (workload.prompt_tokens, workload.output_tokens)
            own = {"toy_idle_s": np.array([idle_us / 1e6])}
            yield Batch(np.array([place]), *lengths, log, totals, histogram, 0, columns=own)

    def verify_case(self, case):
        steps = sum(-(-output // case["tokens_per_step"]) for output in case["outputs"])
        return None if steps == case["steps"] else f"steps: expected {case['steps']}, got {steps}"


RUNTIME = ToyRuntime()
