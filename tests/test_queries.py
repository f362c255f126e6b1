"""Every block of `sweeps/queries.md`, on the sweep that it describes."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import fastsim
from tests.processes import run

PAGE = Path("sweeps/queries.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the names of the page stand for, once all of its blocks have run."""
    folder = tmp_path_factory.mktemp("queries")
    (spec,) = blocks("toml")
    (folder / "queries.toml").write_text(spec)
    commands = re.findall(r"^fastsim sweep queries.toml --out (\S+)(?: --set (\S+))?$", blocks("sh")[0], re.M)
    assert [name for name, _ in commands] == ["queries", "queries-async"]
    for name, setting in commands:
        grid = fastsim.Grid.from_toml(folder / "queries.toml", [setting] if setting else [])
        fastsim.sweep(grid, folder / name, workers=1)
    names: dict[str, Any] = {"folder": folder}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for code in blocks("python"):
            exec(compile(code, "queries.md", "exec"), names)  # the page is ours
        names["sql"] = [
            pl.SQLContext(rows=fastsim.scan("queries", infinite=True)).execute(q).collect() for q in blocks("sql")
        ]
        names["metadata"] = pl.read_parquet_metadata(next(iter(Path("queries/parts").iterdir())))
        names["csv"] = pl.read_csv("goodput.csv")
        names["all"] = fastsim.scan("queries").collect()
    return names


def test_there_are_ten() -> None:
    assert len(re.findall(r"^## \d+\. ", PAGE, re.M)) == 10
    assert len(blocks("python")) == 11


def test_best_and_share(answers: dict[str, Any]) -> None:
    everything, best, met = answers["all"], answers["best"], answers["met"]
    assert everything.height == 72
    assert best["workload.arrival.rate_per_s"].to_list() == [1, 2, 4]
    for row in best.iter_rows(named=True):
        same = everything.filter(pl.col("workload.arrival.rate_per_s") == row["workload.arrival.rate_per_s"])
        means = same.group_by("engine.max_num_seqs", "engine.watermark").agg(pl.col("goodput_req_per_s").mean())
        assert row["goodput_req_per_s"] == pytest.approx(means["goodput_req_per_s"].max())
    assert met["runs"].to_list() == [8] * 9
    assert everything["ttft_p99_ms"].null_count() > 0, "the page's trap is there to be met"
    assert met["share_of_runs"].min() < met["share_of_runs"].max()


def test_pairs_and_map(answers: dict[str, Any]) -> None:
    assert answers["pairs"].height == 36
    assert answers["pairs"]["fewer"].null_count() == 0
    widest = answers["effect"].filter(pl.col("engine.max_num_seqs") == 64)
    assert widest["fewer"].item() > 0
    assert answers["table"].columns == ["workload.arrival.rate_per_s", "8", "16", "64"]
    assert answers["table"].null_count().sum_horizontal().item() == 0


def test_verdicts_and_censored(answers: dict[str, Any]) -> None:
    assert answers["verdicts"].drop("workload.arrival.rate_per_s").sum().sum_horizontal().item() == 72
    assert answers["failed"].is_empty()
    assert 0 < answers["censored"].height < 72


def test_frontier(answers: dict[str, Any]) -> None:
    points, frontier = answers["points"], answers["frontier"]
    assert 0 < frontier.height <= points.height == 6
    more, less = "output_throughput_tok_per_s", "e2e_served_mean_ms"
    for row in points.iter_rows(named=True):
        better = points.filter(pl.col(more) >= row[more], pl.col(less) < row[less]).height
        better += points.filter(pl.col(more) > row[more], pl.col(less) == row[less]).height
        on_it = frontier.filter(pl.col(more) == row[more], pl.col(less) == row[less]).height > 0
        assert on_it == (better == 0)


def test_join_export_and_streaming(answers: dict[str, Any]) -> None:
    assert answers["changes"].height == 10
    assert answers["changes"]["ratio"].is_sorted(descending=True)
    assert answers["csv"].height == 72
    assert answers["matrix"].shape == (72, 2)
    assert answers["matrix"].dtype == np.float64
    assert "PROJECT" in answers["plan"]
    assert answers["result"]["len"].sum() > 0


def test_sql_passes_no_infinite_percentile_over(answers: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    by_seqs, verdicts = answers["sql"]
    everything = answers["all"].filter(pl.col("workload.arrival.rate_per_s") == 2)
    for row in by_seqs.iter_rows(named=True):
        same = everything.filter(pl.col("engine.max_num_seqs") == row["engine.max_num_seqs"])
        assert row["goodput"] == pytest.approx(same["goodput_req_per_s"].mean())
        worst = float("inf") if same["ttft_p99_ms"].null_count() else same["ttft_p99_ms"].max()
        assert row["worst_ttft_p99_ms"] == worst
    assert float("inf") in by_seqs["worst_ttft_p99_ms"].to_list()
    assert verdicts["runs"].sum() == 72
    code, out, _ = run(
        capsys, "query", answers["folder"] / "queries", "SELECT verdict, count(*) AS runs FROM rows GROUP BY 1", "--csv"
    )
    assert code == 0
    assert out.splitlines()[0] == "verdict,runs"
    code, out, err = run(capsys, "query", answers["folder"] / "queries", "SELECT no_such_column FROM rows")
    assert (code, out) == (2, "")
    assert "no_such_column" in err
    assert len(err.strip().splitlines()) <= 3


def test_a_file_says_what_its_columns_mean(answers: dict[str, Any]) -> None:
    said = json.loads(answers["metadata"]["fastsim"])
    rows = answers["all"]
    assert set(said["columns"]) | set(said["axes"]) | {"config_id", "workload_id"} == set(rows.columns)
    assert said["engines"] == ["vllm-0.33.0"]
    assert said["columns"]["ttft_p99_ms"]["unit"] == "ms"
    assert all(column["meaning"] for column in said["columns"].values())
