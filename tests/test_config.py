"""Specs: layers, types, defaults that depend on other keys."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastsim.config import (
    KEYS,
    RULES,
    Config,
    EngineConfig,
    LengthConfig,
    check_rules,
    load_config,
    load_spec,
    resolved,
    spec_from_mapping,
    with_values,
)
from fastsim.config.rules import EFFECTS

from .sentences import bad_input, one_line_or_none

BLOCKS = "engine.num_gpu_blocks=7463"


def load_mapping(table: dict[str, Any]) -> Config:
    return spec_from_mapping(table).config()


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_defaults_are_vllms() -> None:
    engine = resolved(load_config(None, [BLOCKS])).engine
    assert engine.name == "vllm-0.33.0"
    assert (engine.max_num_seqs, engine.max_num_batched_tokens, engine.max_model_len) == (256, 2048, 8192)
    assert (engine.block_size, engine.watermark, engine.long_prefill_token_threshold) == (16, 0.0, 0)
    assert engine.enable_chunked_prefill
    assert engine.enable_prefix_caching
    assert engine.scheduler_reserve_full_isl is True
    assert (engine.policy, engine.queue_order, engine.victim) == ("fcfs", "fcfs", "tail")
    assert engine.usable_blocks == 7462


@pytest.mark.parametrize(
    ("sets", "key", "expected"),
    [
        (["engine.name=vllm-0.16.0"], "engine.scheduler_reserve_full_isl", False),
        (["engine.name=vllm-0.33.0"], "engine.scheduler_reserve_full_isl", True),
        (["engine.scheduler_reserve_full_isl=false"], "engine.scheduler_reserve_full_isl", False),
        (["engine.policy=priority"], "engine.queue_order", "priority"),
        (["engine.policy=priority"], "engine.victim", "priority"),
        (["engine.policy=priority", "engine.victim=tail"], "engine.victim", "tail"),
        ([], "workload.arrival.kind", "poisson"),
        (["workload.concurrency=8"], "workload.arrival.kind", "closed_loop"),
        (["workload.trace=some.csv"], "workload.arrival.kind", "trace"),
        (["workload.trace=some.csv", "workload.concurrency=8"], "workload.arrival.kind", "closed_loop"),
        (["workload.trace=some.csv"], "workload.prompt.dist", "trace"),
        (["workload.trace=some.csv"], "workload.prompt.mean", None),
        (["workload.trace=some.csv"], "workload.num_requests", None),
        ([], "workload.num_requests", 300),
        ([], "workload.output.max", 3596),
        (["workload.output.dist=constant", "workload.output.mean=9"], "workload.output.max", None),
    ],
)  # fmt: skip
def test_defaults_that_depend_on_other_keys(sets: list[str], key: str, expected: object) -> None:
    config = load_config(None, [BLOCKS, *sets])
    assert resolved(config).value(key) == expected
    assert resolved(resolved(config)) == resolved(config)


def test_every_key_has_a_summary_a_description_and_a_valid_default() -> None:
    for name, key in KEYS.items():
        assert Config().value(name) == key.default
        assert key.validate(key.default, "test") == key.default
        assert key.summary.endswith("."), name
        assert "typing" not in key.describe(), name


def test_rules_and_effects_name_real_keys() -> None:
    for rule in RULES:
        assert set(rule.keys) <= set(KEYS)
    for effect in EFFECTS:
        assert set(effect.keys) | set(effect.needs) <= set(KEYS)


def test_nested_tables_and_dotted_keys_mean_the_same() -> None:
    nested = spec_from_mapping({"engine": {"num_gpu_blocks": 100, "watermark": 0.05}}).config()
    dotted = spec_from_mapping({"engine.num_gpu_blocks": 100, "engine.watermark": 0.05}).config()
    assert nested == dotted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("engine.max_num_seqs=32", 32),
        ("engine.max_num_seqs = 32 ", 32),
        ("engine.max_num_seqs=32.0", 32),
        ("run.max_steps=1e8", 10**8),
        ("engine.watermark=0", 0.0),
        ("engine.policy=priority", "priority"),
        ('engine.policy="priority"', "priority"),
        ("engine.enable_prefix_caching=false", False),
        ("engine.max_num_active_seqs=none", None),
        ("run.horizon_s=120", 120.0),
        ("workload.priority.values=[0, -3]", (0, -3)),
        ("slo.ttft_ms=2000", 2000.0),
        ("workload.trace=/a b/2024.5.csv", "/a b/2024.5.csv"),
        ("workload.trace=/7", "/7"),
    ],
)
def test_set_values_are_toml_or_bare_text(text: str, expected: object) -> None:
    value = load_config(None, [BLOCKS, text]).value(text.partition("=")[0].strip())
    assert value == expected
    assert type(value) is type(expected)


def test_later_layers_win(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    write(tmp_path, "base/base.toml", "engine.num_gpu_blocks = 10\nengine.block_size = 8\nengine.watermark = 0.1\n")
    child = write(tmp_path, "child.toml", 'extends = "base/base.toml"\n[engine]\nblock_size = 32\nwatermark = 0.2\n')
    engine = load_config(child, ["engine.watermark=0.3"]).engine
    assert (engine.num_gpu_blocks, engine.block_size, engine.watermark) == (10, 32, 0.3)


def test_a_trace_is_relative_to_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    write(tmp_path, "base/base.toml", 'engine.num_gpu_blocks = 10\nworkload.trace = "t.csv"\n')
    child = write(tmp_path, "child.toml", 'extends = "base/base.toml"\n')
    assert load_config(child).workload.trace == str(tmp_path / "base" / "t.csv")


def test_an_extends_loop_ends_in_a_sentence(tmp_path: Path) -> None:
    one = write(tmp_path, "one.toml", 'extends = "two.toml"\n')
    write(tmp_path, "two.toml", 'extends = "one.toml"\n')
    bad_input(lambda: load_spec(one), "one.toml", "extends itself", "two.toml")


def test_a_fault_names_the_file_it_is_in(tmp_path: Path) -> None:
    write(tmp_path, "base.toml", "engine.block_size = 0\n")
    child = write(tmp_path, "child.toml", 'extends = "base.toml"\n')
    bad_input(lambda: load_spec(child), "base.toml", "engine.block_size = 0", "from 1")


def test_models_raise_the_same_sentence_when_built_in_python() -> None:
    bad_input(lambda: EngineConfig(max_num_seqs=0), "max_num_seqs = 0", "from 1 to 2147483647")
    bad_input(lambda: EngineConfig(max_num_seq=1), "max_num_seq is not a key")  # type: ignore[call-arg]
    bad_input(lambda: LengthConfig(dist="gauss"), 'dist = "gauss"', '"lognormal"')  # type: ignore[arg-type]
    with pytest.raises(Exception, match="frozen"):
        EngineConfig().max_num_seqs = 3  # type: ignore[misc]


def test_configurations_are_values() -> None:
    one = load_config(None, [BLOCKS])
    other = load_config(None, [BLOCKS, "engine.max_num_seqs=256"])
    assert one == other
    assert hash(one) == hash(other)
    changed = with_values(one, {"engine.max_num_seqs": 7, "workload.arrival.rate_per_s": 2.0})
    assert changed.engine.max_num_seqs == 7
    assert changed.workload.arrival.rate_per_s == 2.0
    assert changed.latency == one.latency
    assert one.engine.max_num_seqs == 256


def test_times_become_integer_microseconds() -> None:
    assert load_config(None, [BLOCKS, "run.horizon_s=0.3"]).run.horizon_us == 300_000
    assert load_config(None, [BLOCKS]).run.horizon_us is None


def test_the_defaults_keep_every_rule() -> None:
    check_rules(load_config(None, [BLOCKS]))
    for rule in RULES:
        assert rule.check(*(load_config(None, [BLOCKS]).value(key) for key in rule.keys)), rule


@given(st.text(max_size=60))
def test_no_setting_ends_in_a_traceback(text: str) -> None:
    for candidate in (text, f"engine.watermark={text}", f"workload.prompt.values={text}", f"workload.trace={text}"):
        one_line_or_none(load_config, None, [BLOCKS, candidate])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["engine", "prompt", "max_num_seqs", "sweep", "x"]), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_no_mapping_ends_in_a_traceback(value: object) -> None:
    for table in ({"engine": value}, {"workload": {"prompt": value}}, {"sweep": value}, {"engine.max_num_seqs": value}):
        one_line_or_none(load_mapping, table)
