"""TensorRT-LLM's schedulers: kernels against an oracle in plain Python, rules worked out by hand, and the wiring."""

import json
from pathlib import Path

import numpy as np
import pytest

import fastsim
from fastsim.config import check_rules, load_config
from fastsim.engines import caveats
from fastsim.engines.outputs import Status
from fastsim.engines.trtllm.knobs import CAVEAT
from fastsim.engines.trtllm.runner import run_records, simulate_record
from fastsim.errors import InputError
from fastsim.sweeps.grid import Grid
from fastsim.workload import build_workload
from tests.processes import run
from tests.reference_trtllm import Settings, Simulator
from tests.reference_trtllm.micro_batch import equal_progress, first_come
from tests.trtllm_cases import Case, difference, draw, step_difference

CASES, MANY = 300, 5000


def compare(seeds: range) -> dict[str, int]:
    """Stepped and jumped, with the oracle; what the cases had in them."""
    seen = {"pauses": 0, "cut": 0, "finished": 0}
    for seed in seeds:
        case = draw(seed)
        oracle = case.oracle()
        stepped = simulate_record(case.record(), case.workload(), record=True)
        assert (seed, step_difference(oracle, stepped)) == (seed, None)
        assert (seed, difference(case, oracle, stepped)) == (seed, None)
        jumped = simulate_record(case.record(), case.workload())
        assert (seed, difference(case, oracle, jumped)) == (seed, None)
        assert np.array_equal(jumped.itl_histogram, stepped.itl_histogram)
        assert jumped.totals == stepped.totals
        seen["pauses"] += sum(request.pauses for request in oracle.requests)
        seen["cut"] += sum(request.lost > 0 for request in oracle.requests)
        seen["finished"] += sum(request.status == "finished" for request in oracle.requests)
    return seen


def test_kernels_are_the_oracle() -> None:
    seen = compare(range(CASES))
    assert seen["pauses"] > 100
    assert seen["cut"] > 0
    assert seen["finished"] > 1000


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kernels_are_the_oracle_in_many_cases() -> None:
    compare(range(CASES, CASES + MANY))


# --- rules by hand: blocks of 4 tokens, a step takes 10 us ----------------------------------------------------------


def by_hand(policy: str, requests: list[tuple[int, int, int, int]], **changes: object) -> Simulator:
    """A run of requests (arrival, prompt, output, declared) with 8 blocks, checked against the kernel."""
    settings = Settings(8, 4, 8, 64, 64, policy, beta0=10.0, beta1=0.0, beta2=0.0, **changes)  # type: ignore[arg-type]
    case = Case(settings, tuple(list(column) for column in zip(*requests, strict=True)))  # type: ignore[arg-type]
    oracle = case.oracle()
    assert step_difference(oracle, simulate_record(case.record(), case.workload(), record=True)) is None
    assert difference(case, oracle, simulate_record(case.record(), case.workload())) is None
    return oracle


def test_no_evict_reserves_what_is_declared() -> None:
    """Two of 8 + 8 tokens take 4 blocks each; a third waits although 4 blocks are free, until one is done."""
    found = by_hand("GUARANTEED_NO_EVICT", [(0, 8, 8, 8), (0, 8, 8, 8), (0, 8, 2, 2)])
    assert [step.active for step in found.steps] == [3] * 8 + [1] * 2
    assert found.steps[0].free_blocks == 4
    assert found.steps[8].context == ((2, 8),)
    assert sum(request.pauses for request in found.requests) == 0


def test_a_large_declared_limit_blocks_those_behind() -> None:
    """The head of the line does not fit, so a small one behind it waits (TensorRT-LLM 2866)."""
    found = by_hand("GUARANTEED_NO_EVICT", [(0, 4, 4, 4), (5, 4, 1, 28), (6, 4, 1, 1)])
    assert [request.finish_us for request in found.requests] == [40, 50, 60]


def test_static_batch_waits_for_all() -> None:
    """A newcomer waits until the last of the batch is done, whatever is free."""
    found = by_hand("STATIC_BATCH", [(0, 4, 4, 4), (0, 4, 2, 2), (5, 4, 1, 1)])
    assert [request.finish_us for request in found.requests] == [40, 20, 50]


def test_max_utilization_pauses_the_last() -> None:
    """Three of 8 tokens take 6 of 8 blocks, and one more each with the second token: the last one goes, and comes back.

    Its context is then 9 tokens, 3 blocks, which are there when the first is done.
    """
    found = by_hand("MAX_UTILIZATION", [(0, 8, 6, 6)] * 3)
    assert found.steps[0].context == ((0, 8), (1, 8), (2, 8))
    assert found.steps[1].generation == (0, 1)
    assert found.steps[1].paused == (2,)
    assert found.steps[6].context == ((2, 9),)
    assert [request.pauses for request in found.requests] == [0, 0, 1]
    assert found.requests[2].recomputed == 8
    assert [len(request.token_times_us) for request in found.requests] == [6, 6, 6]


def test_a_request_can_pause_itself() -> None:
    """One block is left and two need one: the last that started is the second itself."""
    found = by_hand("MAX_UTILIZATION", [(0, 16, 4, 4), (0, 12, 4, 4)])
    assert found.steps[1].generation == (0,)
    assert found.steps[1].paused == (1,)


def test_chunks() -> None:
    assert first_come({0: 10, 1: 10, 2: 3}, 14, 4) == {0: 10, 1: 4, 2: 0}
    assert first_come({0: 10, 1: 10, 2: 3}, 16, 4) == {0: 10, 1: 4, 2: 2 // 4 * 4}
    assert equal_progress({0: 10, 1: 10, 2: 3}, 14, 4) == {0: 4, 1: 4, 2: 3}
    assert equal_progress({0: 10, 1: 10, 2: 3}, 17, 4) == {0: 10, 1: 4, 2: 3}


def test_without_chunks_a_context_is_cut_when_paused() -> None:
    """Contexts end at max_num_tokens = 13: a pause with 12 + 5 tokens drops four, which are generated again."""
    settings = Settings(8, 4, 8, 13, 64, "MAX_UTILIZATION", None, beta0=10.0, beta1=0.0, beta2=0.0)
    case = Case(settings, ([0, 0], [12, 12], [8, 8], [8, 8]))
    oracle = case.oracle()
    assert difference(case, oracle, simulate_record(case.record(), case.workload())) is None
    assert oracle.requests[1].lost > 0
    assert [request.generated for request in oracle.requests] == [8, 8]
    assert len(oracle.requests[1].token_times_us) == 8 + oracle.requests[1].lost


# --- behind engine.name ---------------------------------------------------------------------------------------------

BASE = ["engine.name=trtllm", "engine.num_gpu_blocks=600", "workload.num_requests=20", "run.horizon_s=2000"]


def test_by_name_it_is_the_engine() -> None:
    config = load_config(None, [*BASE, "engine.trtllm.capacity_scheduler_policy=MAX_UTILIZATION"])
    result = fastsim.simulate(config)
    workload = build_workload(config.workload)
    settings = Settings(600, 16, 256, 2048, 8192, "MAX_UTILIZATION", horizon_us=2_000_000_000)
    columns = (workload.arrival_us, workload.prompt_tokens, workload.output_tokens, workload.output_tokens)
    case = Case(settings, tuple(column.tolist() for column in columns))  # type: ignore[arg-type]
    oracle = case.oracle()
    assert result.metrics["steps"] == len(oracle.steps)
    assert result.metrics["preemptions"] == sum(request.pauses for request in oracle.requests) > 0
    assert result.metrics["completed"] == sum(request.status == "finished" for request in oracle.requests) == 20
    assert result.requests.finish_us.tolist() == [request.finish_us for request in oracle.requests]


def test_a_closed_loop_has_as_many_in_flight_as_clients() -> None:
    config = load_config(None, [*BASE, "workload.concurrency=3", "run.max_steps=1000000"])
    result = fastsim.simulate(config)
    assert result.metrics["completed"] == 20
    assert result.metrics["running_peak"] + result.metrics["waiting_peak"] <= 6
    starts = np.sort(result.requests.arrival_us)
    assert np.array_equal(starts[3:], np.sort(result.requests.finish_us)[:17])


def test_configurations_of_a_batch_do_not_know_of_each_other() -> None:
    cases = [draw(seed) for seed in range(6)]
    workload = cases[0].workload()
    records = np.concatenate([case.record() for case in cases])
    log, totals, _ = run_records(records, workload)
    n = workload.num_requests
    for k in range(len(cases)):
        alone = simulate_record(records[k : k + 1], workload)
        assert alone.totals == totals[k]
        assert np.array_equal(alone.log.finish_us, log.finish_us[k * n : (k + 1) * n])


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (["engine.watermark=0.1"], "capacity_scheduler_policy is its own"),
        (["latency.b3_us_per_context_token=0.1"], "no step time by context"),
        (["engine.trtllm.chunk_unit_tokens=4096"], "no chunk would ever fit"),
        (["workload.concurrency=4", "workload.think.mean_s=1"], "no pauses of clients"),
    ],
)
def test_refused(settings: list[str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        check_rules(load_config(None, [*BASE, *settings]))


def test_what_can_never_be_served_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [text for setting in (*BASE, "engine.max_model_len=250") for text in ("--set", setting)]
    _, out, _ = run(capsys, "run", *asked)
    assert "engine.max_model_len = 250" in " ".join(out.split())
    config = load_config(None, [*BASE, "engine.enable_chunked_prefill=false", "engine.max_num_batched_tokens=300"])
    result = fastsim.simulate(config)
    prompts = build_workload(config.workload).prompt_tokens
    assert result.metrics["unservable"] == (prompts > 300).sum() > 0
    assert np.array_equal(result.requests.status == Status.UNSERVABLE, prompts > 300)


# --- every output says that it is not verified ----------------------------------------------------------------------


def test_every_output_says_what_it_rests_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = " ".join(CAVEAT.split())
    sets = [text for setting in BASE for text in ("--set", setting)]
    _, out, err = run(capsys, "run", *sets)
    assert said in " ".join(err.split())
    assert "trtllm" in out
    _, out, err = run(capsys, "run", *sets, "--json")
    assert json.loads(out)["caveats"] == [CAVEAT]
    spec, folder = tmp_path / "spec.toml", tmp_path / "out"
    spec.write_text("engine.num_gpu_blocks = 600\nworkload.num_requests = 20\nrun.horizon_s = 60\n[sweep]\nseeds = 3\n")
    asked = ("compare", spec, "--engines", "vllm,trtllm", "--workers", "1", "--metric", "steps", "--out", folder)
    for command in (asked, ("compare", folder, "--by", "engine.name"), ("status", folder)):
        code, out, err = run(capsys, *command)
        assert code == 0
        assert said in " ".join((out + err).split())
    assert CAVEAT in Grid.from_toml(spec, ["engine.name=trtllm"]).warnings
    code, out, err = run(capsys, "check", spec, "--set", "engine.name=trtllm", "--no-cost")
    assert said in " ".join((out + err).split())
    options = ["--axis", "engine.max_num_seqs=8,16", "--axis", "engine.max_num_batched_tokens=2048", "--seeds", "2"]
    _, out, _ = run(capsys, "recommend", spec, "--engine", "trtllm", *options, "--workers", "1")
    assert said in " ".join(out.split())
    assert "trtllm-serve MODEL --max_batch_size" in " ".join(out.split())


def test_others_have_no_caveat() -> None:
    assert caveats(["vllm-0.33.0", "sglang-0.5.23", "blis"]) == []
