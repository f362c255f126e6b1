"""Sweeps over policies of one's own: an axis of files, their copies and hashes in the folder, faults as rows."""

import json
import pickle
from pathlib import Path

import polars as pl
import pytest

from fastsim import pinned
from fastsim.engines.vllm.policy_text.source import load_policy
from fastsim.errors import InputError
from fastsim.simulation import record_of, simulate
from fastsim.sweeps.grid import Grid
from tests.processes import run

EXAMPLES = Path(__file__).parent.parent / "sweeps" / "policies"
SPEC = """
engine.num_gpu_blocks = 300
engine.enable_prefix_caching = false
engine.scheduler_reserve_full_isl = false

[workload]
num_requests = 40
arrival = { kind = "all_at_once" }
prompt = { dist = "uniform", min = 50, max = 200 }
output = { dist = "uniform", min = 100, max = 400 }

[sweep.axes]
engine.policy_file = ["none", "blocks.py", "few.py"]
"""
BLOCKS = "def victim_key(view, request):\n    return request.blocks\n"
FEW = "def cap(view):\n    return 5\n"
FAULTY = "def victim_key(view, request):\n    return 1 / (299 - view.usable_blocks)\n"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A spec with two policies beside it."""
    (tmp_path / "blocks.py").write_text(BLOCKS)
    (tmp_path / "few.py").write_text(FEW)
    path = tmp_path / "spec.toml"
    path.write_text(SPEC)
    return path


def test_an_axis_over_files(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = spec.parent / "out"
    code, _, err = run(capsys, "sweep", str(spec), "--out", str(folder), "--workers", "1")
    assert code == 0, err
    rows = pl.read_parquet(folder / "parts" / "*.parquet")
    assert rows["engine.policy_file"].to_list() == ["none", "blocks.py", "few.py"]
    assert rows["running_peak"].to_list()[2] == 5
    assert rows["preemptions"].to_list()[1] != rows["preemptions"].to_list()[0]

    # The folder stands on its own: copies, hashes, and a spec that names the copies
    assert (folder / "policies" / "blocks.py").read_text() == BLOCKS
    digests = json.loads((folder / "manifest.json").read_text())["policies"]
    assert digests.keys() == {"blocks.py", "few.py"}
    said = pl.read_parquet_metadata(next((folder / "parts").glob("*.parquet")))["fastsim"]
    assert json.loads(said)["policies"] == digests
    code, out, _ = run(capsys, "check-policy", "--quick", str(folder / "policies" / "few.py"))
    assert digests["few.py"] in out.replace("\n  ", " ")
    for name in ("blocks.py", "few.py"):
        (spec.parent / name).unlink()
    assert Grid.from_toml(folder / "spec.toml").policy_digests == digests
    code, out, err = run(capsys, "run", str(folder), "--config-id", "2", "--json")
    assert code == 0, err

    # A copy that was changed is not the policy of the rows
    (folder / "policies" / "few.py").write_text(FEW.replace("5", "6"))
    code, _, err = run(capsys, "run", str(folder), "--config-id", "2")
    assert code == 2
    assert "policies/few.py has other contents than when the sweep ran" in err


def test_a_changed_policy_is_another_sweep(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = spec.parent / "out"
    assert run(capsys, "sweep", str(spec), "--out", str(folder), "--workers", "1")[0] == 0
    (spec.parent / "few.py").write_text(FEW.replace("5", "6"))
    code, _, err = run(capsys, "sweep", str(spec), "--out", str(folder), "--workers", "1")
    assert code == 2
    assert "the policy few.py has other contents" in err


def test_shards_bring_their_policies(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shards = [spec.parent / f"shard{k}" for k in (1, 2)]
    seeds = ",".join(map(str, range(30)))
    for k, shard in enumerate(shards, 1):
        options = ("--workers", "1", "--axis", f"workload.seed={seeds}", "--shard", f"{k}/2")
        code, _, err = run(capsys, "sweep", str(spec), "--out", str(shard), *options)
        assert code == 0, err
    code, _, err = run(capsys, "merge", *map(str, shards), "--out", str(spec.parent / "whole"))
    assert code == 0, err
    assert (spec.parent / "whole" / "policies" / "few.py").read_text() == FEW


def test_other_processes_read_a_policy_as_it_was(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "_held", {})
    grid = Grid.from_toml(spec)
    (spec.parent / "few.py").write_text(FEW.replace("5", "6"))
    there = pickle.loads(pickle.dumps(grid))
    assert there.spec_hash == grid.spec_hash
    assert simulate(there.config(2)).totals["running_peak"] == 5


def test_a_fault_while_it_runs_is_a_row_of_status_error(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (spec.parent / "few.py").write_text(FAULTY)
    folder = spec.parent / "out"
    code, _, err = run(capsys, "sweep", str(spec), "--out", str(folder), "--workers", "1")
    assert code == 1
    assert "for example config_id 2: few.py, line 2: a division by 0" in err
    assert "Traceback" not in err
    rows = pl.read_parquet(folder / "parts" / "*.parquet")
    assert (rows["status"] == "error").to_list() == [False, False, True]
    code, _, err = run(capsys, "run", str(spec), "--set", "engine.policy_file=few.py")
    assert code == 2  # --set names files where the command runs


def test_a_policy_that_is_none_stops_a_sweep_before_it_begins(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (spec.parent / "few.py").write_text("def cap(view):\n    return view.free_block\n")
    code, _, err = run(capsys, "sweep", str(spec), "--out", str(spec.parent / "out"))
    assert code == 2
    assert err.strip() == "few.py, line 2: view.free_block is no field; did you mean free_blocks?"
    assert not (spec.parent / "out").exists()


def test_records_of_rules_without_a_policy_hold_no_address(spec: Path) -> None:
    grid = Grid.from_toml(spec)
    assert record_of(grid.config(0)).engine["policy_cap"][0] == 0
    assert record_of(grid.config(2)).engine["policy_cap"][0] != 0
    with pytest.raises(InputError, match="cannot be read"):
        Grid.from_toml(spec, ["engine.policy_file=nowhere.py"], [])


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_a_policy_that_a_sweep_answers_about(path: Path) -> None:
    assert load_policy(str(path)).reads
    assert any(f'"{path.name}"' in spec.read_text() for spec in EXAMPLES.glob("*.toml"))
    assert f"]({path.name})" in (EXAMPLES / "README.md").read_text()
