"""Calls of functions by their address: a compiled kernel calls what was compiled after it.

`address_of` compiles a function for arguments that the kernels use and gives the address of its machine code; `ask`
calls it from a kernel, by Numba's own convention, so that what it raises leaves the kernel as a Python exception. An
address holds in its own process only. Uncompiled, addresses are numbers of plain functions.
"""

# Numba's internals are hardly typed
# mypy: disable-error-code="attr-defined,misc,no-any-return,no-untyped-call,untyped-decorator"
# mypy: no-warn-unused-ignores

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

import numba

_functions: list[Callable[[Any, int], float]] = []
"""Those that have an address: it holds as long as they are here."""


def ask(address: int, state: Any, i: int) -> float:
    """The answer of the function at an address: (state, int64) -> float64."""
    return _functions[address - 1](state, i)


if not numba.config.DISABLE_JIT:
    from llvmlite import ir
    from numba import njit, types
    from numba.core import cgutils
    from numba.core.typing.templates import AbstractTemplate, infer_global, signature
    from numba.extending import lower_builtin

    from fastsim._jit.borrowed import Borrowed, Fields
    from fastsim._jit.cache import QuickCache
    from fastsim._jit.parts import HELPER_OPTIONS

    @infer_global(ask)
    class _AskType(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            address, state, _ = args
            if isinstance(address, types.Integer) and isinstance(state, Borrowed):
                return signature(types.float64, types.int64, state, types.int64)
            return None

    def _call_by_address(context: Any, module: Any, given: Any) -> Any:
        """A function that calls what is at an address. It is kept out of kernels, for whose runs it is rare."""
        convention = context.call_conv
        name = f"fastsim.ask.{blake2b(str(given).encode(), digest_size=8).hexdigest()}"
        if name not in module.globals:
            kind = convention.get_function_type(types.float64, (types.int64, *given))
            function = ir.Function(module, kind, name)
            function.linkage = "linkonce_odr"
            function.attributes.add("noinline")
            function.attributes.add("cold")
            answer, error, address, *arguments = function.args
            builder = ir.IRBuilder(function.append_basic_block())
            callee = convention.get_function_type(types.float64, given).as_pointer()
            builder.ret(builder.call(builder.inttoptr(address, callee), [answer, error, *arguments]))
        return module.globals[name]

    @lower_builtin(ask, types.int64, Borrowed, types.int64)
    def _ask(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        function = _call_by_address(context, builder.module, sig.args[1:])
        status, answer = context.call_conv.call_function(builder, function, sig.return_type, sig.args, args)
        with cgutils.if_unlikely(builder, status.is_error):
            context.call_conv.return_status_propagate(builder, status)
        return answer


def address_of(function: Callable[[Any, int], float], state_type: Any) -> int:
    """Where the machine code of a function of (state, int64) begins; it is kept on disk as kernels are."""
    if numba.config.DISABLE_JIT:
        _functions.append(function)
        return len(_functions)
    compiled = njit(cache=True, **HELPER_OPTIONS)(function)
    compiled._cache = QuickCache(function)
    compiled.compile(types.float64(state_type, types.int64))
    _functions.append(compiled)
    (result,) = compiled.overloads.values()
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))


def state_type(record_types: Mapping[str, bool | None], state: Any) -> Any:
    """Numba's type of a borrowed NamedTuple.

    Its parts are NamedTuples of arrays, which kernels borrow, or arrays of one record: `record_types` says of these
    whether the record is constant, or None where it is handed on as it is.
    """
    parts: list[Any] = []
    for name, part in zip(state._fields, state, strict=True):
        kind = numba.typeof(part)
        if name not in record_types:
            parts.append(Borrowed(kind))
        else:
            constant = record_types[name]
            parts.append(kind.dtype if constant is None else Fields(kind.dtype, constant))
    return Borrowed(types.NamedTuple(parts, type(state)))
