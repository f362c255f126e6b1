"""The short form of `python -m tests.fuzz`: some hostile inputs for every reader."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_hostile_input_is_one_sentence() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "--inputs", "40", "--seed", "7", "--few-extremes"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert len([line for line in lines if "refused" in line]) == 15
    assert "trouble" not in done.stdout
