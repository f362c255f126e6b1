"""Sweeps on a local Ray of two workers: the bytes of the local pool, whatever dies. Skipped where Ray is missing."""

import os
import re
import signal
import subprocess
import sys
import time
import warnings

import pytest

from fastsim.sweeps.grid import Grid
from fastsim.sweeps.store import part_path, read_manifest
from tests.fake_simulation import FINE, KILLS, KILLS_ONCE, MARKER, RAISES, SLOW, FakeJob, sweep_with
from tests.test_runner import Recorder, digest, make_grid, rows, run, spy_on_pieces

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'fastsim-llm[ray]', then .ci/run-ray")

pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def cluster():
    """A Ray of two workers that the sweeps of this module share."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def run_ray(grid, out, **options):
    return sweep_with(FakeJob, grid, out, **({"rows_per_part": 16, "backend": "ray"} | options))


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The sweep on local workers."""
    out = tmp_path_factory.mktemp("local")
    run(make_grid(FINE, RAISES), out)
    return out


def test_ray_stores_the_bytes_of_the_local_pool(cluster, local, tmp_path):
    progress = Recorder()
    result = run_ray(make_grid(FINE, RAISES), tmp_path, progress=progress)
    assert digest(tmp_path) == digest(local)
    assert (result.rows, result.computed, len(result.errors)) == (48, 48, 24)
    assert (progress.begun, progress.rows, progress.closed) == ((48, 0), 48, True)
    mine, theirs = read_manifest(tmp_path), read_manifest(local)
    assert (mine.parts, mine.errors, mine.state) == (theirs.parts, theirs.errors, "complete")


def test_a_local_sweep_goes_on_under_ray_and_back(cluster, local, tmp_path):
    run(make_grid(FINE, RAISES), tmp_path)
    part_path(tmp_path, 1).unlink()
    assert run_ray(make_grid(FINE, RAISES), tmp_path).computed == 16
    assert digest(tmp_path) == digest(local)
    assert run(make_grid(FINE, RAISES), tmp_path).computed == 0


def test_a_configuration_that_keeps_killing_ray_workers_becomes_a_row(cluster, tmp_path):
    progress = Recorder()
    axes = {"run.max_steps": [FINE, 7, KILLS, 8]}
    spec = {"engine.num_gpu_blocks": 100, "workload.num_requests": 5, "sweep": {"axes": axes}}
    result = run_ray(Grid.from_mapping(spec), tmp_path, progress=progress)
    assert rows(tmp_path)["status"].to_list() == ["ok", "ok", "error", "ok"]
    assert result.errors == {2: "it keeps killing workers"}
    assert any("in Ray" in note for note in progress.notes)


def test_a_ray_worker_killed_once_leaves_no_trace_in_the_rows(cluster, tmp_path):
    grid = make_grid(FINE, KILLS_ONCE, seeds=1)
    MARKER.touch()
    run(grid, tmp_path / "calm")
    MARKER.unlink()
    result = run_ray(grid, tmp_path / "struck")
    MARKER.unlink()
    assert result.errors == {}
    assert digest(tmp_path / "calm") == digest(tmp_path / "struck")


def test_ray_workers_share_a_long_part(cluster, tmp_path, monkeypatch):
    grid = make_grid(SLOW, seeds=2)  # 16 configurations of 0.3 s
    pieces = spy_on_pieces(monkeypatch)
    run_ray(grid, tmp_path / "ray")
    assert len(pieces) == 1
    assert len(pieces[0]) > 1
    run(grid, tmp_path / "local", workers=1)
    assert digest(tmp_path / "ray") == digest(tmp_path / "local")


SCRIPT = """
import sys
sys.path.insert(0, {root!r})
from fastsim.errors import FastsimError
from tests.fake_simulation import FakeJob, sweep_with
from tests.test_runner import make_grid
try:
    sweep_with(FakeJob, make_grid({behaviours}), sys.argv[1], rows_per_part=8, workers=2, backend="ray")
except FastsimError as error:
    print(error, file=sys.stderr)
    sys.exit(error.exit_code)
"""


def begin(tmp_path):
    """A sweep on its own Ray that has stored a part, and its folder."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(root=os.getcwd(), behaviours=f"{SLOW}, {FINE}"))
    out = tmp_path / "out"
    command = [sys.executable, str(script), str(out)]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline = time.monotonic() + 90
    while not list(out.glob("parts/*.parquet")):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    return process, out


STOPS = {
    "Ctrl-C": lambda process: process.send_signal(signal.SIGINT),
    "SIGTERM": lambda process: process.send_signal(signal.SIGTERM),
    "SIGTERM to all": lambda process: os.killpg(process.pid, signal.SIGTERM),
}


@pytest.mark.parametrize("how", STOPS)
def test_a_stopped_sweep_on_its_own_ray_is_one_sentence_and_goes_on(tmp_path, how):
    process, out = begin(tmp_path)
    started = time.monotonic()
    STOPS[how](process)
    errors = process.communicate(timeout=40)[1]
    seconds = time.monotonic() - started
    assert process.returncode == 130, errors
    assert re.fullmatch(r"stopped: \d+ of 48 rows are kept in .*; the same command goes on from there\n", errors)
    assert seconds < (30.0 if how == "SIGTERM to all" else 10.0)
    assert read_manifest(out).state == "interrupted"
    assert run(make_grid(SLOW, FINE), out, rows_per_part=8, workers=2).rows == 48


TOKEN = """
import os, subprocess, sys
from fastsim import _notice
from fastsim.sweeps.runner.ray_token import lock_up
_notice.tell = print
lock_up()
from fastsim.sweeps.runner.ray_pool import connect
workers, connection = connect(1)
import ray
from ray._raylet import GcsClient
address = ray.get_runtime_context().gcs_address
code = "import sys; from ray._raylet import GcsClient; GcsClient(address=sys.argv[1]).internal_kv_keys(b'', None)"
strangers = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
for environment in (strangers, strangers | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "guess"}, dict(os.environ)):
    try:
        done = subprocess.run([sys.executable, "-c", code, address], env=environment, capture_output=True, timeout=12)
        print("in" if done.returncode == 0 else "out")
    except subprocess.TimeoutExpired:
        print("out")
with connection:
    pass
"""


def test_a_ray_of_our_own_answers_only_to_its_token(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    home = {"HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", TOKEN], env=environment | home, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    note, *answers = done.stdout.splitlines()
    assert note.startswith("note: while the sweep runs, Ray listens on all network interfaces")
    assert answers == ["out", "out", "in"]
    assert not (tmp_path / ".ray").exists()


def test_a_cluster_that_does_not_answer_is_one_sentence():
    script = (
        "import sys; from fastsim.errors import InputError; from fastsim.sweeps.runner.ray_pool import connect\n"
        "try:\n    connect(1)\nexcept InputError as error:\n    sys.exit(str(error))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"RAY_ADDRESS": "127.0.0.1:1"},
        timeout=120,
    )
    expected = "--backend ray: RAY_ADDRESS = 127.0.0.1:1: no Ray cluster answers there ([Errno 111] Connection refused)"
    assert done.stderr.splitlines() == [expected]


@pytest.mark.slow
def test_a_lost_node_costs_time_and_nothing_else(tmp_path):
    """A Ray of three nodes of which the last is lost in the middle; in a process of its own, for its own cluster."""
    script = tmp_path / "script.py"
    script.write_text(NODE_LOSS.format(root=os.getcwd(), behaviours=f"{SLOW}, {FINE}"))
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path / "out")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "in Ray" in done.stdout
    run(make_grid(SLOW, FINE), tmp_path / "calm", rows_per_part=8, workers=2)
    assert digest(tmp_path / "out") == digest(tmp_path / "calm")


NODE_LOSS = """
import sys, threading, time
sys.path.insert(0, {root!r})
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from tests.test_ray import make_grid, run_ray
from tests.test_runner import Recorder

cluster = Cluster(initialize_head=True, head_node_args={{"num_cpus": 0}})
nodes = [cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)]
ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
cluster.wait_for_nodes()
progress = Recorder()

def lose_a_node():
    while not list(Path(sys.argv[1]).glob("parts/*.parquet")):
        time.sleep(0.05)
    cluster.remove_node(nodes[1], allow_graceful=False)

threading.Thread(target=lose_a_node, daemon=True).start()
result = run_ray(make_grid({behaviours}), sys.argv[1], rows_per_part=8, workers=2, progress=progress)
print(result.rows, result.errors, progress.notes)
ray.shutdown()
cluster.shutdown()
"""
