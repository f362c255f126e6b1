"""The million-configuration sweep: what a configuration costs all in, and where the time goes."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.share import shares
from benchmarks.table import figure, markdown, publish
from fastsim.sweeps.grid import Grid

SPEC = Path(__file__).parent.parent / "sweeps" / "million.toml"
TOTAL = 1_048_576


class Watch(threading.Thread):
    """Samples a process and its descendants: CPU time of each, and their proportional set size together.

    Workers are children of a fork server, so the operating system's own accounting of children misses them.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.pid, self.peak_kib, self.done = pid, 0, threading.Event()
        self.cpu_s: dict[int, float] = {}

    def run(self) -> None:
        while not self.done.wait(0.2):
            family = _family(self.pid)
            self.peak_kib = max(self.peak_kib, sum(map(_pss_kib, family)))
            self.cpu_s |= {pid: seconds for pid in family if (seconds := _cpu_s(pid)) is not None}


def _family(pid: int) -> list[int]:
    children = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            children += [int(child) for child in (task / "children").read_text().split()]
    except OSError:
        return []
    return [pid, *(one for child in children for one in _family(child))]


def _pss_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def _cpu_s(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_sweep(count: int, workers: int, out: Path) -> tuple[float, float, float]:
    """CPU seconds, wall seconds, peak MiB of a sweep over `count` configurations (all of them: no --sample)."""
    command = [sys.executable, "-m", "fastsim", "sweep", str(SPEC), "--out", str(out), "--workers", str(workers)]
    if count < TOTAL:
        command += ["--sample", str(count)]
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    watch = Watch(process.pid)
    watch.start()
    if process.wait() != 0:
        raise SystemExit(f"the sweep failed: {' '.join(command)}")
    wall = time.monotonic() - start
    watch.done.set()
    watch.join()
    return sum(watch.cpu_s.values()), wall, watch.peak_kib / 1024


def what_it_says(out: Path) -> str:
    """Requests served a second by rate and max_num_seqs, with the best of all other knobs, as a Markdown table."""
    import polars as pl

    from fastsim.sweeps.store.scan import scan

    rate, seqs, throughput = "workload.arrival.rate_per_s", "engine.max_num_seqs", "request_throughput_req_per_s"
    rows = scan(out)
    axes = [name for name in rows.collect_schema().names() if "." in name and name != "workload.seed"]
    best = (
        rows.filter(pl.col("engine.num_gpu_blocks") == 7463)
        .group_by(axes)
        .agg(pl.col(throughput).mean())
        .group_by(rate, seqs)
        .agg(pl.col(throughput).max())
        .sort(rate, seqs)
        .collect()
    )
    rates = best[rate].unique().sort().to_list()[::3]
    caps = best[seqs].unique().sort().to_list()
    cells = {(row[rate], row[seqs]): f"{row[throughput]:.3f}" for row in best.to_dicts()}
    table = [(f"{wanted:g} offered a second", *(cells.get((wanted, cap), "") for cap in caps)) for wanted in rates]
    verdicts = rows.group_by("verdict").len().sort("len", descending=True).collect()
    total = verdicts["len"].sum()
    shares = ", ".join(f"{name} {count / total:.1%}" for name, count in verdicts.iter_rows())
    note = (
        "Requests served a second on 7,463 blocks by `max_num_seqs`: the mean of 16 seeds under the best token budget, "
        f"watermark, gate and caching for each. Verdicts of all {total:,} configurations: {shares}."
    )
    return markdown(("load, max_num_seqs", *map(str, caps)), table, note)


def main(tiny: bool, readme: bool, full: bool = False) -> None:
    """Measure and print. `full` runs all 1,048,576."""
    count = TOTAL if full else 2_000 if tiny else 104_857
    workers = min(2, os.cpu_count() or 1)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        cpu, wall, peak = run_sweep(count, workers, out)
        done = json.loads((out / "manifest.json").read_text())
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        rows_done = int(done["totals"]["rows"]) if "totals" in done and "rows" in done["totals"] else count
        rows += [
            ("configurations", f"{rows_done:,}"),
            ("workers", str(workers)),
            ("CPU ms a configuration, all in", figure(cpu * 1e3 / rows_done)),
            ("configurations a core-second", figure(rows_done / cpu)),
            ("wall seconds", figure(wall)),
            ("peak proportional set size, all processes, MiB", figure(peak)),
            ("bytes a row", figure(size / rows_done)),
        ]
        if not full:
            rows.append((f"extrapolated to {TOTAL:,}: CPU seconds", figure(cpu * TOTAL / rows_done)))
            rows.append((f"extrapolated to {TOTAL:,}: MB of results", figure(size * TOTAL / rows_done / 1e6)))
        if full or tiny:
            publish("million", what_it_says(out), readme and full)
        shutil.rmtree(out)
    for name, share in shares(Grid.from_toml(SPEC), 1 if tiny else 8).items():
        rows.append((f"of a worker's CPU: {name}", f"{share:.1%}"))
    publish("sweep", markdown(("million.toml", "figure"), rows), readme)
