"""The sweep's folder: what is refused, what is recognised as done, what is thrown away."""

import json
import os
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from fastsim.errors import InputError
from fastsim.metrics import COLUMNS
from fastsim.sweeps.grid import Grid
from fastsim.sweeps.store import SweepFolder, part_path, read_manifest, write_part
from fastsim.sweeps.store.files import sealed, write_whole
from fastsim.sweeps.store.lock import FolderLock
from fastsim.sweeps.store.schema import axis_columns, empty_rows, file_metadata, part_bytes, part_frame

SPEC = {
    "engine": {"num_gpu_blocks": 100},
    "workload": {"num_requests": 10},
    "sweep": {"axes": {"engine.max_num_seqs": [1, 2, 4, 8], "engine.watermark": [0.0, 0.05]}, "seeds": 4},
}


def make_grid(**changes):
    return Grid.from_mapping(SPEC, [f"{key}={value}" for key, value in changes.items()])


def open_folder(path, grid=None, fresh=False, **select):
    grid = grid or make_grid()
    return SweepFolder(path, grid, grid.select(rows_per_part=8, **select), fresh=fresh)


def store(folder, grid, part):
    floats, ints = empty_rows(part.rows)
    frame = part_frame(grid, part.indices(), ["x"] * part.rows, floats, ints)
    folder.add(write_part(folder.path, part, part_bytes(frame, file_metadata(grid))))


def fill(path, count=None, **select):
    """A folder with the first `count` of its four parts."""
    grid = make_grid()
    with open_folder(path, grid, **select) as folder:
        for part in list(folder.missing_parts())[:count]:
            store(folder, grid, part)
        folder.write_manifest("complete")


def missing(path, **arguments):
    with open_folder(path, **arguments) as folder:
        return [part.index for part in folder.missing_parts()]


def test_a_new_folder_has_everything_to_do_and_describes_itself(tmp_path):
    assert missing(tmp_path / "new" / "sweep") == [0, 1, 2, 3]
    manifest = read_manifest(tmp_path / "new" / "sweep")
    assert manifest.rows == 32
    assert manifest.axes == {"workload.seed": 4, "engine.max_num_seqs": 4, "engine.watermark": 2}
    assert "metrics/summary.py" in manifest.sources
    assert Grid.from_toml(tmp_path / "new" / "sweep" / "spec.toml").spec_hash == make_grid().spec_hash


def test_done_parts_are_kept(tmp_path):
    fill(tmp_path, 3)
    assert missing(tmp_path) == [3]
    fill(tmp_path)
    assert missing(tmp_path) == []


def damage_cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def damage_byte(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def damage_gone(path):
    path.unlink()


def damage_empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [damage_cut, damage_byte, damage_gone, damage_empty])
def test_only_damaged_parts_are_computed_again(tmp_path, damage):
    fill(tmp_path)
    damage(part_path(tmp_path, 2))
    with open_folder(tmp_path) as folder:
        assert folder.damaged == 1
        assert [part.index for part in folder.missing_parts()] == [2]


def test_a_journal_survives_a_killed_parent(tmp_path):
    grid = make_grid()
    with open_folder(tmp_path, grid) as folder:  # never writes its last manifest
        store(folder, grid, next(iter(folder.missing_parts())))
    assert read_manifest(tmp_path).parts == []
    assert missing(tmp_path) == [1, 2, 3]


def test_a_manifest_cut_anywhere_loses_no_part(tmp_path):
    fill(tmp_path, 2)
    whole = (tmp_path / "manifest.json").read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 2):
        (tmp_path / "manifest.json").write_bytes(whole[:length])
        assert missing(tmp_path) == [2, 3]
    (tmp_path / "manifest.json").unlink()
    assert missing(tmp_path) == [2, 3]


def test_a_journal_cut_anywhere_loses_no_part_that_the_manifest_knows(tmp_path):
    fill(tmp_path, 2)
    whole = (tmp_path / "parts.jsonl").read_bytes()
    for length in range(0, len(whole), 7):
        (tmp_path / "parts.jsonl").write_bytes(whole[:length])
        assert missing(tmp_path) == [2, 3]


def test_a_changed_byte_of_the_manifest_or_the_journal_loses_nothing_but_its_line(tmp_path):
    fill(tmp_path, 2)
    for name in ("manifest.json", "parts.jsonl"):
        whole = (tmp_path / name).read_bytes()
        for place in range(0, len(whole), 211):
            damaged = bytearray(whole)
            damaged[place] ^= 1
            (tmp_path / name).write_bytes(damaged)
            assert missing(tmp_path) == [2, 3]


def test_without_a_manifest_parts_of_changed_sources_are_refused(tmp_path, monkeypatch):
    fill(tmp_path, 2)
    (tmp_path / "manifest.json").unlink()
    monkeypatch.setattr("fastsim.sweeps.store.manifest.source_hashes", lambda: {"metrics/summary.py": "0000"})
    with pytest.raises(InputError, match="damaged or missing"):
        missing(tmp_path)


def test_a_folder_of_an_older_version_has_no_checksums_and_goes_on(tmp_path):
    fill(tmp_path, 2)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    del manifest["check"]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    lines = [json.loads(line) for line in (tmp_path / "parts.jsonl").read_text().splitlines()]
    old = [json.dumps({name: value for name, value in line.items() if name != "check"}) for line in lines]
    (tmp_path / "parts.jsonl").write_text("\n".join(old) + "\n")
    assert missing(tmp_path) == [2, 3]


def test_with_neither_manifest_nor_journal_the_folder_is_refused(tmp_path):
    fill(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    (tmp_path / "parts.jsonl").unlink()
    with pytest.raises(InputError, match=r"manifest.json is damaged or missing.*--fresh"):
        missing(tmp_path)
    assert missing(tmp_path, fresh=True) == [0, 1, 2, 3]


def test_a_changed_spec_is_refused_and_the_difference_named(tmp_path):
    fill(tmp_path)
    with pytest.raises(InputError, match=r"latency.b0_us was not given, is 1000"):
        missing(tmp_path, grid=make_grid(**{"latency.b0_us": 1000}))
    with pytest.raises(InputError, match=r"num_gpu_blocks was 100, is 101"):
        missing(tmp_path, grid=make_grid(**{"engine.num_gpu_blocks": 101}))
    with pytest.raises(InputError, match=r"sweep.axes.engine.watermark was \[0.0, 0.05\], is not given"):
        missing(tmp_path, grid=make_grid(**{"engine.watermark": 0.1}))
    with pytest.raises(InputError, match=r"selected was all, is limit 8"):
        missing(tmp_path, limit=8)
    with pytest.raises(InputError, match=r"shard was \[1, 1\], is \[2, 2\]"):
        missing(tmp_path, shard=(2, 2))
    assert missing(tmp_path) == []  # nothing was touched


def test_changed_sources_are_refused_and_named(tmp_path):
    fill(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["sources"]["metrics/summary.py"] = "0000"
    del manifest["check"]
    (tmp_path / "manifest.json").write_text(json.dumps(sealed(manifest)))
    with pytest.raises(InputError, match=r"sources that decide numbers changed: metrics/summary.py"):
        missing(tmp_path)
    assert missing(tmp_path, fresh=True) == [0, 1, 2, 3]
    assert not list((tmp_path / "parts").iterdir())


def test_an_unknown_format_is_refused(tmp_path):
    fill(tmp_path)
    text = (tmp_path / "manifest.json").read_text().replace("fastsim-sweep/4", "fastsim-sweep/99")
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(InputError, match=r"format = 'fastsim-sweep/99'"):
        missing(tmp_path)


def test_somebody_elses_folder_is_refused_and_fresh_touches_nothing_of_it(tmp_path):
    (tmp_path / "thesis.tex").write_text("important")
    with pytest.raises(InputError, match="not a sweep's folder"):
        missing(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    missing(tmp_path, fresh=True)
    assert (tmp_path / "thesis.tex").read_text() == "important"


@pytest.mark.parametrize("name", ["spec.toml", "manifest.json", "parts.jsonl"])
def test_a_sweep_killed_while_it_wrote_its_first_files_begins_anew(tmp_path, name):
    (tmp_path / "parts").mkdir()
    (tmp_path / ".lock").touch()
    leftover = tmp_path / f".{name}.4711.tmp"
    leftover.write_text("half")
    assert missing(tmp_path) == [0, 1, 2, 3]
    assert not leftover.exists()


def test_somebody_elses_manifest_is_not_overwritten(tmp_path):
    (tmp_path / "manifest.json").write_text('{"name": "a web app"}')
    with pytest.raises(InputError, match="damaged or missing"):
        missing(tmp_path)
    assert (tmp_path / "manifest.json").read_text() == '{"name": "a web app"}'


def test_a_stray_part_is_refused(tmp_path):
    fill(tmp_path)
    part_path(tmp_path, 77).write_bytes(b"")
    with pytest.raises(InputError, match=r"part-000077.parquet: does not belong"):
        missing(tmp_path)


def test_an_unwritable_folder_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        missing(tmp_path / "file" / "sweep")


def test_leftovers_of_killed_writers_go(tmp_path):
    fill(tmp_path, 1)
    leftover = tmp_path / "parts" / ".part-000001.parquet.4711.tmp"
    leftover.write_bytes(b"half")
    assert missing(tmp_path) == [1, 2, 3]
    assert not leftover.exists()


def test_the_lock_names_its_owner_and_dies_with_it(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from fastsim.sweeps.store.lock import FolderLock\n"
        "with FolderLock(Path(sys.argv[1])): print('locked', flush=True); time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert owner.stdout.readline() == b"locked\n"
    with pytest.raises(InputError, match=rf"another sweep \(process {owner.pid} on .*\) is writing"):
        missing(tmp_path)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    with FolderLock(tmp_path):
        pass


def test_a_file_system_without_locks_is_one_sentence(tmp_path, monkeypatch):
    def fail(handle, how):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", fail)
    with pytest.raises(InputError, match=r"this file system has no locks \(Function not implemented\)"):
        missing(tmp_path)


def test_a_file_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    write_whole(tmp_path / "file", b"old")

    def fail(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write_whole(tmp_path / "file", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"old")]


def test_rows_have_typed_axes_and_every_metric():
    grid = Grid.from_mapping(
        {
            "engine.num_gpu_blocks": 100,
            "workload.num_requests": 5,
            "sweep": {
                "axes": {
                    "engine.victim": ["tail", "random"],
                    "engine.enable_prefix_caching": [True, False],
                    "run.horizon_s": ["none", 1.5],
                    "engine.max_num_queued_reqs": ["none", 3],
                },
                "seeds": 2,
            },
        }
    )
    indices = np.array([0, 3, 9, grid.size - 1])
    floats, ints = empty_rows(4)
    floats[1, 0] = 2.5
    ints[1] = 0
    frame = part_frame(grid, indices, ["a", "a", "b", None], floats, ints)
    assert frame.columns == ["config_id", "workload_id", *(a.name for a in grid.axes), *(c.name for c in COLUMNS)]
    for row, index in enumerate(indices.tolist()):
        assert {name: frame[name][row] for name in grid.values(index)} == grid.values(index)
    assert frame["engine.victim"].dtype == pl.Enum(["tail", "random"])
    assert frame["engine.enable_prefix_caching"].dtype == pl.Boolean
    assert frame["run.horizon_s"].dtype == pl.Float64
    assert frame["engine.max_num_queued_reqs"].dtype == pl.Int64
    assert frame["status"].to_list() == ["error", "ok", "error", "error"]
    assert frame["ttft_p50_ms"].to_list() == [None, 2.5, None, None]
    assert frame["completed"].to_list() == [None, 0, None, None]
    assert frame["thrash"].to_list() == [None, False, None, None]


def test_a_long_seed_axis_is_not_listed():
    grid = Grid.from_mapping({"engine.num_gpu_blocks": 100, "sweep": {"seeds": 1_000_000_000}})
    column = axis_columns(grid, np.array([5, 999_999_999]))[0]
    assert column.to_list() == [5, 999_999_999]


def test_the_same_rows_are_the_same_bytes_and_scan_as_one_table(tmp_path):
    fill(tmp_path / "a")
    fill(tmp_path / "b")
    for part in range(4):
        assert part_path(tmp_path / "a", part).read_bytes() == part_path(tmp_path / "b", part).read_bytes()
    table = pl.scan_parquet(tmp_path / "a" / "parts" / "*.parquet").collect()
    assert table["config_id"].to_list() == list(range(32))
