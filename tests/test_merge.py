"""Merged shards are the sweep that was not cut; what does not belong together is refused, and the reason named."""

import json
import re
import shutil

import polars as pl
import pytest

from fastsim.errors import InputError
from fastsim.sweeps.store import merge as merging
from fastsim.sweeps.store import part_path, read_manifest
from fastsim.sweeps.store.compact import compact
from fastsim.sweeps.store.files import checksum, sealed
from fastsim.sweeps.store.merge import merge
from tests.fake_simulation import FINE, RAISES
from tests.test_runner import digest, make_grid, rows, run

GRID = make_grid(FINE, RAISES)


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """The sweep in one piece: 48 rows in 12 parts, two to a workload."""
    out = tmp_path_factory.mktemp("swept")
    run(GRID, out, rows_per_part=4)
    return out


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """The same sweep in three shards."""
    folder = tmp_path_factory.mktemp("shards")
    for n in (1, 2, 3):
        run(GRID, folder / str(n), rows_per_part=4, shard=(n, 3))
    return folder


@pytest.fixture
def shards(pristine, tmp_path):
    folder = shutil.copytree(pristine, tmp_path / "shards")
    return [folder / "1", folder / "2", folder / "3"]


def refused(folders, out, sentence):
    with pytest.raises(InputError, match=sentence):
        merge(folders, out)
    assert not out.exists()


def test_merged_shards_are_the_sweep_in_one_piece(swept, shards, tmp_path):
    out = tmp_path / "out"
    done = merge([shards[2], shards[0], shards[1]], out)
    assert (done.shards, done.parts, done.rows, done.notes) == (3, 12, 48, [])
    assert digest(out) == digest(swept)
    merged, whole = read_manifest(out), read_manifest(swept)
    assert merged.parts == whole.parts
    assert merged.identity == whole.identity
    assert (merged.state, merged.errors) == ("complete", whole.errors)
    assert (out / "spec.toml").read_bytes() == (swept / "spec.toml").read_bytes()
    assert run(GRID, out, rows_per_part=4).computed == 0
    assert merge(shards, out).rows == 48  # again: nothing to do
    compact(out)
    assert rows(out).equals(rows(swept))


def test_a_merge_that_was_killed_goes_on(swept, shards, tmp_path, monkeypatch):
    out = tmp_path / "out"
    written = []

    def write_some(path, data):
        if len(written) == 5:
            raise KeyboardInterrupt
        written.append(path)
        path.write_bytes(data)

    with monkeypatch.context() as patched:
        patched.setattr(merging, "write_whole", write_some)
        with pytest.raises(KeyboardInterrupt):
            merge(shards, out)
    first = written[0].stat().st_mtime_ns
    assert read_manifest(out).state == "running"
    merge(shards, out)
    assert written[0].stat().st_mtime_ns == first
    assert digest(out) == digest(swept)


def test_a_sample_in_shards_is_merged(tmp_path):
    run(GRID, tmp_path / "whole", rows_per_part=4, sample=24)
    for n in (1, 2):
        run(GRID, tmp_path / str(n), rows_per_part=4, sample=24, shard=(n, 2))
    merge([tmp_path / "1", tmp_path / "2"], tmp_path / "out")
    assert digest(tmp_path / "out") == digest(tmp_path / "whole")


def test_missing_and_doubled_shards(shards, tmp_path):
    out = tmp_path / "out"
    refused(shards[:2], out, r"^shard 3/3 is missing, but all 3 were expected$")
    refused([*shards, shards[1]], out, r"2 \(shard 2/3\) and .*2 \(shard 2/3\) are the same shard")
    run(GRID, tmp_path / "half", rows_per_part=4, shard=(1, 2))
    refused([*shards, tmp_path / "half"], out, r"shards/1 \(shard 1/3\) and .*half \(shard 1/2\) are of different num")


def test_shards_of_other_sweeps(shards, tmp_path):
    out = tmp_path / "out"
    run(make_grid(FINE, RAISES, seeds=2), tmp_path / "seeds", rows_per_part=4, shard=(3, 3))
    refused([*shards[:2], tmp_path / "seeds"], out, r"not of one sweep \(the spec changed: sweep.seeds was 3, is 2\)")
    run(GRID, tmp_path / "limit", rows_per_part=4, shard=(3, 3), limit=40)
    refused([*shards[:2], tmp_path / "limit"], out, r"not of one sweep \(selected was all, is limit 40\)")
    change(shards[2], lambda table: table["sources"].update({"metrics/summary.py": "0"}))
    refused(shards, out, r"not of one sweep \(sources that decide numbers changed: metrics/summary.py\)")
    change(shards[2], lambda table: table.update({"format": "fastsim-sweep/99"}))
    refused(shards, out, r"format = 'fastsim-sweep/99'")


def change(folder, edit):
    """Edit a manifest as nobody should."""
    table = json.loads((folder / "manifest.json").read_text())
    del table["check"]
    edit(table)
    (folder / "manifest.json").write_text(json.dumps(sealed(table)))


def test_incomplete_and_damaged_shards(shards, tmp_path):
    out = tmp_path / "out"
    part_path(shards[1], 4).write_bytes(b"x")
    refused(shards, out, r"2/parts/part-000004.parquet: is damaged; .*--shard 2/3")
    part_path(shards[1], 4).unlink()
    refused(shards, out, r"part-000004.parquet: is damaged")
    change(shards[1], lambda table: table["parts"].pop(1))
    (shards[1] / "parts.jsonl").unlink()
    refused(shards, out, r"2 \(shard 2/3\): part 4 is missing; .*--shard 2/3")
    (shards[0] / "manifest.json").unlink()
    refused(shards, out, r"1: no readable manifest\.json")


def rewrite(folder, part, frame):
    """Put other rows into a part, with everything that vouches for them."""
    frame.write_parquet(part_path(folder, part))
    data = part_path(folder, part).read_bytes()

    def edit(table):
        record = next(record for record in table["parts"] if record["part"] == part)
        record |= {"bytes": len(data), "blake2b": checksum(data)}

    change(folder, edit)
    (folder / "parts.jsonl").unlink(missing_ok=True)


def test_rows_of_other_configurations(shards, tmp_path):
    frame = pl.read_parquet(part_path(shards[0], 3)).with_columns(pl.col("config_id") + 4)
    rewrite(shards[0], 3, frame)
    refused(shards, tmp_path / "out", r"part-000003.parquet: holds other configurations than this part's")


def test_workloads_with_other_contents_in_shards_that_share_them(shards, tmp_path):
    frame = pl.read_parquet(part_path(shards[0], 3)).with_columns(workload_id=pl.lit("0123456789abcdef"))
    rewrite(shards[0], 3, frame)
    change(shards[0], lambda table: table["versions"].update(numpy="1.26.4"))
    version = re.escape(read_manifest(shards[1]).versions["numpy"])
    refused(
        shards, tmp_path / "out", rf"workload 1 has other contents in .*1/3\) than in .* \(numpy 1.26.4 and {version}\)"
    )


def test_workloads_with_other_contents_in_shards_that_share_none(tmp_path):
    for n in (1, 2):
        run(GRID, tmp_path / str(n), rows_per_part=8, shard=(n, 2))
    folders = [tmp_path / "1", tmp_path / "2"]
    parts = [int(path.stem[-6:]) for path in sorted((folders[1] / "parts").iterdir())]
    for part in parts:
        frame = pl.read_parquet(part_path(folders[1], part)).with_columns(workload_id=pl.lit(f"{part:016}"))
        rewrite(folders[1], part, frame)
    refused(
        folders, tmp_path / "out", r"workloads of .*2/2\) have other contents than this machine makes of the same spec"
    )


def test_another_folder_is_not_overwritten(shards, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tex").write_text("important")
    with pytest.raises(InputError, match="not a sweep's folder"):
        merge(shards, out)
    with pytest.raises(InputError, match=r"holds another sweep \(shard was \[1, 3\], is \[1, 1\]\)"):
        merge(shards, shards[0])
    assert [path.name for path in out.iterdir()] == ["thesis.tex"]
