"""The Python that a policy may consist of, checked on the syntax tree before anything runs.

Integers, floats, if, for over range, and functions of the file that call one another: nothing that has a memory, reads
anything but its arguments, or may never end. So a file from elsewhere does no harm, and a call's answer follows from
its arguments alone, whether it is made in a jump, in a step or in another process.
"""

import ast
from collections.abc import Sequence

from fastsim.engines.vllm.policy_text.fields import FIELDS, HOOKS, SIGNATURES
from fastsim.errors import InputError, suggestion

MATH = ("ceil", "exp", "expm1", "fabs", "floor", "log", "log10", "log1p", "log2", "pow", "sqrt", "tanh")
CONSTANTS = ("e", "pi", "tau")
BUILTINS = ("abs", "bool", "float", "int", "max", "min", "range", "round")
SETTINGS = ("victim_ties", "queue_changes")
"""Names that a file may set beside its functions."""
LARGEST = 2**53
"""Integers up to here are exact as doubles, too: compiled and plain Python then agree in every operation."""

_BINARY = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)
_HINTS: tuple[tuple[type[ast.AST] | tuple[type[ast.AST], ...], str], ...] = (
    ((ast.Global, ast.Nonlocal), "a policy keeps no state between calls"),
    (ast.While, "a loop was expected to end: for ... in range(...)"),
    ((ast.Import, ast.ImportFrom), "only `import math` was expected"),
    (ast.Pow, "x * x or math.pow(x, y) was expected"),
    ((ast.List, ast.Dict, ast.Set, ast.Subscript, ast.ListComp, ast.GeneratorExp), "only numbers were expected"),
    ((ast.Try, ast.Raise, ast.Assert), "a policy answers with a number, always"),
    (ast.ClassDef, "only functions were expected"),
    (ast.Lambda, "a function of its own was expected: def name(...)"),
)


class Checker:
    """Checks a file's tree; keeps its functions, its constants and its settings.

    Raises
    ------
    InputError
        One sentence with file and line.
    """

    def __init__(self, tree: ast.Module, name: str) -> None:
        self.name = name
        self.functions: dict[str, ast.FunctionDef] = {}
        self.constants: dict[str, ast.Assign] = {}
        self.settings: dict[str, object] = {}
        self.has_math = False
        for statement in tree.body:
            self._top_level(statement)
        if not self.hooks:
            raise InputError(f"{name}: none of the functions {', '.join(HOOKS)}, but at least one was expected")
        for function in self.functions.values():
            self._function(function)
        for name_of_function in self.functions:
            self.reachable(name_of_function)

    @property
    def hooks(self) -> list[str]:
        """The hooks that the file defines."""
        return [hook for hook in HOOKS if hook in self.functions]

    def fault(self, node: ast.AST, words: str) -> InputError:
        """The sentence about a place."""
        return InputError(f"{self.name}, line {getattr(node, 'lineno', 1)}: {words}")

    def reachable(self, function: str, above: tuple[str, ...] = ()) -> set[str]:
        """A function and all that it calls, directly or not."""
        if function in above:
            raise self.fault(self.functions[function], f"{function} calls itself, but a call that ends was expected")
        found = {function}
        for node in ast.walk(self.functions[function]):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.functions:
                found |= self.reachable(node.func.id, (*above, function))
        return found

    def reads(self, hook: str, parameter: str) -> frozenset[str]:
        """Fields of `view` or `request` that a hook reads, in all the functions that it uses."""
        return frozenset(
            node.attr
            for function in self.reachable(hook)
            for node in ast.walk(self.functions[function])
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == parameter
        )

    # --- The file ---------------------------------------------------------------------------------------------------

    def _top_level(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef):
            if node.name in self.functions or node.name in (*BUILTINS, *SETTINGS, *FIELDS, "math"):
                raise self.fault(node, f"{node.name} is defined already, but another name was expected")
            self.functions[node.name] = node
        elif isinstance(node, ast.Import) and [alias.name for alias in node.names] == ["math"]:
            if node.names[0].asname:
                raise self.fault(node, "math under another name, but `import math` was expected")
            self.has_math = True
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            self._constant(node)
        elif not _is_text(node):
            raise self._refused(node)

    def _constant(self, node: ast.Assign | ast.AnnAssign) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if len(targets) != 1 or not isinstance(targets[0], ast.Name) or node.value is None:
            raise self.fault(node, "NAME = number was expected outside of functions")
        name, value = targets[0].id, node.value
        if name in SETTINGS:
            self._setting(node, name, value)
            return
        if name in (*BUILTINS, *FIELDS, *HOOKS, "math") or name in self.constants or name.startswith("__"):
            raise self.fault(node, f"{name} = ..., but another name was expected")
        self._expression(value, set(self.constants))
        if any(isinstance(each, ast.Call) and not isinstance(each.func, ast.Attribute) for each in ast.walk(value)):
            raise self.fault(node, f"{name} is computed by a function, but a number was expected")
        plain = ast.copy_location(ast.Assign([targets[0]], value), node)
        self.constants[name] = plain

    def _setting(self, node: ast.AST, name: str, value: ast.expr) -> None:
        given = value.value if isinstance(value, ast.Constant) else None
        if name == "victim_ties" and given not in ("first", "last"):
            raise self.fault(node, 'victim_ties = "first" or "last" was expected')
        if name == "queue_changes" and not isinstance(given, bool):
            raise self.fault(node, "queue_changes = True or False was expected")
        self.settings[name] = given

    # --- Functions --------------------------------------------------------------------------------------------------

    def _function(self, node: ast.FunctionDef) -> None:
        a = node.args
        names = [argument.arg for argument in a.args]
        if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs or a.defaults or node.decorator_list:
            raise self.fault(node, f"{node.name} was expected to have plain parameters and no decorator")
        expected = list(SIGNATURES[node.name].parameters) if node.name in HOOKS else names
        if names != expected:
            raise self.fault(
                node, f"{node.name}({', '.join(names)}), but {node.name}({', '.join(expected)}) was expected"
            )
        for name in names:
            self._new_name(node, name, parameter=True)
        if self._block(node.body, set(names)) is not None:
            raise self.fault(node, f"{node.name} may end without an answer, but a return on every way was expected")
        if node.name in HOOKS:
            self._fields_of_hook(node.name)

    def _new_name(self, node: ast.AST, name: str, *, parameter: bool = False) -> None:
        taken = (*self.functions, *self.constants, *BUILTINS, "math", *(() if parameter else FIELDS))
        if name in taken or name in SETTINGS:
            raise self.fault(node, f"{name} means something else in this file, but another name was expected")

    def _fields_of_hook(self, hook: str) -> None:
        for function in self.reachable(hook):
            for node in ast.walk(self.functions[function]):
                if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
                    continue
                fields = FIELDS.get(node.value.id)
                if fields and hook not in fields[node.attr].hooks:
                    raise self.fault(
                        node,
                        f"{node.value.id}.{node.attr} in {hook}, but only {_and(fields[node.attr].hooks)} can read it",
                    )

    def _block(self, statements: Sequence[ast.stmt], known: set[str]) -> set[str] | None:
        """Names that have a value behind the statements; None when each way through them has returned."""
        for k, statement in enumerate(statements):
            after = self._statement(statement, known)
            if after is None:
                if k + 1 < len(statements):
                    raise self.fault(statements[k + 1], "this can never be reached")
                return None
            known = after
        return known

    def _statement(self, node: ast.stmt, known: set[str]) -> set[str] | None:
        match node:
            case ast.Return(value=ast.expr() as value):
                self._expression(value, known)
                return None
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                return self._assign(node, known)
            case ast.If():
                self._expression(node.test, known)
                ways = [self._block(node.body, known), self._block(node.orelse, known)]
                open_ways = [way for way in ways if way is not None]
                return set.intersection(*open_ways) if open_ways else None
            case ast.For(target=ast.Name() as target, orelse=[]):
                self._range(node.iter, known)
                self._new_name(target, target.id)
                self._block(node.body, known | {target.id})
                return known
            case ast.Pass() | ast.Break() | ast.Continue():
                return known
        if _is_text(node):
            return known
        raise self._refused(node)

    def _assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, known: set[str]) -> set[str]:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if node.value is None or not all(isinstance(target, ast.Name) for target in targets):
            raise self.fault(node, "name = value was expected")
        self._expression(node.value, known)
        if isinstance(node, ast.AugAssign):
            self._operator(node.op, node)
            self._expression(ast.copy_location(ast.Name(targets[0].id, ast.Load()), node), known)  # type: ignore[attr-defined]
        for target in targets:
            self._new_name(target, target.id)  # type: ignore[attr-defined]
        return known | {target.id for target in targets}  # type: ignore[attr-defined]

    def _range(self, node: ast.expr, known: set[str]) -> None:
        is_range = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"
        if not is_range or node.keywords or not 1 <= len(node.args) <= 2:  # type: ignore[attr-defined]
            raise self.fault(node, "for ... in range(end) or range(start, end) was expected")
        for argument in node.args:  # type: ignore[attr-defined]
            self._expression(argument, known)

    # --- Expressions ------------------------------------------------------------------------------------------------

    def _expression(self, node: ast.expr, known: set[str]) -> None:
        match node:
            case ast.Constant(value=bool() | int() | float() as number):
                if not abs(number) <= (LARGEST if isinstance(number, int) else 1.7e308):
                    raise self.fault(node, f"{number} is too large: integers up to 2**53 were expected")
            case ast.Name():
                if node.id in FIELDS:
                    raise self.fault(
                        node, f"{node.id} by itself, but one of its fields was expected: {node.id}.{'...'}"
                    )
                if node.id not in known and node.id not in self.constants:
                    raise self.fault(node, f"{node.id} may have no value here")
            case ast.Attribute(value=ast.Name(id=owner)):
                self._attribute(node, owner, known)
            case ast.BinOp():
                self._operator(node.op, node)
                self._expression(node.left, known)
                self._expression(node.right, known)
            case ast.UnaryOp(op=ast.UAdd() | ast.USub() | ast.Not()):
                self._expression(node.operand, known)
            case ast.BoolOp():
                for value in node.values:
                    self._expression(value, known)
            case ast.Compare():
                if any(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops):
                    raise self.fault(node, "numbers are compared by <, <=, ==, !=, >= and >")
                for value in (node.left, *node.comparators):
                    self._expression(value, known)
            case ast.IfExp():
                for value in (node.test, node.body, node.orelse):
                    self._expression(value, known)
            case ast.Call(keywords=[]):
                self._call(node, known)
            case _:
                raise self._refused(node)

    def _operator(self, operator: ast.operator, node: ast.AST) -> None:
        if not isinstance(operator, _BINARY):
            hint = "x * x or math.pow(x, y)" if isinstance(operator, ast.Pow) else "+, -, *, /, // or %"
            raise self.fault(node, f"an operator that policies do not have, but {hint} was expected")

    def _attribute(self, node: ast.Attribute, owner: str, known: set[str]) -> None:
        if owner == "math" and self.has_math and node.attr in CONSTANTS:
            return
        if owner not in FIELDS or owner not in known:
            words = "but fields of view and request were expected, and math where it is imported"
            raise self.fault(node, f"{owner}.{node.attr}, {words}")
        if node.attr not in FIELDS[owner]:
            raise self.fault(node, f"{owner}.{node.attr} is no field{suggestion(node.attr, list(FIELDS[owner]))}")

    def _call(self, node: ast.Call, known: set[str]) -> None:
        match node.func:
            case ast.Name(id=name) if name in self.functions:
                wanted = [argument.arg for argument in self.functions[name].args.args]
                if len(node.args) != len(wanted):
                    raise self.fault(node, f"{name} has {len(wanted)} parameters, but {len(node.args)} were given")
                for argument, parameter in zip(node.args, wanted, strict=True):
                    self._argument(argument, parameter, known)
            case ast.Name(id="range"):
                raise self.fault(node, "range was expected only in for ... in range(...)")
            case ast.Name(id=name) if name in BUILTINS and (len(node.args) == 1 or name in ("min", "max")):
                if name in ("min", "max") and len(node.args) < 2:
                    raise self.fault(node, f"{name} of at least two numbers was expected")
                for argument in node.args:
                    self._expression(argument, known)
            case ast.Attribute(value=ast.Name(id="math"), attr=name) if self.has_math and name in MATH:
                if len(node.args) != (2 if name == "pow" else 1):
                    raise self.fault(node, f"math.{name} with {len(node.args)} arguments")
                for argument in node.args:
                    self._expression(argument, known)
            case _:
                known_names = ", ".join((*BUILTINS, *(f"math.{name}" for name in MATH)))
                raise self.fault(
                    node,
                    f"a call of {ast.unparse(node.func)}, but only functions of this file and these were expected: "
                    f"{known_names}",
                )

    def _argument(self, node: ast.expr, parameter: str, known: set[str]) -> None:
        """`view` and `request` are handed on under their own names, so that what is read of them can be found."""
        handed = node.id if isinstance(node, ast.Name) and node.id in FIELDS else None
        if handed != (parameter if parameter in FIELDS else None):
            raise self.fault(node, f"{ast.unparse(node)} as parameter {parameter}: view and request keep their names")
        if handed is None:
            self._expression(node, known)
        elif handed not in known:
            raise self.fault(node, f"{handed} may have no value here")

    def _refused(self, node: ast.AST) -> InputError:
        for each in ast.walk(node):
            for kinds, hint in _HINTS:
                if isinstance(each, kinds):
                    return self.fault(each if hasattr(each, "lineno") else node, f"`{_first_line(node)}`, but {hint}")
        return self.fault(node, f"`{_first_line(node)}` is not what policies are made of (numbers, if, for, functions)")


def _first_line(node: ast.AST) -> str:
    text = ast.unparse(node).splitlines()[0]
    return text if len(text) <= 60 else text[:57] + "..."


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _and(names: Sequence[str]) -> str:
    return " and ".join(names)
