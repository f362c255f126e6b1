"""`--model M --gpu G` and `latency.preset`: a trace runs with nothing else given, and everything assumed is said."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastsim.cli import main
from fastsim.cli.hardware import GIVEN_BY_KEYS, preset_settings
from fastsim.config import Config, EngineConfig, LatencyConfig, resolved
from fastsim.presets import Deployment, coefficients, estimate, load_gpu, load_model
from fastsim.simulation import simulate
from fastsim.sweeps.grid import Grid
from fastsim.workload import Workload

from .sentences import bad_input

TRACE = Path(__file__).parent / "data" / "azure2023_conv_first2000.csv"
HARDWARE = ["--model", "llama-3.1-8b", "--gpu", "h100"]


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
    names = {name for name in Deployment.__dataclass_fields__ if name not in ("typical_batch", "allreduce_us")}
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
    "step_times": "linear",
    "async_scheduling": "false",
}


@pytest.mark.parametrize("name", [name for name in Deployment.__dataclass_fields__ if name not in GIVEN_BY_KEYS])
def test_everything_assumed_can_be_assumed_otherwise(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    plain = preset_settings(None, [], "mixtral-8x7b", "h200", ["tensor_parallel=4"])
    changed = preset_settings(None, [], "mixtral-8x7b", "h200", ["tensor_parallel=4", f"{name}={OTHERWISE[name]}"])
    assert plain != changed
    assert name in " ".join(capsys.readouterr().err.split())


def test_options_and_what_set_says_win(capsys: pytest.CaptureFixture[str]) -> None:
    by_option = preset_settings(None, [], "llama-3.1-70b", "h100", tensor_parallel=4, gpu_memory_utilization=0.95)
    assumed = ["tensor_parallel=4", "gpu_memory_utilization=0.95"]
    assert by_option == preset_settings(None, [], "llama-3.1-70b", "4xh100", ["gpu_memory_utilization=0.95"])
    assert by_option == preset_settings(None, [], "llama-3.1-70b", "h100", assumed)
    sets = ["latency.b0_us=7", "engine.max_num_batched_tokens=8192"]
    found = preset_settings(None, sets, "llama-3.1-8b", "h100")
    assert found[-2:] == sets
    assert sum(text.startswith("latency.b0_us") for text in found) == 1
    assert "step of 8192 tokens" in " ".join(capsys.readouterr().err.split())
    assert preset_settings(None, sets, None, None) == sets


FAULTS: list[tuple[dict[str, Any], list[str]]] = [
    ({"model": "llama-3.1-8b"}, ["--model llama-3.1-8b without --gpu"]),
    ({"gpu": "h100"}, ["--gpu h100 without --model"]),
    ({"tensor_parallel": 2}, ["tensor_parallel", "--model and --gpu were expected"]),
    ({"model": "llama-3.1-8b", "gpu": "h100", "assume": ["luck=1"]}, ["--assume luck=1", "kv_dtype"]),
    ({"model": "llama-3.1-8b", "gpu": "h100", "assume": ["kv_dtype=3"]}, ["--assume kv_dtype=3", "a dtype"]),
    ({"model": "llama-3.1-8b", "gpu": "h100", "assume": ["kv_dtype=fp3"]}, ["kv_dtype = 'fp3'", "bfloat16"]),
    ({"model": "llama-3.1-8b", "gpu": "h100", "assume": ["typical_batch=0"]}, ["typical_batch = 0"]),
    ({"model": "llama-3.1-8b", "gpu": "h100", "assume": ["typical_batch=1.5"]}, ["an integer was expected"]),
    ({"model": "llama-3.1-8b", "gpu": "h100", "assume": ["non_torch_bytes=-1"]}, ["non_torch_bytes = -1"]),
    ({"model": "llama-3.1-8b", "gpu": "h100", "tensor_parallel": 3}, ["tensor_parallel = 3", "32 attention heads"]),
    ({"model": "llama-3.1-8b", "gpu": "h100", "gpu_memory_utilization": 1.5}, ["gpu_memory_utilization = 1.5"]),
]


@pytest.mark.parametrize(("options", "named"), FAULTS)
def test_hardware_that_makes_no_sense_is_one_sentence(options: dict[str, Any], named: list[str]) -> None:
    arguments = {"model": None, "gpu": None} | options
    bad_input(lambda: preset_settings(None, [], **arguments), *named)


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
