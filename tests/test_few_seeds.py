"""What few seeds can and cannot tell: two groups are seen, and what may be unseen is said, on data made for it."""

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

from fastsim.analysis.compare.bootstrap import (
    ENOUGH_SEEDS,
    few_seeds_note,
    mean_intervals,
    two_groups,
    unseen_share,
)
from fastsim.analysis.compare.paired import compare
from fastsim.analysis.recommend.slo import Outlook
from fastsim.cli.compare_text import _few_seeds

COUNT = 1500
Values = npt.NDArray[np.float64]


def plain(kind: str, seeds: int) -> Values:
    rng = np.random.default_rng(5)
    draw = {"normal": rng.standard_normal, "uniform": rng.random, "exponential": rng.standard_exponential}[kind]
    return np.asarray(draw((seeds, COUNT)))


def collapse(share: float, seeds: int, noise: float = 0.03) -> tuple[Values, npt.NDArray[np.bool_]]:
    """Throughput 1, or 0.2 in a share of all seeds; and in which columns some seed, but not each, collapsed."""
    rng = np.random.default_rng(6)
    fell = rng.random((seeds, COUNT)) < share
    values = np.where(fell, 0.2, 1.0) + noise * rng.standard_normal((seeds, COUNT))
    return values, fell.any(axis=0) & ~fell.all(axis=0)


@pytest.mark.parametrize("seeds", [5, 8, 16])
@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_a_collapse_of_some_seeds_is_seen(share: float, seeds: int) -> None:
    values, some = collapse(share, seeds)
    assert two_groups(values)[some].mean() > 0.97
    assert two_groups(values)[~some].sum() < 0.07 * max((~some).sum(), 15)
    events = (values < 0.5).astype(float)  # zeros and ones
    assert two_groups(events)[some].all()
    assert not two_groups(events)[~some].any()


@pytest.mark.parametrize(
    ("kind", "seeds", "most"),
    [
        ("normal", 5, 0.05), ("uniform", 5, 0.07), ("exponential", 5, 0.13),
        ("normal", 8, 0.01), ("uniform", 8, 0.02), ("exponential", 8, 0.07), ("exponential", 16, 0.02),
    ],
)  # fmt: skip
def test_one_group_is_rarely_taken_for_two(kind: str, seeds: int, most: float) -> None:
    assert two_groups(plain(kind, seeds)).mean() < most


@pytest.mark.parametrize("seeds", [5, 10, 16])
@pytest.mark.parametrize("share", [0.1, 0.2])
def test_an_interval_covers_or_it_is_said_why_not(share: float, seeds: int) -> None:
    """Nearly every miss is of a collapse that no seed had; and how rare it may be and be missed, the sentence says."""
    values, _ = collapse(share, seeds)
    truth = 1.0 - 0.8 * share
    _, low, high = mean_intervals(values)
    covered = (low <= truth) & (truth <= high)
    seen = (values < 0.6).any(axis=0)
    assert (covered | two_groups(values))[seen].mean() > 0.97
    missed = ~covered & ~two_groups(values)
    assert missed.mean() < (1 - share) ** seeds + 0.03
    if missed.mean() > 0.1:
        assert share < unseen_share(seeds)


def test_what_may_be_unseen() -> None:
    assert unseen_share(5) == pytest.approx(0.4507, abs=1e-4)
    assert [(1 - unseen_share(n)) ** n for n in (2, 5, 30)] == pytest.approx([0.05] * 3)
    rng = np.random.default_rng(7)
    for seeds in (5, 10):
        happens = rng.random((seeds, 4000)) < unseen_share(seeds)
        assert (~happens.any(axis=0)).mean() == pytest.approx(0.05, abs=0.015)
    assert "fewer than 45% of all runs may be in none of 5 seeds" in few_seeds_note(5)
    assert "fall in two groups" in few_seeds_note(16, "TTFT")
    assert few_seeds_note(16) == few_seeds_note(1) == few_seeds_note(ENOUGH_SEEDS, "TTFT") == ""


def test_few_and_equal_values_are_one_group() -> None:
    columns = np.array(
        [[1, 1, 0, 1.0], [1, 9, np.nan, 1.0], [1, 1, 0, 1.0], [1, np.nan, 0, 1.0 + 1e-15], [1, 9, 7, 1.0]]
    )
    assert two_groups(columns).tolist() == [False, True, True, False]
    assert not two_groups(np.zeros((3, 1))).any()
    assert not two_groups(np.repeat([[0.0], [1.0]], ENOUGH_SEEDS // 2, axis=0)).any()


def test_compare_says_which_metric() -> None:
    rows = []
    for seed in range(5):
        for level in (8, 16, 32):
            goodput = 1.0 + seed / 100 - (0.8 if level == 32 and seed == 3 else 0.0)
            rows.append({"workload.seed": seed, "engine.max_num_seqs": level, "goodput_req_per_s": goodput + level})
    table = compare(pl.DataFrame(rows), "engine.max_num_seqs", ["goodput_req_per_s"], 8)
    assert table.select("level", "two_groups").rows() == [("16", False), ("32", True)]
    note = _few_seeds(table, 5)
    assert note.startswith("the seeds of goodput_req_per_s (32) fall in two groups, such as collapsed or not; 5 tell")
    assert "may be in none of 5 seeds" in _few_seeds(table.filter(level="16"), 5)


def test_recommend_says_it_of_the_best() -> None:
    def outlook(goodput: list[float]) -> Outlook:
        seeds = len(goodput)
        return Outlook((), np.array(goodput), np.linspace(0.1, 0.2, seeds)[:, None], np.ones((seeds, 1)), {}, 0.0)

    assert outlook([10, 10.1, 10.2, 3.0, 10.1]).few_seeds.startswith("the seeds of goodput fall in two groups")
    assert "may be in none of 5 seeds" in outlook([10, 10.1, 10.2, 10.3, 10.15]).few_seeds
    assert outlook([10.0 + k / 10 for k in range(16)]).few_seeds == ""
