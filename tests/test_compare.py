"""Paired differences: worked out by hand on small tables, and intervals by simulation."""

import json

import numpy as np
import polars as pl
import pytest

from fastsim.analysis.compare.bootstrap import (
    mean_intervals,
    ratio_intervals,
    resample_counts,
    skewed_t,
    stretch,
    student_quantile,
)
from fastsim.analysis.compare.metrics import DEFAULT_METRICS, better, is_comparable, null_is_infinite
from fastsim.analysis.compare.paired import NO_PAIR, NONE, ONE_SEED, compare
from fastsim.cli.compare_text import compare_text
from fastsim.errors import InputError
from fastsim.metrics import COLUMNS, by_name
from tests.processes import run

#       rate, watermark, seed, preemptions, ttft_p99_ms
ROWS = [
    (1.0, 0.0, 0, 10, 100.0),
    (1.0, 0.05, 0, 4, 110.0),
    (1.0, 0.0, 1, 20, 100.0),
    (1.0, 0.05, 1, 16, None),
    (1.0, 0.0, 2, 30, 100.0),
    (1.0, 0.05, 2, 25, None),
    (2.0, 0.0, 0, 100, None),
    (2.0, 0.05, 0, 100, None),
    (2.0, 0.0, 1, 100, None),
    (2.0, 0.05, 1, 100, 50.0),
    (2.0, 0.0, 2, 100, None),
    (2.0, 0.05, 2, 100, None),
]
SCHEMA = ["workload.arrival.rate_per_s", "engine.watermark", "workload.seed", "preemptions", "ttft_p99_ms"]


THROUGHPUT = "output_throughput_tok_per_s"


def rows(keep=lambda row: True) -> pl.DataFrame:
    return pl.DataFrame([row for row in ROWS if keep(row)], schema=SCHEMA, orient="row")


def test_seeds_that_change_nothing_are_one():
    one = rows(lambda row: row[2] == 0)
    repeats = [one.with_columns(pl.lit(seed).alias("workload.seed"), workload_id=pl.lit("trace")) for seed in range(5)]
    (row,) = compare(pl.concat(repeats), "engine.watermark", ["preemptions"]).to_dicts()
    assert (row["seeds"], row["pairs"], row["difference_low"], row["verdict"]) == (1, 2, None, ONE_SEED)
    drawn = pl.concat([repeat.with_columns(workload_id=pl.col("workload.seed").cast(str)) for repeat in repeats])
    (row,) = compare(drawn, "engine.watermark", ["preemptions"]).to_dicts()
    assert row["seeds"] == 5


def test_differences_are_of_pairs_and_one_a_seed():
    (row,) = compare(rows(), "engine.watermark", ["preemptions"]).to_dicts()
    assert (row["level"], row["baseline"], row["pairs"], row["seeds"]) == ("0.05", "0", 6, 3)
    # by hand: seeds differ by -6, -4, -5 at rate 1 and 0 at rate 2, so -3, -2, -2.5
    assert row["difference"] == pytest.approx(-2.5)
    assert row["baseline_mean"] == pytest.approx(60)
    assert row["relative"] == pytest.approx(-2.5 / 60)
    assert row["difference_low"] < -2.5 < row["difference_high"] < 0
    assert row["wins"] == pytest.approx(-0.5)
    assert row["verdict"] == "better"


def seqs(values: dict[int, list[float]]) -> pl.DataFrame:
    """Throughput of each max_num_seqs, by seed."""
    table = [(n, seed, value) for n, several in values.items() for seed, value in enumerate(several)]
    return pl.DataFrame(table, ["engine.max_num_seqs", "workload.seed", THROUGHPUT], orient="row")


def test_best_is_not_said_beside_a_larger_difference_that_is_not_shown():
    base, sure = [10.0, 10.5, 10.2, 9.9, 10.1, 10.0], [12.0, 12.4, 12.2, 11.8, 12.0, 12.1]
    wild = [10.0, 40.0, 3.0, 45.0, 2.0, 30.0]
    alone = compare_text(
        compare(seqs({8: base, 32: sure}), "engine.max_num_seqs", [THROUGHPUT]), "engine.max_num_seqs", []
    )
    assert "32 has the best" in " ".join(alone.split())
    assert "Rows used: 12 of 12." in alone
    table = compare(seqs({8: base, 32: sure, 64: wild}), "engine.max_num_seqs", [THROUGHPUT])
    assert table["verdict"].to_list() == ["better", NONE]
    text = " ".join(compare_text(table, "engine.max_num_seqs", []).split())
    assert "has the best output_throughput" not in text
    assert "but 64 may have better still, which these rows do not show." in text


def test_rows_without_partners_are_counted_and_values_without_any_named():
    whole = seqs({8: [1.0, 2.0, 3.0, 4.0], 32: [2.0, 3.1, 4.2, 5.0], 64: [9.0] * 4})
    kept = whole.filter(
        (pl.col("engine.max_num_seqs") != 64) & ((pl.col("engine.max_num_seqs") == 8) | (pl.col("workload.seed") < 1))
    )
    alone = pl.DataFrame({"engine.max_num_seqs": [64] * 6, "workload.seed": list(range(10, 16)), THROUGHPUT: [9.0] * 6})
    table = compare(pl.concat([kept, alone]), "engine.max_num_seqs", [THROUGHPUT])
    assert table.select("level", "pairs", "verdict", "rows_used", "rows_present").rows() == [
        ("32", 1, ONE_SEED, 2, 11),
        ("64", 0, NO_PAIR, 2, 11),
    ]
    text = " ".join(compare_text(table, "engine.max_num_seqs", []).split())
    assert "Rows used: 2 of 11" in text
    assert "Warning: only 18 % of the rows are used" in text
    assert "0 to 1 pairs of each value" in text


def test_the_order_of_the_rows_changes_nothing():
    table = compare(rows(), "engine.watermark", ["preemptions", "ttft_p99_ms"], baseline=0)
    for seed in range(3):
        shuffled = rows().sample(fraction=1, shuffle=True, seed=seed)
        assert compare(shuffled, "engine.watermark", ["preemptions", "ttft_p99_ms"], baseline=0).equals(table)


def test_another_baseline_turns_the_signs():
    a = compare(rows(), "engine.watermark", ["preemptions"]).row(0, named=True)
    b = compare(rows(), "engine.watermark", ["preemptions"], baseline="0.05").row(0, named=True)
    assert b["level"] == "0"
    assert b["difference"] == -a["difference"]
    assert b["verdict"] == "worse"


def test_groups_are_compared_apart():
    table = compare(rows(), "engine.watermark", ["preemptions"], for_each=["workload.arrival.rate_per_s"])
    assert table["workload.arrival.rate_per_s"].to_list() == [1.0, 2.0]
    assert table["difference"].to_list() == [pytest.approx(-5), 0]
    assert table["verdict"].to_list() == ["better", NONE]


def test_a_percentile_that_is_null_is_infinite_and_judged_by_wins():
    one = compare(rows(lambda row: row[0] == 1.0), "engine.watermark", ["ttft_p99_ms"]).row(0, named=True)
    assert one["pairs_null"] == 2
    assert one["wins"] == 1.0
    assert one["difference"] == pytest.approx(10)  # of the one pair without null
    assert one["verdict"] == "worse"
    two = compare(rows(lambda row: row[0] == 2.0), "engine.watermark", ["ttft_p99_ms"]).row(0, named=True)
    assert two["wins"] == pytest.approx(-1 / 3)  # infinite on both sides is a tie
    assert two["difference"] is None
    assert two["verdict"] == NONE


def test_one_seed_gives_no_interval():
    table = compare(rows(lambda row: row[2] == 0).drop("workload.seed"), "engine.watermark", ["preemptions"])
    assert table["verdict"].to_list() == [ONE_SEED]
    assert table["difference_low"].to_list() == [None]


def test_failed_rows_are_left_out():
    failed = pl.col("workload.seed") == 2
    table = rows().with_columns(status=pl.when(failed).then(pl.lit("error")).otherwise(pl.lit("ok")))
    kept = compare(rows(lambda row: row[2] != 2), "engine.watermark", ["preemptions", "ttft_p99_ms"])
    assert compare(table, "engine.watermark", ["preemptions", "ttft_p99_ms"]).equals(kept)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"by": "engine.watermrk"}, "did you mean engine.watermark"),
        ({"by": "workload.seed"}, "another axis was expected"),
        ({"by": "engine.watermark", "metrics": ["preemption"]}, "did you mean preemptions"),
        ({"by": "engine.watermark", "metrics": ["verdict"]}, "is a label"),
        ({"by": "engine.watermark", "metrics": ["completed"]}, "not a column of these rows"),
        ({"by": "engine.watermark", "baseline": "7"}, "0, 0.05"),
        ({"by": "engine.watermark", "for_each": ["engine.watermark"]}, "another axis"),
    ],
)
def test_mistakes_are_answered_with_a_sentence(arguments, words):
    with pytest.raises(InputError, match=words):
        compare(rows(), **({"metrics": ["preemptions"]} | arguments))


def test_rows_that_are_not_of_one_sweep_are_refused():
    with pytest.raises(InputError, match="two rows are the same"):
        compare(pl.concat([rows(), rows()]), "engine.watermark", ["preemptions"])
    with pytest.raises(InputError, match="one value"):
        compare(rows(lambda row: row[1] == 0), "engine.watermark", ["preemptions"])


def test_a_verdict_column_is_compared_as_shares():
    table = rows().with_columns(thrash=pl.col("preemptions") > 15)
    row = compare(table, "engine.watermark", ["thrash"]).row(0, named=True)
    assert row["baseline_mean"] == pytest.approx(5 / 6)
    assert row["difference"] == 0


def test_every_column_has_a_better_side_or_none():
    neutral = {column.name for column in COLUMNS if is_comparable(column) and better(column.name) == 0}
    assert {"running_mean", "kv_use_mean", "steps", "cap_mean", "swapped_tokens"} <= neutral
    assert not neutral & {name for name in by_name() if name.endswith(("_p99_ms", "_served_mean_ms"))}
    assert better("completed") == 1
    assert better("preemptions") == better("ttft_p99_ms") == better("ttft_censored_share") == -1
    assert null_is_infinite("ttft_p99_ms")
    assert not null_is_infinite("ttft_served_p99_ms")
    assert not null_is_infinite("starved_gap_s")
    assert set(DEFAULT_METRICS) <= {column.name for column in COLUMNS if is_comparable(column)}
    assert all(column.better in ("more", "less", "none") for column in COLUMNS)


# --- intervals --------------------------------------------------------------------------------------------------------


def test_student_quantiles():
    tables = {1: 12.7062, 2: 4.30265, 4: 2.77645, 9: 2.26216, 29: 2.04523, 299: 1.96793, 1000: 1.96234}
    for degrees, value in tables.items():
        assert student_quantile(degrees) == pytest.approx(value, abs=3e-4)
    assert stretch(30) == pytest.approx(1.0613, abs=1e-3)


def test_resamples_are_always_the_same():
    counts = resample_counts(7)
    assert counts.shape == (2000, 7)
    assert (counts.sum(axis=1) == 7).all()
    assert np.array_equal(counts, resample_counts.__wrapped__(7))


def test_intervals_of_what_never_varies_are_points():
    mean, low, high = mean_intervals(np.full((5, 2), [3.0, np.nan]))
    assert (mean[0], low[0], high[0]) == (3, 3, 3)
    assert np.isnan([mean[1], low[1], high[1]]).all()
    ratio = ratio_intervals(np.full((5, 1), 3.0), np.full((5, 1), 2.0))
    assert [part[0] for part in ratio] == pytest.approx([0.5, 0.5, 0.5])


def test_columns_do_not_depend_on_their_neighbours():
    values = np.random.default_rng(3).normal(size=(12, 700))
    values[::3, 5] = np.nan
    whole = np.array(mean_intervals(values))
    for k in (0, 5, 255, 256, 699):
        assert np.allclose(np.array(mean_intervals(values[:, [k]]))[:, 0], whole[:, k], rtol=1e-12)


DRAWS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "uniform": lambda rng, shape: rng.uniform(-1, 1, size=shape),
    "skewed": lambda rng, shape: rng.exponential(size=shape) - 1,
    "counts": lambda rng, shape: rng.poisson(4, size=shape) - 4.0,
    "heavy tails": lambda rng, shape: rng.standard_t(3, size=shape),
    "difference of skewed": lambda rng, shape: rng.exponential(size=shape) - rng.exponential(size=shape),
}


SEEDS = [5, pytest.param(10, marks=pytest.mark.slow), 30]


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("kind", DRAWS)
def test_intervals_cover_the_truth_in_95_percent(seeds, kind):
    """2,000 experiments, half of them nulls: 92 to 98 % (the count itself errs by 1.5 % one time in 500)."""
    effect = np.repeat([0.0, 0.8], 1000)
    values = DRAWS[kind](np.random.default_rng([seeds, len(kind)]), (seeds, 2000)) + effect
    _, low, high = mean_intervals(values)
    covered = (low <= effect) & (effect <= high)
    assert 0.92 <= np.mean(covered) <= 0.98
    assert abs(np.mean(covered[:1000]) - np.mean(covered[1000:])) < 0.03  # an effect changes nothing


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("noise", ["normal", "skewed"])
def test_ratio_intervals_cover_the_truth(seeds, noise):
    rng = np.random.default_rng(seeds)
    base = rng.gamma(20, 5.0, size=(seeds, 2000))
    level = 1.2 * base + 10 * DRAWS[noise](rng, base.shape)
    _, low, high = ratio_intervals(level, base)
    assert 0.92 <= np.mean((low <= 0.2) & (high >= 0.2)) <= 0.98


def test_the_plain_bootstrap_would_not_cover():
    """Why there is a correction: what it adds for skewed values at five seeds is what a tolerance of 3 % needs."""
    values = DRAWS["skewed"](np.random.default_rng(1), (5, 2000))
    drawn = resample_counts(5) @ values / 5
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    assert np.mean((low <= 0) & (high >= 0)) < 0.8
    below, above = skewed_t(values - values.mean(axis=0))
    assert np.mean(above > below) > 0.75  # it mostly reaches further to the side of the long tail


def test_skewness_corrected_reach():
    """Two values have no skewness: Student's t. Symmetric values reach as far to either side; equal ones nowhere."""
    below, above = skewed_t(np.array([[-1.0, 0.0], [1.0, 0.0]]))
    assert below.tolist() == above.tolist() == [pytest.approx(12.7062, rel=1e-4), 0.0]
    below, above = skewed_t(np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]]))
    assert below[0] == above[0] == pytest.approx(2.77645 * np.sqrt(2.5 / 5), rel=1e-4)


def test_a_null_effect_is_called_one_in_5_percent_of_the_cases():
    rng = np.random.default_rng(9)
    false = 0
    for _ in range(40):
        common = rng.gamma(5, 20, size=30)
        noise = rng.normal(size=(2, 30))
        table = pl.DataFrame(
            {
                "choice.remedy": ["none"] * 30 + ["idle"] * 30,
                "workload.seed": [*range(30)] * 2,
                "preemptions": np.concatenate([common + noise[0], common + noise[1]]),
            }
        )
        (row,) = compare(table, "choice.remedy", ["preemptions"]).to_dicts()
        false += row["verdict"] != NONE
        # pairing: what both share (a spread of 45) is gone from the interval
        assert row["difference_high"] - row["difference_low"] < 2
    assert false <= 6  # expected 2; more than 6 has a chance of 0.3 %


# --- the command ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    import fastsim

    table = {
        "engine": {"num_gpu_blocks": 300},
        "workload": {"num_requests": 30, "output": {"dist": "uniform", "min": 200, "max": 400}},
        "sweep": {"seeds": 4, "axes": {"engine.watermark": [0, 0.1], "workload.arrival.rate_per_s": [2, 20]}},
    }
    out = tmp_path_factory.mktemp("compare") / "out"
    fastsim.sweep(fastsim.Grid.from_mapping(table), out, workers=1)
    return out


def test_the_command_answers_first_and_fits(folder, capsys):
    code, out, _ = run(capsys, "compare", folder, "--by", "engine.watermark")
    assert code == 0
    assert out.startswith("Answer: ")
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "Over 4 seeds, 8 pairs" in out


def test_json_is_what_python_gives(folder, capsys):
    _, out, _ = run(
        capsys, "compare", folder, "--by", "engine.watermark", "--metric", "preemptions", "--baseline", "0.1", "--json"
    )
    assert json.loads(out) == compare(folder, "engine.watermark", ["preemptions"], 0.1).to_dicts()


def test_groups_on_the_command_line(folder, capsys):
    axis = "workload.arrival.rate_per_s"
    code, out, _ = run(capsys, "compare", folder, "--by", "engine.watermark", "--for-each", axis)
    assert code == 0
    assert "of 2 values of" in " ".join(out.split())
    assert all(len(line) <= 80 for line in out.splitlines())


def test_bad_input_is_one_sentence(folder, capsys):
    code, out, err = run(capsys, "compare", folder, "--by", "engine.max_num_seqs")
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    code, _, err = run(capsys, "compare", folder / "nowhere", "--by", "engine.watermark")
    assert code == 2


def test_long_labels_still_fit():
    frame = pl.concat(
        [
            pl.DataFrame(
                {
                    "choice.remedy": [label] * 5,
                    "workload.seed": range(5),
                    "preemptions": [1000 * k + s * s for s in range(5)],
                }
            )
            for k, label in enumerate(["none", "a remedy with a name that goes on and on, far beyond the screen", "b"])
        ]
    )
    text = compare_text(compare(frame, "choice.remedy", ["preemptions"]), "choice.remedy", [])
    assert all(len(line) <= 80 for line in text.splitlines())
