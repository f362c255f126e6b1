"""A sample: exactly so many configurations, every value in its share, whatever the grid and the number."""

import itertools
from collections import Counter
from math import prod
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastsim.sweeps.grid import Grid
from fastsim.sweeps.grid.sample import sample_indices
from tests.fake_simulation import FINE, FakeJob
from tests.processes import run as call
from tests.test_runner import make_grid, rows, run

MILLION = Path(__file__).parent.parent / "sweeps" / "million.toml"
BASE = {"engine.num_gpu_blocks": 400, "workload.num_requests": 20}
ODD = {
    "a zip group": {"zip": [{"engine.max_num_seqs": [8, 16, 32], "engine.watermark": [0.0, 0.02, 0.1]}], "seeds": 7},
    "a list of seeds": {"seeds": [3, 1, 41], "axes": {"engine.max_num_seqs": [8, 16, 32, 64, 128]}},
    "one workload": {"axes": {"engine.max_num_seqs": [8, 16], "engine.watermark": [0.0, 0.01, 0.02, 0.05, 0.1]}},
    "one axis": {"axes": {"engine.max_num_seqs": {"start": 1, "stop": 300, "num": 300}}},
    "only seeds": {"seeds": 97},
}


def picked(grid: Grid, count: int) -> list[int]:
    return [int(index) for part in grid.sample(count).parts() for index in part.indices()]


def positions(indices: list[int], sizes: list[int]) -> list[tuple[int, ...]]:
    """The digits of each index, the most significant first: by plain division."""
    found = []
    for number in indices:
        digits = []
        for size in reversed(sizes):
            number, digit = divmod(number, size)
            digits.append(digit)
        found.append(tuple(reversed(digits)))
    return found


def check_shares(found: list[tuple[int, ...]], sizes: list[int]) -> None:
    """Every value of every digit is there as often as any other, give or take one."""
    for digit, size in enumerate(sizes):
        counts = Counter(place[digit] for place in found)
        assert max(counts.values()) - min(counts[value] for value in range(size)) <= 1, f"digit {digit}: {counts}"


@pytest.fixture(scope="module")
def million() -> Grid:
    return Grid.from_toml(MILLION)


@pytest.mark.parametrize("count", [1, 2, 100, 255, 256, 257, 4095, 4096, 4097, 16384, 20000])
def test_the_millions_sample_is_in_proportion(million: Grid, count: int) -> None:
    sizes = million.digit_sizes
    indices = picked(million, count)
    assert len(set(indices)) == len(indices) == count
    found = positions(indices, sizes)
    check_shares(found, sizes)
    workloads = Counter(index // million.configs_per_workload for index in indices)
    assert len(workloads) == min(count, 256)
    assert max(workloads.values()) <= -(-count // 256), "stratified over workloads"
    values = [million.values(index) for index in indices[:: max(1, count // 50)]]
    assert [tuple(axis.values.index(row[axis.name]) for axis in million.axes) for row in values] == found[
        :: max(1, count // 50)
    ]


@pytest.mark.parametrize("count", [4095, 4096, 4097, 20000])
def test_inside_a_workload_values_are_in_proportion_too(million: Grid, count: int) -> None:
    by_workload: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for place in positions(picked(million, count), million.digit_sizes):
        by_workload.setdefault(place[:2], []).append(place[2:])
    for found in by_workload.values():
        check_shares(found, million.digit_sizes[2:])


@pytest.mark.parametrize("count", [4095, 4096, 4097, 20000])
def test_no_two_axes_are_confounded(million: Grid, count: int) -> None:
    """Of each pair of values there are as many as chance would give, within five of its standard deviations."""
    sizes = million.digit_sizes
    found = positions(picked(million, count), sizes)
    for one, other in itertools.combinations(range(len(sizes)), 2):
        counts = Counter((place[one], place[other]) for place in found)
        expected = count / (sizes[one] * sizes[other])
        assert len(counts) == sizes[one] * sizes[other]
        assert max(abs(value - expected) for value in counts.values()) <= 5 * expected**0.5


@pytest.mark.parametrize("name", ODD)
def test_odd_grids(name: str) -> None:
    grid = Grid.from_mapping(BASE | {"sweep": ODD[name]})
    for count in {1, 2, grid.size // 3, grid.size // 2 + 1, grid.size - 1, grid.size, grid.size + 1, 10**9}:
        indices = picked(grid, count)
        assert indices == sorted(set(indices))
        assert len(indices) == min(count, grid.size)
        check_shares(positions(indices, grid.digit_sizes), grid.digit_sizes)
    assert grid.sample(grid.size).name == "all"


@settings(max_examples=150, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5), seed=st.integers(0, 2**128 - 1), data=st.data())
def test_any_grid(sizes: list[int], seed: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, min(prod(sizes), 600)))
    indices = sample_indices(sizes, count, seed).tolist()
    assert indices == sorted(set(indices))
    assert len(indices) == count
    assert indices[0] >= 0
    assert indices[-1] < prod(sizes)
    found = positions(indices, sizes)
    check_shares(found, sizes)
    for depth in range(1, len(sizes)):
        for _, group in itertools.groupby(found, lambda place: place[:depth]):  # noqa: B023 - used at once
            check_shares([place[depth:] for place in group], sizes[depth:])


def test_huge_grids() -> None:
    sizes = [2**31 - 1, 100_000, 3]
    indices = sample_indices(sizes, 30_000, 7)
    assert len(np.unique(indices)) == 30_000
    assert np.bincount(indices % 3).tolist() == [10_000] * 3
    for tenth in (indices // 3 % 100_000 // 10_000, indices // 300_000 * 10 // (2**31 - 1)):
        assert np.bincount(tenth).min() > 2_700, "spread over an axis with more values than the sample has rows"


def test_the_spec_chooses_and_nothing_else() -> None:
    def sample(**more: object) -> list[int]:
        return picked(Grid.from_mapping(BASE | {"sweep": ODD["a zip group"]} | more), 10)

    assert sample() == sample()
    assert any(sample() != sample(**{"engine.block_size": size}) for size in (8, 32))


def test_a_workload_is_built_once_for_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastsim.sweeps.store.folder import part_path
    from fastsim.sweeps.worker import PartRun, Task
    from fastsim.workload import WorkloadPlan

    grid = make_grid(FINE, 7, seeds=6)
    built: list[int] = []
    whole = WorkloadPlan._single
    monkeypatch.setattr(WorkloadPlan, "_single", lambda self, c, seed: built.append(seed) or whole(self, c, seed))
    (tmp_path / "parts").mkdir()
    parts = list(grid.select(sample=24, rows_per_part=8).parts())
    for part in parts:
        PartRun(FakeJob(grid, tmp_path), WorkloadPlan(), Task(part), lambda index: None).run()
    assert len(built) == grid.num_workloads == 12
    table = pl.concat(pl.read_parquet(part_path(tmp_path, part.index)) for part in parts)
    assert table["config_id"].to_list() == picked(grid, 24)


def test_a_sample_runs_and_resumes(tmp_path: Path) -> None:
    grid = make_grid(FINE, 7, seeds=6)
    run(grid, tmp_path / "whole")
    run(grid, tmp_path / "some", sample=25)
    table = rows(tmp_path / "some")
    assert table.height == 25
    whole = rows(tmp_path / "whole")
    assert table.equals(whole.filter(pl.col("config_id").is_in(table["config_id"].to_list())))
    assert run(grid, tmp_path / "some", sample=25).computed == 0


CHOICES = {
    "--sample 9": "a sample of 9 of 144 configurations",
    "--limit 8": "the first 8 of 144 configurations",
    "--shard 1/2": "shard 1/2 (81) of 144 configurations",
}


@pytest.mark.parametrize("choice", CHOICES)
def test_answers_name_what_they_are_from(choice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "spec.toml"
    question = '[answer]\nbest = "most request_throughput_req_per_s"\nfor_each = "workload.arrival.rate_per_s"\n'
    axes = "[sweep]\nseeds = 24\naxes = { workload.arrival.rate_per_s = [1, 2], engine.max_num_seqs = [1, 2, 4] }\n"
    base = "engine.num_gpu_blocks = 100\nworkload.num_requests = 5\n"
    for n, end in enumerate((question, "")):
        spec.write_text(base + axes + end)
        out = tmp_path / str(n)
        code, output, errors = call(capsys, "sweep", spec, "--out", out, "--workers", "1", *choice.split())
        assert code == 0, errors
        text = " ".join(output.split())
        if end:
            assert text.startswith(f"Answer, from {CHOICES[choice]}: ")
            assert "Rows used: " in text
            assert "Warning: settings are compared though not all ran at the same loads and seeds" in text
        else:
            assert text.startswith(f"Verdicts, of {CHOICES[choice]}: ")
            assert f"Most goodput, of {CHOICES[choice]}:" in text
    code, output, errors = call(capsys, "compare", out, "--by", "engine.max_num_seqs")
    if code == 0:
        assert " ".join(output.split()).startswith(f"Answer, from {CHOICES[choice]}: ")
        assert "Rows used: " in output
    else:
        assert "nothing to compare" in errors
    code, output, _ = call(capsys, "status", out)
    assert CHOICES[choice] in " ".join(output.split())
