"""A disk that is full: a small tmpfs where one can be mounted, a limit on the size of files everywhere."""

import os
import random
import resource
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fastsim.errors import FastsimError
from fastsim.sweeps.runner import sweep
from tests.faults.sweeps import FaultError, Target, check_kept, stamps, wait_for_the_end
from tests.processes import SMALL_FILES


def inflict(target: Target, work: Path, rng: random.Random, count: int, say: Callable[[str], None]) -> Counter[str]:
    """Let the disk be full `count` times, half of them for real if a tmpfs can be mounted; make room and go on.

    Returns
    -------
    Counter
        `tmpfs` and `file_size` cases, `rows_kept` of them, and how they ended: `work_errors`, `input_errors`.
    """
    counts: Counter[str] = Counter()
    mountable = _can_mount(work / "small")
    for case in range(count):
        if mountable and case % 2 == 0:
            full_tmpfs(target, work / "small", rng, counts)
        else:
            limited_files(target, work / "limited", rng.randrange(100, 80_000), counts)
        say(f"full disks {case + 1}/{count}")
    return counts


def full_tmpfs(target: Target, place: Path, rng: random.Random, counts: Counter[str]) -> None:
    """A file system that is too small by a random amount; then it grows."""
    needed = sum(path.stat().st_size for path in (place.parent / "calm").rglob("*") if path.is_file())
    _mount(place, f"size={rng.randrange(8_192, int(needed * 0.95))}")
    try:
        out = place / "out"
        try:
            sweep(target.grid, out, workers=2, limit=target.limit)
        except FastsimError as error:
            _count_sentence(str(error), error.exit_code, counts)
        else:
            raise FaultError(f"{out}: a sweep was complete on a disk too small for it")
        _mount(place, f"remount,size={needed * 4}")
        _go_on(target, out, counts)
    finally:
        subprocess.run(["umount", str(place)], check=True)
    counts["tmpfs"] += 1


def limited_files(target: Target, out: Path, size: int, counts: Counter[str]) -> None:
    """No file may grow beyond `size` bytes: parts, manifest or journal run into it, in any order."""
    shutil.rmtree(out, ignore_errors=True)
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (size, size))
    process = target.start(out, 2, preexec_fn=limit, env=os.environ | SMALL_FILES)
    _, errors = process.communicate(timeout=120)
    wait_for_the_end(process.pid)
    counts["file_size"] += 1
    if process.returncode == 0 and size > max(path.stat().st_size for path in out.rglob("*") if path.is_file()):
        counts["large_enough"] += 1
    else:
        last = errors.strip().splitlines()[-1:] or [""]
        if "Traceback" in errors:
            raise FaultError(f"{out}: a traceback under a limit of {size} bytes a file:\n{errors}")
        _count_sentence(last[0], process.returncode, counts)
    _go_on(target, out, counts)


def _go_on(target: Target, out: Path, counts: Counter[str]) -> None:
    if (out / "parts").is_dir():
        target.check_sound(out)
    before = stamps(out)
    target.resume(out, 2)
    check_kept(out, before)
    counts["parts_kept"] += len(before)


def _count_sentence(sentence: str, code: int, counts: Counter[str]) -> None:
    if code not in (1, 2) or not any(word in sentence for word in ("No space left", "File too large", "Disk quota")):
        raise FaultError(f"a full disk ended with exit code {code} and: {sentence}")
    counts["work_errors" if code == 1 else "input_errors"] += 1


def _mount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True, capture_output=True)


def _can_mount(place: Path) -> bool:
    place.mkdir(exist_ok=True)
    if os.geteuid() != 0 or shutil.which("mount") is None:
        return False
    try:
        _mount(place, "size=1m")
    except subprocess.CalledProcessError:
        return False
    subprocess.run(["umount", str(place)], check=True)
    return True
