"""The house has floors: a file imports only from what stands below it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import fastsim
from fastsim.engines import engines

PACKAGE = Path(fastsim.__file__).parent

ORDER = (
    "errors", "_notice", "pinned", "_jit", "model", "rule",  # F0
    "presets", "knobs", "config",             # F1
    "workload",                               # F2
    "outputs", "metrics", "engines",          # F3
    "fleet", "records", "simulation",         # F4
    "grid", "store", "worker", "runner",      # F5
    "analysis",                               # F6
    "cli",                                    # F7
)  # fmt: skip
"""From the ground up: each imports only from those before it, and from its own folder."""

ROOF = ("__init__", "__main__")
"""May import from everywhere, and nothing inside imports from them."""

FILES = sorted(PACKAGE.rglob("*.py"))


DECLARED = (
    ("declaration", "clock", "limits"),
    (
        "knobs",
        "limits",
        "policies",
        "server",
        "start",
        "versions",
        "group_texts",
        "group_rules",
        "policy_rules",
        "policy_text",
    ),
)
"""Files of `engines`, and files and folders of an engine, that the configuration is made of: `knobs` above."""
WRITTEN = ("encode", "outputs", "step_fields", "step_table")
"""Files of `engines` that metrics read: `outputs` in the order above."""


def unit(path: Path) -> str:
    """The folder or file directly below the package."""
    return unit_of(path.relative_to(PACKAGE).with_suffix("").parts)


def unit_of(parts: tuple[str, ...]) -> str:
    """The unit of a module: the engines' folder holds three, that of sweeps four, the others one each."""
    if parts[0] == "sweeps" and len(parts) > 1:
        return parts[1]
    if parts[0] != "engines":
        return parts[0]
    is_package = len(parts) == 1 or (len(parts) == 2 and (PACKAGE / "engines" / parts[1]).is_dir())
    if is_package or not {*DECLARED[len(parts) > 2]}.isdisjoint(parts[1:]):
        return "knobs"
    return "outputs" if len(parts) == 2 and parts[1] in WRITTEN else "engines"


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported from the package, relative imports resolved."""
    package = ("fastsim", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module == "fastsim":  # `from fastsim import grid` names a unit
                yield from ((node.lineno, f"fastsim.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_come_from_floors_below(path: Path) -> None:
    here = unit(path)
    if here in ROOF:
        return
    assert here in ORDER, f"{here} has no floor: add it to ORDER"
    for line, name in imported(path):
        if name.split(".")[0] != "fastsim":
            continue
        there = unit_of(tuple(name.split(".")[1:])) if "." in name else "__init__"
        assert there in ORDER, f"{path}:{line} imports {name}, which has no floor"
        assert there == here or ORDER.index(there) < ORDER.index(here), (
            f"{path}:{line}: {here} imports {name} from a floor that is not below"
        )


@pytest.mark.parametrize(
    "path", [path for path in FILES if unit(path) == "engines"], ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_an_engine_imports_no_other_engine(path: Path) -> None:
    inside = path.relative_to(PACKAGE / "engines").parts
    for line, name in imported(path):
        parts = name.split(".")
        if parts[:2] != ["fastsim", "engines"] or len(parts) < 3:
            continue
        if (PACKAGE / "engines" / parts[2]).is_dir():
            assert parts[2] == inside[0], f"{path}:{line} imports {name}"


NAMED = {
    "config/across.py": "vLLM's knobs are the common language: which of them another engine reads",
    "config/engine.py": "vLLM's knobs are the common language: they stand in `engine.*` itself",
    "config/rules.py": "vLLM's knobs, which other engines refuse",
    "config/workload_parts.py": "a format of traces",
    "workload/readers/blis.py": "that format",
    "analysis/measured/vllm_bench.py": "what a benchmark writes as its backend",
    "analysis/calibrate/run.py": "a key of the report, and of the files of vLLM's runs",
    "cli/policies.py": "an example of how to choose an engine",
}
"""Files outside `engines` that name an engine, and why they may; everything else asks for an ability."""


def engines_named(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of everything in a file that is about one engine: imports, names, keys of its own."""
    names = {name for engine in engines() for name in (*engine.names, engine.folder)}
    own = tuple(f"{top}.{engine.table}." for engine in engines() if engine.table for top in ("engine", "latency"))
    folders = tuple(f"fastsim.engines.{engine.folder}" for engine in engines())
    yield from ((line, name) for line, name in imported(path) if f"{name}.".startswith(tuple(f"{f}." for f in folders)))
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value.removeprefix("engine.name=")
            if text in names or (text.startswith(own) and " " not in text):
                yield node.lineno, node.value


@pytest.mark.parametrize(
    "path", [path for path in FILES if "engines" not in path.parts], ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_no_engine_is_named_outside_its_folder(path: Path) -> None:
    here = path.relative_to(PACKAGE).as_posix()
    if here not in NAMED:
        assert list(engines_named(path)) == []


@pytest.mark.parametrize("here", NAMED)
def test_exceptions_are_needed(here: str) -> None:
    assert list(engines_named(PACKAGE / here))


OF_AN_ENGINE = {"Blocks", "Lists", "Memory", "Policy", "Queues", "Record", "Requests", "State"}
"""Parts of a kernel's state: the same of every engine, and of vLLM's kernels for cache groups, which are its second."""


def test_a_class_name_has_one_meaning() -> None:
    homes: dict[str, list[Path]] = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(path.parent)
    twice = {name: found for name, found in homes.items() if len(found) > 1}
    assert set(twice) == OF_AN_ENGINE
    for name, found in twice.items():
        assert len(set(found)) == len(found), name
        assert all(folder.parent == PACKAGE / "engines" or folder.name == "groups" for folder in found), name


def test_the_rule_can_fail(tmp_path: Path) -> None:
    assert [name for _, name in imported(PACKAGE / "config" / "rules.py") if name.startswith("fastsim")]
    assert ORDER.index("config") < ORDER.index("grid")
