"""The specs in sweeps/ and the answers drawn from them: valid, complete, and true to their rows."""

import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))  # the answers are a program of the repository, not of the package

from fastsim.cli.spec import read_grid  # noqa: E402
from fastsim.config import load_config  # noqa: E402
from fastsim.engines.trtllm.knobs import CAVEAT  # noqa: E402
from fastsim.simulation import simulate  # noqa: E402
from sweeps.answers import QUESTIONS, admission, preemption  # noqa: E402
from sweeps.answers.common import Interval, Setup, mean_of, paired, rows_of  # noqa: E402
from sweeps.answers.picture import figure, picture, series  # noqa: E402
from sweeps.answers.text import change, listed, num, pct, section_text, wrapped, write_pages  # noqa: E402

SWEEPS = ROOT / "sweeps"
SPECS = [SWEEPS / f"{name}.toml" for name in (*QUESTIONS, "watermark_step_times", "quickstart", "never_fits")]


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_spec_asks_its_question_and_answers_it(path):
    grid, answer = read_grid(path)
    assert path.read_text().startswith("# ")
    assert answer is not None
    assert answer.question.endswith("?") or "?" in answer.question
    assert answer.best
    assert [warning for warning in grid.warnings if warning != CAVEAT] == []


@pytest.mark.parametrize(
    "name", [name for name in QUESTIONS if name not in ("discussion", "mooncake", "livelock", "million", "trtllm")]
)
def test_thirty_seeds_each(name):
    grid, _ = read_grid(SWEEPS / f"{name}.toml")
    assert next(len(axis.values) for axis in grid.axes if axis.name == "workload.seed") == 30


def test_the_shared_load_is_the_discussions():
    shared, discussion = load_config(SWEEPS / "data" / "collapse.toml"), load_config(SWEEPS / "discussion.toml")
    assert shared.engine == discussion.engine
    assert shared.latency == discussion.latency
    assert shared.workload.model_copy(update={"seed": 7}) == discussion.workload


def test_requests_that_never_fit_are_named_or_spin_at_once():
    grid, _ = read_grid(SWEEPS / "never_fits.toml")
    found = [simulate(grid.config(index)).metrics for index in range(grid.size)]
    assert [(m["verdict"], m["unservable"], m["completed"]) for m in found] == [
        ("unservable", 1, 9),
        ("livelock", 0, 4),  # those that came before it
        ("unservable", 10, 0),
        ("livelock", 0, 0),
    ]
    assert all(m["steps"] < 300 for m in found)


# --- remedies ---------------------------------------------------------------------------------------------------------


def remedies():
    grid, _ = read_grid(SWEEPS / "remedies.toml")
    (axis,) = [axis for axis in grid.axes if axis.name == "choice.remedy"]
    settings = {}
    for index, label in enumerate(axis.values):
        assert grid.values(index)["choice.remedy"] == label
        settings[label] = grid.config(index)
    return grid, settings


def test_remedies_are_as_many_as_promised():
    grid, settings = remedies()
    pairs = [label for label in settings if " + " in label]
    singles = [label for label in settings if label != "none" and label not in pairs]
    assert len(singles) >= 15
    assert len(pairs) >= 30
    assert grid.size >= 40_500
    sizes = {axis.name: len(axis.values) for axis in grid.axes}
    assert sizes["workload.arrival.rate_per_s"] == 6
    assert sizes["engine.num_gpu_blocks"] == 5
    assert sizes["workload.seed"] == 30


def test_a_pair_is_both_of_its_parts_and_no_two_remedies_are_the_same():
    _, settings = remedies()
    plain = settings["none"].engine.model_dump()
    changed = {
        label: {key: value for key, value in config.engine.model_dump().items() if value != plain[key]}
        for label, config in settings.items()
    }
    assert plain["enable_prefix_caching"] is False
    for label in changed:
        if " + " in label:
            one, other = label.split(" + ")
            assert changed[label] == changed[one] | changed[other], label
            assert len(changed[label]) == len(changed[one]) + len(changed[other]), label  # nothing overwritten
    assert all(changed[label] for label in changed if label != "none")
    assert len({str(sorted(item.items())) for item in changed.values()}) == len(changed)


# --- words ------------------------------------------------------------------------------------------------------------


def test_words_are_chosen_by_intervals():
    assert change(Interval(0.05, 0.04, 0.06)) == "5.0 % [4.0, 6.0] more"
    assert change(Interval(-0.05, -0.06, -0.04)) == "5.0 % [4.0, 6.0] less"
    assert change(Interval(0.05, -0.01, 0.11)) == "as much, as far as shown (+5.0 % [-1.0, 11.0])"
    assert change(Interval(0.05, float("nan"), float("nan"))).startswith("as much")


def test_numbers():
    assert pct(Interval(-0.0001, -0.0002, 0.0001)) == "+0.0 % [0.0, 0.0]"
    assert pct(Interval(0.0, 0.0, 0.0), signed=False) == "0.0 %"
    assert pct(-0.123) == "-12.3 %"
    assert num(Interval(1062.4, 1041, 1083), 0) == "1,062 [1,041, 1,083]"
    assert num(Interval(50, 50, 50), 0) == "50"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed([]) == "none"


def test_break_even_is_where_the_effect_crosses_zero():
    effects = [Interval(-0.1, -0.12, -0.08), Interval(0.1, 0.08, 0.12)]
    found = preemption._break_even([8.0, 32.0], effects)
    assert found.mean == pytest.approx(16)  # halfway, in the logarithm
    assert found.low < 16 < found.high
    assert (
        preemption._break_even([8.0, 32.0], effects[:1] * 2).mean != preemption._break_even([8.0, 32.0], effects).mean
    )


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return Setup(tmp_path_factory.mktemp("answers"), workers=1, tiny=True)


def test_every_question_is_answered_in_tiny_form(tiny):
    sections = [question(tiny) for question in QUESTIONS.values()]
    readme = tiny.out / "README.md"
    write_pages(sections, readme)
    assert readme.read_text().count("\n## ") == len(QUESTIONS)
    pages = tiny.out / "pages"
    assert {path.stem for path in pages.glob("*.md")} == set(QUESTIONS)
    assert {path.stem for path in pages.glob("*.svg")} <= set(QUESTIONS)
    for name in re.findall(r"\((pages/[^)]+)\)", readme.read_text()):
        assert (tiny.out / name).is_file()
    text = "\n".join([readme.read_text(), *(path.read_text() for path in pages.glob("*.md"))])
    assert "nan" not in text.replace("tenant", "")
    for section in sections:
        assert section.conclusion
        assert section.rows
        assert all(len(row) == len(section.header) for row in section.rows)
        assert f"**{section.conclusion.split()[0]}" in section_text(section)
        assert section.seeds == 3


def test_finished_folders_are_read_again(tiny):
    before = {path: path.stat().st_mtime_ns for path in tiny.out.rglob("*.parquet")}
    first = section_text(QUESTIONS["full_isl"](tiny))
    assert section_text(QUESTIONS["full_isl"](tiny)) == first
    again = {path: path.stat().st_mtime_ns for path in tiny.out.rglob("*.parquet")}
    assert {path: again[path] for path in before} == before


def test_a_conclusion_follows_the_rows(tiny, monkeypatch):
    """With the labels of the gate exchanged, the sentence turns."""
    true = admission.answer_full_isl(tiny)
    assert "decoding collapses" in true.conclusion
    gate = admission.GATE
    rows = rows_of("full_isl", tiny)
    monkeypatch.setattr(admission, "rows_of", lambda *_: rows.with_columns(~pl.col(gate)))
    turned = admission.answer_full_isl(tiny)
    assert "no slower decoding is shown" in turned.conclusion
    assert "less time" in turned.conclusion


def test_another_optimum_is_said(tiny, monkeypatch):
    rows = rows_of("watermark", tiny)
    monkeypatch.setattr(admission, "_other_step_times", lambda *_: [])
    axis = admission.WATERMARK
    flipped = rows.with_columns(pl.col(axis).replace_strict({0.0: 0.0, 0.02: 0.15, 0.05: 0.1, 0.1: 0.05, 0.15: 0.02}))
    monkeypatch.setattr(admission, "rows_of", lambda *_: flipped)
    served = {v: flipped.filter(pl.col(axis) == v)["request_throughput_req_per_s"].mean() for v in admission.PUBLISHED}
    best = max(served, key=served.get)
    assert best in (0.1, 0.15)
    assert f"The optimum is {best:g}, not as published" in admission.answer_watermark(tiny).conclusion


def test_the_command_prints_one_answer(tiny):
    command = [sys.executable, "-m", "sweeps.answers", "full_isl", "--tiny", "--out", str(tiny.out), "--workers", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("## What does one long prompt")
    done = subprocess.run([*command[:3], "full_sil"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "full_sil is not a sweep with an answer" in done.stderr


# --- published figures ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return Setup(tmp_path_factory.mktemp("whole"), workers=1)


def test_the_published_watermark_curve_is_reproduced(whole):
    """vLLM change 44594, on a GB200: counts within 15 %, throughput ratios within 3 points, the optimum at .05."""
    rows = rows_of("watermark", whole)
    part = {value: rows.filter(pl.col(admission.WATERMARK) == value) for value in admission.PUBLISHED}
    base = admission.PUBLISHED[0.0][1]
    assert mean_of(part[0.0], "request_throughput_req_per_s").mean == pytest.approx(base, rel=0.002)  # calibrated on it
    for value, (preemptions, served) in admission.PUBLISHED.items():
        assert mean_of(part[value], "preemptions").mean == pytest.approx(preemptions, rel=0.15)
        if value:
            gain = paired(rows, admission.WATERMARK, value, "request_throughput_req_per_s", 0.0)
            assert gain.mean == pytest.approx(served / base - 1, abs=0.03)
            assert gain.shown
    assert "optimum is 0.05, as published" in admission.answer_watermark(whole).conclusion


def test_other_step_times_are_calibrated_and_change_neither_counts_nor_optimum_much(whole):
    rows = rows_of("watermark_step_times", whole)
    first = rows.filter(pl.col(admission.WATERMARK) == 0)
    for (share,), mine in first.group_by(["choice.compute"]):
        served = mean_of(mine, "request_throughput_req_per_s").mean
        assert served == pytest.approx(admission.PUBLISHED[0.0][1], rel=0.002), share
    for (share,), mine in rows.group_by(["choice.compute"]):
        for value, (preemptions, _) in admission.PUBLISHED.items():
            counted = mean_of(mine.filter(pl.col(admission.WATERMARK) == value), "preemptions").mean
            assert counted == pytest.approx(preemptions, rel=0.15), share


@pytest.mark.parametrize("name", ["watermark", "full_isl", "mooncake"])
def test_the_readme_says_what_the_rows_say(name, whole):
    section = QUESTIONS[name](whole)
    page = (SWEEPS / "pages" / f"{name}.md").read_text()
    for part in section_text(section, "#").split("\n\n"):
        assert part in page
    assert wrapped(f"**{section.conclusion}**") in (SWEEPS / "README.md").read_text()


def test_a_picture_shows_what_the_table_says():
    assert figure("+4.0 % [3.8, 4.2]") == (4.0, 3.8, 4.2, True)
    assert figure("255 [254, 256] / 994 [976, 1,013]") == (255, 254, 256, False)
    assert figure("1,076 [1,053, 1,103; two groups]") == (1076, 1053, 1103, False)
    assert figure("-") is None
    header = ["load", "words", "gain", "requests/s", "gain too"]
    rows = [["1", "a", "+1.0 % [0.5, 1.5]", "3", "-2.0 % [-3.0, -1.0]"], ["2", "b", "+2.0 % [1.5, 2.5]", "4", "-"]]
    rows += [["3", "c", "-", "5", "+1.0 % [0.0, 2.0]"]]
    assert series(header, rows) == [2, 4]
    pytest.importorskip("vl_convert")
    drawn = picture(header, rows)
    assert all(words in drawn for words in ("gain", "gain too", "load"))
    assert "requests/s" not in drawn
    assert picture(header, rows, ()) is None


def test_the_readme_answers_every_question():
    text = (SWEEPS / "README.md").read_text()
    for name in QUESTIONS:
        assert f"`fastsim sweep sweeps/{name}.toml" in text
