"""Compaction: the same rows in fewer files, at every moment, whatever is killed when."""

import os
import shutil
import sys
from pathlib import Path

import polars as pl
import pytest

from fastsim import scan
from fastsim.errors import InputError, WorkError
from fastsim.sweeps.grid import Grid
from fastsim.sweeps.store import compact as compaction
from fastsim.sweeps.store import files, part_path, read_manifest
from fastsim.sweeps.store.compact import compact, grouped
from fastsim.sweeps.store.folder import recover
from fastsim.sweeps.store.lock import FolderLock
from fastsim.sweeps.store.manifest import PartRecord
from tests.fake_simulation import FINE
from tests.test_runner import digest, make_grid, rows, run

OLD = Path(__file__).parent / "data" / "sweep-format-1"
GRID = make_grid(FINE, 7)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A sweep of 48 rows in 6 parts."""
    out = tmp_path_factory.mktemp("swept")
    run(GRID, out, rows_per_part=8)
    assert len(list((out / "parts").iterdir())) == 6
    return out


@pytest.fixture
def folder(swept, tmp_path):
    return shutil.copytree(swept, tmp_path / "folder")


def test_a_small_sweep_becomes_one_file_with_the_same_rows(swept, folder):
    done = compact(folder)
    assert (done.files_before, done.files, done.rows) == (6, 1, 48)
    assert [path.name for path in (folder / "parts").iterdir()] == ["part-000000.parquet"]
    assert rows(folder).equals(rows(swept))
    assert scan(folder).collect().equals(rows(swept))
    manifest = read_manifest(folder)
    assert (manifest.state, manifest.rows, manifest.totals["parts_done"]) == ("complete", 48, 1)
    assert {path.name for path in folder.iterdir()} == {"manifest.json", "parts.jsonl", "spec.toml", "parts", ".lock"}
    again = compact(folder)
    assert (again.files_before, again.files) == (1, 1)


def test_a_compact_folder_is_complete_and_a_damaged_file_is_computed_again(swept, folder):
    compact(folder)
    assert run(GRID, folder, rows_per_part=8).computed == 0
    (folder / "manifest.json").unlink()  # the journal knows as well
    assert run(GRID, folder, rows_per_part=8).computed == 0
    part_path(folder, 0).write_bytes(part_path(folder, 0).read_bytes()[:-1])
    assert run(GRID, folder, rows_per_part=8).computed == 48
    assert digest(folder) == digest(swept)


@pytest.mark.parametrize(("together", "files_wanted"), [(2, 3), (5, 1)])
def test_several_files_are_the_same_whoever_makes_them(folder, tmp_path, monkeypatch, together, files_wanted):
    sizes = [record.bytes for record in read_manifest(folder).part_records()]
    monkeypatch.setattr(compaction, "TARGET_BYTES", sum(sizes[:together]) + 10)
    monkeypatch.setattr(compaction, "LEAST_BYTES", 10 if files_wanted == 3 else sizes[0] * 2)
    before = rows(folder)
    other = shutil.copytree(folder, tmp_path / "other")
    assert compact(folder).files == files_wanted
    compact(other)
    assert digest(folder) == digest(other)
    assert rows(folder).equals(before)
    part_path(folder, 2 if files_wanted == 3 else 0).unlink()  # holds parts 2 and 3, or all
    assert run(GRID, folder, rows_per_part=8).computed == 48 // files_wanted
    assert rows(folder).equals(before)


def test_files_are_of_1_to_64_megabytes():
    mega = 2**20
    for sizes in ([40_000] * 2000, [3 * mega] * 64, [31 * mega, 2 * mega, 31 * mega, 10], [60 * mega] * 3, [5]):
        records = [PartRecord(n, n, n + 1, 1, size, "") for n, size in enumerate(sizes)]
        groups = list(grouped(records))
        assert [record for group in groups for record in group] == records
        total = [sum(record.bytes for record in group) for group in groups]
        assert all(size <= 64 * mega for size in total)
        assert len(total) == 1 or all(size >= mega for size in total)


class Killed(BaseException):
    """The process is dead: nothing it does reaches the disk any more."""


class Killer:
    """From the n-th operation on files on, every one fails."""

    WATCHED = ("open", "os.", "shutil.", "ctypes.dlopen")

    def __init__(self):
        self.left = self.armed = None
        sys.addaudithook(self.hook)

    def hook(self, event, arguments):
        if self.left is None or not event.startswith(self.WATCHED):
            return
        if event == "open" and isinstance(arguments[0], str) and not arguments[0].startswith(os.sep):
            return
        self.left -= 1
        if self.left < 0:
            raise Killed(event)


@pytest.fixture(scope="module")
def killer():
    return Killer()


@pytest.mark.parametrize("at_once", [True, False], ids=["exchanged", "renamed"])
def test_killed_at_any_moment_no_row_is_lost_or_doubled(swept, folder, tmp_path, killer, monkeypatch, at_once):
    if not at_once:
        monkeypatch.setattr(files, "_exchange_at_once", lambda one, other: False)

    def recover_and_arm(path):  # the lock is taken: a dead process would give it back, this one cannot
        recover(path)
        killer.left, killer.armed = killer.armed, None

    monkeypatch.setattr(compaction, "recover", recover_and_arm)
    whole = rows(swept)
    compact(folder)
    compacted = digest(folder)
    moments = {"before": 0, "between": 0, "after": 0}
    while True:
        count = sum(moments.values())
        victim = shutil.copytree(swept, tmp_path / "victim")
        killer.armed = count
        try:
            compact(victim)
            finished = True
        except Killed:
            finished = False
        finally:
            killer.left = None
        there = len(list((victim / "parts").glob("*.parquet"))) if (victim / "parts").is_dir() else 0
        assert there in ((6, 1) if at_once else (6, 0, 1)), count
        assert there == 0 or rows(victim).equals(whole), count
        assert compact(victim).files == 1 if count % 2 else run(GRID, victim, rows_per_part=8).computed == 0, count
        compact(victim)
        assert digest(victim) == compacted
        assert not [path.name for path in victim.iterdir() if path.name.startswith(".compact")]
        shutil.rmtree(victim)
        if finished:
            break
        moments[{6: "before", 0: "between", 1: "after"}[there]] += 1
    assert moments["before"] > 10
    assert moments["after"] > 5
    assert at_once == (moments["between"] == 0)


def test_a_full_disk_leaves_the_folder_as_it_was(swept, folder, monkeypatch):
    def fail(path, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(compaction, "write_whole", fail)
    with pytest.raises(WorkError, match=r"cannot be written \(No space left on device\); it is as before"):
        compact(folder)
    assert digest(folder) == digest(swept)
    assert not (folder / ".compact").exists()


def test_what_cannot_be_compacted_is_one_sentence(folder, tmp_path):
    with pytest.raises(InputError, match=r"no readable manifest\.json"):
        compact(tmp_path / "nowhere")
    with FolderLock(folder), pytest.raises(InputError, match="another sweep"):
        compact(folder)
    part_path(folder, 3).write_bytes(b"x")
    with pytest.raises(InputError, match=r"part-000003.parquet: is damaged; `fastsim sweep`"):
        compact(folder)
    run(GRID, tmp_path / "shard", rows_per_part=8, shard=(2, 3))
    with pytest.raises(InputError, match=r"holds shard 2/3; `fastsim merge` the shards first"):
        compact(tmp_path / "shard")


def test_a_folder_of_the_first_format_is_read_compacted_and_its_difference_named(tmp_path):
    old = shutil.copytree(OLD, tmp_path / "old")
    with pytest.warns(UserWarning, match="its verdicts are of the old kind"):
        table = scan(old).collect()
    assert table["config_id"].to_list() == list(range(8))
    assert compact(old).rows == 8
    axes = {"engine.max_num_seqs": [1, 2, 4, 8]}
    spec = {"engine.num_gpu_blocks": 100, "workload.num_requests": 10, "sweep": {"axes": axes, "seeds": 2}}
    with pytest.raises(InputError, match=r"sources that decide numbers changed: .*\.py.*--fresh"):
        run(Grid.from_mapping(spec), old, rows_per_part=8)
    assert pl.read_parquet(old / "parts" / "*.parquet").equals(table)
