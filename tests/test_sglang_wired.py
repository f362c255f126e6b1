"""SGLang behind `engine.name`: the same numbers as its own entry gives, alone and beside vLLM in a chunk."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastsim
from fastsim.analysis.recommend.flags import deployment_flags, serve_flags
from fastsim.analysis.recommend.recommend import recommend
from fastsim.cli.options import with_engine
from fastsim.config import Config, check_rules, load_config, resolved
from fastsim.config.deployment import hardware_of
from fastsim.engines.sglang.golden import case_records
from fastsim.engines.sglang.inputs import from_workload
from fastsim.engines.sglang.runner import simulate_records
from fastsim.engines.sglang.server import SERVER
from fastsim.errors import InputError
from fastsim.presets import load_gpu, load_model
from fastsim.simulation import engine_records, simulate_chunk
from fastsim.sweeps.grid import Grid
from fastsim.workload import build_workload
from tests.processes import run

NAME = 'engine.name="sglang-0.5.23"'


def config(*settings: str, horizon_s: int = 60) -> Config:
    small = ["workload.num_requests=40", f"run.horizon_s={horizon_s}", "engine.num_gpu_blocks=1500"]
    made = load_config(None, [*small, NAME, *settings])
    check_rules(made)
    return made


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"page_size": 16, "schedule_policy": "lpm", "enable_mixed_chunk": True},
        {"disable_overlap_schedule": True, "schedule_conservativeness": 0.1, "disable_radix_cache": True},
        {"max_total_tokens": 9000, "chunked_prefill_size": -1, "prefill_decode_interval": 3},
        {"enable_priority_scheduling": True, "retraction_policy": "priority", "schedule_policy": "lof"},
    ],
)
def test_sglang_by_name_is_sglang(own: dict[str, Any]) -> None:
    shown = (f"engine.sglang.{key}={str(value).lower()}" for key, value in own.items())
    chosen = config(*shown, "workload.prefix.groups=2", "workload.prefix.tokens=100", "workload.priority.values=[0,40]")
    result = fastsim.simulate(chosen)
    keys = {
        "max_total_tokens": 24_000,
        "max_running_requests": 256,
        "context_length": 8192,
        "chunked_prefill_size": 2048,
        "schedule_low_priority_values_first": True,
        "horizon_us": 60_000_000,
    }
    alone = simulate_records(case_records({"config": keys | own}), from_workload(build_workload(chosen.workload)))
    assert result.metrics["steps"] == alone.totals["steps"] > 0
    assert result.metrics["sglang_retractions"] == alone.own["retractions"]
    assert np.array_equal(result.requests.finish_us, alone.log.finish_us)
    assert np.array_equal(result.requests.first_token_us, alone.log.first_token_us)


def test_outputs_that_ignore_their_stop_token_are_as_long_as_declared() -> None:
    declared = ["workload.max_tokens.dist=factor", "workload.max_tokens.factor=1.5"]
    declared += [
        "workload.output.dist=constant",
        "workload.output.mean=800",
        "engine.sglang.schedule_conservativeness=0",
    ]
    plain = build_workload(config(*declared).workload)
    ignoring = build_workload(config(*declared, "workload.ignore_eos=true").workload)
    assert np.array_equal(ignoring.output_tokens, plain.max_tokens)
    assert (plain.output_tokens < plain.max_tokens).all()
    result = fastsim.simulate(config(*declared, "workload.ignore_eos=true", horizon_s=600))
    assert np.array_equal(result.requests.num_generated, plain.max_tokens)
    assert result.metrics["sglang_retractions"] == 0 < fastsim.simulate(config(*declared)).metrics["sglang_retractions"]


def test_a_chunk_of_two_engines_has_the_rows_of_each(tmp_path: Any) -> None:
    spec = tmp_path / "both.toml"
    spec.write_text(
        "engine.num_gpu_blocks = 1000\nrun.horizon_s = 30\nworkload.num_requests = 20\n[sweep.axes]\n"
        'engine.max_num_seqs = [8, 20]\nengine.name = ["sglang-0.5.23", "vllm-0.33.0"]\n'
        "workload.ignore_eos = [false, true]\n"
    )
    grid = Grid.from_toml(spec)
    workload = build_workload(grid.config(0).workload)
    rows = simulate_chunk(workload, engine_records(grid, 0, 4))
    for index in range(4):
        alone = simulate_chunk(workload, engine_records(grid, index, index + 1))
        assert np.array_equal(rows.floats[index], alone.floats[0], equal_nan=True)
        assert np.array_equal(rows.ints[index], alone.ints[0])


def test_defaults_follow_the_common_keys() -> None:
    made = resolved(config("engine.sglang.page_size=48", "engine.max_num_batched_tokens=1000")).engine.sglang
    assert (made.max_total_tokens, made.chunked_prefill_size) == (24_000, 960)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            ["engine.sglang.page_size=16", "engine.sglang.chunked_prefill_size=200"],
            "multiple of engine.sglang.page_size",
        ),
        (["engine.sglang.enable_priority_scheduling=true", "engine.sglang.schedule_policy=lpm"], '"fcfs" or "lof" was'),
        (["engine.sglang.retraction_policy=priority"], '"length" was expected'),
        (["engine.sglang.page_size=30000"], "a pool of at least one page was expected"),
        (["workload.concurrency=4"], "closed loop"),
        (["latency.b3_us_per_context_token=0.1"], "step time by context"),
        (["engine.watermark=0.1"], r"engine\.sglang\.schedule_conservativeness"),
        (
            [
                "workload.ignore_eos=true",
                "engine.sglang.enable_mixed_chunk=true",
                "engine.sglang.disable_radix_cache=true",
                "engine.sglang.page_size=16",
            ],
            "a defect that is not copied",
        ),
    ],
)
def test_refused(settings: list[str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        config(*settings)


# --- its server ---


@pytest.mark.parametrize(
    ("memory_gib", "gpus", "chunk", "share"),
    [(24, 1, 2048, 0.847), (40, 1, 4096, 0.833), (80, 1, 8192, 0.836), (80, 8, 8192, 0.819), (180, 1, 16384, 0.858)],
)
def test_what_the_server_takes_from_the_gpu(memory_gib: int, gpus: int, chunk: int, share: float) -> None:
    taken = SERVER.of_gpu(None, "some-gpu", memory_gib * 2**30, gpus)
    assert (taken.limits, taken.settings) == ({}, {"engine.sglang.chunked_prefill_size": chunk})
    assert taken.deployment == {"gpu_memory_utilization": share, "activation_bytes": 0.0, "non_torch_bytes": 0.0}


def test_request_slots_follow_the_pool() -> None:
    assert [SERVER.of_pool(tokens, 8192)["engine.max_num_seqs"] for tokens in (10**4, 50_000, 10**6)] == [
        2048,
        3125,
        4096,
    ]


def test_flags_of_the_server() -> None:
    settings = {
        "engine.max_num_seqs": 40,
        "engine.sglang.schedule_policy": "lpm",
        "engine.sglang.disable_radix_cache": True,
        "engine.sglang.enable_mixed_chunk": False,
        "engine.num_gpu_blocks": 9,
    }
    flags, others = serve_flags(settings, "sglang-0.5.23")
    assert flags == ["--max-running-requests", "40", "--schedule-policy", "lpm", "--disable-radix-cache"]
    assert others == ["engine.num_gpu_blocks = 9"]
    given = {"tensor_parallel": 2, "gpu_memory_utilization": 0.83, "kv_dtype": "fp8"}
    assert deployment_flags(given, "sglang-0.5.23") == [
        *("--tp-size", "2", "--mem-fraction-static", "0.83", "--kv-cache-dtype", "fp8_e4m3")
    ]


def test_engine_option() -> None:
    assert with_engine(["run.max_steps=9"], "sglang") == ["engine.name=sglang-0.5.23", "run.max_steps=9"]
    assert with_engine(["a=1"], None) == ["a=1"]
    assert with_engine(["engine.name=blis"], "blis") == ["engine.name=blis"]
    with pytest.raises(InputError, match="--engine sglanf: no such engine; did you mean sglang"):
        with_engine([], "sglanf")
    with pytest.raises(InputError, match=r"--engine sglang with --set engine\.name=blis, but one of them was expected"):
        with_engine(["engine.name=blis"], "sglang")


def test_a_model_on_a_gpu_as_the_server_takes_it() -> None:
    made = load_config(None, [NAME, "hardware.model=llama-3.1-8b", "hardware.gpu=h100"])
    hardware = hardware_of(made.value)
    assert hardware is not None
    pool = resolved(made).engine.sglang.max_total_tokens
    model, gpu = load_model("llama-3.1-8b"), load_gpu("h100")
    share = dict(hardware.assumed)["gpu_memory_utilization"]
    assert pool == (gpu.memory_bytes * share - model.weight_bytes) // (16 * model.kv_bytes_per_token(1, None)) * 16
    assert (made.engine.max_num_seqs, made.engine.sglang.chunked_prefill_size) == (2048, 8192)


def test_a_recommendation_for_sglang() -> None:
    settings = [NAME, "engine.num_gpu_blocks=1500", "workload.num_requests=60", "workload.output.dist=constant"]
    settings += ["workload.output.mean=200", "slo.ttft_ms=2000", "workload.arrival.rate_per_s=5"]
    axes = [
        "engine.max_num_seqs=4,16",
        "engine.max_num_batched_tokens=512",
        "engine.sglang.enable_mixed_chunk=false,true",
    ]
    found = recommend(None, settings, axes, seeds=2, workers=1)
    assert found.command.startswith("python -m sglang.launch_server --model-path MODEL --max-running-requests ")
    assert f"--chunked-prefill-size {found.best.numbers[1]}" in found.command
    assert found.to_json()["flags"] == found.flags


# Mixed decodes eat what was reserved for the rest of a prompt, which is continued whatever the pool has
DIES = """
engine.name = "sglang-0.5.23"
engine.num_gpu_blocks = 120
engine.block_size = 1
engine.max_num_seqs = 8
engine.sglang.enable_mixed_chunk = true
engine.sglang.chunked_prefill_size = 8
engine.sglang.disable_radix_cache = true
engine.sglang.schedule_conservativeness = 0.1
engine.sglang.clip_max_new_tokens = 3
workload.num_requests = 60
workload.arrival.rate_per_s = 1000
workload.prompt = { dist = "uniform", min = 1, max = 12 }
workload.output = { dist = "uniform", min = 30, max = 100 }
"""


def test_a_process_that_dies_is_a_verdict_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, out = tmp_path / "dies.toml", tmp_path / "out"
    spec.write_text(DIES)
    code, text, _ = run(capsys, "run", spec, "--set", "workload.seed=1")
    assert code == 0
    assert text.startswith("out_of_memory: the engine gave away more KV than there is, and died at 0.0943 s")
    fastsim.sweep(Grid.from_toml(spec, [], ["workload.seed=0,1,2"]), out, workers=1)
    rows = fastsim.scan(out).collect()
    died = rows.filter(rows["verdict"].cast(str) == "out_of_memory")
    assert 1 in died["workload.seed"].to_list()
    assert died["stop"].cast(str).unique().to_list() == ["out_of_memory"]
    own = ("sglang_retractions", "sglang_priority_preemptions", "sglang_aborted")
    assert rows.select(own).null_count().sum_horizontal().to_list() == [0]
    assert (rows["sglang_retractions"] + rows["sglang_priority_preemptions"] == rows["preemptions"]).all()
