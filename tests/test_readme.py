"""The README's examples do what they say."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fastsim.cli import main
from fastsim.grid import Grid

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """Code blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands() -> list[str]:
    """Every `fastsim ...` line of the shell blocks, without comments; those of a virtual environment excepted."""
    lines = [line.split("  #")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith("fastsim ")]


def specs() -> dict[str, str]:
    """Every TOML block by the file name in its first line."""
    named = {}
    for block in blocks("toml"):
        name, _, text = block.partition("\n")
        assert name.startswith("# ")
        named[name[2:]] = text
    return named


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder that sees the repository's sweeps and recordings, and has the page's specs."""
    folder = tmp_path_factory.mktemp("readme")
    for name in ("sweeps", "tests"):
        (folder / name).symlink_to(ROOT / name)
    for name, text in specs().items():
        (folder / name).write_text(text)
    return folder


def test_there_are_commands() -> None:
    assert len(commands()) >= 8


@pytest.mark.parametrize("command", commands())
def test_command(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # In the order of the page: a later one may use the folder that an earlier one made
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(command)[1:])
    printed = capsys.readouterr()
    assert stop.value.code == 0, printed.err
    assert printed.out


@pytest.mark.parametrize("name", specs())
def test_specs_are_grids(name: str, folder: Path) -> None:
    assert Grid.from_toml(folder / name).size >= 1


def test_the_python_example(folder: Path) -> None:
    (code,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("256 1042\n")
