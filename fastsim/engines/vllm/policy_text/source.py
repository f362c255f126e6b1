"""A policy file, read, checked and tried on made-up states: what the rest of the engine knows of it."""

import ast
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from traceback import extract_tb
from types import SimpleNamespace
from typing import Any

from fastsim.engines.vllm.policy_text.checked import OPERATIONS, finite
from fastsim.engines.vllm.policy_text.fields import ADMIT, CAP, FIELDS, SIGNATURES, VICTIM
from fastsim.engines.vllm.policy_text.syntax import Checker
from fastsim.errors import InputError, PolicyError, check_regular, printable
from fastsim.pinned import read_bytes

MAX_BYTES = 2**18
TRIES = 200
"""Made-up states that each function is called with before anything is compiled."""
LATEST_US = 10**12
"""Of made-up arrivals: ten days."""
PREFIX = "fastsim_"
"""Of the names that operations have in the checked functions."""

_OPERATIONS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}
_DIVISIONS = (ast.Div, ast.FloorDiv, ast.Mod)
_WHOLE = {"int": "trunc", "round": "rint", "math.floor": "floor", "math.ceil": "ceil"}


@dataclass(frozen=True, eq=False)
class PolicySource:
    """A file that passed every check.

    `reads[hook]` are the fields of view and of request that a hook reads; a hook is missing that the file does not
    define. `digest` is a hash of the text.
    """

    name: str
    text: str
    digest: str
    reads: dict[str, tuple[frozenset[str], frozenset[str]]]
    lines: dict[str, int]
    victim_ties: str
    queue_changes: bool
    tree: ast.Module
    """The functions and constants, every operation that could differ between machine and Python being checked."""

    def where(self, hook: str) -> str:
        """Where a hook stands, and its name."""
        return f"{self.name}, line {self.lines[hook]}, {hook}"

    def functions(self, decorate: Callable[[Any], Any] = lambda function: function) -> dict[str, Any]:
        """The functions by name, each decorated."""
        namespace: dict[str, Any] = {"math": math}
        namespace |= {PREFIX + operation.__name__: operation for operation in OPERATIONS}
        exec(compile(self.tree, self.name, "exec"), namespace)
        names = [node.name for node in self.tree.body if isinstance(node, ast.FunctionDef)]
        for name in names:
            namespace[name] = decorate(namespace[name])
        return {name: namespace[name] for name in names}


def load_policy(path: str) -> PolicySource:
    """Read a policy file and check it.

    Raises
    ------
    InputError
        One sentence with file and line: what is no policy, or fails when it is tried.
    """
    name = printable(Path(path).name)
    check_regular(Path(path), "a policy in Python")
    try:
        data = read_bytes(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"engine.policy_file = {path}: cannot be read ({reason})") from None
    if len(data) > MAX_BYTES:
        raise InputError(f"engine.policy_file = {path}: larger than 256 KiB, but a policy was expected")
    return policy_of(name, data)


@lru_cache(maxsize=256)
def policy_of(name: str, data: bytes) -> PolicySource:
    """The policy of a text."""
    try:
        text = data.decode()
        tree = ast.parse(text)
    except UnicodeDecodeError:
        raise InputError(f"{name}: not UTF-8 text, but a policy in Python was expected") from None
    except SyntaxError as error:
        raise InputError(f"{name}, line {error.lineno or 1}: not Python ({error.msg})") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{name}: not Python ({error})") from None
    checker = Checker(tree, name)
    source = PolicySource(
        name=name,
        text=text,
        digest=blake2b(data, digest_size=16).hexdigest(),
        reads={hook: (checker.reads(hook, "view"), checker.reads(hook, "request")) for hook in checker.hooks},
        lines={hook: checker.functions[hook].lineno for hook in checker.hooks},
        victim_ties=str(checker.settings.get("victim_ties", "last")),
        queue_changes=bool(checker.settings.get("queue_changes", False)),
        tree=_checked_tree(checker),
    )
    _try_functions(source)
    return source


# --- The checked tree -------------------------------------------------------------------------------------------------


def _checked_tree(checker: Checker) -> ast.Module:
    """Constants and functions alone, without texts and annotations, their operations checked."""
    rewriter = _Rewriter(checker.name)
    statements = [*checker.constants.values(), *checker.functions.values()]
    return ast.fix_missing_locations(ast.Module([rewriter.visit(statement) for statement in statements], []))


class _Rewriter(ast.NodeTransformer):
    """Calls in the place of operations whose compiled form could silently be another one than Python's."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _call(self, function: str, node: ast.AST, *arguments: ast.expr) -> ast.expr:
        where = ast.Constant(f"{self.name}, line {node.lineno}")  # type: ignore[attr-defined]
        call = ast.Call(ast.Name(PREFIX + function, ast.Load()), [*arguments, where], [])
        return ast.copy_location(call, node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        for argument in node.args.args:
            argument.annotation = None
        node.body = [self.visit(s) for s in node.body if not isinstance(s, ast.Expr)] or [ast.Pass()]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        assert node.value is not None
        return ast.copy_location(ast.Assign([node.target], self.visit(node.value)), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        assert isinstance(node.target, ast.Name)
        value = ast.copy_location(ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value), node)
        return ast.copy_location(ast.Assign([node.target], self.visit(value)), node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(node.op, _DIVISIONS):
            return ast.copy_location(ast.BinOp(left, node.op, self._call("nonzero", node, right)), node)
        return self._call(_OPERATIONS[type(node.op)], node, left, right)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = ast.unparse(node.func)
        node.args = [self.visit(argument) for argument in node.args]
        if name in _WHOLE:
            return self._call(_WHOLE[name], node, *node.args)
        return self._call("finite", node, node) if name.startswith("math.") else node


# --- The dry run ------------------------------------------------------------------------------------------------------


def made_up_states(seed: int, hook: str, count: int) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
    """States that a scheduler can be in when it asks a hook: fields of view and request, the extremes among them."""
    rng = random.Random(f"{hook} {seed}")
    for k in range(count):
        size = rng.choice((1, 3, 40, 2000, 10**6))

        def number(low: int, high: int, k: int = k) -> int:
            return low if k == 0 or high <= low else high if k == 1 else rng.choice((low, high, rng.randint(low, high)))

        usable = number(1, 20 * size)
        arrival_us = number(0, min(10**9 * size, LATEST_US))
        since_us = arrival_us + number(0, 10**5 * size)
        prompt, output = number(1, 10 * size), number(1, 10 * size)
        generated = number(0, output - 1)
        cached = number(0, prompt - 1) if hook == ADMIT else 0
        computed = cached if hook == ADMIT else number(0, prompt + generated - 1) if hook == VICTIM else 0
        blocks = number(1, usable)
        running = number(1 if hook in (VICTIM, ADMIT) else 0, size)
        view = {
            "now_us": since_us + number(0, 10**5 * size),
            "step": number(0, 10**6 * size),
            "free_blocks": number(0, usable - (blocks if hook == VICTIM else 0)),
            "usable_blocks": usable,
            "block_size": rng.choice((1, 16, 32, 128)),
            "running": running,
            "waiting": number(0 if hook in (VICTIM, CAP) else 1, size),
            "prefilling": number(0, running),
            "step_prefill_tokens": number(0, size),
        }
        request = {
            "index": number(0, 10 * size),
            "arrival_us": arrival_us,
            "waiting_since_us": since_us,
            "priority": number(-5, 5),
            "prompt_tokens": prompt,
            "max_tokens": output + number(0, size),
            "output_tokens": output,
            "generated_tokens": generated,
            "tokens": prompt + generated,
            "computed_tokens": computed,
            "preemptions": number(0, 30),
            "blocks": blocks,
            "exclusive_blocks": number(0, blocks),
            "position": number(0, running - 1),
            "cached_tokens": cached,
            "new_tokens": number(1, prompt + generated - computed),
        }
        yield view, request


def _try_functions(source: PolicySource) -> None:
    """Call each hook on made-up states, in plain Python."""
    functions = source.functions()
    for hook in source.reads:
        for view, request in made_up_states(0, hook, TRIES):
            arguments = [SimpleNamespace(**view), SimpleNamespace(**request)][: len(SIGNATURES[hook].parameters)]
            try:
                answer = functions[hook](*arguments)
                finite(answer, source.where(hook))
            except PolicyError as error:
                raise InputError(f"{error}, where {_given(source, hook, view, request)}") from None
            except Exception as error:  # noqa: BLE001 - whatever Python says of the user's line
                line = next(
                    (f.lineno for f in reversed(extract_tb(error.__traceback__)) if f.filename == source.name), 1
                )
                given = _given(source, hook, view, request)
                raise InputError(
                    f"{source.name}, line {line}: {type(error).__name__}: {error}, where {given}"
                ) from None


def _given(source: PolicySource, hook: str, view: dict[str, int], request: dict[str, int]) -> str:
    """The values of the fields that a hook reads."""
    read = source.reads[hook]
    values = [f"view.{name} = {view[name]}" for name in FIELDS["view"] if name in read[0]]
    values += [f"request.{name} = {request[name]}" for name in FIELDS["request"] if name in read[1]]
    return ", ".join(values) or "nothing is read"
