"""Run one random spec every way that a user can, and say what must hold of whatever comes out."""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastsim.config import Config, check_rules
from fastsim.config.spec import spec_from_mapping
from fastsim.engines import engine_of
from fastsim.engines.outputs import Status, Stop
from fastsim.errors import InputError
from fastsim.records import records_of
from fastsim.simulation import Result, simulate, simulate_chunk
from fastsim.workload import build_workload
from tests.specs.draw import random_spec

REFUSED = "refused"
MOST_STEPPED = 3000
"""Steps up to which a run is repeated without fast-forward, and with a record of its steps."""


def outcome(seed: int) -> str:
    """What the spec of a seed comes to: a hash of all numbers, or why it is refused."""
    table = random_spec(seed)
    try:
        config = spec_from_mapping(table).base
        check_rules(config, "spec")
        workload = build_workload(config.workload)
        result = simulate(config, workload)
    except InputError as error:
        return f"{REFUSED}: {error}"
    check(result, seed)
    if result.totals["steps"] <= MOST_STEPPED:
        records_steps = engine_of(config.engine.name).records_steps and config.fleet.replicas == 1
        stepped = simulate(config, workload, fast_forward=False, record_steps=records_steps)
        # vllm-rlt may be asked to skip the cycles of a livelock, which stepping goes through
        assert same(result.metrics, stepped.metrics) or config.engine.rlt.on_livelock == "skip", seed
    _check_chunk(config, workload, result, seed)
    return hashlib.blake2b(repr(sorted(result.totals.items())).encode(), digest_size=8).hexdigest()


def check(result: Result, seed: int) -> None:
    """Nobody is in two places, no time runs backwards, no token is lost, no share is above 1."""
    log, totals, workload = result.requests, result.totals, result.workload
    counts = {status: int((log.status == status).sum()) for status in Status}
    assert sum(counts.values()) == workload.num_requests, seed
    metrics = result.metrics
    for status in (Status.FINISHED, Status.REJECTED, Status.TIMED_OUT, Status.UNSERVABLE):
        name = "completed" if status is Status.FINISHED else status.name.lower()
        assert metrics[name] == counts[status], (seed, name)
    if totals["stop"] == Stop.DRAINED:
        assert counts[Status.WAITING] == counts[Status.RUNNING] == counts[Status.HELD] == 0, seed
    if counts[Status.PENDING] < workload.num_requests:
        assert totals["end_us"] >= totals["first_arrival_us"], seed
    done = log.status == Status.FINISHED
    for earlier, later in (
        (log.arrival_us, log.first_scheduled_us),
        (log.first_scheduled_us, log.first_token_us),
        (log.first_token_us, log.finish_us),
    ):
        assert (earlier[done] <= later[done]).all(), seed
    engine = result.config.engine
    if engine_of(engine.name).ends_at_max_model_len:
        limit = engine.max_model_len
        assert (log.status[workload.prompt_tokens >= limit] == Status.UNSERVABLE).all(), seed
        expected = np.minimum(workload.output_tokens, limit - workload.prompt_tokens.astype(np.int64))
        assert (log.num_generated[done] == expected[done]).all(), seed
    assert totals["prefill_tokens"] + totals["decode_tokens"] == log.scheduled_tokens.sum(), seed
    assert totals["preemptions"] == log.num_preemptions.sum(), seed
    for name, value in metrics.items():
        shares = name.endswith("_share") or name in ("kv_use_mean", "kv_use_peak")
        if isinstance(value, float):
            assert math.isfinite(value), (seed, name)
            assert not shares or 0 <= value <= 1 + 1e-9, (seed, name, value)


def same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether two rows are equal."""
    return a.keys() == b.keys() and all(a[name] == b[name] for name in a)


def _check_chunk(config: Config, workload: Any, result: Result, seed: int) -> None:
    """The spec between two others that need less and more memory: a chunk gives each the row it has alone."""
    engine = config.engine
    changes = [
        {"num_gpu_blocks": max(2, (engine.num_gpu_blocks or 2) // 2), "max_num_seqs": 1},
        {},
        {"block_size": 2 * engine.block_size, "num_gpu_blocks": 3 * (engine.num_gpu_blocks or 2)},
    ]
    if (engine.num_gpu_blocks or 0) > 10**6:
        changes = [{}]
    configs = [config.model_copy(update={"engine": engine.model_copy(update=change)}) for change in changes]
    rows = simulate_chunk(workload, records_of(configs))
    alone = simulate_chunk(workload, records_of([config]))
    place = changes.index({})
    assert np.array_equal(rows.floats[place], alone.floats[0], equal_nan=True), seed
    assert np.array_equal(rows.ints[place], alone.ints[0]), seed
