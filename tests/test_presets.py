"""Model and GPU presets: parameters as published, pools as reported, coefficients that scale as they must."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from fastsim import presets
from fastsim.config.keys import KEYS
from fastsim.errors import InputError
from fastsim.presets import Deployment, estimate, gpu_names, load_gpu, load_model, model_names

from .sentences import bad_input

PARAMETERS = {
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "mistral-7b-v0.3": 7_248_023_552,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "phi-4": 14_659_507_200,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200,
    "llama-2-7b": 6_738_415_616,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "qwen3-14b": 14_768_307_200,
}
"""As the models' safetensors indices say (DeepSeek-V3 without its prediction module)."""


BILLIONS = {
    "gpt-oss-20b": 20.91,
    "gpt-oss-120b": 116.83,
    "gemma-3-4b": 3.88,
    "gemma-3-12b": 11.77,
    "gemma-3-27b": 27.01,
    "glm-4.5": 355,
    "glm-4.5-air": 106,
    "llama-4-scout": 109,
    "llama-4-maverick": 402,
}
"""As their cards say, rounded: biases, vision and prediction modules are not counted here."""


def test_every_model_has_a_published_number_of_parameters() -> None:
    assert set(model_names()) == {*PARAMETERS, *BILLIONS}


@pytest.mark.parametrize("name", BILLIONS)
def test_parameters_are_about_those_of_the_card(name: str) -> None:
    assert load_model(name).parameters / 1e9 == pytest.approx(BILLIONS[name], rel=0.015)


def test_windows_and_formats() -> None:
    oss = load_model("openai/gpt-oss-120b")
    assert (oss.window, oss.window_layers, oss.weight_dtype, oss.always_dtype) == (128, 18, "mxfp4", "bfloat16")
    assert oss.weight_bytes / 2**30 == pytest.approx(60.8, rel=0.01)  # of the checkpoint
    assert load_model("gemma-3-27b").window_layers == 52
    assert load_model("Llama-3.3-70B-Instruct-FP8-dynamic").weight_dtype == "fp8"
    assert load_model("nvidia/DeepSeek-R1-FP4").weight_dtype == "nvfp4"


def test_step_times_say_where_they_come_from() -> None:
    oss, h100 = load_model("gpt-oss-120b"), load_gpu("h100")
    found = estimate(oss, h100, tensor_parallel=2)
    assert found.step_times is not None
    assert found.step_times.source == "shipped"
    assert any("aiconfigurator" in note for note in found.assumptions)
    sheet = estimate(oss, h100, tensor_parallel=2, step_times="analytic").step_times
    assert sheet is not None
    for tokens, here, there in zip(
        sheet.values["table_tokens"], found.latency()["table_us"], sheet.values["table_us"], strict=True
    ):
        assert 0.4 < here / there < 2.5, tokens
    assert estimate(oss, h100, tensor_parallel=2, step_times="linear").step_times is None
    with pytest.raises(InputError, match="no table of step times is shipped"):
        estimate(load_model("gemma-3-27b"), h100, step_times="shipped")


TABLES = Path(presets.__file__).parent / "tables.json"


def test_shipped_tables_are_small_and_never_fall() -> None:
    tables = json.loads(TABLES.read_text())
    assert TABLES.stat().st_size < 150_000
    assert len(tables["tables"]) > 400
    for name, row in tables["tables"].items():
        known = dict(zip(tables["columns"], row, strict=True))
        tokens_us = known.pop("tokens_us")
        assert len(tokens_us) == len(tables["knots"]), name
        assert tokens_us[0] > 0, name
        assert all(a <= b for a, b in itertools.pairwise(tokens_us)), name
        assert all(value >= 0 for value in known.values()), name


def test_the_notice_names_where_tables_come_from() -> None:
    notice = (Path(presets.__file__).parents[2] / "NOTICE").read_text()
    tables = json.loads(TABLES.read_text())
    assert tables["tool"] in notice
    assert "Apache License 2.0" in notice
    assert tables["licence"] == "Apache-2.0"


@pytest.mark.parametrize("source", ["shipped", "analytic"])
def test_a_host_that_does_not_schedule_ahead_is_waited_for(source: str) -> None:
    model, gpu = load_model("llama-3.1-8b"), load_gpu("h100")
    for gpus, step_us in ((1, 200.0), (2, 900.0)):
        ahead = estimate(model, gpu, tensor_parallel=gpus, step_times=source)
        waits = estimate(model, gpu, tensor_parallel=gpus, step_times=source, async_scheduling=False)
        here, there = ahead.latency(), waits.latency()
        assert there["b0_us"] - here["b0_us"] == pytest.approx(step_us)
        assert there["b2_us_per_decode_token"] - here["b2_us_per_decode_token"] == pytest.approx(25.0)
        assert any("async_scheduling = false" in note for note in waits.assumptions)
        assert here["table_us"] == there["table_us"]


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_published(name: str) -> None:
    assert load_model(name).parameters == PARAMETERS[name]


def test_active_parameters_of_mixtures() -> None:
    """12.9 billion with embeddings (Mixtral's paper), 37 billion (DeepSeek-V3's report)."""
    mixtral, deepseek = load_model("mixtral-8x7b"), load_model("deepseek-v3")
    assert (mixtral.active_parameters + mixtral.embedding_parameters) / 1e9 == pytest.approx(12.9, abs=0.05)
    assert (deepseek.active_parameters + deepseek.embedding_parameters) / 1e9 == pytest.approx(37.5, abs=0.5)


def test_kv_bytes_by_hand() -> None:
    llama = load_model("llama-3.1-8b")
    assert llama.kv_bytes_per_token() == 2 * 32 * 8 * 128 * 2
    assert llama.kv_bytes_per_token(tensor_parallel=4) == 2 * 32 * 2 * 128 * 2
    assert llama.kv_bytes_per_token(tensor_parallel=16) == 2 * 32 * 1 * 128 * 2  # heads are replicated
    assert llama.kv_bytes_per_token(kv_dtype="fp8") == 2 * 32 * 8 * 128
    deepseek = load_model("deepseek-v3")
    assert deepseek.kv_bytes_per_token() == deepseek.kv_bytes_per_token(8) == 61 * (512 + 64) * 2


def test_the_pool_of_a_real_run() -> None:
    """vLLM 0.19.0 on an RTX 4090 of 25,250,627,584 bytes, Llama-3.1-8B: 2,588 blocks. Two constants come from it."""
    found = estimate(load_model("meta-llama/Llama-3.1-8B"), load_gpu("NVIDIA GeForce RTX 4090"))
    assert found.num_gpu_blocks == pytest.approx(2588, rel=0.01)


def test_the_pool_of_a_run_that_nothing_was_set_by() -> None:
    """vLLM 0.6.4 on an H100 of 79.22 GiB, Llama-3-8B: 53.29 GiB of KV cache (vllm pull request 10511)."""
    found = estimate(load_model("llama-3.1-8b"), load_gpu("h100"))
    assert found.num_gpu_blocks * 16 * found.kv_bytes_per_token / 2**30 == pytest.approx(53.29, rel=0.05)


def test_the_pool_of_two_gpus_that_nothing_was_set_by() -> None:
    """DeepSeek-R1-Distill-Qwen-14B on two RTX 4090, utilisation 0.98: 81,536 tokens (vllm issue 13061); +6.9 %."""
    plan = {"tensor_parallel": 2, "gpu_memory_utilization": 0.98}
    found = estimate(load_model("qwen2.5-14b"), load_gpu("rtx-4090"), **plan)
    assert found.num_gpu_blocks * 16 == pytest.approx(81_536, rel=0.08)


def test_kv_bytes_of_a_run_with_four_gpus() -> None:
    """Qwen3-235B-A22B-FP8 on four H100: 8.11 GiB hold 178,880 tokens (vllm issue 21348)."""
    per_token = load_model("qwen3-235b-a22b").kv_bytes_per_token(4)
    assert 8.11 * 2**30 / per_token == pytest.approx(178_880, rel=0.02)


def test_a_later_gpu_is_faster_and_more_of_them_too() -> None:
    model = load_model("llama-3.1-8b")
    a100, h100 = (estimate(model, load_gpu(name)) for name in ("a100", "h100"))
    assert h100.b0_us < a100.b0_us
    assert h100.b1_us_per_prefill_token < a100.b1_us_per_prefill_token
    assert h100.b3_us_per_context_token < a100.b3_us_per_context_token
    two = estimate(model, load_gpu("h100"), tensor_parallel=2)
    assert two.weight_bytes == h100.weight_bytes / 2
    assert two.num_gpu_blocks > 2 * h100.num_gpu_blocks  # half the bytes a token, and less for weights
    assert h100.b0_us / 2 < two.b0_us < h100.b0_us  # all-reduces cost something
    assert two.b3_us_per_context_token == h100.b3_us_per_context_token / 2


def test_everything_assumed_is_said_and_can_be_overridden() -> None:
    model, gpu = load_model("mixtral-8x7b"), load_gpu("h100")
    plain = estimate(model, gpu, tensor_parallel=2, step_times="linear")
    text = " ".join(plain.assumptions)
    for word in ("85%", "70%", "GiB", "all-reduces", "experts", "max_model_len", "bfloat16"):
        assert word in text
    slower = estimate(model, gpu, Deployment(bandwidth_efficiency=0.425), tensor_parallel=2, step_times="linear")
    assert slower.b3_us_per_context_token == pytest.approx(2 * plain.b3_us_per_context_token)
    assert "42" in " ".join(slower.assumptions)
    single = estimate(model, gpu, tensor_parallel=2, typical_batch=1)
    assert single.b0_us < plain.b0_us


def test_settings_are_keys_of_a_configuration() -> None:
    for key, value in estimate(load_model("phi-4"), load_gpu("h200")).settings().items():
        assert KEYS[key].validate(value, "preset") == value


@pytest.mark.parametrize(
    ("device", "preset"),
    [
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-40gb"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
    ],
)
def test_gpus_by_the_names_that_cuda_gives_them(device: str, preset: str) -> None:
    assert load_gpu(device).name == preset


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("meta-llama/Llama-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-70B-Instruct", "llama-3.1-70b"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b"),
    ],
)
def test_models_by_their_names_on_the_hub(name: str, preset: str) -> None:
    assert load_model(name).name == preset


@pytest.mark.parametrize("name", gpu_names())
def test_gpus_are_plausible(name: str) -> None:
    gpu = load_gpu(name)
    assert 14 * 2**30 < gpu.memory_bytes < 400 * 2**30
    assert gpu.bf16_flop_per_s <= gpu.fp8_flop_per_s
    assert 30 < gpu.bf16_flop_per_s / gpu.bandwidth_bytes_per_s < 500  # FLOP a byte


def write(folder: Path, **changes: Any) -> Path:
    shipped = Path(presets.__file__).parent / "models" / "llama-3.1-8b.json"
    config = json.loads(shipped.read_text()) | changes
    path = folder / "config.json"
    path.write_text(json.dumps({key: value for key, value in config.items() if value != "absent"}))
    return path


def test_a_config_file_is_read_like_a_preset(tmp_path: Path) -> None:
    path = write(tmp_path)
    for source in (path, tmp_path):
        assert load_model(source).parameters == PARAMETERS["llama-3.1-8b"]
    quantized = load_model(write(tmp_path, quantization_config={"quant_method": "awq", "bits": 4}))
    assert quantized.weight_bytes == pytest.approx(5.7e9, rel=0.05)  # Meta-Llama-3.1-8B-Instruct-AWQ-INT4: 5.7 GB
    assert "int4 (awq)" in " ".join(quantized.assumptions)
    unknown = load_model(write(tmp_path, torch_dtype="absent"))
    assert "weights are bfloat16 (torch_dtype is missing)" in unknown.assumptions
    nested = tmp_path / "nested.json"
    nested.write_text(json.dumps({"text_config": json.loads(write(tmp_path).read_text())}))
    assert load_model(nested).parameters == PARAMETERS["llama-3.1-8b"]


FAULTS: list[tuple[dict[str, Any], list[str]]] = [
    ({"hidden_size": "absent"}, ["hidden_size is missing"]),
    ({"num_hidden_layers": "absent"}, ["num_hidden_layers is missing"]),
    ({"num_attention_heads": -1}, ["num_attention_heads = -1"]),
    ({"num_hidden_layers": 0}, ["without layers"]),
    ({"vocab_size": "many"}, ["vocab_size = 'many'"]),
    ({"quantization_config": {"quant_method": "magic"}}, ["'magic'", "awq"]),
]


@pytest.mark.parametrize(("changes", "named"), FAULTS)
def test_a_bad_config_is_one_sentence(tmp_path: Path, changes: dict[str, Any], named: list[str]) -> None:
    path = write(tmp_path, **changes)
    bad_input(lambda: load_model(path), "config.json", *named)


def test_other_bad_input_is_one_sentence(tmp_path: Path) -> None:
    bad_input(lambda: load_model("llama-3.1-9b"), "llama-3.1-9b", "did you mean llama-3.1-8b")
    bad_input(lambda: load_model(tmp_path / "no.json"), "cannot be read")
    bad_input(lambda: load_gpu("h101"), "h101", "did you mean h100")
    (tmp_path / "list.json").write_text("[1]")
    bad_input(lambda: load_model(tmp_path / "list.json"), "hidden_size is missing")
    (tmp_path / "cut.json").write_text("{")
    bad_input(lambda: load_model(tmp_path / "cut.json"), "not valid JSON")
    model, gpu = load_model("llama-3.1-70b"), load_gpu("rtx-4090")
    bad_input(lambda: estimate(model, gpu), "leave no room", "rtx-4090")
    bad_input(lambda: estimate(model, gpu, tensor_parallel=7), "tensor_parallel = 7", "64")
    bad_input(lambda: estimate(model, gpu, gpu_memory_utilization=1.5), "gpu_memory_utilization = 1.5")
    bad_input(lambda: estimate(model, gpu, kv_dtype="int2"), "kv_dtype = 'int2'")
    bad_input(lambda: estimate(model, gpu, compute_efficiency=0.0), "compute_efficiency = 0")
    bad_input(lambda: estimate(model, gpu, speed=9), "speed is not an assumption")
