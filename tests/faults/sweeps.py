"""The sweep that is tormented: started as a user starts it, compared byte for byte with one that ran in peace."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from fastsim.sweeps.grid import Grid
from fastsim.sweeps.runner import sweep
from fastsim.sweeps.store import part_path, read_manifest
from fastsim.sweeps.store.folder import known_parts

ROOT = Path(__file__).parents[2]

SPEC = """\
engine.num_gpu_blocks = 64
workload.num_requests = 24
workload.arrival.rate_per_s = 20
workload.prompt = { dist = "uniform", min = 16, max = 200 }
workload.output = { dist = "uniform", min = 1, max = 200 }
run.horizon_s = 20
[sweep]
seeds = 50
[sweep.axes]
engine.max_num_seqs = { start = 1, stop = 20, num = 20 }
engine.watermark = { start = 0, stop = 0.45, num = 10 }
engine.enable_prefix_caching = [true, false]
"""
"""20,000 configurations of 24 requests: some 4 s with two workers, so that hundreds of resumes are affordable."""


class FaultError(AssertionError):
    """A sweep did not survive a fault as it should."""


@dataclass(frozen=True)
class Target:
    """The sweep, and the bytes that an uninterrupted run of it left: hashes of its parts by their names."""

    spec: Path
    grid: Grid
    limit: int
    parts: dict[str, str]
    seconds: float

    @classmethod
    def prepared(cls, work: Path, limit: int, workers: int) -> "Target":
        """Run it once in peace; this also compiles and caches the kernels."""
        spec = work / "spec.toml"
        spec.write_text(SPEC)
        grid = Grid.from_toml(spec)
        calm = work / "calm"
        result = sweep(grid, calm, workers=workers, limit=limit)
        if result.errors or result.rows != limit:
            raise FaultError(f"the undisturbed sweep stored {result.rows} of {limit} rows: {result.errors}")
        return cls(spec, grid, limit, hashes(calm), result.seconds)

    def start(
        self, out: Path, workers: int, *, extra: Sequence[str] = (), **options: object
    ) -> "subprocess.Popen[str]":
        """`fastsim sweep` in a session of its own, with `extra` options."""
        command = [sys.executable, "-m", "fastsim", "sweep", str(self.spec), "--out", str(out), *extra]
        command += ["--limit", str(self.limit), "--workers", str(workers)]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **pipes, **options)  # type: ignore[call-overload,no-any-return]

    def resume(self, out: Path, workers: int) -> int:
        """Complete a folder in this process and check it; rows computed now."""
        computed = sweep(self.grid, out, workers=workers, limit=self.limit).computed
        self.check_complete(out)
        return computed

    def good_parts(self, out: Path) -> set[str]:
        """Names of the parts that have the bytes of the undisturbed run."""
        return {name for name, value in hashes(out).items() if self.parts.get(name) == value}

    def check_sound(self, out: Path) -> None:
        """Whatever happened: parts are whole or not there, and what the manifest and the journal claim is true."""
        found = hashes(out)
        wrong = sorted(name for name, value in found.items() if self.parts.get(name) != value)
        if wrong:
            raise FaultError(f"{out}: {wrong[0]} differs from the undisturbed run's ({len(wrong)} do)")
        if (out / "manifest.json").exists() and read_manifest(out) is None:
            raise FaultError(f"{out}: manifest.json cannot be read")
        for index in known_parts(out):
            if part_path(out, index).name not in found:
                raise FaultError(f"{out}: part {index} is said to be done but is not there")

    def check_complete(self, out: Path) -> None:
        """Every row is there once, with the bytes of an undisturbed run, and the manifest says so."""
        self.check_sound(out)
        if hashes(out) != self.parts:
            raise FaultError(f"{out}: {len(hashes(out))} parts, but {len(self.parts)} were expected")
        ids = pl.scan_parquet(out / "parts" / "*.parquet").select("config_id").collect()["config_id"].to_list()
        if ids != list(range(self.limit)):
            raise FaultError(f"{out}: rows lost, doubled or out of order")
        manifest = read_manifest(out)
        if manifest is None or (manifest.state, manifest.totals["rows_done"], len(manifest.parts)) != (
            "complete",
            self.limit,
            len(self.parts),
        ):
            raise FaultError(f"{out}: manifest.json does not say that it is complete")
        leftovers = [path.name for path in (*out.iterdir(), *(out / "parts").iterdir()) if path.name.endswith(".tmp")]
        if leftovers:
            raise FaultError(f"{out}: temporary files are left: {leftovers}")


def hashes(out: Path) -> dict[str, str]:
    """Hash of every part that is there, by its name."""
    paths = [path for path in (out / "parts").glob("*.parquet") if path.exists()]  # not a dangling link
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def stamps(out: Path) -> dict[int, tuple[int, int]]:
    """Inode and time of every part that is on disk and known to be: a resume must leave these alone."""
    stats = {index: part_path(out, index).stat() for index in known_parts(out) if part_path(out, index).exists()}
    return {index: (stat.st_ino, stat.st_mtime_ns) for index, stat in stats.items()}


def check_kept(out: Path, before: dict[int, tuple[int, int]]) -> None:
    """Only what was missing was written."""
    after = stamps(out)
    again = [index for index, stamp in before.items() if after.get(index) != stamp]
    if again:
        raise FaultError(f"{out}: part {again[0]} was done, but was written again ({len(again)} were)")


@dataclass(frozen=True)
class Process:
    """A process of the sweep. `role` is parent, server (from which workers are forked), tracker or worker."""

    pid: int
    role: str


def processes(leader: int) -> list[Process]:
    """The living processes of the session that `leader` leads."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            command = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        state, parent, session = fields[0], int(fields[1]), int(fields[3])
        if session != leader or state == "Z":
            continue
        pid = int(name)
        if pid == leader:
            role = "parent"
        elif b"resource_tracker" in command:
            role = "tracker"
        else:
            role = "server" if parent == leader else "worker"
        found.append(Process(pid, role))
    return found


def wait_for_the_end(leader: int, seconds: float = 5.0) -> None:
    """Nothing of a sweep outlives its parent."""
    deadline = time.monotonic() + seconds
    while left := processes(leader):
        if time.monotonic() > deadline:
            for process in left:
                os.kill(process.pid, signal.SIGKILL)
            raise FaultError(f"{[process.role for process in left]} outlived their parent by {seconds:g} s")
        time.sleep(0.02)
