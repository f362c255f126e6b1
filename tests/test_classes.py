"""Classes of requests mixed in one spec: rates by share, draws of their own, everything a class can say."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastsim.cli import main
from fastsim.config import ClassConfig, Config, WorkloadConfig, load_config, load_spec, spec_from_mapping
from fastsim.simulation import simulate
from fastsim.sweeps.grid import Grid
from fastsim.workload import Workload, build_workload

from .sentences import bad_input

AZURE = Path(__file__).parent / "data" / "azure2023_conv_first2000.csv"
SHORT = {"dist": "constant", "mean": 100.0}
LONG = {"dist": "constant", "mean": 3000.0}
TWO = {"chat": {"share": 3.0, "prompt": SHORT}, "code": {"prompt": LONG}}


def mixed(classes: dict[str, Any], **keys: Any) -> Workload:
    values = {"num_requests": 4000, "output": {"dist": "constant", "mean": 10.0}} | keys
    return build_workload(WorkloadConfig.model_validate(values | {"classes": classes}))


def of_class(workload: Workload, name: str) -> np.ndarray[Any, Any]:
    assert workload.request_class is not None
    return workload.request_class == workload.class_names.index(name)


def test_shares_divide_the_rate_and_lengths_are_the_classs() -> None:
    found = mixed(TWO, arrival={"rate_per_s": 20.0})
    chat, code = of_class(found, "chat"), of_class(found, "code")
    assert found.num_requests == 4000
    assert (np.diff(found.arrival_us) >= 0).all()
    assert chat.mean() == pytest.approx(0.75, abs=0.02)
    assert set(found.prompt_tokens[chat].tolist()) == {100}
    assert set(found.prompt_tokens[code].tolist()) == {3000}
    assert found.arrival_us[-1] / 1e6 == pytest.approx(200, rel=0.05)
    for one, rate in ((chat, 15.0), (code, 5.0)):
        gaps_s = np.diff(found.arrival_us[one]) / 1e6
        assert gaps_s.mean() == pytest.approx(1 / rate, rel=0.06)
        assert gaps_s.std() / gaps_s.mean() == pytest.approx(1.0, abs=0.06)  # each is a Poisson process


def test_a_class_has_rate_burstiness_priority_prefix_and_limits_of_its_own() -> None:
    found = mixed(
        {
            "chat": {"prompt": SHORT, "prefix": {"groups": 3, "tokens": 50}, "priority": {"values": [2]}},
            "bursty": {
                "arrival": {"kind": "gamma", "cv": 4.0, "rate_per_s": 6.0},
                "prompt": LONG,
                "output": {"dist": "constant", "mean": 7.0},
                "max_tokens": {"dist": "factor", "factor": 2.0},
            },
        },
        arrival={"rate_per_s": 4.0},
    )
    chat, bursty = of_class(found, "chat"), of_class(found, "bursty")
    assert bursty.mean() == pytest.approx(0.6, abs=0.06)
    gaps = np.diff(found.arrival_us[bursty])
    assert gaps.std() / gaps.mean() == pytest.approx(4.0, abs=0.6)
    assert set(found.priority[chat].tolist()) == {2}
    assert set(found.priority[bursty].tolist()) == {0}
    assert set(found.prefix_group[chat].tolist()) == {0, 1, 2}
    assert set(found.prefix_group[bursty].tolist()) == {-1}
    assert set(found.output_tokens[bursty].tolist()) == {7}
    assert set(found.max_tokens[bursty].tolist()) == {14}
    assert not found.max_tokens[chat].any()


def test_diurnal_surges_spikes_sessions_and_traces_in_one_spec() -> None:
    found = mixed(
        {
            "day": {
                "arrival": {"kind": "poisson", "rate_per_s": 5.0, "diurnal_amplitude": 0.9, "diurnal_period_s": 400.0}
            },
            "surge": {
                "arrival": {"kind": "poisson", "rate_per_s": 1.0, "surge_factor": 20.0, "surge_start_s": 100.0},
                "prompt": SHORT,
            },
            "cron": {"arrival": {"kind": "spikes", "spike_requests": 30, "spike_interval_s": 60.0}, "prompt": LONG},
            "once": {"arrival": {"kind": "all_at_once"}, "num_requests": 17, "start_s": 33.0, "prompt": LONG},
            "agents": {"share": 1.0, "sessions": {"turns": 4, "gap_s": 2.0}, "prompt": SHORT},
            "azure": {"trace": str(AZURE), "rate_scale": 2.0, "window_end_s": 100.0},
        },
        arrival={"rate_per_s": 2.0},
        prompt={"dist": "constant", "mean": 55.0},
        num_requests=6000,
    )
    times_s = {name: found.arrival_us[of_class(found, name)] / 1e6 for name in found.class_names}

    def rate(name: str, start: float, stop: float) -> float:
        return float(((times_s[name] >= start) & (times_s[name] < stop)).sum()) / (stop - start)

    assert rate("day", 60, 140) > 3 * rate("day", 260, 340)
    assert set(found.prompt_tokens[of_class(found, "day")].tolist()) == {55}, (
        "the workload's own, where a class is mute"
    )
    assert rate("surge", 100, 130) > 10 * rate("surge", 0, 100)
    assert [rate("cron", at, at + 1) for at in (0, 60, 120, 180)] == [30.0] * 4
    assert times_s["once"].tolist() == [33.0] * 17
    agents = of_class(found, "agents")
    assert (found.prefix_group[agents] >= 0).mean() > 0.9
    assert rate("agents", 20, 300) == pytest.approx(2.0, rel=0.25)
    plain = build_workload(WorkloadConfig(trace=str(AZURE), rate_scale=2.0, window_end_s=100.0))
    azure = of_class(found, "azure")
    assert found.arrival_us[azure].tolist() == plain.arrival_us.tolist()
    assert found.prompt_tokens[azure].tolist() == plain.prompt_tokens.tolist()


def test_another_class_or_share_changes_no_draws() -> None:
    base = mixed(TWO, num_requests=500)
    more = mixed(TWO | {"other": {"share": 5.0}}, num_requests=3000)
    half = mixed(TWO | {"chat": {"share": 1.5, "prompt": {"dist": "normal", "mean": 500.0, "stdev": 100.0}}})
    again = mixed(TWO | {"chat": {"share": 9.0, "prompt": {"dist": "normal", "mean": 500.0, "stdev": 100.0}}})
    gaps = [np.diff(each.arrival_us[of_class(each, "code")][:50]) for each in (base, more)]
    assert np.abs(gaps[0] * 9 / 4 - gaps[1]).max() <= 3  # 1 of 4 shares, or of 9
    lengths = [each.prompt_tokens[of_class(each, "chat")][:500].tolist() for each in (half, again)]
    assert lengths[0] == lengths[1]


def test_a_single_class_is_that_workload_with_its_own_seed() -> None:
    from fastsim.workload.classes import class_seed

    one = mixed({"chat": {"prompt": SHORT}}, num_requests=50, seed=3)
    same = build_workload(
        WorkloadConfig.model_validate(
            {
                "num_requests": 50,
                "seed": class_seed(3, "chat"),
                "prompt": SHORT,
                "output": {"dist": "constant", "mean": 10.0},
            }
        )
    )
    assert one.workload_id == same.workload_id
    assert mixed({"chat": {"prompt": SHORT}}, num_requests=50, seed=4).workload_id != one.workload_id


def test_without_a_count_finite_classes_end_by_themselves() -> None:
    classes = {"a": {"trace": str(AZURE), "window_end_s": 50.0}, "b": {"num_requests": 20, "prompt": SHORT}}
    whole = build_workload(WorkloadConfig.model_validate({"classes": classes}))
    assert of_class(whole, "b").sum() == 20
    assert of_class(whole, "a").sum() == build_workload(WorkloadConfig(trace=str(AZURE), window_end_s=50)).num_requests
    assert build_workload(WorkloadConfig.model_validate({"classes": {"b": {"prompt": SHORT}}})).num_requests == 300


# --- specs and sweeps -----------------------------------------------------------------------------

SPEC = """
engine.num_gpu_blocks = 2000
workload.num_requests = 60
workload.output = { dist = "constant", mean = 20 }
[workload.classes.chat]
share = 3
prompt = { dist = "constant", mean = 100 }
[workload.classes.code]
prompt = { dist = "constant", mean = 900 }
priority.values = [1]
"""


def test_keys_of_classes_are_dotted_names_everywhere(tmp_path: Path) -> None:
    (tmp_path / "mix.toml").write_text(SPEC)
    config = load_config(tmp_path / "mix.toml", ["workload.classes.code.share=2", "workload.classes.new.start_s=1"])
    assert config.workload.classes.names == ("chat", "code", "new")
    assert config.value("workload.classes.code.share") == 2.0
    assert config.value("workload.classes.chat.prompt.mean") == 100.0
    assert config.workload.classes.part("new") == ClassConfig(start_s=1.0)
    dotted = {"engine.num_gpu_blocks": 9, "workload.classes.chat.share": 3}
    assert spec_from_mapping(dotted).config().value("workload.classes.chat.share") == 3.0
    assert hash(config) == hash(
        load_spec(tmp_path / "mix.toml", [f"workload.classes.{s}" for s in ("code.share=2", "new.start_s=1")]).config()
    )
    assert load_config(tmp_path / "mix.toml").workload != config.workload
    (tmp_path / "t.toml").write_text('workload.classes.t.trace = "x.csv"\nengine.num_gpu_blocks = 9\n')
    assert load_config(tmp_path / "t.toml").value("workload.classes.t.trace") == str(tmp_path / "x.csv")


def test_class_keys_are_axes() -> None:
    table = {
        "engine": {"num_gpu_blocks": 2000},
        "workload": {"num_requests": 60, "classes": {"chat": {"share": 3.0, "prompt": SHORT}, "code": {}}},
        "sweep": {"axes": {"workload.classes.chat.share": [1, 3], "engine.max_num_seqs": [1, 9]}},
    }
    table["workload"]["classes"]["code"] = {"prompt": LONG}
    grid = Grid.from_mapping(table)
    assert [axis.name for axis in grid.axes] == ["workload.classes.chat.share", "engine.max_num_seqs"]
    assert grid.num_workloads == 2
    assert grid.values(2)["workload.classes.chat.share"] == 3.0
    assert grid.take("workload.classes.chat.share", np.arange(4)).tolist() == [1.0, 1.0, 3.0, 3.0]
    assert grid.config(3).value("workload.classes.chat.share") == 3.0
    shares = [of_class(build_workload(grid.workload_config(w)), "chat").mean() for w in (0, 1)]
    assert shares[0] < shares[1]
    hashes = {grid.spec_hash}
    for change in (
        {"chat": {"share": 2.0, "prompt": SHORT}, "code": {"prompt": LONG}},
        {"chat": {"share": 3.0, "prompt": SHORT}},
        {"chat": {"share": 3.0, "prompt": SHORT}, "code": {"prompt": LONG}, "more": {"share": 1.0}},
    ):
        other = table | {
            "workload": {"num_requests": 60, "classes": change},
            "sweep": {"axes": {"engine.max_num_seqs": [1]}},
        }
        hashes.add(Grid.from_mapping(other).spec_hash)
    assert len(hashes) == 4


def test_a_swept_spec_is_written_and_read_back(tmp_path: Path) -> None:
    (tmp_path / "mix.toml").write_text(SPEC + "[sweep.axes]\nworkload.classes.code.share = [1, 2]\n")
    grid = Grid.from_toml(tmp_path / "mix.toml")
    (tmp_path / "again.toml").write_text(grid.to_toml())
    again = Grid.from_toml(tmp_path / "again.toml")
    assert again.spec_hash == grid.spec_hash
    assert [again.config(index) for index in range(2)] == [grid.config(index) for index in range(2)]


def test_a_run_says_what_each_class_got(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import polars as pl

    (tmp_path / "mix.toml").write_text(SPEC)
    out = tmp_path / "requests.parquet"
    with pytest.raises(SystemExit) as ended:
        main(["run", str(tmp_path / "mix.toml"), "--requests", str(out), "--json"])
    assert ended.value.code == 0
    row = json.loads(capsys.readouterr().out)
    frame = pl.read_parquet(out)
    assert frame["class"].value_counts().sort("class")["count"].sum() == row["completed"] == 60
    assert frame.filter(pl.col("class") == "code")["prompt_tokens"].unique().to_list() == [900]
    with pytest.raises(SystemExit):
        main(["run", str(tmp_path / "mix.toml")])
    text = capsys.readouterr().out
    for word in ("class", "chat", "code"):
        assert word in text
    assert all(len(line) <= 80 for line in text.splitlines() if line.startswith(("class", "chat", "code")))


def test_priorities_of_classes_reach_the_scheduler() -> None:
    classes = {
        "urgent": {"arrival": {"kind": "all_at_once"}, "num_requests": 5, "priority": {"values": [0]}, "prompt": SHORT},
        "batch": {"arrival": {"kind": "all_at_once"}, "num_requests": 5, "priority": {"values": [9]}, "prompt": SHORT},
    }
    config = spec_from_mapping(
        {"engine": {"num_gpu_blocks": 500, "policy": "priority", "max_num_seqs": 1}, "workload": {"classes": classes}}
    ).config()
    result = simulate(config)
    urgent = of_class(result.workload, "urgent")
    assert result.requests.finish_us[urgent].max() < result.requests.finish_us[~urgent].min()


FAULTS: list[tuple[dict[str, Any], list[str]]] = [
    ({"classes": [{"share": 1}]}, ["workload.classes = [", "tables by name, such as [workload.classes.chat]"]),
    ({"classes": {"chat": {}}}, ["workload.classes.chat is empty", "share = 1"]),
    ({"classes": {"chat": 3}}, ["workload.classes.chat = 3", "a table"]),
    ({"classes": {"Chat": {"share": 1}}}, ["workload.classes.Chat", "small letters"]),
    ({"classes": {"copy": {"share": 1}}}, ["workload.classes.copy", "a word of the models"]),
    (
        {"classes": {"chat": {"shares": 1}}},
        ["workload.classes.chat.shares is not a key", "mean priority.shares"],
    ),
    ({"classes": {"chat": {"share": 0}}}, ["workload.classes.chat.share = 0", "above 0"]),
    ({"classes": {"chat": {"prompt": {"mean": 3}}}}, ["workload.classes.chat.prompt.mean = 3", ".prompt.dist"]),
    ({"classes": {"chat": {"prompt": {"dist": "normal"}}}}, ["workload.classes.chat.prompt.mean is missing"]),
    ({"classes": {"chat": {"arrival": {"cv": 3.0}}}}, ["workload.classes.chat.arrival.cv = 3", ".arrival.kind"]),
    ({"classes": {"chat": {"arrival": {"kind": "closed_loop"}}}}, ["closed_loop", "cannot be mixed"]),
    ({"classes": {"chat": {"arrival": {"kind": "all_at_once"}}}}, ["workload.classes.chat.num_requests"]),
    ({"classes": {"chat": {"arrival": {"kind": "spikes", "rate_per_s": 2.0}}}}, ["rate_per_s = 2", "have a rate"]),
    ({"classes": {"chat": {"arrival": {"kind": "spikes", "surge_factor": 2.0}}}}, ["surge_factor = 2"]),
    ({"classes": {"chat": {"arrival": {"kind": "trace"}}}}, ["workload.classes.chat.trace was expected"]),
    ({"classes": {"chat": {"format": "azure"}}}, ["workload.classes.chat.format", "workload.classes.chat.trace"]),
    ({"classes": {"chat": {"share": 1}}, "concurrency": 3}, ["workload.concurrency = 3", "workload.classes"]),
    ({"classes": {"chat": {"share": 1}}, "trace": "x.csv"}, ["workload.trace", "a class has its own"]),
    ({"classes": {"chat": {"share": 1}}, "sessions": {"turns": 3}}, ["workload.sessions.turns = 3"]),
    ({"classes": {"chat": {"share": 1}}, "arrival": {"kind": "spikes"}}, ['workload.arrival.kind = "spikes"']),
]


@pytest.mark.parametrize(("workload", "named"), FAULTS)
def test_what_is_wrong_with_a_class_is_one_sentence(workload: dict[str, Any], named: list[str]) -> None:
    table = {"engine": {"num_gpu_blocks": 100}, "workload": workload}
    bad_input(lambda: spec_from_mapping(table).config(), *named)
    bad_input(lambda: Grid.from_mapping(table), *named)


def test_faults_that_building_finds_name_the_class(tmp_path: Path) -> None:
    missing = {"classes": {"chat": {"trace": str(tmp_path / "no.csv")}}}
    bad_input(lambda: build_workload(WorkloadConfig.model_validate(missing)), "workload.classes.chat", "no.csv")
    bad_input(lambda: Grid.from_mapping({"engine": {"num_gpu_blocks": 9}, "workload": missing}), "no.csv")
    bad_input(lambda: WorkloadConfig(classes={"chat": {"share": -1.0}}), "classes.chat.share = -1")
    bad_input(lambda: Config(workload={"classes": {"chat": {"shares": 1.0}}}), "shares")
