"""Inflict faults on a sweep of 20,000 configurations and print how many it survived.

    python -m tests.faults --kills 200 --full 50 --corruptions 100

kills -9 workers, parents, fork servers and whole process groups at random moments; fills disks; cuts, changes and
deletes files; cuts manifest and journal at every byte; changes clocks; starts several sweeps on one folder; presses
Ctrl-C. After each fault the sweep is resumed: it must complete, write only what was missing, and leave the bytes of a
sweep that nothing happened to. The first time it does not, the run ends with exit code 1 and the folder is kept.

Needs Linux. About ten minutes on two idle cores; as root, half of the full disks are file systems of their own.
"""

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.faults import corruptions, disk, kills, others
from tests.faults.sweeps import FaultError, Target


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, count, what in (
        ("kills", 200, "kill -9 at random moments"),
        ("full", 50, "full disks"),
        ("corruptions", 100, "damaged folders"),
        ("interrupts", 20, "Ctrl-C and SIGTERM"),
        ("clocks", 10, "clock changes"),
        ("together", 5, "times three sweeps on one folder"),
        ("starved", 1, "sweeps with too little memory for a workload"),
    ):
        parser.add_argument(f"--{name}", type=int, default=count, metavar="N", help=f"{what} (default {count})")
    parser.add_argument("--cut-step", type=int, default=1, metavar="N", help="cut tables at every N-th byte (0: never)")
    parser.add_argument("--configs", type=int, default=20_000, metavar="N", help="configurations of the sweep")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of all that is random (default 1)")
    given = parser.parse_args()

    work = Path(tempfile.mkdtemp(prefix="fastsim-faults-"))
    target = Target.prepared(work, given.configs, 2)
    print(f"in peace: {given.configs:,} rows in {len(target.parts)} parts, {target.seconds:.1f} s", flush=True)
    rng = random.Random(given.seed)
    stages: list[tuple[str, Callable[[], Counter[str]]]] = [
        ("kills", lambda: kills.inflict(target, work, rng, given.kills, say)),
        ("full disks", lambda: disk.inflict(target, work, rng, given.full, say)),
        ("corruptions", lambda: corruptions.inflict(target, work, rng, given.corruptions, say)),
        ("interrupts", lambda: others.interrupt(target, work, rng, given.interrupts, say)),
        ("clocks", lambda: others.change_clocks(target, work, rng, given.clocks, say)),
        ("together", lambda: others.start_together(target, work, given.together, say)),
        ("memory", lambda: others.starve(target, work, given.starved, say)),
    ]
    if given.cut_step:
        stages.append(("cuts", lambda: corruptions.cut_everywhere(target, work, given.cut_step, say)))
    for name, inflict in stages:
        started = time.monotonic()
        try:
            counts = inflict()
        except FaultError as error:
            print(f"{name}: FAILED: {error}\nseed {given.seed}; the folders are kept in {work}", flush=True)
            return 1
        words = ", ".join(f"{what} {count:,}" for what, count in counts.items())
        print(f"{name}: survived: {words} ({time.monotonic() - started:.0f} s)", flush=True)
    shutil.rmtree(work)
    return 0


def say(text: str) -> None:
    """Show progress: in place on a terminal, else a line for every tenth."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    elif text.split("/")[0].endswith("0"):
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
