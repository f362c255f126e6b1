"""Whether an effect depends on another axis: worked out by hand, coverage by simulation, and the command."""

import json

import numpy as np
import polars as pl
import pytest

from fastsim.analysis.compare.interaction import DEPENDS, NONE, ONE_SEED, REVERSES, interaction
from fastsim.cli.compare_interaction import interaction_text
from fastsim.errors import InputError

RATE, MARK, SEED = "workload.arrival.rate_per_s", "engine.watermark", "workload.seed"


def rows(value, seeds=4, marks=(0.0, 0.05), rates=(1.0, 2.0), metric="preemptions") -> pl.DataFrame:
    """A full grid; `value(rate, mark, seed)` is the metric's."""
    cells = [(rate, mark, seed) for rate in rates for mark in marks for seed in range(seeds)]
    table = [(*cell, value(*cell)) for cell in cells]
    return pl.DataFrame(table, schema=[RATE, MARK, SEED, metric], orient="row")


def one(table: pl.DataFrame, **arguments):
    (row,) = interaction(table, MARK, RATE, ["preemptions"], **arguments).to_dicts()
    return row


def test_the_difference_of_differences_by_hand():
    effects = {(1.0, 0): -6, (1.0, 1): -4, (1.0, 2): -5, (1.0, 3): -5, (2.0, 0): -9, (2.0, 1): -8}
    effects |= {(2.0, 2): -9, (2.0, 3): -10}
    row = one(rows(lambda rate, mark, seed: 100 * rate + 7 * seed + (effects[rate, seed] if mark else 0)))
    assert (row["level"], row["baseline"], row["with_level"], row["with_baseline"]) == ("0.05", "0", "2", "1")
    assert (row["pairs"], row["pairs_null"], row["seeds"]) == (4, 0, 4)
    assert row["effect_at_baseline"] == pytest.approx(-5)
    assert row["effect"] == pytest.approx(-9)
    assert row["interaction"] == pytest.approx(-4)  # per seed -3, -4, -4, -5
    assert row["interaction_low"] < -4 < row["interaction_high"] < 0
    assert row["verdict"] == DEPENDS


def test_additive_effects_do_not_interact():
    noise = np.random.default_rng(1).normal(size=(3, 3, 9))
    table = rows(lambda rate, mark, seed: 10 * rate - 40 * mark + noise[int(rate), int(mark > 0), seed], seeds=9)
    assert one(table)["verdict"] == NONE


def test_an_effect_that_changes_sides_reverses():
    table = rows(lambda rate, mark, seed: (rate - 1.5) * 100 * mark * (10 + seed % 2))
    assert one(table)["verdict"] == REVERSES
    assert one(table, baseline=0.05)["interaction"] == pytest.approx(-one(table)["interaction"])
    swapped = interaction(table, RATE, MARK, ["preemptions"]).row(0, named=True)
    assert swapped["interaction"] == pytest.approx(one(table)["interaction"])  # it has no direction


def test_one_seed_gives_no_interval():
    assert one(rows(lambda rate, mark, seed: rate * mark, seeds=1))["verdict"] == ONE_SEED


def test_a_null_percentile_is_judged_by_wins():
    # With the watermark TTFT p99 is lost at rate 2 in every seed, at rate 1 it is less
    table = rows(lambda rate, mark, seed: None if rate == 2 and mark else 100.0 - 10 * bool(mark), metric="ttft_p99_ms")
    row = interaction(table, MARK, RATE, ["ttft_p99_ms"]).row(0, named=True)
    assert (row["pairs"], row["pairs_null"], row["wins"]) == (4, 4, 2.0)  # from always less to always more
    assert row["interaction"] is None
    assert row["verdict"] == DEPENDS


def test_groups_and_levels_are_judged_apart():
    wide = pl.concat(
        [
            rows(lambda rate, mark, seed, k=k: k * rate * mark * (100 + seed), marks=(0.0, 0.05, 0.1)).with_columns(
                pl.lit(k).alias("engine.max_num_seqs")
            )
            for k in (0, 1)
        ]
    )
    table = interaction(wide, MARK, RATE, ["preemptions"], for_each=["engine.max_num_seqs"])
    assert table["engine.max_num_seqs"].to_list() == [0, 0, 1, 1]
    assert table["level"].to_list() == ["0.05", "0.1", "0.05", "0.1"]
    assert table["verdict"].to_list() == [NONE, NONE, DEPENDS, DEPENDS]
    both = interaction(wide, MARK, RATE, ["preemptions"])
    assert both["pairs"].to_list() == [8, 8]
    assert both["interaction"].to_list() == pytest.approx([v / 2 for v in table["interaction"].to_list()[2:]])


@pytest.mark.parametrize("seeds", [5, 30])
def test_intervals_cover_the_truth_in_95_percent(seeds):
    """300 experiments in one table, every other one a null: 91 to 99 % hold the truth (3 sigma of the count)."""
    rng = np.random.default_rng(seeds)
    k, s = np.meshgrid(np.arange(300), np.arange(seeds), indexing="ij")
    effect = np.where(k % 2, 3.0, 0.0)
    common = rng.gamma(5, 20, size=k.shape)  # what all four rows of a seed share
    frames = []
    for r, rate in enumerate((1.0, 2.0)):
        for m, mark in enumerate((0.0, 0.05)):
            noise = rng.normal(size=k.shape) + rng.exponential(0.5, size=k.shape)
            value = common + noise + 5 * m + effect * r * m
            columns = {"engine.max_num_seqs": k.ravel(), SEED: s.ravel(), "preemptions": value.ravel()}
            frames.append(pl.DataFrame(columns).with_columns(pl.lit(rate).alias(RATE), pl.lit(mark).alias(MARK)))
    table = interaction(pl.concat(frames), MARK, RATE, ["preemptions"], for_each=["engine.max_num_seqs"])
    truth = pl.when(pl.col("engine.max_num_seqs") % 2 == 1).then(3.0).otherwise(0.0)
    covered = table.select(pl.lit(True) & truth.is_between("interaction_low", "interaction_high")).to_series()
    assert table.height == len(covered) == 300
    assert 0.91 <= covered.mean() <= 0.99
    nulls = table.filter(pl.col("engine.max_num_seqs") % 2 == 0)["verdict"]
    assert (nulls == NONE).mean() == covered.gather_every(2).mean()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((MARK, MARK), "second place"),
        ((MARK, "workload.seed"), "another axis was expected"),
        ((MARK, "engine.watermrk"), "did you mean engine.watermark"),
    ],
)
def test_mistakes_are_answered_with_a_sentence(arguments, words):
    with pytest.raises(InputError, match=words):
        interaction(rows(lambda *_: 1.0), *arguments, ["preemptions"])


def test_the_text_answers_first_and_fits():
    table = rows(lambda rate, mark, seed: 1234.5 * rate * mark * (100 + seed), marks=(0.0, 0.0123, 0.1), rates=range(9))
    text = interaction_text(interaction(table, MARK, RATE, ["preemptions"]), MARK, RATE, [])
    assert text.startswith(f"Answer: the effect of {MARK} on preemptions depends on")
    assert all(len(line) <= 80 for line in text.splitlines())
    long = {RATE: "engine.backpressure_threshold", MARK: "engine.long_prefill_token_threshold_adaptive"}
    named = interaction(table.rename(long), long[MARK], long[RATE], ["preemptions"])
    text = interaction_text(named, long[MARK], long[RATE], [])
    assert all(len(line) <= 80 for line in text.splitlines())
    assert json.dumps(interaction(table, MARK, RATE, ["preemptions"]).to_dicts())
