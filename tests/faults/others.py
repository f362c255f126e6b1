"""Other misfortunes: clocks that jump, sweeps that start on one folder at once, Ctrl-C, too little memory."""

import os
import random
import re
import resource
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

from fastsim.sweeps.store import read_manifest
from tests.faults.corruptions import forget_some
from tests.faults.sweeps import FaultError, Target, check_kept, stamps, wait_for_the_end

CENTURY_S = 3_155_760_000
STOPPED = r"stopped: [\d,]+ of [\d,]+ rows are kept in .*; the same command goes on from there"


def change_clocks(
    target: Target, work: Path, rng: random.Random, count: int, say: Callable[[str], None]
) -> Counter[str]:
    """Files from other centuries and a clock that has jumped: what is done is still done, and nothing else is."""
    counts: Counter[str] = Counter()
    for case in range(count):
        out = work / "clock"
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(work / "calm", out)
        forget_some(target, out, rng)
        for path in (*out.iterdir(), *(out / "parts").iterdir()):
            moment = rng.uniform(0, 2 * CENTURY_S)
            os.utime(path, (moment, moment))
        before = stamps(out)
        now, jump = time.time(), rng.uniform(-CENTURY_S / 2, CENTURY_S)
        with patch("time.time", lambda now=now, jump=jump: now + jump):
            target.resume(out, 2)
        check_kept(out, before)
        counts["clock_changes"] += 1
        say(f"clocks {case + 1}/{count}")
    return counts


def start_together(target: Target, work: Path, count: int, say: Callable[[str], None]) -> Counter[str]:
    """Three sweeps on one folder at once: one works, the others say so in one sentence, and no row suffers."""
    counts: Counter[str] = Counter()
    for case in range(count):
        out = work / "together"
        shutil.rmtree(out, ignore_errors=True)
        ends: Counter[int] = Counter()
        started = [target.start(out, 1) for _ in range(3)]
        for process in started:
            _, errors = process.communicate(timeout=120)
            wait_for_the_end(process.pid)
            ends[process.returncode] += 1
            if process.returncode and "another sweep (process" not in errors:
                raise FaultError(f"{out}: exit code {process.returncode}: {errors}")
        if ends[0] < 1 or set(ends) - {0, 2}:
            raise FaultError(f"{out}: exit codes {dict(ends)}")
        target.check_complete(out)
        counts["started_together"] += 3
        counts["turned_away"] += ends[2]
        say(f"together {case + 1}/{count}")
    return counts


def interrupt(target: Target, work: Path, rng: random.Random, count: int, say: Callable[[str], None]) -> Counter[str]:
    """Ctrl-C or SIGTERM at a random moment of the work: it ends within two seconds and says how to go on."""
    counts: Counter[str] = Counter()
    while counts["interrupts"] < count:
        out = work / "interrupted"
        shutil.rmtree(out, ignore_errors=True)
        process = target.start(out, 2)
        wanted = rng.randint(1, 60)
        while len(list((out / "parts").glob("*.parquet"))) < wanted and process.poll() is None:
            time.sleep(0.003)
        number = rng.choice((signal.SIGINT, signal.SIGTERM))
        started = time.monotonic()
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        _, errors = process.communicate(timeout=120)
        seconds = time.monotonic() - started
        wait_for_the_end(process.pid)
        if process.returncode == 0:
            continue  # it was done
        if process.returncode != 130 or not re.fullmatch(STOPPED, errors.strip().splitlines()[-1]):
            raise FaultError(f"{out}: exit code {process.returncode} after {number.name}: {errors}")
        if seconds > 2.0:
            raise FaultError(f"{out}: it took {seconds:.1f} s to stop")
        manifest = read_manifest(out)
        if manifest is None or manifest.state != "interrupted":
            raise FaultError(f"{out}: manifest.json does not say that it was interrupted")
        target.check_sound(out)
        before = stamps(out)
        target.resume(out, 2)
        check_kept(out, before)
        counts["interrupts"] += 1
        counts["slowest_ms"] = max(counts["slowest_ms"], round(1000 * seconds))
        say(f"interrupts {counts['interrupts']}/{count}")
    return counts


def starve(target: Target, work: Path, count: int, say: Callable[[str], None]) -> Counter[str]:
    """Workers without the memory for one workload of five: its rows say error, the others are as ever."""
    counts: Counter[str] = Counter()
    for case in range(count):
        out = work / "starved"
        shutil.rmtree(out, ignore_errors=True)
        sizes = f"workload.num_requests=24,{30_000_000 + case}"
        limit = partial(resource.setrlimit, resource.RLIMIT_AS, (2_000_000_000, 2_000_000_000))
        process = target.start(
            out, 1, extra=("--axis", sizes, "--set", "sweep.seeds=1", "--set", "engine.watermark=0"), preexec_fn=limit
        )
        try:
            _, errors = process.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        wait_for_the_end(process.pid)
        manifest = read_manifest(out)
        if process.returncode != 1 or manifest is None or manifest.state != "complete":
            raise FaultError(f"{out}: exit code {process.returncode} when memory ran out: {errors}")
        counts["starved_rows"] += manifest.totals["errors"]
        counts["starved_sweeps"] += 1
        say(f"starved {case + 1}/{count}")
    return counts
