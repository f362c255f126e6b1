"""What a command costs before it does anything: help, a warm run, the first compilation."""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.table import markdown, publish

SPEC = Path(__file__).parent.parent / "sweeps" / "discussion.toml"


def cpu_s(command: list[str], cache: str) -> float:
    """CPU seconds of a command and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "FASTSIM_CACHE_DIR": cache}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # with it every start compiles the package's Python again
    subprocess.run([sys.executable, "-m", "fastsim", *command], check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(tiny: bool, readme: bool) -> None:
    """Measure and print."""
    rounds = 1 if tiny else 5
    with tempfile.TemporaryDirectory() as cache:
        run = ["run", str(SPEC), "--json"]
        rows = []
        if not tiny:
            rows.append(("first run ever (compiles)", f"{cpu_s(run, cache):.2f}"))
        else:
            cache = os.environ.get("FASTSIM_CACHE_DIR") or str(Path.home() / ".cache")
        rows.append(("`fastsim --help`", f"{median(cpu_s(['--help'], cache) for _ in range(rounds)):.2f}"))
        rows.append(("`fastsim run`, warm", f"{median(cpu_s(run, cache) for _ in range(rounds)):.2f}"))
    publish("startup", markdown(("command", "CPU s"), rows), readme)
