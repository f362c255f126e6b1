"""The benchmarks run: in their tiny form, so that they cannot rot. What they measure here means nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["accuracy", "engines", "kernel", "scaling", "startup", "sweep"])
def test_tiny(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", name, "--tiny"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "Measured on: " in done.stdout
