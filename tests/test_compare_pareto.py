"""Pareto fronts against the definition, their certainty over seeds, costs, and the command."""

import json

import numpy as np
import polars as pl
import pytest

from fastsim.analysis.compare.paired import compare
from fastsim.analysis.compare.pareto import front, pareto, read_aims
from fastsim.analysis.cost import COST, Price
from fastsim.cli.compare_pareto import pareto_text
from fastsim.errors import InputError
from tests.processes import run

AIMS = ["output_throughput_tok_per_s", "ttft_p99_ms"]


def rows(settings: dict[int, tuple[list, list]]) -> pl.DataFrame:
    """max_num_seqs -> throughput and TTFT of each seed."""
    return pl.DataFrame(
        [(key, seed, *pair) for key, both in settings.items() for seed, pair in enumerate(zip(*both, strict=True))],
        schema=["engine.max_num_seqs", "workload.seed", *AIMS],
        orient="row",
    )


SETTINGS = {
    16: ([10.0, 12.0], [1.0, 3.0]),  # 11, 2: on the front
    32: ([20.0, 22.0], [5.0, 5.0]),  # 21, 5: on the front
    64: ([19.0, 21.0], [6.0, 6.0]),  # beaten by 32 in every seed
    128: ([21.0, 21.5], [5.0, 5.5]),  # 21.25, 5.25: on the front
    256: ([30.0, 30.0], [9.0, None]),  # most throughput, but a TTFT that is infinite
}


def test_the_front_by_hand():
    table = pareto(rows(SETTINGS), read_aims(AIMS))
    assert table["engine.max_num_seqs"].to_list() == [256, 128, 32, 16, 64]
    assert table["on_front"].to_list() == [True, True, True, True, False]
    assert table["ttft_p99_ms"].to_list() == [np.inf, 5.25, 5.0, 2.0, 6.0]
    shares = dict(table.select("engine.max_num_seqs", "front_share").iter_rows())
    assert shares[16] == shares[256] == 1.0
    assert shares[64] == 0.0  # worse than 32 in both, whatever seeds are drawn
    assert 0.5 < shares[32] < 1.0  # equal in TTFT and less in throughput where only seed 0 is drawn


@pytest.mark.parametrize("kind", ["numbers", "ties", "infinite"])
def test_the_front_is_the_definitions(kind):
    rng = np.random.default_rng(len(kind))
    for size in (1, 2, 3, 17, 60):
        points = rng.integers(0, 6, (2, size)).astype(float) if kind != "numbers" else rng.normal(size=(2, size))
        if kind == "infinite":
            points[points > 4] = np.inf
        a, b = points
        beaten = [((a <= a[k]) & (b <= b[k]) & ((a < a[k]) | (b < b[k]))).any() for k in range(size)]
        assert front(a, b).tolist() == [not lost for lost in beaten]


def test_which_way_is_better_can_be_said():
    assert [str(aim) for aim in read_aims(["preemptions", "most kv_use_mean"])] == [
        "least preemptions",
        "most kv_use_mean",
    ]
    turned = pareto(rows(SETTINGS), read_aims(["least output_throughput_tok_per_s", "ttft_p99_ms"]))
    assert turned.filter("on_front")["engine.max_num_seqs"].to_list() == [16]


def test_a_front_for_each_value_and_settings_of_some_axes():
    both = pl.concat([rows(SETTINGS).with_columns(pl.lit(rate).alias("workload.rate_scale")) for rate in (1.0, 2.0)])
    apart = pareto(both, read_aims(AIMS), for_each=["workload.rate_scale"])
    assert apart["workload.rate_scale"].to_list() == [1.0] * 5 + [2.0] * 5
    counts = ["rows_used", "rows_present"]
    alone = pareto(rows(SETTINGS), read_aims(AIMS))
    assert set(alone.select(counts).rows()) == {(10, 10)}
    second = apart.filter(pl.col("workload.rate_scale") == 2)
    assert second.drop("workload.rate_scale", *counts).equals(alone.drop(counts))
    averaged = pareto(both, read_aims(AIMS), by=["engine.max_num_seqs"])
    assert averaged.drop(counts).equals(alone.drop(counts))
    assert set(averaged.select(counts).rows()) == {(20, 20)}


def test_settings_without_every_seed_are_left_out():
    some = rows(SETTINGS).filter(~((pl.col("engine.max_num_seqs") == 32) & (pl.col("workload.seed") == 1)))
    found = pareto(some, read_aims(AIMS))
    assert 32 not in found["engine.max_num_seqs"].to_list()
    assert (found["rows_used"][0], found["rows_present"][0]) == (8, 9)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["preemptions"], "two metrics"),
        (["preemptions", "preemptions"], "twice"),
        (["preemptions", "kv_use_mean"], "has no better side"),
        (["preemptions", "much more"], "was expected"),
    ],
)
def test_aims_that_are_none(texts, words):
    with pytest.raises(InputError, match=words):
        read_aims(texts)


def test_unknown_columns_are_named():
    with pytest.raises(InputError, match="did you mean preemptions"):
        pareto(rows(SETTINGS), read_aims(["least preemption", "ttft_p99_ms"]))
    with pytest.raises(InputError, match="no setting has"):
        pareto(rows({16: ([None], [1.0])}), read_aims(AIMS))


def test_cost_is_hours_of_gpus_over_tokens():
    # 1,000 tokens/s on two GPUs at 1.8 an hour: a million tokens take 1,000 s of 0.001 an s
    assert Price(1.8, 2).per_million_output_tokens(1000.0) == pytest.approx(1.0)
    assert Price(1.8).per_million_output_tokens(0.0) is None
    table = rows({16: ([500.0, 500.0], [1.0, 1.0]), 32: ([1000.0, 1000.0], [1.0, 1.0])})
    (row,) = compare(table, "engine.max_num_seqs", [COST], price=Price(1.8, 2)).to_dicts()
    assert (row["baseline_mean"], row["level_mean"], row["verdict"]) == (pytest.approx(2), pytest.approx(1), "better")
    none = rows({16: ([0.0, 0.0], [1.0, 1.0]), 32: ([1000.0, 1000.0], [1.0, 1.0])})
    (row,) = compare(none, "engine.max_num_seqs", [COST], price=Price(1.8, 2)).to_dicts()
    assert (row["pairs_null"], row["wins"], row["verdict"]) == (2, -1.0, "better")  # nothing delivered: infinite
    with pytest.raises(InputError, match="gpu-hour-price"):
        compare(table, "engine.max_num_seqs", [COST])
    for wrong in ({"gpu_hour": 0.0}, {"gpu_hour": float("nan")}, {"gpu_hour": 1.0, "gpus": 0}):
        with pytest.raises(InputError, match="was expected"):
            Price(**wrong)


def test_long_settings_still_fit():
    wide = rows(SETTINGS)
    for k in range(9):
        wide = wide.with_columns((pl.col("engine.max_num_seqs") * 1001 + k).alias(f"engine.some_long_name_of_axis_{k}"))
    text = pareto_text(pareto(wide, read_aims(AIMS)), read_aims(AIMS), [])
    assert text.startswith("Answer: 4 of 5 settings")
    assert all(len(line) <= 80 for line in text.splitlines())


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import fastsim

    table = {
        "engine": {"num_gpu_blocks": 300},
        "workload": {"num_requests": 30, "output": {"dist": "uniform", "min": 200, "max": 400}},
        "sweep": {"seeds": 3, "axes": {"engine.max_num_seqs": [4, 16, 64], "workload.arrival.rate_per_s": [2, 20]}},
    }
    out = tmp_path_factory.mktemp("pareto") / "out"
    fastsim.sweep(fastsim.Grid.from_mapping(table), out, workers=1)
    return out


@pytest.mark.parametrize(
    "options",
    [
        ["--pareto", ",".join(AIMS)],
        ["--pareto", f"{COST},{AIMS[1]}", "--gpu-hour-price", "2.5", "--gpus", "2"],
        ["--pareto", ",".join(AIMS), "--by", "engine.max_num_seqs"],
        ["--pareto", ",".join(AIMS), "--for-each", "workload.arrival.rate_per_s"],
        ["--by", "engine.max_num_seqs", "--with", "workload.arrival.rate_per_s", "--gpu-hour-price", "2.5"],
        ["--by", "engine.max_num_seqs", "--gpu-hour-price", "2.5"],
    ],
    ids=" ".join,
)
def test_the_command_answers_first_and_fits(folder, capsys, options):
    code, out, _ = run(capsys, "compare", folder, *options)
    assert code == 0
    assert out.startswith("Answer: ")
    assert all(len(line) <= 80 for line in out.splitlines())
    assert (" ".join(out.split()).endswith("to the end of the run.")) == ("--gpu-hour-price" in options)
    code, out, _ = run(capsys, "compare", folder, *options, "--json")
    assert isinstance(json.loads(out), list)


def test_loads_that_a_front_mixes_are_named(folder, capsys):
    says = "Loads are mixed"
    rate = "workload.arrival.rate_per_s"
    for options in ([], ["--by", "engine.max_num_seqs"]):
        out = " ".join(run(capsys, "compare", folder, "--pareto", ",".join(AIMS), *options)[1].split())
        assert out.endswith(f"{says}: {rate} has several values; --for-each {rate} gives a front for each.")
    out = run(capsys, "compare", folder, "--pareto", ",".join(AIMS), "--for-each", rate)[1]
    assert says not in out


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--pareto", "preemptions"],
        ["--pareto", ",".join(AIMS), "--metric", "preemptions"],
        ["--by", "engine.max_num_seqs", "--by", "workload.arrival.rate_per_s"],
        ["--by", "engine.max_num_seqs", "--with-baseline", "2"],
        ["--by", "engine.max_num_seqs", "--gpus", "2"],
        ["--by", "engine.max_num_seqs", "--gpu-hour-price", "-1"],
        ["--by", "engine.max_num_seqs", "--metric", COST],
    ],
    ids=lambda options: " ".join(options) or "nothing",
)
def test_bad_input_is_one_sentence(folder, capsys, options):
    code, out, err = run(capsys, "compare", folder, *options)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
