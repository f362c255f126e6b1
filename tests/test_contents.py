"""A folder is believed only after it was looked through: changed, missing and unknown files, and edited traces."""

import json
import random
import shutil
import warnings
from functools import partial
from pathlib import Path

import polars as pl
import pytest

import fastsim
from fastsim.errors import InputError, WorkError
from fastsim.sweeps.grid import Grid
from fastsim.sweeps.runner import sweep
from fastsim.sweeps.store.compact import compact
from fastsim.sweeps.store.contents import read_contents
from fastsim.sweeps.store.files import sealed
from fastsim.sweeps.store.lock import FolderLock
from fastsim.sweeps.store.merge import merge
from tests.processes import run
from tests.report_folders import FULL, make_folder

METRIC = "output_throughput_tok_per_s"
READERS = {
    "compare": ("compare", "--by", "engine.max_num_seqs"),
    "pareto": ("compare", "--pareto", f"{METRIC},ttft_p50_ms"),
    "report": ("report",),
    "run": ("run", "--config-id", "3"),
    "explain": ("explain", "--config-id", "3"),
    "compact": ("compact",),
}


@pytest.fixture
def call(capsys):
    return partial(run, capsys)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("whole") / "rows", FULL)


@pytest.fixture
def folder(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "rows"))


def parts(folder):
    return sorted((folder / "parts").iterdir())


def verb(call, name, folder):
    first, *rest = READERS[name]
    return call(first, folder, *rest)


def times_ten(path):
    pl.read_parquet(path).with_columns(pl.col(METRIC) * 10).write_parquet(path)


# --- changed bytes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", READERS)
def test_a_column_times_ten_is_refused_by_every_reader(call, folder, name):
    times_ten(parts(folder)[1])
    code, output, errors = verb(call, name, folder)
    assert code == (2 if name == "compact" else 1)
    assert output == ""
    assert f"{parts(folder)[1]}" in errors
    assert "is damaged" in errors
    assert errors.count("\n") == 1


def test_status_names_what_changed_and_ends_with_1(call, folder):
    times_ten(parts(folder)[1])
    code, output, errors = call("status", folder)
    assert code == 1
    assert output.startswith("incomplete: 42 of 54 rows (77.8%)")
    assert f"{parts(folder)[1]} is damaged: its bytes are not those that were stored" in errors
    for path in parts(folder):
        path.write_bytes(b"")
    code, _, errors = call("status", folder)
    assert code == 1
    assert " and 2 more are damaged" in errors


def test_python_refuses_too(folder):
    times_ten(parts(folder)[2])
    with pytest.raises(WorkError, match=r"part-000002.parquet is damaged"):
        fastsim.scan(folder)
    with pytest.raises(InputError, match=r"part-000002.parquet: is damaged"):
        merge([folder], folder.with_name("out"))


def test_every_flipped_bit_is_seen(folder):
    rng = random.Random(5)
    for _ in range(100):
        path = rng.choice(parts(folder))
        data = bytearray(path.read_bytes())
        bit = rng.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        before = path.read_bytes()
        path.write_bytes(data)
        assert len(read_contents(folder).damaged) == 1, f"bit {bit} of {path.name}"
        path.write_bytes(before)
    assert read_contents(folder).is_complete


def test_a_flipped_bit_beside_the_parts_changes_no_row_and_is_told(folder):
    rows = fastsim.scan(folder).collect()
    rng = random.Random(6)
    for name in ("manifest.json", "spec.toml", "parts.jsonl"):
        before = (folder / name).read_bytes()
        for _ in range(30):
            data = bytearray(before)
            bit = rng.randrange(8 * len(data))
            data[bit // 8] ^= 1 << bit % 8
            (folder / name).write_bytes(data)
            try:
                found = read_contents(folder)
            except InputError as error:  # the word of the format was hit
                assert "manifest.json: format" in str(error)  # noqa: PT017
                continue
            assert found.scan().collect().equals(rows)
            assert name == "parts.jsonl" or found.notes()
        (folder / name).write_bytes(before)


# --- missing and unknown files ---------------------------------------------------------------------------------------


def test_a_removed_part_is_named(call, folder):
    gone = parts(folder)[1]
    gone.unlink()
    for name in ("compare", "pareto", "report"):
        code, output, errors = verb(call, name, folder)
        assert code == 0, errors
        assert output
        assert f"{gone} is missing (12 rows)" in errors
        assert "incomplete: 42 of 54 rows are there; the same `fastsim sweep` command goes on" in errors
    code, output, errors = call("status", folder)
    assert code == 1
    assert f"{gone} is missing (12 rows)" in errors
    with pytest.warns(UserWarning, match="is missing") as caught:
        assert fastsim.scan(folder).collect().height == 42
    assert caught[0].filename == __file__


def test_an_unfinished_sweep_is_no_fault_but_said(call, tmp_path):
    folder = make_folder(tmp_path / "rows", FULL)
    table = json.loads((folder / "manifest.json").read_text())
    del table["check"]
    table["parts"] = table["parts"][:2]
    (folder / "manifest.json").write_text(json.dumps(sealed(table)))
    (folder / "parts.jsonl").unlink()
    for path in parts(folder)[2:]:
        path.unlink()
    assert call("status", folder)[0] == 0
    code, output, errors = verb(call, "compare", folder)
    assert code == 0
    assert "24 of 54 rows are there" in errors
    assert "Answer" in output
    with FolderLock(folder):
        assert "running: 24 of 54 rows are there" in verb(call, "compare", folder)[2]


def test_a_report_of_a_part_of_the_grid_says_so(call, tmp_path):
    folder = make_folder(tmp_path / "rows", FULL, limit=20)
    code, output, errors = call("report", folder)
    assert (code, errors) == (0, "")
    assert output.startswith("Answer, from the first 20 of 54 configurations: ")
    page = (folder / "report.html").read_text()
    assert "Answer, from the first 20 of 54 configurations: " in page
    assert "what is said of them need not hold for the whole grid" in page


def test_files_that_are_not_of_the_sweep_are_left_out(call, folder):
    shutil.copy(parts(folder)[0], folder / "parts" / "part-000000-copy.parquet")
    code, _, errors = verb(call, "compare", folder)
    assert code == 0
    assert "part-000000-copy.parquet: not a part of this sweep, and left out" in errors
    with pytest.warns(UserWarning, match="left out"):
        assert fastsim.scan(folder).collect().height == 54


def test_parts_alone_are_read_unchecked_and_say_so(folder):
    for name in ("manifest.json", "parts.jsonl", "spec.toml"):
        (folder / name).unlink()
    with pytest.warns(UserWarning, match=r"no manifest\.json"):
        assert fastsim.scan(folder).collect().height == 54
    with pytest.raises(InputError, match="holds no rows"):
        fastsim.scan(folder / "nowhere")


def test_a_name_with_brackets_is_a_name(folder):
    odd = folder.rename(folder.with_name("rows[1]*"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fastsim.scan(odd).collect().height == 54


def test_a_compacted_folder_is_checked_by_its_new_files(folder):
    compact(folder)
    assert read_contents(folder).is_complete
    times_ten(parts(folder)[0])
    assert len(read_contents(folder).damaged) == 1


# --- what was swept, built anew ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """A sweep over a trace, and the trace."""
    path = tmp_path_factory.mktemp("traced")
    trace = path / "trace.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(f"{k},{100 + k},20\n" for k in range(12)))
    axes = {"engine.max_num_seqs": [1, 4]}
    spec = {"engine.num_gpu_blocks": 64, "workload.trace": str(trace), "sweep": {"axes": axes}}
    sweep(Grid.from_mapping(spec), path / "rows", workers=1)
    return path


@pytest.mark.parametrize("name", ["run", "explain"])
def test_an_edited_trace_is_refused(call, traced, name):
    trace = traced / "trace.csv"
    before = trace.read_text()
    assert call(name, traced / "rows", "--config-id", "1")[0] == 0
    try:
        trace.write_text(before.replace(",105,", ",150,"))
        code, output, errors = call(name, traced / "rows", "--config-id", "1")
        assert (code, output) == (2, "")
        assert f"the trace {trace} has other contents than when the sweep ran" in errors
        assert call(name, traced / "rows", "--config-id", "1", "--set", "engine.watermark=0.1")[0] == 2
    finally:
        trace.write_text(before)


def test_the_workload_is_that_of_the_row_whatever_the_sources(call, traced, tmp_path, monkeypatch):
    """Another version may name a sweep otherwise: then the contents of the workload alone decide."""
    monkeypatch.setattr("fastsim.sweeps.store.sources.source_hashes", lambda: {"another": "version"})
    trace = traced / "trace.csv"
    before = trace.read_text()
    code, _, errors = call("run", traced / "rows", "--config-id", "0")
    assert code == 0
    assert "note: another fastsim computed these rows" in errors
    try:
        trace.write_text(before.replace(",105,", ",150,"))
        code, _, errors = call("run", traced / "rows", "--config-id", "0")
        assert code == 2
        assert "the row's workload_id is" in errors
    finally:
        trace.write_text(before)


def test_an_edited_spec_is_refused(call, traced, tmp_path):
    folder = Path(shutil.copytree(traced / "rows", tmp_path / "rows"))
    spec = (folder / "spec.toml").read_text()
    (folder / "spec.toml").write_text(spec.replace("64", "65"))
    code, _, errors = call("run", folder, "--config-id", "0")
    assert code == 2
    assert "spec.toml: was changed since the sweep wrote it" in errors
