"""The pages of rules beside the kernels name kernels that exist, and leave no room of kernels out."""

import ast
import re
from pathlib import Path

import pytest

import fastsim.engines
from fastsim.engines import FOLDERS

ENGINES = Path(fastsim.engines.__file__).parent
PAGES = {
    "vllm": ({"chunk", "recorder"}, 50),
    "vllm/groups": ({"recorder", "rows"}, 30),
    "blis": (set[str](), 35),
    "rlt": ({"tape"}, 35),
    "sglang": ({"memory", "recorder", "totals"}, 8),
    "trtllm": (set[str](), 10),
}
"""Folder of the page: its modules with kernels but without rules (arrays, records of steps, totals), and the least
number of kernels that a page must name."""
folders = pytest.mark.parametrize("folder", PAGES)


def page_of(folder: str) -> str:
    return (ENGINES / folder / "RULES.md").read_text()


def rooms(folder: str) -> list[Path]:
    """The modules that a page is about: those of its folder, and of folders in it without a page of their own."""
    inside = [path for path in (ENGINES / folder).iterdir() if path.is_dir() and not (path / "RULES.md").exists()]
    return [path for each in (ENGINES / folder, *inside) for path in each.glob("*.py")]


def functions(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}


def test_every_engine_has_a_page() -> None:
    assert set(FOLDERS) - set(PAGES) == set()


@folders
def test_every_kernel_named_exists(folder: str) -> None:
    modules = {path.stem: functions(path) for path in rooms(folder)}
    named = [pair for pair in re.findall(r"`([a-z_]+)\.([a-z_]+)`", page_of(folder)) if pair[1] not in ("py", "md")]
    assert len(named) >= PAGES[folder][1]
    assert [(module, name) for module, name in named if name not in modules.get(module, set())] == []


@folders
def test_every_room_of_kernels_is_named(folder: str) -> None:
    paths = rooms(folder)
    kernels = {path.stem for path in paths if re.search("^@(helper|inlined|entry)", path.read_text(), re.M)}
    without_rules = PAGES[folder][0]
    assert without_rules <= kernels
    modules = kernels - without_rules
    assert len(modules) >= 7
    assert modules - set(re.findall(r"`([a-z_]+)[.`]", page_of(folder))) == set()
