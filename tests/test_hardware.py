"""`--model M --gpu G` and `latency.preset`: a trace runs with nothing else given, and everything assumed is said."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastsim.cli import main
from fastsim.cli.given import merged
from fastsim.cli.hardware import ASSUMPTIONS, assumed
from fastsim.config import Config, EngineConfig, LatencyConfig, check_rules, load_config, resolved
from fastsim.presets import Deployment, coefficients, estimate, load_gpu, load_model
from fastsim.simulation import simulate
from fastsim.sweeps.grid import Grid
from fastsim.workload import Workload

from .sentences import bad_input

TRACE = Path(__file__).parent / "data" / "azure2023_conv_first2000.csv"
HARDWARE = ["--model", "llama-3.1-8b", "--gpu", "h100"]


UNSAID = ("typical_batch", "allreduce_us", "disable_hybrid_kv_cache_manager")
"""What is assumed of mixtures, several GPUs and windows alone."""


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["run", *arguments])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_trace_runs_with_nothing_else_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*HARDWARE, "--trace", str(TRACE), "--json") == 0
    out, err = capsys.readouterr()
    row = json.loads(out)
    assert row["completed"] == row["num_requests"] == 2000
    own = {"max_num_seqs": 1024, "max_num_batched_tokens": 8192, "gpu_memory_utilization": 0.92}
    blocks = estimate(load_model("llama-3.1-8b"), load_gpu("h100"), **own).num_gpu_blocks
    assert row["usable_blocks"] == blocks - 1
    text = " ".join(err.split())
    names = {name for name in Deployment.__dataclass_fields__ if name not in UNSAID}
    for word in (*names, "131,072 bytes a token", "14.96 GiB", "92% of 79.22 GiB", "a shipped table", "aiconfigurator"):
        assert word in text
    assert all(len(line) <= 80 for line in err.splitlines())


OTHERWISE: dict[str, Any] = {
    "tensor_parallel": 2,
    "gpu_memory_utilization": 0.8,
    "weight_dtype": "fp8",
    "kv_dtype": "fp8",
    "bandwidth_efficiency": 0.5,
    "compute_efficiency": 0.5,
    "layer_overhead_us": 1.5,
    "step_overhead_us": 0,
    "allreduce_us": 99,
    "activation_bytes": 5e9,
    "non_torch_bytes": 5e9,
    "typical_batch": 1,
    "disable_hybrid_kv_cache_manager": "true",
    "step_times": "linear",
    "async_scheduling": "false",
}


def on_hardware(model: str, gpu: str, *sets: str, assume: list[str] | None = None) -> Config:
    """What a model on a GPU gives."""
    hardware = [f"hardware.model={model}", f"hardware.gpu={gpu}"]
    return load_config(None, merged([*hardware, *sets], assumed(assume or [])))


def given_by_hardware(config: Config) -> dict[str, Any]:
    """Pool, step times and limits, without the hardware itself."""
    return config.engine.model_dump() | config.latency.model_dump()


@pytest.mark.parametrize("name", ASSUMPTIONS)
def test_everything_assumed_can_be_assumed_otherwise(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    four = {"tensor_parallel": 4}
    model = "gemma-3-27b" if name == "disable_hybrid_kv_cache_manager" else "mixtral-8x7b"
    plain = on_hardware(model, "h200", assume=["tensor_parallel=4"])
    other = [f"{key}={value}" for key, value in (four | {name: OTHERWISE[name]}).items()]
    changed = on_hardware(model, "h200", assume=other)
    assert given_by_hardware(plain) != given_by_hardware(changed)


def test_what_is_assumed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    load = ["--prompt-tokens", "50", "--output-tokens", "5", "--set", "workload.num_requests=2"]
    told = ""
    for model, gpus, source in (("gemma-3-4b", 1, "auto"), ("mixtral-8x7b", 4, "linear")):
        four = ["--tensor-parallel", str(gpus), "--assume", f"step_times={source}"]
        assert run("--model", model, "--gpu", "b200", *four, *load) == 0
        told += " ".join(capsys.readouterr().err.split())
    assert not [name for name in ASSUMPTIONS if name not in told]


def test_several_ways_to_say_the_same() -> None:
    for gpu, sets in (
        ("h100", ["hardware.tensor_parallel=4"]),
        ("4xh100", []),
        ("h100x4", []),
        ("H100x4", ["hardware.tensor_parallel=4"]),
    ):
        found = given_by_hardware(on_hardware("llama-3.1-70b", gpu, "hardware.gpu_memory_utilization=0.95", *sets))
        first = given_by_hardware(on_hardware("llama-3.1-70b", "4xh100", assume=["gpu_memory_utilization=0.95"]))
        assert found == first


def test_what_is_given_stands() -> None:
    plain = on_hardware("llama-3.1-8b", "h100")
    assert (plain.engine.max_num_seqs, plain.engine.max_num_batched_tokens) == (1024, 8192)
    mine = on_hardware("llama-3.1-8b", "h100", "latency.b0_us=7", "engine.max_num_seqs=64")
    assert (mine.latency.b0_us, mine.engine.max_num_seqs) == (7.0, 64)
    assert mine.engine.num_gpu_blocks != plain.engine.num_gpu_blocks  # room for the activations of smaller steps
    pool = on_hardware("llama-3.1-8b", "h100", "engine.num_gpu_blocks=1000")
    assert (pool.engine.num_gpu_blocks, pool.engine.max_model_len) == (1000, 999 * 16)
    assert pool.latency == plain.latency
    times = [f"latency.{name}=1" for name in ("b0_us", "b1_us_per_prefill_token", "b2_us_per_decode_token")]
    measured = on_hardware("llama-3.1-8b", "h100", *times, "latency.b3_us_per_context_token=0.1")
    assert measured.latency.table_us is None
    assert measured.latency.b5_us_per_prefill_step is None
    assert measured.engine.num_gpu_blocks == plain.engine.num_gpu_blocks


def test_the_version_says_rules_and_defaults() -> None:
    old = on_hardware("llama-3.1-8b", "h100", "hardware.vllm_version=0.10.0")
    assert (old.engine.name, old.engine.max_num_seqs) == ("vllm-0.16.0", 1024)
    assert old.latency.b0_us > on_hardware("llama-3.1-8b", "h100").latency.b0_us  # the GPU waits for the host
    new = on_hardware("llama-3.1-8b", "b200", "hardware.vllm_version=0.33.0")
    assert (new.engine.name, new.engine.max_num_batched_tokens) == ("vllm-0.33.0-async", 16384)
    named = on_hardware("llama-3.1-8b", "h100", "hardware.vllm_version=0.10.0", "engine.name=vllm-0.33.0")
    assert named.engine.name == "vllm-0.33.0"
    without = load_config(None, ["hardware.vllm_version=0.16.0", "engine.num_gpu_blocks=100"])
    assert (without.engine.name, without.engine.max_num_seqs) == ("vllm-0.33.0-async", 256)
    assert without.engine.scheduler_reserve_full_isl is False


def test_hardware_is_an_axis() -> None:
    spec = {
        "hardware": {"model": "llama-3.1-8b"},
        "sweep": {
            "axes": {
                "hardware.gpu": ["l40s", "h100", "2xl40s"],
                "hardware.kv_dtype": ["bfloat16", "fp8"],
                "engine.max_num_seqs": [64, 1024],
            }
        },
    }
    grid = Grid.from_mapping(spec)
    every = np.arange(grid.size)
    for key, encode in (
        ("engine.num_gpu_blocks", int),
        ("engine.max_num_batched_tokens", int),
        ("engine.max_model_len", int),
        ("latency.b5_us_per_prefill_step", float),
    ):
        alone = [
            on_hardware("llama-3.1-8b", str(values.pop("hardware.gpu")), *(f"{k}={v}" for k, v in values.items()))
            for index in range(grid.size)
            for values in [{axis: grid.values(index)[axis] for axis in (axis.name for axis in grid.axes)}]
        ]
        assert grid.take(key, every, encode).tolist() == [config.value(key) for config in alone]
    assert [grid.config(index).engine for index in range(grid.size)] == [config.engine for config in alone]
    blocks = {hardware.name: (pools.least, pools.most) for hardware, pools in grid.hardware().items()}
    assert len(blocks) == 3
    assert all(least < most for least, most in blocks.values())


def test_what_does_not_fit_is_refused_at_its_start(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(
        'hardware.model = "llama-3.1-70b"\nworkload.num_requests = 3\n'
        'sweep.axes."hardware.gpu" = ["h100", "4xh100"]\nanswer.question = "which?"\n'
    )
    grid = Grid.from_toml(spec)
    assert grid.refused(np.arange(2)).tolist() == [True, False]
    assert "no room for KV blocks" in str(grid.refusal(0))
    assert grid.some_refused
    for verb in (
        ["check", str(spec), "--no-cost"],
        ["sweep", str(spec), "--out", str(tmp_path / "out"), "--workers", "1"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(verb)
        assert ended.value.code == 0
        out, err = capsys.readouterr()
        assert "with 1 of 2 configurations no server starts" in " ".join((out + err).split())
        assert "llama-3.1-70b on 4 x h100" in err
    bad_input(lambda: grid.config(0), "no room for KV blocks")


def test_a_sweep_gives_the_rows_of_its_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text('hardware = { model = "llama-3.1-8b", gpu = "l40s" }\nworkload.num_requests = 40\n')
    axis = ["--axis", "hardware.vllm_version=0.12.0,0.33.0", "--axis", "hardware.gpu=l40s,h100"]
    with pytest.raises(SystemExit):
        main(["sweep", str(spec), *axis, "--out", str(tmp_path / "out"), "--workers", "1"])
    import polars as pl

    rows = pl.scan_parquet(tmp_path / "out" / "parts" / "*.parquet").collect().to_dicts()
    assert len(rows) == 4
    capsys.readouterr()
    for row in rows:
        options = ["--gpu", row["hardware.gpu"], "--vllm-version", row["hardware.vllm_version"]]
        assert run("--model", "llama-3.1-8b", *options, "--set", "workload.num_requests=40", "--json") == 0
        alone = json.loads(capsys.readouterr().out)
        for name in ("ttft_p99_ms", "tpot_p50_ms", "usable_blocks", "preemptions", "completed"):
            assert alone[name] == row[name]


FAULTS: list[tuple[list[str], list[str]]] = [
    (["--model", "llama-3.1-8b"], ["hardware.gpu = none", "both or neither were expected"]),
    (["--gpu", "h100"], ["hardware.model = none"]),
    (["--tensor-parallel", "2", "--prompt-tokens", "9"], ["hardware.tensor_parallel = 2", "hardware.model and"]),
    ([*HARDWARE, "--assume", "luck=1"], ["--assume luck=1", "kv_dtype"]),
    ([*HARDWARE, "--assume", "kv_dtype=3"], ["--assume kv_dtype=3", "bfloat16"]),
    ([*HARDWARE, "--assume", "kv_dtype=fp3"], ['kv_dtype = "fp3"', "bfloat16"]),
    ([*HARDWARE, "--assume", "typical_batch=0"], ["typical_batch = 0"]),
    ([*HARDWARE, "--assume", "typical_batch=1.5"], ["typical_batch = 1.5", "integer"]),
    ([*HARDWARE, "--assume", "non_torch_bytes=-1"], ["non_torch_bytes = -1"]),
    ([*HARDWARE, "--tensor-parallel", "3"], ["tensor_parallel = 3", "32 attention heads"]),
    ([*HARDWARE, "--gpu-memory-utilization", "1.5"], ["gpu_memory_utilization = 1.5"]),
    (["--model", "llama-3.1-8b", "--gpu", "h101"], ["h101", "did you mean h100"]),
    (["--model", "llama-3.1-9b", "--gpu", "h100"], ["llama-3.1-9b", "did you mean llama-3.1-8b"]),
    (["--model", "llama-3.1-8b", "--gpu", "4xh100", "--tensor-parallel", "2"], ["one number of GPUs was expected"]),
    ([*HARDWARE, "--set", "latency.preset=llama-3.1-8b@h100"], ["latency.preset", "hardware.model", "one of them"]),
    (["--vllm-version", "0.7.3", "--prompt-tokens", "9"], ["0.7.3", "V0 engine"]),
]


@pytest.mark.parametrize(("options", "named"), FAULTS)
def test_hardware_that_makes_no_sense_is_one_sentence(
    options: list[str], named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*options) == 2
    out, err = capsys.readouterr()
    assert not out
    assert len(err.strip().splitlines()) == 1
    for word in named:
        assert word in err


def test_rules_see_what_the_hardware_gives() -> None:
    config = Config()
    bad_input(lambda: check_rules(config), "engine.num_gpu_blocks is missing", "hardware.model with hardware.gpu")
    sglang = ["engine.name=sglang-0.5.23"]
    bad_input(
        lambda: on_hardware("llama-3.1-8b", "h100", *sglang, "hardware.vllm_version=0.33.0"), "no", "vllm_version"
    )
    assert on_hardware("llama-3.1-8b", "h100", *sglang).engine.max_num_seqs == 2048


# --- latency.preset -------------------------------------------------------------------------------


def test_a_preset_gives_the_coefficients_that_are_not_given() -> None:
    roofline = coefficients("llama-3.1-8b@h100", "linear")
    assert roofline["b0_us"] == pytest.approx(6251, abs=1)
    engine = EngineConfig(num_gpu_blocks=1000)
    for source, table in (("linear", False), ("analytic", True), ("auto", True)):
        given = LatencyConfig(preset="llama-3.1-8b@h100", source=source)
        latency = resolved(Config(engine=engine, latency=given)).latency
        expected = coefficients("llama-3.1-8b@h100", source)
        assert {name: getattr(latency, name) for name in expected} == expected
        assert (latency.table_us is not None) == table
    mine = resolved(
        Config(engine=engine, latency=LatencyConfig(preset="llama-3.1-8b@h100", source="linear", b0_us=9000.0))
    ).latency
    assert (mine.b0_us, mine.b1_us_per_prefill_token) == (9000.0, roofline["b1_us_per_prefill_token"])
    plain = resolved(Config(engine=engine)).latency
    assert (plain.b0_us, plain.b1_us_per_prefill_token, plain.b2_us_per_decode_token) == (5752.71, 17.25, 6.0)
    blis = Config(engine=EngineConfig(name="blis", num_gpu_blocks=9), latency=LatencyConfig(preset="phi-4@h200"))
    assert resolved(blis).latency.b3_us_per_context_token == 0.0


def test_a_run_with_a_preset_takes_its_time() -> None:
    alone = Workload.from_arrays([0], [100], [1])
    config = Config(engine=EngineConfig(num_gpu_blocks=100), latency=LatencyConfig(preset="llama-3.1-70b@4xh100"))
    times = coefficients("llama-3.1-70b@4xh100")
    table_us = float(np.interp(100, times["table_tokens"], times["table_us"]))
    pairs_us = times["b4_us_per_prefill_pair"] * 100 * 100 / 2
    tokens_us = 100 * times["b1_us_per_prefill_token"]
    expected = int(times["b0_us"] + table_us + times["b5_us_per_prefill_step"] + tokens_us + pairs_us)
    assert simulate(config, alone).requests.finish_us.tolist() == [expected]


def test_gpus_are_an_axis() -> None:
    names = ["llama-3.1-8b@l4", "llama-3.1-8b@a100-80gb", "llama-3.1-8b@h100"]
    grid = Grid.from_mapping({"engine.num_gpu_blocks": 1000, "sweep": {"axes": {"latency.preset": names}}})
    b0 = grid.take("latency.b0_us", np.arange(3), float)
    assert b0.tolist() == [coefficients(name)["b0_us"] for name in names]
    assert [grid.values(index)["latency.preset"] for index in range(3)] == names


def test_what_a_preset_assumed_is_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text('latency.preset = "llama-3.1-8b@l4"\nengine.num_gpu_blocks = 1000\nworkload.num_requests = 3\n')
    assert run(str(spec)) == 0
    err = " ".join(capsys.readouterr().err.split())
    for words in ("latency.preset llama-3.1-8b@l4", "a table from data sheets", "bandwidth_efficiency", "14.96 GiB"):
        assert words in err


@pytest.mark.parametrize(
    ("preset", "named"),
    [
        ("h100", ["MODEL@GPU was expected"]),
        ("llama-3.1-8b@h101", ["h101 is no gpu preset", "did you mean h100"]),
        ("llama-3.1-9b@h100", ["llama-3.1-9b is no model preset", "did you mean llama-3.1-8b"]),
        ("llama-3.1-405b@h100", ["no room for KV blocks"]),
        ("llama-3.1-8b@3xh100", ["tensor_parallel = 3"]),
    ],
)
def test_presets_that_are_none(preset: str, named: list[str]) -> None:
    bad_input(lambda: LatencyConfig(preset=preset), f'latency.preset = "{preset}"', *named)
    bad_input(lambda: Grid.from_mapping({"sweep": {"axes": {"latency.preset": [preset]}}}), *named)


def test_engines_are_compared_with_the_step_times_that_all_have() -> None:
    spec = {"hardware": {"model": "llama-3.1-8b", "gpu": "h100", "vllm_version": "0.33.0"}}
    names = ["vllm-0.33.0", "sglang-0.5.23"]
    grid = Grid.from_mapping({**spec, "sweep": {"axes": {"engine.name": names}}})
    assert any("step times of the hardware are linear under all engines" in note for note in grid.warnings)
    every = [grid.config(place) for place in range(2)]
    assert [config.engine.name for config in every] == names
    assert every[0].latency == every[1].latency
    assert every[0].latency.table_us is None
    assert every[1].hardware.vllm_version is None
