"""KV cache groups of presets: as vLLM groups a model's layers, with the pool that follows."""

import json
from pathlib import Path
from typing import Any

import pytest

from fastsim.analysis.recommend.flags import deployment_flags
from fastsim.cli import main
from fastsim.cli.hardware import assumed
from fastsim.config import Config, deployed, load_spec
from fastsim.config.deployment import hardware_of
from fastsim.engines import engine_of
from fastsim.errors import InputError
from fastsim.presets import estimate, load_gpu, load_model
from fastsim.presets.kv_groups import kv_groups

VLLM = {
    # model: groups in vLLM's order, bytes of a block of 16 tokens on one GPU
    "gpt-oss-20b": (("sliding:128", "full"), 393_216),
    "gpt-oss-120b": (("sliding:128", "full"), 589_824),
    "gemma-3-4b": (("sliding:1024*6", "full"), 327_680),
    "gemma-3-12b": (("sliding:1024*5", "full"), 1_048_576),
    "gemma-3-27b": (("sliding:1024*6", "full"), 1_310_720),
    "llama-4-scout": (("chunked:8192*3", "full"), 786_432),
    "qwen3-30b-a3b": (None, 1_572_864),
    "mistral-small-24b": (None, 2_621_440),
    "llama-3.1-8b": (None, 2_097_152),
}
"""vLLM 0.33.0's own grouping of these models, bfloat16 KV cache."""

BASE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
S, F = "sliding_attention", "full_attention"


def written(folder: Path, **changes: Any) -> Path:
    """A config.json: the base with changes; what is None is left out."""
    config = {key: value for key, value in (BASE | changes).items() if value is not None}
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("name", VLLM)
def test_groups_are_those_of_vllm(name: str) -> None:
    model = load_model(name)
    groups, block_bytes = VLLM[name]
    found = kv_groups(model)
    assert found.texts == groups
    assert model.kv_bytes_per_token() / model.layers * found.layers * 16 == block_bytes


def test_a_latent_cache_is_one_group_of_all_layers() -> None:
    deepseek = load_model("deepseek-v3")
    found = kv_groups(deepseek)
    assert (found.texts, found.layers) == (None, 61)
    assert deepseek.kv_bytes_per_token(8) * 64 == 4_497_408  # blocks of 64, not divided among GPUs


@pytest.mark.parametrize(
    ("kinds", "texts", "layers"),
    [
        ([S, F] * 4, ("sliding:512", "full"), 4),
        ([F, S] * 4, ("full", "sliding:512"), 4),
        ([S] * 6 + [F] * 2, ("sliding:512*3", "full"), 2),
        ([F] * 3 + [S] * 4 + [F], ("full", "sliding:512"), 4),
        ([S] * 3 + [F] * 5, ("sliding:512", "full*2"), 3),
        ([S] * 4 + [F] * 3 + [S], ("sliding:512*2", "full"), 3),
        ([S] * 8, ("sliding:512",), 8),
        ([F] * 8, None, 8),
    ],
)
def test_layers_of_a_config_json(tmp_path: Path, kinds: list[str], texts: tuple[str, ...] | None, layers: int) -> None:
    """The rarer kind's layers make a group; all of the commoner kind where that is less than half as many again."""
    model = load_model(written(tmp_path, layer_types=kinds, sliding_window=512))
    found = kv_groups(model)
    assert (found.texts, found.layers) == (texts, layers)


def test_the_upper_layers_of_qwen2_have_the_window(tmp_path: Path) -> None:
    path = written(tmp_path, sliding_window=512, use_sliding_window=True, max_window_layers=6)
    assert kv_groups(load_model(path)).texts == ("full*3", "sliding:512")
    path = written(tmp_path, sliding_window=512, use_sliding_window=False, max_window_layers=6)
    assert kv_groups(load_model(path)).texts is None


def test_the_pool_has_blocks_of_the_largest_group() -> None:
    oss, h100 = load_model("gpt-oss-20b"), load_gpu("h100")
    grouped = estimate(oss, h100)
    whole = estimate(oss, h100, disable_hybrid_kv_cache_manager=True)
    assert grouped.groups.texts == ("sliding:128", "full")
    assert whole.groups.texts is None
    assert grouped.num_gpu_blocks // 2 == whole.num_gpu_blocks
    assert grouped.settings()["engine.kv_cache_groups"] == ("sliding:128", "full")
    assert "engine.kv_cache_groups" not in whole.settings()
    assert any("393,216 bytes a block" in text for text in grouped.assumptions)
    assert any("every layer keeps the whole context" in text for text in whole.assumptions)


def test_a_longest_request_leaves_room_for_the_windows() -> None:
    scout = load_model("llama-4-scout")
    found = estimate(scout, load_gpu("h100"), tensor_parallel=8, max_num_batched_tokens=8192)
    windows = 3 * ((8192 + 8192) // 16 + 1)
    assert found.max_model_len == (found.num_gpu_blocks - 1 - windows) * 16
    assert found.max_model_len < scout.max_model_len


def told(**keys: Any) -> Config:
    """What hardware gives, in full."""
    return deployed(load_spec(None, [f"{key.replace('__', '.')}={value}" for key, value in keys.items()]).base)


def test_hardware_gives_groups_and_their_pool() -> None:
    config = told(hardware__model="gpt-oss-20b", hardware__gpu="h100")
    assert config.engine.kv_cache_groups == ("sliding:128", "full")
    whole = told(hardware__model="gpt-oss-20b", hardware__gpu="h100", engine__disable_hybrid_kv_cache_manager="true")
    assert whole.engine.num_gpu_blocks == config.engine.num_gpu_blocks // 2
    own = told(hardware__model="gpt-oss-20b", hardware__gpu="h100", engine__kv_cache_groups='["full"]')
    assert own.engine.kv_cache_groups == ("full",)
    given = told(hardware__model="gpt-oss-20b", hardware__gpu="h100", engine__num_gpu_blocks=2000)
    windows = (128 + given.engine.max_num_batched_tokens) // 16 + 1
    assert given.engine.max_model_len == (2000 - 1 - windows) * 16


def test_engines_without_groups_keep_the_whole_context() -> None:
    config = told(hardware__model="gpt-oss-20b", hardware__gpu="h100", engine__name="sglang-0.5.23")
    assert config.engine.kv_cache_groups is None
    config = told(hardware__model="gpt-oss-20b", hardware__gpu="h100", engine__name="vllm-0.16.0")
    assert config.engine.kv_cache_groups is None
    hardware = hardware_of(config.value)
    assert hardware is not None
    share = {"gpu_memory_utilization": hardware.taken.deployment["gpu_memory_utilization"]}
    limits = {name: getattr(config.engine, name) for name in ("max_num_seqs", "max_num_batched_tokens")}
    whole = {"disable_hybrid_kv_cache_manager": True}
    found = estimate(load_model("gpt-oss-20b"), load_gpu("h100"), **whole, **share, **limits)
    assert config.engine.num_gpu_blocks == found.num_gpu_blocks


def test_without_the_hybrid_manager_a_flag_says_so() -> None:
    assert "--disable-hybrid-kv-cache-manager" in deployment_flags(
        {"disable_hybrid_kv_cache_manager": True}, "vllm-0.33.0"
    )
    assert assumed(["disable_hybrid_kv_cache_manager=true"]) == {"engine.disable_hybrid_kv_cache_manager": True}


def test_run_and_check_say_what_a_request_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(
        "engine.num_gpu_blocks = 1000\nengine.max_model_len = 1000\n"
        "engine.kv_cache_groups = ['sliding:128*2', 'full']\nworkload.num_requests = 3\n"
        "[workload.prompt]\ndist = 'constant'\nmean = 200\n[workload.output]\ndist = 'constant'\nmean = 20\n"
    )
    # 1,000 tokens: 63 blocks, of which a window of 128 has left (1,000 - 127) // 16 = 54
    wanted = (
        "3 KV cache groups: a request of max_model_len 1,000 tokens holds sliding:128 9 blocks in each of 2, full 63 "
        "blocks while it decodes, 81 in all of 999"
    )
    for verb in (["run"], ["check", "--no-cost"]):
        with pytest.raises(SystemExit) as ended:
            main([*verb, str(spec)])
        assert ended.value.code == 0
        assert wanted in " ".join(capsys.readouterr().out.split())


def test_blocks_held_by_kind() -> None:
    keys = {
        "engine.kv_cache_groups": ("full", "sliding:100", "chunked:256", "mamba/64", "full/32"),
        "engine.disable_hybrid_kv_cache_manager": False,
        "engine.block_size": 16,
    }
    held = engine_of("vllm-0.33.0").groups_held(keys.__getitem__, 600)
    # full: 38 blocks; window: (600 - 99) // 16 = 31 left; chunk: 512 tokens, 32 blocks left; a state; 19 of 32
    assert held == [("full", 38), ("sliding:100", 7), ("chunked:256", 6), ("mamba", 1), ("full", 19)]
    assert engine_of("vllm-0.33.0").groups_held((keys | {"engine.kv_cache_groups": None}).__getitem__, 600) == []


# --- A config.json that is not known ----------------------------------------------------------------------------------


def said(path: Path) -> str:
    return " | ".join(load_model(path).assumptions)


def test_what_is_not_understood_is_said(tmp_path: Path) -> None:
    assert said(written(tmp_path)) == ""
    odd = written(tmp_path, architectures=["NewForCausalLM"], vision_config={"hidden_size": 3}, index_topk=2048)
    assert "NewForCausalLM is not known: taken for a decoder" in said(odd)
    assert "not counted: vision_config (a vision tower); index_topk (sparse attention)" in said(odd)
    mixed = written(tmp_path, layer_types=["linear_attention", F] * 4)
    assert "not understood: 4 layers of linear_attention; all are counted as full attention" in said(mixed)
    bare = written(tmp_path, intermediate_size=None, max_position_embeddings=None, architectures=None)
    assert "intermediate_size is missing: 4 times hidden_size" in said(bare)
    assert "max_position_embeddings is missing: 8,192" in said(bare)
    assert "architectures is missing" in said(bare)
    assert load_model(bare).intermediate == 1024


def test_other_names_of_the_same_numbers(tmp_path: Path) -> None:
    names = {"num_layers": 8, "num_hidden_layers": None, "ffn_hidden_size": 512, "intermediate_size": None}
    names |= {"padded_vocab_size": 1000, "vocab_size": None, "seq_length": 4096, "max_position_embeddings": None}
    assert load_model(written(tmp_path, **names)).parameters == load_model(written(tmp_path)).parameters


def test_an_unknown_model_serves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, architectures=["NewForCausalLM"], layer_types=[S, F] * 4, sliding_window=64)
    found = estimate(load_model(path), load_gpu("l4"))
    assert found.step_times is not None
    assert found.step_times.source == "analytic"
    assert found.step_times.values["window_tokens"] == 64
    assert found.step_times.values["b6_us_per_window_token"] == pytest.approx(
        found.step_times.values["b3_us_per_context_token"]
    )
    with pytest.raises(SystemExit) as ended:
        main(
            ["run", "--model", str(path), "--gpu", "l4", "--set", "workload.num_requests=3", "--set", "workload.seed=1"]
        )
    assert ended.value.code == 0
    out, err = capsys.readouterr()
    assert "NewForCausalLM is not known" in " ".join(err.split())
    assert "sliding:64" in out
    with pytest.raises(InputError, match="hidden_size is missing"):
        load_model(written(tmp_path, hidden_size=None))


# --- Recommendations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "gpu", "error"),
    [
        ("gpt-oss-120b", "2xh100", "expect TPOT and throughput to about 5 %"),
        ("qwen3-30b-a3b", "h200", "expect TPOT to about 30 %"),
        ("deepseek-v3", "8xh200", "expect TPOT to about 30 %"),
    ],
)
def test_models_of_today_are_recommended_for(
    model: str, gpu: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ["--rate", "2", "--seeds", "2", "--workers", "1", "--set", "workload.num_requests=60"]
    load += ["--set", "workload.output.dist=constant", "--set", "workload.output.mean=300"]
    with pytest.raises(SystemExit) as ended:
        main(["recommend", "--model", model, "--gpu", gpu, "--ttft-ms", "2000", "--tpot-ms", "80", *load])
    out = " ".join(capsys.readouterr().out.split())
    assert ended.value.code in (0, 1)
    assert "vllm serve MODEL" in out
    assert "come from a shipped table of measured kernels" in out
    assert error in out
