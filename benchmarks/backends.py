"""Ray on one machine against local processes: the tenth-size million sweep, in turn."""

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from benchmarks.sweep import SPEC, TOTAL
from benchmarks.table import markdown, publish

ROUNDS = 5
Pairs = list[tuple[tuple[float, float], tuple[float, float]]]
"""Seconds of local and Ray in turn, each by the sweep's clock and of the whole command."""
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
CLUSTER = """
import sys
import ray
print(ray.init(address="local", num_cpus=2, include_dashboard=False).address_info["gcs_address"], flush=True)
sys.stdin.read()
"""


def environment(ray_address: str | None) -> dict[str, str]:
    """A user's shell: with a cluster's address or without, and Python's own bytecode cached."""
    names = {"RAY_ADDRESS", "PYTHONDONTWRITEBYTECODE"}
    kept = {key: value for key, value in os.environ.items() if key not in names} | QUIET
    return kept if ray_address is None else kept | {"RAY_ADDRESS": ray_address}


def seconds(rows: int, backend: str, ray_address: str | None, folder: Path) -> tuple[float, float]:
    """Wall seconds of a sweep, by its own manifest, and of the whole command."""
    shutil.rmtree(folder, ignore_errors=True)
    options = ["--sample", str(rows), "--out", str(folder), "--backend", backend, "--workers", "2"]
    command = [sys.executable, "-m", "fastsim", "sweep", str(SPEC), *options]
    started = time.perf_counter()
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment(ray_address))
    if done.returncode:
        raise SystemExit(done.stderr)
    command_s = time.perf_counter() - started
    return json.loads((folder / "manifest.json").read_text())["totals"]["seconds"], command_s


@contextmanager
def running_ray() -> Iterator[str]:
    """A Ray of two cores in a process of its own, as a cluster would be there before the sweep; its address."""
    command = [sys.executable, "-c", CLUSTER]
    with subprocess.Popen(command, env=environment(None), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as cluster:
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        if not (address := cluster.stdout.readline().decode().strip()):
            raise SystemExit("Ray does not start")  # and has said why
        time.sleep(5.0)  # its own processes are still loading
        yield address
        cluster.stdin.close()


def main(tiny: bool, readme: bool) -> None:
    """Measure and print."""
    if find_spec("ray") is None:
        raise SystemExit("Ray is not installed: pip install 'fastsim-llm[ray]'")
    rows, rounds = (2_000, 1) if tiny else (TOTAL // 10, ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "sweep"
        seconds(100, "local", None, out)  # compiles, if need be

        def pairs(address: str | None) -> Pairs:
            found = []
            for turn in range(rounds):
                both = ["local", "ray"] if turn % 2 else ["ray", "local"]
                found.append({backend: seconds(rows, backend, address, out) for backend in both})
            return [(pair["local"], pair["ray"]) for pair in found]

        with running_ray() as address:
            there = pairs(address)
        here = pairs(None)
    table = [_row("a Ray that runs (`RAY_ADDRESS`)", there), _row("a Ray of its own, started and ended", here)]
    note = (
        f"Wall seconds by the sweep's own clock (workers started and ended), {rows:,} configurations of the million, "
        f"two workers, Ray {version('ray')}: medians of {rounds} pairs in turn; throughputs are medians of the pairs' "
        "ratios."
    )
    columns = ("sweep", "local s", "Ray s", "throughput", "of the whole command")
    publish("backends", markdown(columns, table, note), readme)


def _row(name: str, pairs: Pairs) -> tuple[str, ...]:
    local_s, ray_s = (median(pair[side][0] for pair in pairs) for side in (0, 1))
    of_sweep, of_command = (median(local[clock] / ray[clock] for local, ray in pairs) for clock in (0, 1))
    return name, f"{local_s:.1f}", f"{ray_s:.1f}", f"{of_sweep:.2f}x", f"{of_command:.2f}x"
