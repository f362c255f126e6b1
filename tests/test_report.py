"""`fastsim report`: a page and a picture of a sweep's folder, worked out by hand and read as HTML."""

import json
import re
from html.parser import HTMLParser

import altair as alt
import numpy as np
import polars as pl
import pytest

import fastsim
from fastsim.analysis.cost import COST
from fastsim.analysis.report.choice import neighbours, paste
from fastsim.analysis.report.effects import effect_metrics, effects
from fastsim.analysis.report.figures import answered, in_a_cell, outcome_text, value_text
from fastsim.analysis.report.load_curves import curve, load_curves
from fastsim.analysis.report.page import page, provenance
from fastsim.analysis.report.phase import MOST_NUMBERS, importance, phase_map, place
from fastsim.analysis.report.picture import picture
from fastsim.analysis.report.question import Question
from fastsim.analysis.report.rows import OUTCOMES, ReportAxis, read_sweep
from fastsim.analysis.report.spread import spread
from fastsim.analysis.report.theme import DARK, LIGHT
from fastsim.analysis.report.tradeoff import trade_offs
from fastsim.cli import main
from fastsim.cli.report import question_of
from fastsim.sweeps.grid import Grid
from fastsim.sweeps.store.contents import read_contents
from fastsim.sweeps.store.manifest import changed_settings
from tests.report_folders import BASE, FULL, make_folder

TWO = {"sweep": {"axes": {"engine.max_num_seqs": [8, 16]}}}
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&${1}"


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("report") / "full", FULL, failing=(3, 7))


@pytest.fixture(scope="module")
def page_text(full):
    return page_of(full, 2.0)


def page_of(folder, price=None):
    found = read_contents(folder)
    rows = found.scan()
    return page(answered(read_sweep(folder, question_of(folder, rows), price, rows)), provenance(found), price)


class Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_data(self, data):
        self.words.append(data)

    def of(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def charts_in(text):
    return json.loads(re.search(r'<script type="application/json" id="charts">(.*?)</script>', text, re.S)[1])


# --- the page ------------------------------------------------------------------------------------------------


def test_the_page_says_everything_and_fetches_nothing(page_text):
    tags = Tags(page_text)
    assert len(tags.ids) == len(set(tags.ids))
    assert [attrs.get("src") for attrs in tags.of("script")] == [None] * 4
    assert not tags.of("img")
    assert [attrs["href"] for attrs in tags.of("link")] == ["data:,"]
    assert all(attrs["href"].removeprefix("#") in tags.ids for attrs in tags.of("a"))
    assert "default-src 'none'" in tags.of("meta")[2]["content"]
    for words in ("Which remedy?", "Answer: ", "2 rows have failed", "ValueError: &lt;it&gt; broke", "not reached in"):
        assert words in page_text
    assert page_text.index("Answer: ") < page_text.index("data-chart")
    size = re.search(r"This file is ([\d,]+) kB", page_text)[1].replace(",", "")
    assert abs(int(size) - len(page_text.encode()) / 1000) < 1


def test_every_chart_is_valid_and_described(page_text):
    specs = charts_in(page_text)
    shown = [attrs["data-chart"] for attrs in Tags(page_text).of("div") if "data-chart" in attrs]
    assert sorted(specs) == sorted(shown)
    assert len(specs) >= 10
    for spec in specs.values():
        few = {name: rows[:2] for name, rows in spec["datasets"].items()}  # data take long to validate
        alt.Chart.from_dict(spec | {"datasets": few}).to_dict()
        assert len(spec["description"]) > 30
        assert spec["width"] == "container"


def test_it_can_be_read_by_keyboard_and_by_those_who_do_not_see(page_text):
    tags = Tags(page_text)
    first = next(attrs for tag, attrs in tags.tags if tag in ("a", "button", "input", "select"))
    assert first == {"class": "skip", "href": "#answer"}
    assert all({"tabindex", "aria-label"} <= attrs.keys() for attrs in tags.of("div") if attrs.get("role") == "region")
    assert [attrs["for"] for attrs in tags.of("label")] == [attrs["id"] for attrs in tags.of("input")] == ["search"]
    assert all("aria-describedby" in attrs for attrs in tags.of("div") if "data-chart" in attrs)
    levels = [int(tag[1]) for tag, _ in tags.tags if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1
    assert levels.count(1) == 1


def test_nothing_of_a_spec_becomes_markup(tmp_path):
    table = {
        "sweep": {
            "seeds": 2,
            "choice": {"bad": {HOSTILE: {}, "b": {"engine.watermark": 0.05}}},
            "axes": {"workload.arrival.rate_per_s": [1, 2]},
        },
        "answer": {"question": HOSTILE, "best": ["most completed"], "for_each": ["workload.arrival.rate_per_s"]},
    }
    text = page_of(make_folder(tmp_path / "x", table))
    tags = Tags(text)
    assert not tags.of("img")
    assert len(tags.of("script")) == 4
    assert HOSTILE in tags.words
    assert HOSTILE in json.dumps(charts_in(text), ensure_ascii=False).replace('\\"', '"')


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        (
            {},
            {},
            [
                "No axis has more than one value, so there is nothing to map.",
                "There is one seed",
                "not for a trace, which no seed changes",
            ],
        ),
        ({"sweep": {"seeds": 5}}, {}, ["5</dd>", "over seeds"]),
        (
            {"sweep": {"axes": {"engine.max_num_seqs": [8, 16]}}},
            {"failing": (0, 1)},
            ["2 rows have failed", "no value"],
        ),
        ({"sweep": {"axes": {"engine.max_num_seqs": [8, 16]}}}, {"verdicts": ("ok",)}, ["no map of verdicts"]),
        (
            {"sweep": {"zip": [{"engine.max_num_seqs": [8, 16], "engine.watermark": [0, 0.1]}]}},
            {},
            ["Not compared: no two rows agree in everything but engine.max_num_seqs"],
        ),
        (
            {"sweep": {"choice": {"x": {f"w{k}": {"engine.watermark": k / 200} for k in range(100)}}}},
            {},
            ["the first 40 are shown", "80 of its 100 values are compared"],
        ),
        (TWO, {"limit": 1}, ["limit 1, 1 of 2 configurations"]),
    ],
    ids=["one row", "seeds", "all failed", "all ok", "zip", "many words", "limited"],
)
def test_any_folder_has_a_report(tmp_path, table, options, words):
    text = page_of(make_folder(tmp_path / "x", table, **options), 1.0)
    assert [word for word in words if word not in text] == []
    assert len(Tags(text).of("section")) == 7


def test_rows_that_are_not_there_are_said_to_be_missing(tmp_path):
    folder = make_folder(tmp_path / "x", TWO, parts=2)
    next((folder / "parts").glob("*.parquet")).unlink()
    text = page_of(folder)
    assert "parts/part-000001.parquet is missing (1 row)." in text or "part-000000.parquet is missing (1 row)." in text
    assert "incomplete: 1 of 2 rows are there" in text


def test_marks_and_text_stand_out_from_the_page():
    for names in (LIGHT, DARK):
        assert names.keys() == LIGHT.keys()
        texts = [("ink", "paper"), ("muted", "paper"), ("accent", "paper"), *((f"t{k}", f"s{k}") for k in range(5))]
        assert [pair for pair in texts if contrast(names[pair[0]], names[pair[1]]) < 4.5] == []
        assert [name for name in OUTCOMES if contrast(names[name], names["paper"]) < 3] == []


def contrast(one, other):
    """The contrast ratio of WCAG 2."""

    def luminance(colour):
        parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_picture_is_a_png(full):
    data = picture(answered(read_sweep(full, question_of(full))))
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = int.from_bytes(data[16:20]), int.from_bytes(data[20:24])
    assert width > 2000
    assert height > 1500


# --- what it shows -------------------------------------------------------------------------------------------


def test_settings_are_means_over_seeds_and_a_percentile_not_reached_once_is_infinite(full):
    sweep = read_sweep(full, question_of(full), 3.6)
    rows = sweep.rows.collect()
    assert (sweep.seeds, sweep.settings.height, sweep.height) == (3, 18, 54)
    assert sweep.load_axes == ("workload.arrival.rate_per_s",)
    for setting in sweep.settings.to_dicts():
        mine = rows.filter(*(pl.col(axis.name) == setting[axis.name] for axis in sweep.axes))
        ran = mine.filter(pl.col("status") == "ok")
        nulls = ran["ttft_p99_ms"].null_count()
        assert setting["ttft_p99_ms|null"] == nulls
        assert setting["ttft_p99_ms"] == (None if nulls else pytest.approx(ran["ttft_p99_ms"].mean()))
        assert setting["n|error"] == mine.height - ran.height
        assert setting["output_throughput_tok_per_s"] == pytest.approx(ran["output_throughput_tok_per_s"].mean())
        # 3.6 an hour is 0.001 a second, so a million tokens take 0.001 x 10^6 / (tokens/s)
        assert setting[COST] == pytest.approx(1000 / setting["output_throughput_tok_per_s"])
        assert value_text(setting, "ttft_p99_ms").startswith("not reached" if nulls else tuple("0123456789"))
    assert sweep.outcomes["error"] == 2


def test_of_two_verdicts_as_frequent_the_worse_is_shown(tmp_path):
    table = {"sweep": {"seeds": 4, "axes": {"engine.max_num_seqs": [8, 16]}}}
    sweep = read_sweep(make_folder(tmp_path / "x", table, verdicts=("ok", "ok", "thrash", "starved")), Question())
    first, second = sweep.settings.to_dicts()  # indices 0, 2, 4, 6 and 1, 3, 5, 7
    assert (first["outcome"], outcome_text(first, OUTCOMES)) == ("thrash", "ok 2, thrash 2")
    assert (second["outcome"], outcome_text(second, OUTCOMES)) == ("starved", "ok 2, starved 2")
    found = phase_map(sweep, ("goodput_req_per_s",))
    assert found.y is None
    assert found.cells.select("x", "outcome", "share", "rows").rows() == [(0, "thrash", 0.5, 4), (1, "starved", 0.5, 4)]


def test_the_axis_that_decides_comes_first_and_one_that_does_nothing_last(tmp_path):
    axes = {"engine.max_num_seqs": [8, 16, 32], "engine.watermark": [0, 0.01, 0.02, 0.03], "engine.boost_after": [0, 1]}
    sweep = read_sweep(make_folder(tmp_path / "x", {"sweep": {"axes": axes}}), Question())
    weight = importance(sweep, "output_throughput_tok_per_s")  # grows with the index
    assert weight["engine.max_num_seqs"] > 0.6
    assert 0.05 < weight["engine.watermark"] < 0.4
    assert weight["engine.boost_after"] < 0.02


def test_many_numbers_are_put_in_ranges_that_cover_all():
    axis = ReportAxis("engine.num_gpu_blocks", pl.Series("engine.num_gpu_blocks", range(100, 200)))
    found = place(axis)
    assert len(found.labels) == MOST_NUMBERS
    assert found.labels[0].startswith("100 to")
    assert found.labels[-1].endswith("to 199")
    assert found.index == sorted(found.index)
    assert set(found.index) == set(range(MOST_NUMBERS))
    assert "100 values" in found.note


def test_the_front_is_of_those_that_no_other_beats(full):
    sweep = read_sweep(full, question_of(full))
    for trade in trade_offs(sweep):
        points = trade.points.to_dicts()
        sign = -1 if sweep.more_is_better(trade.y) else 1
        for one in points:
            beaten = one["y"] is None or any(
                other["y"] is not None
                and other["load"] == one["load"]
                and other["x"] >= one["x"]
                and sign * other["y"] <= sign * one["y"]
                and (other["x"], other["y"]) != (one["x"], one["y"])
                for other in points
            )
            assert one["front"] != beaten, (trade.y, one)
        assert trade.loads == ["rate_per_s 1", "rate_per_s 2", "rate_per_s 4"]


def test_a_percentile_that_nobody_reached_is_replaced_by_the_survivors_and_named(full):
    found = {trade.y_wanted: trade for trade in trade_offs(read_sweep(full, Question()))}
    assert found["tpot_p99_ms"].y == "tpot_served_p99_ms"
    assert found["ttft_p99_ms"].y == "ttft_p99_ms"
    assert found["ttft_p99_ms"].lost == found["ttft_p99_ms"].points["y"].null_count() > 0
    assert "TPOT p99, ms was not reached in any setting" in page_of(full)


def test_too_many_settings_are_thinned_and_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("fastsim.analysis.report.tradeoff.MOST_POINTS", 100)
    monkeypatch.setattr("fastsim.analysis.report.sections.MOST_POINTS", 100)
    monkeypatch.setattr("fastsim.analysis.report.section_table.MOST_SHOWN", 200)
    axes = {"engine.num_gpu_blocks": list(range(100, 160)), "engine.max_num_seqs": list(range(1, 6))}
    folder = make_folder(tmp_path / "x", {"sweep": {"axes": axes}}, verdicts=("ok", "thrash"))
    sweep = read_sweep(folder, Question())
    trade = trade_offs(sweep)[0]
    assert trade.settings == 300
    assert trade.points.height == 100
    assert trade.points["front"].sum() > 0
    text = page_of(folder)
    assert "At most 100 of the 300 settings are drawn" in text
    assert "Settings (200 of 300)" in text
    assert "The 60 values of engine.num_gpu_blocks are put together in 16 ranges." in text


def test_a_large_sweep_is_compared_by_whole_pairs(monkeypatch, tmp_path):
    table = {
        "sweep": {
            "seeds": 5,
            "axes": {"engine.num_gpu_blocks": list(range(100, 140)), "engine.watermark": [0, 0.1]},
        }
    }
    sweep = read_sweep(make_folder(tmp_path / "x", table), Question())
    whole = {one.axis.name: one for one in effects(sweep, ("completed",))[0]}
    monkeypatch.setattr("fastsim.analysis.report.effects.MOST_ROWS", 100)
    some = {one.axis.name: one for one in effects(sweep, ("completed",))[0]}
    name = "engine.watermark"
    assert whole[name].table["pairs"].to_list() == [200]
    assert 0 < some[name].table["pairs"][0] < 200
    assert some[name].table["pairs"][0] % 5 == 0  # all seeds of a combination
    assert some[name].table["seeds"].to_list() == [5]
    assert "One in 4 combinations" in some[name].notes[0]


def test_the_spread_is_of_the_best_setting_of_each_load(full):
    sweep = read_sweep(full, question_of(full))
    found = spread(sweep, "ttft_p99_ms")
    assert found.settings["workload.arrival.rate_per_s"].to_list() == [1, 2, 4]
    assert found.points.height == 9
    rows = sweep.rows.collect()
    names = [axis.name for axis in sweep.axes]
    keys = found.settings.row(1, named=True)
    mine = rows.filter(*(pl.col(name) == keys[name] for name in names)).sort("workload.seed")
    assert found.points.filter(setting=1)["value"].to_list() == mine["ttft_p99_ms"].to_list()
    assert effect_metrics(sweep)[0] == "output_throughput_tok_per_s"


# --- the command line ----------------------------------------------------------------------------------------


def run(*arguments):
    with pytest.raises(SystemExit) as stop:
        main(["report", *map(str, arguments)])
    return stop.value.code


def test_the_verb_writes_what_is_asked_for_and_says_how_large(full, tmp_path, capsys):
    assert run(full, "--html", tmp_path / "a.html", "--png", tmp_path / "a.png", "--gpu-hour-price", "2.5") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Answer: ")
    assert max(map(len, lines[:-2])) <= 80
    assert lines[-2] == f"{tmp_path}/a.html: {(tmp_path / 'a.html').stat().st_size / 1000:,.0f} kB"
    assert lines[-1].startswith(f"{tmp_path}/a.png: ")
    assert "At 2.5 an hour for the GPUs of one server" in (tmp_path / "a.html").read_text()


def test_without_options_the_page_stands_in_the_folder(tmp_path, capsys):
    folder = make_folder(tmp_path / "x", {"sweep": {"axes": {"engine.max_num_seqs": [8, 16]}}})
    assert run(folder) == 0
    assert capsys.readouterr().out.startswith("Most goodput, requests/s: ")
    assert (folder / "report.html").is_file()


def test_mistakes_are_answered_with_a_sentence(full, tmp_path, capsys, monkeypatch):
    assert run(tmp_path / "nothing") == 2
    assert "a sweep's folder was expected" in capsys.readouterr().err
    assert run(full, "--html", tmp_path / "no" / "a.html") == 2
    assert "--html" in capsys.readouterr().err
    for bad in ("0", "-1", "nan", "x"):
        assert run(full, "--gpu-hour-price", bad) == 2
        assert "a number above 0 was expected" in capsys.readouterr().err
    monkeypatch.setattr("fastsim.errors.find_spec", lambda name: None)
    assert run(full) == 2
    assert "pip install 'fastsim-llm[plot]'" in capsys.readouterr().err


def test_a_folder_keeps_the_question_beside_its_rows():
    answer = {"question": 'Is "it" so?', "best": ["most completed"], "for_each": ["engine.watermark", "engine.victim"]}
    axes = {"engine.watermark": [0, 0.05], "engine.victim": ["tail", "least_computed"]}
    table = BASE | {"answer": answer, "sweep": {"axes": axes}}
    grid = Grid.from_mapping(table)
    again = Grid.from_mapping(table | {"answer": {"question": "Another?"}})
    assert grid.spec_hash == again.spec_hash
    assert changed_settings(grid.to_toml(), again.to_toml()) == []
    assert '\n[answer]\nquestion = "Is \\"it\\" so?"\nbest = ["most completed"]\n' in grid.to_toml()
    pinned = Grid.from_mapping(table, ["engine.victim=tail"])
    assert pinned.to_toml().endswith('for_each = ["engine.watermark"]\n')


def test_made_up_rows_are_what_the_tests_think(full):
    rows = read_sweep(full, Question()).rows.collect()
    assert rows["status"].to_list().count("error") == 2
    assert np.flatnonzero(rows["ttft_p99_ms"].is_null().to_numpy())[:4].tolist() == [3, 4, 7, 9]


# --- for somebody who decides ----------------------------------------------------------------------------------


def test_what_misses_the_limits_of_the_question_is_never_green(full):
    sweep = read_sweep(full, question_of(full))
    within = (pl.col("ttft_p99_ms") <= 2000).fill_null(value=False)
    rows = fastsim.scan(full).with_columns(meets=within).collect()
    good = rows.filter(pl.col("verdict").cast(pl.String).is_in(("ok", "drained")), "meets")
    assert sum(sweep.outcomes.get(name, 0) for name in ("ok", "drained")) == good.height < rows.height
    without = read_sweep(full, Question())
    assert sum(without.outcomes.get(name, 0) for name in ("ok", "drained")) > good.height


NEXT_TO = {
    "sweep": {"axes": {"workload.arrival.rate_per_s": [1, 2, 4], "engine.max_num_seqs": [8, 16, 32]}},
    "answer": {
        "where": ["output_throughput_tok_per_s > 100.5"],
        "best": ["most output_throughput_tok_per_s"],
        "for_each": ["workload.arrival.rate_per_s"],
    },
}


def test_the_choice_as_flags_and_what_its_neighbours_give(tmp_path):
    folder = make_folder(tmp_path / "rows", NEXT_TO)
    sweep = read_sweep(folder, question_of(folder))
    table = fastsim.scan(folder).collect()
    met = (
        table.filter(pl.col("output_throughput_tok_per_s") > 100.5)
        .group_by("engine.max_num_seqs")
        .agg(pl.len(), pl.col("output_throughput_tok_per_s").mean())
    )
    best = met.sort("len", "output_throughput_tok_per_s", descending=True)["engine.max_num_seqs"][0]
    assert sweep.question.chosen == {"engine.max_num_seqs": best}
    assert f"vllm serve MODEL --max-num-seqs {best}</pre>" in paste(sweep)
    (choice, own), *others = neighbours(sweep)
    assert choice == "the choice"
    values = [8, 16, 32]
    place = values.index(best)
    beside = [values[k] for k in (place - 1, place + 1) if 0 <= k < 3]
    assert [words for words, _ in others] == [f"max_num_seqs {value} instead of {best}" for value in beside]
    for seqs, row in ((best, own), *zip(beside, [row for _, row in others], strict=True)):
        want = met.filter(pl.col("engine.max_num_seqs") == seqs).row(0, named=True)
        assert row["groups"] == want["len"]
        assert row["output_throughput_tok_per_s"] == pytest.approx(want["output_throughput_tok_per_s"])
    text = page_of(folder)
    assert text.index("To paste:") < text.index("data-chart")


def test_curves_over_the_load_have_a_line_a_value_and_the_chosen_one_among_them(full):
    sweep = read_sweep(full, question_of(full))
    found = load_curves(sweep)
    assert (found.load.name, len(found.lines) <= 5) == ("workload.arrival.rate_per_s", True)
    spec = curve(sweep, found, "goodput_req_per_s")
    drawn = spec["datasets"]["load goodput_req_per_s"]
    assert {record["line"] for record in drawn} == set(found.lines)
    assert sorted({record["x"] for record in drawn}) == [1, 2, 4]
    assert len(drawn) == 3 * len(found.lines)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.25, "0.25"), (0.00057241, "5.7e-4"), (0.0123456, "0.0123"), (123456.0, "123k"), (2.5e7, "25M")],
)
def test_numbers_in_cells_are_short(value, text):
    assert in_a_cell(value) == text
