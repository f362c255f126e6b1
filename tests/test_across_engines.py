"""One spec under several engines, and several specs, on the same requests: sweeps, `compare`, `recommend --engines`."""

import json
from pathlib import Path

import numpy as np
import pytest

from fastsim.analysis.compare.specs import grid_of_engines, grid_of_specs, grid_of_sweep, labels
from fastsim.analysis.recommend.engines import recommend_engines
from fastsim.analysis.recommend.recommend import recommend
from fastsim.config import load_config, load_spec
from fastsim.config.across import across
from fastsim.engines import engines, full_names
from fastsim.errors import InputError
from fastsim.sweeps.grid import Grid
from tests.processes import run

VLLM, SGLANG = "vllm-0.33.0", "sglang-0.5.23"
SMALL = """
engine.num_gpu_blocks = 700
engine.enable_prefix_caching = false
engine.watermark = 0.02
workload.num_requests = 16
run.horizon_s = 60
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def test_each_engine_says_a_knob_in_its_own_words() -> None:
    base = load_config(None, ["engine.num_gpu_blocks=700", "engine.enable_prefix_caching=false"])
    put = across(base, [VLLM, SGLANG])
    assert put.of(0)["engine.enable_prefix_caching"] is False
    assert put.of(1) == {
        "engine.name": SGLANG,
        "engine.enable_prefix_caching": True,
        "engine.sglang.disable_radix_cache": True,
    }
    assert put.notes == []
    assert "engine.enable_prefix_caching" not in across(base, [VLLM, SGLANG], ["engine.enable_prefix_caching"]).settings


def test_what_an_engine_lacks_is_named() -> None:
    put = across(load_config(None, ["engine.num_gpu_blocks=700", "engine.watermark=0.02"]), [VLLM, SGLANG])
    assert put.of(1)["engine.watermark"] == 0
    assert put.notes == [
        f"engine.watermark = 0.02 is not read under {SGLANG}, whose own is engine.sglang.schedule_conservativeness"
    ]


def test_step_times_are_those_that_all_have() -> None:
    preset = ["engine.num_gpu_blocks=700", "latency.preset=llama-3.1-8b@h100"]
    put = across(load_config(None, preset), [VLLM, SGLANG])
    assert [put.of(place)["latency.source"] for place in (0, 1)] == ["linear", "linear"]
    assert [put.of(place)["latency.b3_us_per_context_token"] for place in (0, 1)] == [0, 0]
    assert len(put.notes) == 2
    grid = Grid.from_mapping(
        {"engine": {"num_gpu_blocks": 700, "name": VLLM}}, preset, [f"engine.name={VLLM},{SGLANG}"]
    )
    times = [grid.config(k).latency for k in range(2)]
    assert times[0] == times[1]


def test_every_word_of_an_engine_is_a_key_of_its_own() -> None:
    for engine in engines():
        for knob, words in engine.says.items():
            assert engine.reads is not None
            assert knob not in engine.reads
            for value, (key, _) in words.items():
                assert key in engine.keys
                settings = across(load_spec(None, [f"engine.{knob}={str(value).lower()}"]).base, [engine.title]).of(0)
                assert settings[key] == words[value][1]


def test_an_axis_over_engines_is_written_down_as_one(spec: Path) -> None:
    grid = grid_of_engines(spec, [], [VLLM, SGLANG], 3)
    assert grid.size == 6
    assert any("engine.watermark = 0.02 is not read" in note for note in grid.warnings)
    again = spec.parent / "again.toml"
    again.write_text(grid.to_toml())
    assert "choice" not in grid.to_toml()
    assert Grid.from_toml(again).spec_hash == grid.spec_hash
    assert [Grid.from_toml(again).config(k) for k in range(6)] == [grid.config(k) for k in range(6)]


def test_specs_become_a_choice(tmp_path: Path) -> None:
    a, b = tmp_path / "a.toml", tmp_path / "b.toml"
    a.write_text(SMALL + "[sweep]\nseeds = 2\n[sweep.axes]\nengine.max_num_seqs = [8, 16]\n")
    b.write_text(
        f'engine.name = "{SGLANG}"\n{SMALL}'.replace(
            "engine.enable_prefix_caching = false\nengine.watermark = 0.02", ""
        )
    )
    grid, notes = grid_of_specs([a, b], [], None)
    assert (grid.size, notes) == (8, [])
    found = {}
    for k in range(grid.size):
        found.setdefault(grid.values(k)["choice.spec"], grid.config(k))
    for label, path in (("a", a), ("b", b)):
        own = load_spec(path).base
        expected = own.model_copy(update={"engine": own.engine.model_copy(update={"max_num_seqs": 8})})
        assert found[label] == expected
    b.write_text(b.read_text() + "workload.arrival.rate_per_s = 3\nlatency.b0_us = 6000\n")
    assert len(grid_of_specs([a, b], [], 4)[1]) == 2
    assert labels([a, b]) == ["a", "b"]
    assert labels([a, tmp_path / "x" / "a.toml"]) == [str(a), str(tmp_path / "x" / "a.toml")]


def test_specs_that_do_not_go_together(tmp_path: Path) -> None:
    a, b = tmp_path / "a.toml", tmp_path / "b.toml"
    a.write_text(SMALL)
    b.write_text(SMALL)
    with pytest.raises(InputError, match="say the same"):
        grid_of_specs([a, b], [], None)
    with pytest.raises(InputError, match="named twice"):
        grid_of_specs([a, a], [], None)
    a.write_text(SMALL + "[sweep.axes]\nengine.max_num_seqs = [8, 16]\n")
    b.write_text(SMALL + "engine.max_num_active_seqs = 4\n[sweep.axes]\nengine.max_num_seqs = [8, 32]\n")
    with pytest.raises(InputError, match="sweep different things"):
        grid_of_specs([a, b], [], None)
    b.write_text(SMALL + "workload.classes.chat.share = 1\n")
    with pytest.raises(InputError, match=r"workload\.classes differ"):
        grid_of_specs([a, b], [], None)


def test_seeds_are_the_specs_or_ten(spec: Path) -> None:
    assert grid_of_sweep(spec, [], None).size == 10
    spec.write_text(SMALL + "[sweep]\nseeds = 3\n")
    assert grid_of_sweep(spec, [], None).size == 3
    assert grid_of_sweep(spec, [], 5).size == 5


@pytest.mark.parametrize(
    ("text", "words"),
    [("vllm", "at least two"), ("vllm,vllm-0.33.0", "each named once"), ("vllm,sglanf", "did you mean")],
)
def test_engines_that_are_not(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        full_names(text)


def test_compare_runs_a_spec_under_engines(spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "kept"
    asked = ["compare", spec, "--engines", "vllm,sglang", "--seeds", "3", "--workers", "1", "--out", out]
    code, text, err = run(capsys, *asked, "--metric", "steps", "--json")
    assert code == 0
    (row,) = json.loads(text)
    assert (row["baseline"], row["level"], row["seeds"]) == (VLLM, SGLANG, 3)
    assert "not read under" in " ".join(err.split())
    _, text, _ = run(capsys, "compare", out, "--by", "engine.name", "--metric", "steps", "--json")
    assert json.loads(text) == [row]


def test_compare_says_what_it_cannot_do(spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.toml"
    other.write_text(SMALL + "engine.max_num_seqs = 8\n")
    for arguments, words in (
        ([spec], "one --by AXIS was expected"),
        ([spec, other, "--engines", "vllm,sglang"], "one spec was expected"),
        ([tmp_path, "--engines", "vllm,sglang", "--by", "engine.name"], "a spec was expected with it"),
        ([spec, "--by", "engine.name", "--seeds", "0"], "at least 1"),
    ):
        code, text, err = run(capsys, "compare", *arguments)
        assert (code, text) == (2, "")
        assert words in err


def test_which_engine(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = ["slo.ttft_ms=20000", "workload.num_requests=20"]
    axes = ["engine.max_num_seqs=4,16", "engine.max_num_batched_tokens=2048"]
    found = recommend_engines(spec, [VLLM, SGLANG], sets, axes=axes, seeds=3, workers=1)
    assert {each.best.config.engine.name for each in found.ranked} == {VLLM, SGLANG}
    assert [each.best.config.engine.name for each in found.ranked] == list(found.names)
    goodputs = [each.best.outlook.goodput for each in found.ranked]
    (gain,) = found.gains()
    assert gain.mean == pytest.approx((goodputs[0] - goodputs[1]).mean() / goodputs[1].mean(), nan_ok=True)
    alone = recommend(spec, sets, axes, seeds=3, workers=1)
    mine = found.ranked[found.names.index(VLLM)]
    assert np.array_equal(alone.best.outlook.goodput, mine.best.outlook.goodput)
    arguments = ["recommend", spec, "--engines", "vllm,sglang", "--seeds", "3", "--workers", "1"]
    for option, values in (("--set", sets), ("--axis", axes)):
        arguments += [text for value in values for text in (option, value)]
    _, text, _ = run(capsys, *arguments)
    assert text.startswith(f"Answer: {found.names[0]}")
    assert "vllm serve MODEL" in text
    assert "python -m sglang.launch_server" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    _, text, _ = run(capsys, *arguments, "--json")
    shown = json.loads(text)
    assert shown["engine"] == found.names[0]
    assert set(shown["engines"]) == {VLLM, SGLANG}
    assert run(capsys, *arguments, "--engine", "vllm")[0] == 2
