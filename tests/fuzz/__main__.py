"""Feed hostile inputs to every reader and print how many there were and how they ended.

    python -m tests.fuzz --inputs 10000

Every input must end as a result or as one sentence: no traceback, no warning, no more than 2 s of CPU, no more than
1 GiB of memory beyond what the process has at the start, and no file written. Inputs that do not are kept.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzz import extremes, guard, targets
from tests.fuzz.guard import Trouble

MOST_TROUBLES = 5
"""A target is left after so many different ones."""


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000, metavar="N", help="inputs a target (default 10000)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the mutations (default 1)")
    parser.add_argument("--target", action="append", choices=targets.names(), help="only this one (repeatable)")
    parser.add_argument("--few-extremes", action="store_true", help="leave out what takes long of these")
    parser.add_argument("--extremes-only", action="store_true", help="only what is large, deep or endless")
    given = parser.parse_args()
    kept = Path(tempfile.mkdtemp(prefix="fastsim-fuzz-"))
    failed = 0
    targets.check_seeds(kept / "seeds")
    with guard.limits():
        for name in [] if given.extremes_only else given.target or targets.names():
            failed += bool(fuzz(name, given.inputs, given.seed, kept))
        if not given.target:
            failed += bool(run_extremes(kept, few=given.few_extremes))
    print(f"peak memory {guard.peak_mib()} MiB", flush=True)
    if failed:
        print(f"{failed} targets in trouble; the inputs are kept in {kept}")
    else:
        targets.emptied(kept).rmdir()
    return 1 if failed else 0


def fuzz(name: str, inputs: int, seed: int, kept: Path) -> list[str]:
    """Run one target; print its line; the troubles, and their inputs in `kept`."""
    rng = random.Random(f"{name} {seed}")
    folder = targets.emptied(kept / f"{name}-work")
    endings: Counter[str] = Counter()
    troubles: dict[str, str] = {}
    slowest, started = 0.0, time.monotonic()
    for number in range(inputs):
        call, data = targets.make(name, folder, rng)
        before = time.process_time()
        try:
            endings[guard.check(call)] += 1
        except Trouble as trouble:
            endings["in trouble"] += 1
            key = str(trouble)[:60]
            if key not in troubles:
                troubles[key] = f"{trouble} (input {number})"
                (kept / f"{name}-{number}").write_bytes(data)
        slowest = max(slowest, time.process_time() - before)
        if len(troubles) >= MOST_TROUBLES:
            break
    words = ", ".join(f"{ending} {count:,}" for ending, count in sorted(endings.items()))
    print(f"{name}: {words}; slowest {slowest:.2f} s of CPU ({time.monotonic() - started:.0f} s)", flush=True)
    for text in troubles.values():
        print(f"  {text}", flush=True)
    targets.emptied(folder).rmdir()
    return list(troubles.values())


def run_extremes(kept: Path, *, few: bool) -> list[str]:
    """The inputs of `extremes`; print their line; the troubles."""
    folder = targets.emptied(kept / "extremes")
    endings: Counter[str] = Counter()
    troubles = []
    slowest, started = (0.0, ""), time.monotonic()
    for what, call in extremes.cases(folder, few=few):
        before = time.process_time()
        try:
            endings[guard.check(call)] += 1
        except Trouble as trouble:
            endings["in trouble"] += 1
            troubles.append(f"{what}: {trouble}")
        slowest = max(slowest, (time.process_time() - before, what))
    words = ", ".join(f"{ending} {count:,}" for ending, count in sorted(endings.items()))
    print(f"extremes: {words}; slowest {slowest[0]:.2f} s of CPU ({time.monotonic() - started:.0f} s)", flush=True)
    for text in troubles:
        print(f"  {text}", flush=True)
    targets.emptied(folder).rmdir()
    return troubles


if __name__ == "__main__":
    sys.exit(main())
