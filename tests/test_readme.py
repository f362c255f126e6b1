"""The pages' examples do what they say."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fastsim.cli import main
from fastsim.sweeps.grid import Grid
from tests.pages import PAGES, ROOT, Example, blocks, examples, excerpt, specs, timeless, working_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder for all pages."""
    folder = tmp_path_factory.mktemp("pages")
    working_folder(folder)
    return folder


def test_there_are_examples() -> None:
    assert sum(len(examples(page)) for page in PAGES) >= 15
    assert sum(example.info is not None for example in examples("README.md")) >= 5


@pytest.mark.parametrize("example", [example for page in PAGES for example in examples(page)], ids=lambda e: e.command)
def test_example(
    example: Example, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # In the order of the pages: a later one may use the folder that an earlier one made
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as stop:
        main(shlex.split(example.command)[1:])
    printed = capsys.readouterr()
    assert stop.value.code == 0, printed.err
    assert printed.out
    if example.info is not None and example.shown is not None:
        assert timeless(excerpt(printed.out, example.info)) == timeless(example.shown)


@pytest.mark.parametrize(("page", "name"), [(page, name) for page in PAGES for name in specs(page)])
def test_specs_are_grids(page: str, name: str, folder: Path) -> None:
    assert Grid.from_toml(folder / name).size >= 1


def test_the_python_example(folder: Path) -> None:
    (code,) = [block.body for block in blocks("README.md") if block.info == "python"]
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("256 1042\n")


def test_the_front_door_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200


@pytest.mark.parametrize("page", [path.relative_to(ROOT) for path in ROOT.glob("**/*.md") if ".venv" not in str(path)])
def test_links_lead_somewhere(page: Path) -> None:
    path = ROOT / page
    links = re.findall(r"\]\(([^)#\s]+)\)", re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL))
    missing = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    assert not missing
