"""Running the command line in this process, and programs in another one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastsim.cli import main

ROOT = Path(__file__).parent.parent
SMALL_FILES = {"PYTHONDONTWRITEBYTECODE": "1"}
"""For processes whose files are limited: Python stores bytecode that was cut short, and stumbles over it ever after."""


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[object, str, str]:
    """Run the command line in this process: exit code, stdout, stderr."""
    with pytest.raises(SystemExit) as stop:
        main([*map(str, arguments)])
    printed = capsys.readouterr()
    return stop.value.code, printed.out, printed.err


def run_elsewhere(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in another process, whose environment decides how kernels are compiled; warnings are errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
