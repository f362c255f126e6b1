"""Arithmetic that fails aloud, as machine code: what `teach` is given in plain Python, Numba then knows compiled.

The last argument of each operation is a text constant, which stands in the message of the error: an error raised by
compiled arithmetic otherwise does not say where.
"""

# Numba's internals are hardly typed
# mypy: disable-error-code="attr-defined,misc,no-any-return,no-untyped-call,untyped-decorator"
# mypy: no-warn-unused-ignores

from collections.abc import Callable, Mapping
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin

_DOUBLE = ir.DoubleType()


def _whole(types_of: Any) -> bool:
    return all(isinstance(each, types.Integer | types.Boolean) for each in types_of)


def _numbers(types_of: Any) -> bool:
    return all(isinstance(each, types.Integer | types.Boolean | types.Float) for each in types_of)


def _resolver(function: Any, count: int, answer: Callable[[Any], Any]) -> None:
    """Teach the types: `answer` says, of whether all arguments are integers, what they and the result are."""

    class Template(AbstractTemplate):  # type: ignore[misc]
        prefer_literal = True

        def generic(self, args: Any, kws: Any) -> Any:
            if len(args) != count + 1 or not _numbers(args[:count]) or not isinstance(args[count], types.StringLiteral):
                return None
            given, result = answer(_whole(args[:count]))
            return signature(result, *([given] * count), args[count])

    infer_global(function)(Template)


def _fail_if(context: Any, builder: Any, wrong: Any, sig: Any, error: type[Exception], words: str) -> None:
    with builder.if_then(wrong, likely=False):
        context.call_conv.return_user_exc(builder, error, (f"{sig.args[-1].literal_value}: {words}",))


def teach(operations: Mapping[str, Any], error: type[Exception], words: Mapping[str, str], largest: int) -> None:
    """Teach Numba the operations of `fastsim.engines.vllm.policy_text.checked`, by name.

    `words` are what each says when it raises `error`; integers stay within `largest`.
    """

    def bound(kind: Any = types.int64) -> Any:
        return ir.Constant(ir.IntType(64), largest) if kind == types.int64 else ir.Constant(_DOUBLE, float(largest))

    def arithmetic(name: str) -> None:
        function = operations[name]
        _resolver(function, 2, lambda whole: (types.int64, types.int64) if whole else (types.float64, types.float64))

        @lower_builtin(function, types.int64, types.int64, types.StringLiteral)
        def of_integers(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            pair = getattr(builder, f"s{name}_with_overflow")(args[0], args[1])
            result = builder.extract_value(pair, 0)
            wrong = builder.extract_value(pair, 1)
            for beyond, limit in ((">", bound()), ("<", builder.neg(bound()))):
                wrong = builder.or_(wrong, builder.icmp_signed(beyond, result, limit))
            _fail_if(context, builder, wrong, sig, error, words[name])
            return result

        @lower_builtin(function, types.float64, types.float64, types.StringLiteral)
        def of_floats(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return getattr(builder, f"f{name}")(args[0], args[1])

    def whole(name: str, llvm: str) -> None:
        function = operations[name]
        _resolver(function, 1, lambda whole: (types.int64 if whole else types.float64, types.int64))

        @lower_builtin(function, types.int64, types.StringLiteral)
        def of_integer(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return args[0]

        @lower_builtin(function, types.float64, types.StringLiteral)
        def of_float(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            size = builder.call(builder.module.declare_intrinsic("llvm.fabs", [_DOUBLE]), [args[0]])
            fits = builder.fcmp_ordered("<=", size, bound(types.float64))
            _fail_if(context, builder, builder.not_(fits), sig, error, words[name])
            rounded = builder.call(builder.module.declare_intrinsic(f"llvm.{llvm}", [_DOUBLE]), [args[0]])
            return builder.fptosi(rounded, ir.IntType(64))

    for name in ("add", "sub", "mul"):
        arithmetic(name)
    for name in ("trunc", "rint", "floor", "ceil"):
        whole(name, name)

    _resolver(
        operations["nonzero"], 1, lambda whole: (types.int64, types.int64) if whole else (types.float64, types.float64)
    )
    _resolver(operations["finite"], 1, lambda whole: (types.float64, types.float64))

    @lower_builtin(operations["nonzero"], types.int64, types.StringLiteral)
    def nonzero_integer(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        wrong = builder.icmp_signed("==", args[0], ir.Constant(ir.IntType(64), 0))
        _fail_if(context, builder, wrong, sig, error, words["nonzero"])
        return args[0]

    @lower_builtin(operations["nonzero"], types.float64, types.StringLiteral)
    def nonzero_float(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        wrong = builder.fcmp_ordered("==", args[0], ir.Constant(_DOUBLE, 0.0))
        _fail_if(context, builder, wrong, sig, error, words["nonzero"])
        return args[0]

    @lower_builtin(operations["finite"], types.float64, types.StringLiteral)
    def finite(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        nothing = builder.fsub(args[0], args[0])  # 0, but NaN of infinities and NaN
        wrong = builder.fcmp_unordered("uno", nothing, nothing)
        _fail_if(context, builder, wrong, sig, error, words["finite"])
        return args[0]
