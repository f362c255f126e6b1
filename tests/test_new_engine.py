"""A new engine is a folder and one line: the toy in `tests/toy_engine`, put into a copy of the package, does it all."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import fastsim

Command = Callable[..., subprocess.CompletedProcess[str]]
SPEC = """
engine.name = "toy"
engine.num_gpu_blocks = 100
latency.b0_us = 1000
workload.num_requests = 3
workload.arrival.kind = "constant"
workload.arrival.rate_per_s = 10
workload.prompt = { dist = "constant", mean = 5 }
workload.output = { dist = "constant", mean = 8 }
[sweep.axes]
engine.name = ["toy", "blis"]
engine.toy.tokens_per_step = [1, 4]
"""


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The command line of a package that has the toy, its kernels interpreted."""
    root = tmp_path_factory.mktemp("toy")
    package = root / "fastsim"
    shutil.copytree(Path(fastsim.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(Path(__file__).parent / "toy_engine", package / "engines" / "toy")
    front = package / "engines" / "__init__.py"
    before = front.read_text()
    front.write_text(before.replace("FOLDERS = (\n", 'FOLDERS = (\n    "toy",\n'))
    assert len(front.read_text().splitlines()) == len(before.splitlines()) + 1
    (root / "spec.toml").write_text(SPEC)
    environment = os.environ | {"PYTHONPATH": str(root), "NUMBA_DISABLE_JIT": "1"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "fastsim", *arguments],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_one_run(command: Command) -> None:
    done = command("run", "spec.toml", "--set", "engine.toy.tokens_per_step=4", "--json")
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    assert (row["completed"], row["steps"], row["ttft_served_mean_ms"]) == (3, 6, 1.0)
    assert row["itl_mean_ms"] == 1.0
    assert row["toy_idle_s"] == pytest.approx(row["simulated_s"] - 0.006)


def test_a_sweep_beside_another_engine(command: Command, tmp_path: Path) -> None:
    done = command("sweep", "spec.toml", "--out", str(tmp_path / "out"), "--workers", "1")
    assert done.returncode == 0, done.stderr
    rows = pl.read_parquet(tmp_path / "out" / "parts" / "*.parquet").sort("config_id")
    assert rows["engine.name"].to_list() == ["toy", "toy", "blis", "blis"]
    assert rows["completed"].to_list() == [3, 3, 3, 3]
    assert rows["steps"].to_list()[:2] == [24, 6]
    assert rows["toy_idle_s"].is_null().to_list() == [False, False, True, True]
    assert rows["blis_e2e_mean_ms"].is_null().to_list() == [True, True, False, False]


def test_its_recordings(command: Command, tmp_path: Path) -> None:
    case = {"format": "fastsim-golden/1", "engine": "toy", "name": "one", "outputs": [8, 3], "tokens_per_step": 4}
    for name, steps in (("right", 3), ("wrong", 4)):
        with gzip.open(tmp_path / f"{name}.json.gz", "wt") as file:
            json.dump(case | {"name": name, "steps": steps}, file)
    done = command("verify", str(tmp_path), "--engine", "toy")
    assert done.stdout.splitlines() == ["toy/wrong: steps: expected 4, got 3", "1/2 identical"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("engine.toy.tokens_per_step=0", "engine.toy.tokens_per_step = 0, but an integer from 1"),
        ("workload.concurrency=3", 'engine.name = "toy" has no closed loop'),
        ("engine.watermark=0.5", 'engine.name = "toy", which has no such knob'),
    ],
)
def test_what_it_refuses(command: Command, settings: str, words: str) -> None:
    done = command("run", "spec.toml", "--set", settings)
    assert done.returncode == 2
    assert words in done.stderr


def test_others_do_not_know_its_column() -> None:
    from fastsim.metrics import FLOAT_COLUMNS

    assert "toy_idle_s" not in FLOAT_COLUMNS
