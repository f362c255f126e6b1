"""Which engine stands for which vLLM."""

import json

import pytest

from fastsim.cli import main, options
from fastsim.config import load_config, resolved
from fastsim.engines.vllm.versions import VLLM_RELEASES, version_settings, vllm_release

from .sentences import bad_input


@pytest.mark.parametrize(
    ("version", "engine", "gate"),
    [
        ("0.8.5", "vllm-0.16.0", False),
        ("v0.13.0", "vllm-0.16.0", False),
        ("0.14", "vllm-0.33.0-async", False),
        ("0.16.0", "vllm-0.33.0-async", False),
        ("0.19.0", "vllm-0.33.0-async", True),
        ("0.19.1rc1.dev296+gbcc2306ce", "vllm-0.33.0-async", True),
        ("0.33.0", "vllm-0.33.0-async", True),
        ("1.0", "vllm-0.33.0-async", True),
    ],
)
def test_engine_and_gate(version: str, engine: str, gate: bool) -> None:
    assert vllm_release(version).engine == engine
    config = load_config(None, options.with_version(["engine.num_gpu_blocks=100"], version))
    assert resolved(config).engine.name == engine
    assert resolved(config).engine.scheduler_reserve_full_isl is gate


def test_the_table_is_in_order_and_its_settings_are_valid() -> None:
    since = [release.since for release in VLLM_RELEASES]
    assert since == sorted(set(since))
    for release in VLLM_RELEASES:
        version = ".".join(map(str, release.since))
        assert version_settings(version) == {"engine.name": release.engine, **release.settings}
        load_config(None, options.with_version(["engine.num_gpu_blocks=9"], version))


def test_what_set_says_wins() -> None:
    sets = options.with_version(["engine.name=vllm-0.33.0", "engine.num_gpu_blocks=9"], "0.16.0")
    version = 'hardware.vllm_version="0.16.0"'
    given = ["engine.name=vllm-0.33.0", "engine.num_gpu_blocks=9"]
    assert sets == [version, "engine.scheduler_reserve_full_isl=false", *given]
    assert options.with_version(["a=1"], None) == ["a=1"]


@pytest.mark.parametrize("version", ["", "latest", "0", "0.x", "-1.2", "0.33.0 beta"])
def test_no_version(version: str) -> None:
    bad_input(lambda: vllm_release(version), repr(version), "0.33.0")


def test_before_v1() -> None:
    bad_input(lambda: vllm_release("0.7.3"), "0.7.3", "V0", "0.8.0")


def test_run_by_version(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--set", "engine.num_gpu_blocks=500", "--set", "workload.num_requests=5", "--json"]
    found = {}
    for name, chosen in {
        "version": ["--vllm-version", "0.33.0"],
        "name": ["--set", "engine.name=vllm-0.33.0-async"],
        "plain": [],
    }.items():
        with pytest.raises(SystemExit) as ended:
            main(["run", *small, *chosen])
        assert ended.value.code == 0
        found[name] = json.loads(capsys.readouterr().out)
        del found[name]["kernel_ms"]
    assert found["version"] == found["name"]
    assert found["version"]["ttft_p50_ms"] > found["plain"]["ttft_p50_ms"]
