"""The page of rules beside the vLLM kernels names kernels that exist, and every knob of the engine's what-ifs."""

import ast
import re
from pathlib import Path

import fastsim.engines.vllm

ROOM = Path(fastsim.engines.vllm.__file__).parent
RULES = (ROOM / "RULES.md").read_text()


def functions(module: str) -> set[str]:
    tree = ast.parse((ROOM / f"{module}.py").read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def named_kernels() -> list[tuple[str, str]]:
    return re.findall(r"`([a-z_]+)\.([a-z_]+)`", RULES)


def test_every_kernel_named_exists() -> None:
    named = named_kernels()
    assert len(named) > 50
    assert [(module, name) for module, name in named if name not in functions(module)] == []


def test_every_room_is_named() -> None:
    """Files of kernels, that is; the one that calls them all, and those of arrays and the recorder, hold no rules."""
    without_rules = {"chunk", "memory", "recorder", "state"}
    kernels = {path.stem for path in ROOM.glob("*.py") if re.search("^@(helper|inlined|entry)", path.read_text(), re.M)}
    modules = kernels - without_rules
    assert len(modules) > 15
    assert modules - set(re.findall(r"`([a-z_]+)[.`]", RULES)) == set()
