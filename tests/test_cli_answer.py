"""The `[answer]` of a spec, and the text around it: worked out by hand on small tables."""

import polars as pl
import pytest

from fastsim.analysis.answer import answer_from
from fastsim.cli.outcome import answer_text, summary_text
from fastsim.cli.progress import Lines, spell, time_left
from fastsim.cli.spec import read_grid
from fastsim.cli.tables import WIDTH, number, table
from fastsim.errors import InputError
from fastsim.metrics import COLUMNS

AXES = ["workload.seed", "workload.rate_scale", "engine.max_num_seqs"]
METRICS = [column.name for column in COLUMNS]
TABLE = {
    "question": "How many at once?",
    "where": ["ttft_p99_ms <= 100"],
    "best": ["least recomputed_share", "most output_throughput_tok_per_s"],
    "for_each": ["workload.rate_scale"],
}

#      rate, seqs, seed, ttft, recomputed, throughput
ROWS = [
    (1.0, 8, 0, 90.0, 0.0, 10.0),
    (1.0, 8, 1, 80.0, 0.0, 10.0),
    (1.0, 16, 0, 50.0, 0.0, 20.0),
    (1.0, 16, 1, 50.0, 0.0, 30.0),
    (2.0, 8, 0, 99.0, 0.1, 40.0),
    (2.0, 8, 1, 99.0, 0.3, 40.0),
    (2.0, 16, 0, 50.0, 0.0, 50.0),
    (2.0, 16, 1, None, 0.0, 50.0),  # censored: this seed does not meet the condition
    (3.0, 8, 0, 500.0, 0.0, 1.0),
    (3.0, 8, 1, 500.0, 0.0, 1.0),
    (3.0, 16, 0, 500.0, 0.0, 1.0),
    (3.0, 16, 1, 500.0, 0.0, 1.0),
]


def rows():
    names = [
        "workload.rate_scale",
        "engine.max_num_seqs",
        "workload.seed",
        "ttft_p99_ms",
        "recomputed_share",
        "output_throughput_tok_per_s",
    ]
    return pl.DataFrame(ROWS, schema=names, orient="row").lazy()


def test_a_setting_meets_a_condition_where_every_seed_does():
    answer = answer_from(TABLE, "spec", AXES, METRICS)
    summary = answer.summary(rows())
    assert summary.height == 6
    met = summary.filter("meets").select("workload.rate_scale", "engine.max_num_seqs").rows()
    assert met == [(1.0, 8), (1.0, 16), (2.0, 8)]
    assert summary.row(2, named=True)["recomputed_share"] == pytest.approx(0.2)


def test_the_best_of_each_group_breaks_ties_by_the_next_objective():
    answer = answer_from(TABLE, "spec", AXES, METRICS)
    best = answer.per_group(answer.summary(rows()))
    assert best.select("workload.rate_scale", "engine.max_num_seqs").rows() == [(1.0, 16), (2.0, 8), (3.0, None)]


def test_the_answer_is_the_setting_that_meets_it_most_often():
    text = answer_text(rows(), answer_from(TABLE, "spec", AXES, METRICS))
    lines = text.splitlines()
    assert lines[0].startswith("Answer: ")
    sentence, question = text.partition("\n\n")[0].replace("\n  ", " ").splitlines()
    assert question == "Question: How many at once?"
    assert (
        "engine.max_num_seqs = 8 meets ttft_p99_ms <= 100 at 2 of 3 values of workload.rate_scale (1 to 2)" in sentence
    )
    assert "more than any other setting; of those, least recomputed_share (0.1)" in sentence
    assert all(len(line) <= WIDTH for line in lines)
    assert lines[-1].split() == ["3", "-", "-", "-", "-"]


def test_without_groups_the_best_settings_are_listed():
    answer = answer_from({"best": "most output_throughput_tok_per_s"}, "spec", AXES, METRICS)
    text = answer_text(rows().filter(pl.col("workload.rate_scale") < 3), answer)
    assert text.startswith("Answer: workload.rate_scale = 2, engine.max_num_seqs = 16: most\n  output_throughput")
    assert text.splitlines()[-4].split()[:2] == ["2", "16"]


def test_nothing_that_meets_the_conditions_is_said():
    answer = answer_from(TABLE | {"where": ["ttft_p99_ms < 1"]}, "spec", AXES, METRICS)
    assert "Answer: no setting meets ttft_p99_ms < 1." in answer_text(rows(), answer)


@pytest.mark.parametrize(
    ("condition", "count"),
    [("ttft_p99_ms > 99", 2), ("ttft_p99_ms >= 99", 3), ("ttft_p99_ms == 50", 1), ("ttft_p99_ms != 50", 4),
     ("workload.rate_scale < 2.5", 4), ("engine.max_num_seqs == 8", 3)],
)  # fmt: skip
def test_every_operator(condition, count):
    answer = answer_from(TABLE | {"where": condition}, "spec", AXES, METRICS)
    assert answer.summary(rows())["meets"].sum() == count


def test_verdicts_can_be_conditions():
    frame = rows().with_columns(pl.lit("ok").cast(pl.Enum(["ok", "thrash"])).alias("verdict"))
    answer = answer_from(TABLE | {"where": ["verdict == 'ok'"], "show": "verdict"}, "spec", AXES, METRICS)
    assert answer.summary(frame)["meets"].all()
    answer = answer_from(TABLE | {"where": ["verdict != ok"]}, "spec", AXES, METRICS)
    assert not answer.summary(frame)["meets"].any()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"wher": []}, "answer.wher"),
        ({"question": 3}, "answer.question = 3"),
        ({"where": [3]}, "answer.where = [3]"),
        ({"where": "ttft_p99_ms"}, "as in"),
        ({"where": "ttft_p98_ms < 3"}, "did you mean ttft_p"),
        ({"best": "smallest preemptions"}, "least COLUMN"),
        ({"best": "least preemption"}, "did you mean preemptions?"),
        ({"for_each": "engine.watermark"}, "engine.watermark is not an axis"),
        ({"show": ["nonsense"]}, "nonsense is not a result column"),
    ],
)
def test_a_bad_answer_is_one_sentence(change, named):
    with pytest.raises(InputError) as error:
        answer_from(TABLE | change, "spec.toml", AXES, METRICS)
    assert str(error.value).startswith("spec.toml: answer")
    assert named in str(error.value)


def test_answers_are_inherited_and_options_still_apply(tmp_path):
    (tmp_path / "base.toml").write_text(
        "engine.num_gpu_blocks = 100\n[sweep]\nseeds = 2\n[sweep.axes]\nengine.watermark = [0, 0.1]\n"
        '[answer]\nbest = "least steps"\n'
    )
    (tmp_path / "child.toml").write_text('extends = "base.toml"\nengine.max_num_seqs = 3\n')
    grid, answer = read_grid(tmp_path / "child.toml", ["engine.block_size=8"], ["engine.max_num_seqs=1,2"])
    assert answer.settings == ["engine.watermark", "engine.max_num_seqs"]
    assert (grid.size, grid.base.engine.block_size) == (8, 8)
    (tmp_path / "child.toml").write_text('extends = "base.toml"\nanswer = 3\n')
    with pytest.raises(InputError, match=r"child.toml: answer = 3, but a table was expected"):
        read_grid(tmp_path / "child.toml")
    (tmp_path / "base.toml").write_text('extends = "child.toml"\n')
    with pytest.raises(InputError, match=r"extends itself through"):
        read_grid(tmp_path / "child.toml")


def test_a_summary_counts_verdicts_and_shows_the_best():
    frame = rows().with_row_index("config_id").with_columns(
        pl.when(pl.col("config_id") < 3).then(pl.lit("thrash")).otherwise(pl.lit("ok")).alias("verdict"),
        pl.col("config_id").cast(pl.Float64).alias("goodput_req_per_s"),
        pl.lit(7).alias("preemptions"),
    )  # fmt: skip
    text = summary_text(frame)
    assert text.startswith("Verdicts: ok 9, thrash 3\n")
    assert text.splitlines()[-5].split()[0] == "11"


def test_tables_fit_and_align():
    text = table(["name", "request_throughput_req_per_s", "x"], [["a", 1.5, None], ["long name", 12345.678, True]])
    assert text.splitlines() == [
        "name       request_throughput_req_per_s    x",
        "a                                   1.5    -",
        "long name                        12,346  yes",
    ]
    wide = table([f"a_rather_long_column_{k}" for k in range(7)], [[k * 1000 for k in range(7)]], left=0)
    assert all(len(line) <= WIDTH for line in wide.splitlines())


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (True, "yes"), (1234567, "1,234,567"), (0.0, "0"), (0.012345, "0.0123"), (1.23456, "1.235"),
     (123456.7, "123,457"), (2000.0, "2,000"), (float("nan"), "-"), ("x", "x"), (-0.5, "-0.5")],
)  # fmt: skip
def test_numbers_are_short(value, text):
    assert number(value) == text


def test_time_left():
    assert time_left(0, 10, 1.0) == "no rate yet"
    assert time_left(100, 1000, 10.0) == "10 rows/s, 1 min 40 s left"
    assert time_left(5, 0, 10.0) == "0.5 rows/s"
    assert [spell(seconds) for seconds in (0.4, 59, 61, 7322)] == ["0 s", "59 s", "1 min 1 s", "2 h 2 min"]


def test_progress_is_a_line_a_minute(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("fastsim.cli.progress.time.monotonic", lambda: clock[0])
    lines = Lines()
    lines.start(1000, 100)
    clock[0] = 30.0
    lines.ready()
    for _ in range(8):
        clock[0] += 20.0
        lines.advance(100)
    lines.close()
    assert capsys.readouterr().err.splitlines() == [
        "100 of 1,000 rows are there already",
        "300 of 1,000 rows, 5 rows/s, 2 min 20 s left",
        "600 of 1,000 rows, 5 rows/s, 1 min 20 s left",
        "900 of 1,000 rows, 5 rows/s, 20 s left",
    ]
