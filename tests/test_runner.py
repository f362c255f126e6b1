"""Sweeps with workers that raise, die or are slow, and parents that are stopped: the rows are always the same."""

import hashlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest

from fastsim._notice import COMPILING
from fastsim.cli import main
from fastsim.errors import InputError
from fastsim.sweeps.grid import Grid
from fastsim.sweeps.runner import available_cores, check_backend, driver
from fastsim.sweeps.store import part_path, read_manifest
from fastsim.sweeps.store.failures import MAX_LISTED
from fastsim.sweeps.worker import part_data
from tests.fake_simulation import (
    FINE,
    KILLS,
    KILLS_ONCE,
    MARKER,
    RAISES,
    SLOW,
    CompilingJob,
    FakeJob,
    sweep_with,
)
from tests.processes import SMALL_FILES


def make_grid(*behaviours, seeds=3):
    axes = {"engine.max_num_seqs": [1, 2, 4, 8], "workload.arrival.rate_per_s": [1.0, 2.0]}
    return Grid.from_mapping(
        {
            "engine.num_gpu_blocks": 100,
            "workload.num_requests": 10,
            "sweep": {"axes": axes | {"run.max_steps": list(behaviours)}, "seeds": seeds},
        }
    )


class Recorder:
    def __init__(self):
        self.rows = 0
        self.begun = None
        self.notes = []
        self.closed = False
        self.workers_ready = 0

    def start(self, total, done):
        self.begun = (total, done)

    def ready(self):
        self.workers_ready += 1

    def advance(self, rows):
        self.rows += rows

    def note(self, text):
        self.notes.append(text)

    def close(self):
        self.closed = True


def run(grid, out, **options):
    return sweep_with(FakeJob, grid, out, **({"workers": 1, "rows_per_part": 16} | options))


def digest(out):
    """Over names and bytes of all parts."""
    total = hashlib.sha256()
    for path in sorted((out / "parts").iterdir()):
        total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()


def rows(out):
    return pl.scan_parquet(out / "parts" / "*.parquet").collect()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A sweep that nothing happened to: 48 rows in 3 parts."""
    out = tmp_path_factory.mktemp("undisturbed")
    result = run(make_grid(FINE, 7), out)
    assert (result.rows, result.computed, result.errors) == (48, 48, {})
    return out


def test_rows_are_complete_and_in_order(undisturbed):
    table = rows(undisturbed)
    assert table["config_id"].to_list() == list(range(48))
    assert table["completed"].to_list() == list(range(48))
    assert table["workload_id"].n_unique() == 6
    assert table.filter(pl.col("workload.seed") == 1)["workload_id"].n_unique() == 2
    manifest = read_manifest(undisturbed)
    assert (manifest.state, manifest.totals["rows_done"], len(manifest.parts)) == ("complete", 48, 3)


def test_two_workers_give_the_same_bytes(undisturbed, tmp_path):
    progress = Recorder()
    run(make_grid(FINE, 7), tmp_path, workers=2, progress=progress)
    assert digest(tmp_path) == digest(undisturbed)
    assert (progress.begun, progress.rows, progress.closed) == ((48, 0), 48, True)
    assert progress.workers_ready in (1, 2)


def test_only_what_is_missing_is_computed(undisturbed, tmp_path):
    run(make_grid(FINE, 7), tmp_path)
    part_path(tmp_path, 0).write_bytes(b"damaged")
    part_path(tmp_path, 2).unlink()
    before = part_path(tmp_path, 1).stat().st_mtime_ns
    progress = Recorder()
    assert run(make_grid(FINE, 7), tmp_path, progress=progress).computed == 32
    assert progress.begun == (48, 16)
    assert any("2 parts" in note for note in progress.notes)
    assert part_path(tmp_path, 1).stat().st_mtime_ns == before
    assert digest(tmp_path) == digest(undisturbed)
    assert run(make_grid(FINE, 7), tmp_path).computed == 0


def test_shards_together_are_the_whole(undisturbed, tmp_path):
    for shard in (1, 2):
        run(make_grid(FINE, 7), tmp_path / str(shard), shard=(shard, 2))
    together = sorted(path.name for shard in "12" for path in (tmp_path / shard / "parts").iterdir())
    assert together == sorted(path.name for path in (undisturbed / "parts").iterdir())
    for shard in "12":
        for path in (tmp_path / shard / "parts").iterdir():
            assert path.read_bytes() == (undisturbed / "parts" / path.name).read_bytes()


def test_a_sample_has_the_rows_of_the_whole(undisturbed, tmp_path):
    run(make_grid(FINE, 7), tmp_path, sample=17)
    table = rows(tmp_path)
    assert table.height == 17
    assert table.equals(rows(undisturbed).filter(pl.col("config_id").is_in(table["config_id"].to_list())))


def test_a_failing_configuration_is_a_row_and_the_rest_goes_on(tmp_path):
    result = run(make_grid(FINE, RAISES), tmp_path)
    table = rows(tmp_path)
    assert table.height == 48
    assert table.group_by("run.max_steps", "status").len().sort("run.max_steps").rows() == [
        (FINE, "ok", 24),
        (RAISES, "error", 24),
    ]
    assert table.filter(pl.col("status") == "error")["completed"].null_count() == 24
    assert len(result.errors) == 24
    assert set(result.errors.values()) == {"RuntimeError: this configuration is not well"}
    assert "fake_simulation.py" in result.tracebacks[0]
    manifest = read_manifest(tmp_path)
    assert (manifest.totals["errors"], len(manifest.errors), manifest.state) == (24, 24, "complete")


def status_text(out, capsys):
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["status", str(out)])
    assert end.value.code == 0
    return capsys.readouterr().out


def as_format_2(out):
    """Turn a folder into one of the format before errors were counted by part."""
    table = json.loads((out / "manifest.json").read_text())
    for part in table["parts"]:
        del part["errors"]
        part.pop("first_errors", None)
    del table["check"]
    (out / "manifest.json").write_text(json.dumps(table | {"format": "fastsim-sweep/2"}))
    (out / "parts.jsonl").unlink()


@pytest.mark.parametrize("old_format", [False, True])
@pytest.mark.parametrize("lost", [(), (1,), (0, 2)])
def test_failures_of_parts_that_are_kept_are_not_forgotten(tmp_path, capsys, lost, old_format):
    first = run(make_grid(FINE, RAISES), tmp_path)
    if old_format:
        as_format_2(tmp_path)
    for index in lost:
        part_path(tmp_path, index).unlink()
    again = run(make_grid(FINE, RAISES), tmp_path)
    assert (again.computed, again.failed, again.errors) == (16 * len(lost), 24, first.errors)
    manifest = read_manifest(tmp_path)
    assert manifest.format == "fastsim-sweep/4"
    assert (manifest.totals["errors"], len(manifest.errors), manifest.state) == (24, 24, "complete")
    assert [part["errors"] for part in manifest.parts] == [8, 8, 8]
    assert status_text(tmp_path, capsys).count("config_id") == 3


def test_of_many_failures_all_are_counted_and_some_explained(tmp_path, capsys):
    result = run(make_grid(RAISES, FINE, seeds=15), tmp_path)
    assert (result.failed, len(result.errors)) == (120, MAX_LISTED)
    (tmp_path / "manifest.json").unlink()
    assert run(make_grid(RAISES, FINE, seeds=15), tmp_path).failed == 120
    assert "120 configurations failed; for example:" in status_text(tmp_path, capsys)


def test_a_configuration_that_keeps_killing_workers_is_found(tmp_path):
    grid = Grid.from_mapping(
        {
            "engine.num_gpu_blocks": 100,
            "sweep": {"axes": {"run.max_steps": [FINE, 7, KILLS, 8]}},
            "workload.num_requests": 5,
        }
    )
    progress = Recorder()
    result = run(grid, tmp_path, progress=progress)
    assert rows(tmp_path)["status"].to_list() == ["ok", "ok", "error", "ok"]
    assert result.errors == {2: "it keeps killing workers"}
    assert any("killed by SIGKILL" in note for note in progress.notes)


def test_a_worker_killed_once_leaves_no_trace_in_the_rows(tmp_path):
    grid = make_grid(FINE, KILLS_ONCE, seeds=1)
    MARKER.touch()
    run(grid, tmp_path / "calm")
    MARKER.unlink()
    progress = Recorder()
    result = run(grid, tmp_path / "struck", progress=progress)
    MARKER.unlink()
    assert result.errors == {}
    assert len(progress.notes) == 1
    assert "killed by SIGKILL" in progress.notes[0]
    assert digest(tmp_path / "calm") == digest(tmp_path / "struck")


def spy_on_pieces(monkeypatch):
    """A list that grows, with every part that several workers shared, by the rows of its pieces."""
    pieces = []

    def spy(grid, part, given):
        pieces.append([(piece.first, piece.stop) for piece in given])
        return part_data(grid, part, given)

    monkeypatch.setattr(driver, "part_data", spy)
    return pieces


def test_workers_share_a_long_part_at_the_end(tmp_path, monkeypatch):
    grid = make_grid(SLOW, seeds=1)  # 8 configurations of 0.3 s
    pieces = spy_on_pieces(monkeypatch)
    run(grid, tmp_path / "alone")
    assert pieces == []
    run(grid, tmp_path / "shared", workers=3)
    (shared,) = pieces
    assert len(shared) > 1
    assert [first for first, _ in shared] == [0, *(stop for _, stop in shared[:-1])]
    assert shared[-1][1] == 8
    assert digest(tmp_path / "alone") == digest(tmp_path / "shared")


def test_a_worker_that_dies_over_a_share_is_replaced(tmp_path, monkeypatch):
    grid = make_grid(SLOW, KILLS_ONCE, seeds=1)
    MARKER.touch()
    run(grid, tmp_path / "calm")
    pieces = spy_on_pieces(monkeypatch)
    MARKER.unlink()
    run(grid, tmp_path / "struck", workers=2)
    MARKER.unlink()
    assert len(pieces) == 1
    assert digest(tmp_path / "calm") == digest(tmp_path / "struck")


SCRIPT = """
import sys
sys.path.insert(0, {root!r})
from fastsim.errors import FastsimError
from tests.test_runner import make_grid, run
print("imported", flush=True)
try:
    run(make_grid({behaviours}), sys.argv[1], rows_per_part=8, workers=2)
except FastsimError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""
"""No `if __name__ == "__main__":`, on purpose: workers must not run a user's script."""


def start(tmp_path, behaviours, **options):
    """A sweep of 48 configurations in a process of its own."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(root=os.getcwd(), behaviours=behaviours))
    command = [sys.executable, str(script), str(tmp_path / "out")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def test_a_full_disk_is_one_sentence_and_what_was_done_is_kept(tmp_path):
    def small_files_only():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    process = start(tmp_path, f"{FINE}, 7", preexec_fn=small_files_only, env=os.environ | SMALL_FILES)
    output, errors = process.communicate(timeout=60)
    assert output == "imported\n"
    assert re.fullmatch(r".*/out: part \d cannot be stored \(File too large\); what was done is kept.*\n", errors)
    assert read_manifest(tmp_path / "out").state == "failed"
    assert not list((tmp_path / "out" / "parts").iterdir())
    assert run(make_grid(FINE, 7), tmp_path / "out", rows_per_part=8).rows == 48


def test_a_worker_that_compiles_says_so_and_only_then(tmp_path):
    for job, notes in ((CompilingJob, [COMPILING]), (FakeJob, [])):
        progress = Recorder()
        sweep_with(job, make_grid(FINE), tmp_path / job.__name__, workers=1, progress=progress)
        assert progress.notes == notes


def start_slow_sweep(tmp_path):
    """A sweep of 48 configurations that take 0.3 s each, in a session of its own; some parts are done."""
    process = start(tmp_path, f"{SLOW}, {FINE}", start_new_session=True)
    out = tmp_path / "out"
    deadline = time.monotonic() + 60
    while len(list(out.glob("parts/*.parquet"))) < 2:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    return process, out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_sweep_ends_within_two_seconds_says_how_to_go_on_and_does(tmp_path, number):
    process, out = start_slow_sweep(tmp_path)
    started = time.monotonic()
    os.killpg(process.pid, number) if number == signal.SIGINT else os.kill(process.pid, number)
    output, errors = process.communicate(timeout=20)
    assert time.monotonic() - started < 2.0
    assert process.returncode == 130
    assert output == "imported\n"
    assert re.fullmatch(r"stopped: \d+ of 48 rows are kept in .*/out; the same command goes on from there\n", errors)
    assert read_manifest(out).state == "interrupted"
    assert not list(out.glob("parts/.*"))
    kept = int(errors.split()[1])
    assert kept < 48  # a part whose worker was stopped before it could say so is computed again
    result = run(make_grid(SLOW, FINE), out, rows_per_part=8, workers=2)
    assert (result.rows, result.computed) == (48, 48 - kept)
    assert rows(out)["completed"].to_list() == list(range(48))


def test_after_a_killed_parent_the_workers_are_gone_and_the_sweep_goes_on(tmp_path):
    process, out = start_slow_sweep(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 5
    while any_in_session(process.pid):
        assert time.monotonic() < deadline, "workers outlived their parent"
        time.sleep(0.05)
    done = len(list(out.glob("parts/*.parquet")))
    result = run(make_grid(SLOW, FINE), out, rows_per_part=8, workers=2)
    assert result.rows == 48
    assert 48 - 8 * done <= result.computed <= 48 - 8 * (done - 2)
    assert rows(out)["completed"].to_list() == list(range(48))


def any_in_session(leader):
    """Whether a process of a session is left, zombies aside."""
    for stat in (f"/proc/{name}/stat" for name in os.listdir("/proc") if name.isdigit()):
        try:
            fields = Path(stat).read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            return True
    return False


def test_a_billion_configurations_start_at_once_in_little_memory(tmp_path):
    code = (
        f"import sys, time; sys.path.insert(0, {os.getcwd()!r})\n"
        "from fastsim.sweeps.grid import Grid; from tests.test_runner import run\n"
        "axes = {'engine.max_num_seqs': {'start': 1, 'stop': 1000, 'num': 1000}}\n"
        "spec = {'engine.num_gpu_blocks': 100, 'workload.num_requests': 10}\n"
        "grid = Grid.from_mapping(spec | {'sweep': {'axes': axes | {'run.max_steps': [1]}, 'seeds': 10**6}})\n"
        "for n, choice in enumerate(({'limit': 20}, {'sample': 20}, {'sample': 20, 'shard': (1, 2)})):\n"
        "    started = time.process_time()\n"
        "    run(grid, f'{sys.argv[1]}/{n}', **choice)\n"
        "    print(time.process_time() - started)\n"
        # Not ru_maxrss: a child starts with its parent's
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *seconds, kilobytes = map(float, done.stdout.split())
    assert max(seconds) < 10.0  # a second or less; listing them would take minutes
    assert kilobytes < 200_000
    assert rows(tmp_path / "0")["config_id"].to_list() == list(range(20))
    sample, half = (rows(tmp_path / name)["config_id"].to_list() for name in "12")
    assert len(sample) == 20
    assert max(sample) - min(sample) > 8 * 10**8
    assert 0 < len(half) < 20
    assert set(half) < set(sample)


def test_bad_options_are_one_sentence(tmp_path):
    grid = make_grid(FINE)
    with pytest.raises(InputError, match="--workers 0"):
        run(grid, tmp_path, workers=0)
    with pytest.raises(InputError, match="--backend slurm, but local or ray"):
        run(grid, tmp_path, backend="slurm")


def test_ray_without_ray_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"pip install 'fastsim-llm\[ray\]'"):
        check_backend("ray")


def test_a_container_quota_bounds_the_workers(tmp_path):
    quota = tmp_path / "cpu.max"
    quota.write_text("100000 100000\n")
    assert available_cores(quota) == 1
    quota.write_text("max 100000\n")
    assert available_cores(quota) == len(os.sched_getaffinity(0))
    assert available_cores(tmp_path / "missing") == len(os.sched_getaffinity(0))
