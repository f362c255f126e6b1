"""kill -9, of a worker, the parent, the fork server or all at once, at random moments."""

import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.faults.sweeps import FaultError, Target, check_kept, processes, stamps, wait_for_the_end

WEIGHTS = {"worker": 45, "parent": 27, "group": 20, "server": 6, "tracker": 2}
MOST_A_SWEEP = 8
"""Kills of one sweep before it may end in peace."""


def inflict(target: Target, work: Path, rng: random.Random, count: int, say: Callable[[str], None]) -> Counter[str]:
    """Kill `count` times; every sweep is resumed until it is complete, and then compared.

    Returns
    -------
    Counter
        Kills by what was killed, `resumes`, and `sweeps` that were completed and compared.
    """
    counts: Counter[str] = Counter()
    while (done := sum(counts[role] for role in WEIGHTS)) < count:
        out = work / "killed"
        shutil.rmtree(out, ignore_errors=True)
        torment_one(target, out, rng, min(rng.randint(1, MOST_A_SWEEP), count - done), counts)
        say(f"kills {sum(counts[role] for role in WEIGHTS)}/{count}")
    return counts


def torment_one(target: Target, out: Path, rng: random.Random, kills: int, counts: Counter[str]) -> None:
    """One sweep, killed so many times (fewer, if it is done before), resumed until it is complete."""
    done: dict[int, tuple[int, int]] = {}
    starts = 0
    while True:
        workers = rng.choice((1, 2, 2, 3))
        process = target.start(out, workers)
        starts += 1
        kills -= _kill_often(process, out, rng, kills, counts)
        errors = process.communicate(timeout=120)[1]
        wait_for_the_end(process.pid)
        if out.exists():
            target.check_sound(out)
            check_kept(out, done)
            done = stamps(out)
        if process.returncode == 0:
            break
        if process.returncode != -signal.SIGKILL:
            raise FaultError(f"{out}: exit code {process.returncode} after a kill: {errors}")
    counts["resumes"] += starts - 1
    counts["sweeps"] += 1
    target.check_complete(out)


def _kill_often(
    process: "subprocess.Popen[str]", out: Path, rng: random.Random, most: int, counts: Counter[str]
) -> int:
    """Kill at random moments until the parent is dead, the sweep done, or enough; how often."""
    killed = 0
    while killed < most:
        if not _alive_at_a_random_moment(process, out, rng):
            return killed
        role = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if not kill(process.pid, role, rng):
            continue
        counts[role] += 1
        killed += 1
        if role in ("parent", "group"):
            return killed
    return killed


def _alive_at_a_random_moment(process: "subprocess.Popen[str]", out: Path, rng: random.Random) -> bool:
    """Wait for some time of the start, or for some more parts and a little longer; False when the sweep is done."""
    if rng.random() < 0.25:
        return _alive_after(process, rng.uniform(0.0, 3.0))
    stored = len(stored_parts(out)) + rng.randint(1, 25)
    while len(stored_parts(out)) < stored:
        if not _alive_after(process, 0.003):
            return False
    return _alive_after(process, rng.uniform(0.0, 0.06))


def _alive_after(process: "subprocess.Popen[str]", seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return True
    return False


def stored_parts(out: Path) -> list[Path]:
    """The parts that are there."""
    return list((out / "parts").glob("*.parquet"))


def kill(leader: int, role: str, rng: random.Random) -> bool:
    """Kill a process of this role, or the group; False when there is none at the moment."""
    if role == "group":
        os.killpg(leader, signal.SIGKILL)
        return True
    there = [process.pid for process in processes(leader) if process.role == role]
    if not there:
        return False
    try:
        os.kill(rng.choice(there), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_once(target: Target, out: Path, role: str, rng: random.Random) -> None:
    """One kill of one role as soon as some parts are done, then a resume, then the comparison."""
    process = target.start(out, 2)
    deadline = time.monotonic() + 60
    while not any((out / "parts").glob("*.parquet")):
        if process.poll() is not None or time.monotonic() > deadline:
            raise FaultError(f"{out}: no part was stored: {process.communicate()[1]}")
        time.sleep(0.005)
    if not kill(process.pid, role, rng):
        raise FaultError(f"{out}: no {role} to kill")
    process.communicate(timeout=60)
    wait_for_the_end(process.pid)
    target.check_sound(out)
    done = stamps(out)
    target.resume(out, 2)
    check_kept(out, done)
