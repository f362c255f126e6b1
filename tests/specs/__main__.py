"""Run random specs with every index checked, in a process that may crash or hang.

    python -m tests.specs --count 20000 --first 0

A seed whose process dies, hangs or fails an assertion is printed with its spec. Exit 0: all ran clean.
"""

import argparse
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import IO

from tests.specs.draw import random_spec

ROOT = Path(__file__).parent.parent.parent
SECONDS = 300.0
"""A spec takes milliseconds; the first ones of a process wait for kernels to be compiled."""
CHILD = """
import sys, traceback
from tests.specs.live import outcome
for seed in range({first}, {last}):
    print("start", seed, flush=True)
    try:
        found = outcome(seed)
    except Exception:
        found = "FAILED " + traceback.format_exc().replace(chr(10), chr(1))
    print("end", seed, found[:2000], flush=True)
"""


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000, metavar="N", help="how many specs (default 20000)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed (default 0)")
    parser.add_argument("--most-troubles", type=int, default=10, metavar="N", help="stop after so many (default 10)")
    given = parser.parse_args()
    endings, troubles = run(given.first, given.count, given.most_troubles)
    print(", ".join(f"{ending} {count:,}" for ending, count in sorted(endings.items())), flush=True)
    return 1 if troubles else 0


def run(first: int, count: int, most_troubles: int = 10) -> tuple[Counter[str], list[str]]:
    """Run the specs of seeds first .. first + count - 1: how they ended, and what went wrong."""
    endings: Counter[str] = Counter()
    troubles: list[str] = []
    started = time.monotonic()
    seed = first
    while seed < first + count and len(troubles) < most_troubles:
        seed = _run_process(seed, first + count, endings, troubles, started)
    return endings, troubles


def _run_process(first: int, last: int, endings: Counter[str], troubles: list[str], started: float) -> int:
    """One process, until it is through or dies or hangs: the seed to go on with."""
    command = [sys.executable, "-W", "error", "-c", CHILD.format(first=first, last=last)]
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1"}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True) as child,
    ):
        assert child.stdout is not None
        lines: queue.Queue[str | None] = queue.Queue()
        reader = threading.Thread(target=_read, args=(child.stdout, lines))
        reader.start()
        try:
            seed = _follow(first, lines, endings, troubles, started)
        finally:
            child.kill()  # it is through, or hangs
            reader.join()
        if seed == last:
            return last
        errors.seek(0)
        what = f"hangs, or the process died ({child.wait()}): {errors.read()[-2000:]}"
        _trouble(seed, what, endings, troubles)
        return seed + 1


def _follow(
    first: int, lines: "queue.Queue[str | None]", endings: Counter[str], troubles: list[str], started: float
) -> int:
    """Count what the process reports: the seed it did not come to the end of."""
    seed = first
    while True:
        try:
            line = lines.get(timeout=SECONDS)
        except queue.Empty:
            return seed
        if line is None:
            return seed
        word, number, *rest = line.rstrip("\n").split(" ", 2)
        seed = int(number)
        if word == "start":
            continue
        if rest[0].startswith("FAILED"):
            _trouble(seed, rest[0].replace("\x01", "\n"), endings, troubles)
        else:
            endings["refused" if rest[0].startswith("refused") else "ran"] += 1
        seed += 1
        if seed % 1000 == 0:
            print(f"{seed:,} specs, {time.monotonic() - started:.0f} s", flush=True)


def _read(stream: IO[str], lines: "queue.Queue[str | None]") -> None:
    for line in stream:
        lines.put(line)
    lines.put(None)


def _trouble(seed: int, what: str, endings: Counter[str], troubles: list[str]) -> None:
    endings["in trouble"] += 1
    troubles.append(f"seed {seed}: {what}")
    print(f"seed {seed}: {what}\n  {random_spec(seed)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
