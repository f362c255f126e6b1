"""Random cases of TensorRT-LLM's schedulers, for the oracle and for the kernels."""

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fastsim.engines.outputs import Status
from fastsim.engines.trtllm.codes import NO_LIMIT, Chunking, Policy
from fastsim.engines.trtllm.inputs import TrtllmWorkload, build_workload
from fastsim.engines.trtllm.records import CONFIG_DTYPE, derive
from fastsim.engines.trtllm.runner import TrtllmResult
from tests.reference_trtllm import Request, Settings, Simulator


@dataclass(frozen=True)
class Case:
    """Settings and columns of requests: arrival, prompt, output, declared limit."""

    settings: Settings
    columns: tuple[list[int], list[int], list[int], list[int]]

    def oracle(self) -> Simulator:
        """The oracle's run."""
        requests = [Request(index, *row) for index, row in enumerate(zip(*self.columns, strict=True))]
        simulator = Simulator(self.settings, requests)
        simulator.run()
        return simulator

    def workload(self) -> TrtllmWorkload:
        """The kernel's requests."""
        return build_workload(*self.columns, self.settings.clients)

    def record(self) -> npt.NDArray[np.void]:
        """The kernel's configuration."""
        record = np.zeros(1, CONFIG_DTYPE)
        for name in ("num_blocks", "tokens_per_block", "max_batch_size", "max_num_tokens", "max_seq_len", "chunk_unit"):
            record[name] = getattr(self.settings, name)
        for name in ("beta0", "beta1", "beta2"):
            record[name] = getattr(self.settings, name)
        record["policy"] = Policy[self.settings.capacity_scheduler_policy]
        record["chunking"] = Chunking[self.settings.context_chunking_policy or "OFF"]
        record["horizon_us"] = NO_LIMIT if self.settings.horizon_us is None else self.settings.horizon_us
        record["max_steps"] = NO_LIMIT if self.settings.max_steps is None else self.settings.max_steps
        record["fast_forward"] = 1
        derive(record)
        return record


def draw(seed: int) -> Case:
    """A case: often too little cache, sometimes too few slots or tokens."""
    rng = random.Random(seed)
    block = rng.choice((1, 4, 16, 32))
    scale = rng.choice((20, 100, 400))
    count = rng.randint(1, 30)
    prompts = [rng.randint(1, scale) for _ in range(count)]
    longest = rng.choice((1, 1, 3)) * scale
    outputs = [rng.randint(1, longest) for _ in range(count)]
    declared = [output if rng.random() < 0.5 else rng.randint(1, 2 * scale) for output in outputs]
    spread = rng.choice((0, 1_000, 50_000, 2_000_000))
    arrivals = [rng.randint(0, spread) for _ in range(count)]
    tokens = rng.choice((block, 2 * block, scale, 4 * scale))
    settings = Settings(
        num_blocks=max(-(-rng.choice((1, 2, 2, 3, 4, 8)) * scale // block), 1),
        tokens_per_block=block,
        max_batch_size=rng.choice((1, 2, 5, 64)),
        max_num_tokens=tokens,
        max_seq_len=rng.choice((scale, 2 * scale, 8 * scale)),
        capacity_scheduler_policy=rng.choice([policy.name for policy in Policy] + ["MAX_UTILIZATION"]),
        context_chunking_policy=rng.choice(("FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS", None)),
        chunk_unit=rng.choice([unit for unit in (1, block, 2 * block) if unit <= tokens]),
        beta0=rng.choice((1.0, 300.7, 5752.71)),
        beta1=rng.choice((0.0, 17.25)),
        beta2=rng.choice((0.0, 6.0)),
        horizon_us=rng.choice((None, None, None, 300_000)),
        max_steps=rng.choice((None, None, None, 40)),
        clients=rng.choice((0, 0, 1, 3, 9)),
    )
    return Case(settings, (arrivals, prompts, outputs, declared))


STATUS = {
    Status.PENDING: "pending",
    Status.WAITING: "active",
    Status.RUNNING: "running",
    Status.FINISHED: "finished",
    Status.UNSERVABLE: "unservable",
}


def difference(case: Case, oracle: Simulator, found: TrtllmResult) -> str | None:
    """The first thing in which a kernel's run is not the oracle's."""
    log, totals = found.log, found.totals
    for i, request in enumerate(oracle.requests):
        times = request.token_times_us
        expected = {
            "status": request.status,
            "arrival_us": request.arrival_us,
            "first_scheduled_us": -1 if request.first_scheduled_us is None else request.first_scheduled_us,
            "first_token_us": times[0] if times else -1,
            "last_token_us": times[-1] if times else -1,
            "finish_us": -1 if request.finish_us is None else request.finish_us,
            "num_generated": request.generated,
            "num_preemptions": request.pauses,
            "scheduled_tokens": request.scheduled,
            "admission_wait_us": request.longest_wait[0],
            "admission_wait_end_us": request.longest_wait[1],
        }
        for name, value in expected.items():
            got = getattr(log, name)[i].item()
            if name == "status":
                got = STATUS[Status(got)]
                value = "running" if value == "active" and request.started else value
            if got != value:
                return f"request {i}: {name} {got}, but {value} was expected"
    expected_totals = {
        "steps": len(oracle.steps),
        "completed": sum(each.status == "finished" for each in oracle.requests),
        "unservable": sum(each.status == "unservable" for each in oracle.requests),
        "preemptions": sum(each.pauses for each in oracle.requests),
        "recomputed_tokens": sum(each.recomputed for each in oracle.requests),
        "discarded_tokens": sum(each.lost for each in oracle.requests),
        "prefill_tokens": sum(chunk for step in oracle.steps for _, chunk in step.context),
        "decode_tokens": sum(len(step.generation) for step in oracle.steps),
        "end_us": oracle.now_us,
        "busy_us": oracle.busy_us,
        "kv_block_us": oracle.kv_block_us,
        "running_us": oracle.running_us,
        "waiting_peak": oracle.waiting_peak,
        "itl_count": len(oracle.gaps),
        "itl_sum_us": sum(oracle.gaps),
        "itl_max_us": max(oracle.gaps, default=0),
    }
    for name, value in expected_totals.items():
        if totals[name] != value:
            return f"{name} {totals[name]}, but {value} was expected"
    if found.stop.name.lower() != oracle.stop:
        return f"stop {found.stop.name}, but {oracle.stop} was expected"
    return None


def step_difference(oracle: Simulator, found: TrtllmResult) -> str | None:
    """The first step in which a recorded run is not the oracle's."""
    rows = [
        (
            step.t_us,
            sum(chunk for _, chunk in step.context),
            len(step.context),
            len(step.generation),
            len(step.paused),
            step.free_blocks,
            step.active,
        )
        for step in oracle.steps
    ]
    got = list(zip(*(column.tolist() for column in found.record), strict=True))
    for k, (mine, theirs) in enumerate(zip(got, rows, strict=False)):
        if mine != theirs:
            return f"step {k}: {mine}, but {theirs} was expected"
    return None if len(got) == len(rows) else f"{len(got)} steps, but {len(rows)} were expected"
