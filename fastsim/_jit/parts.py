"""Helpers as parts of an entry: typed and lowered, but neither optimised nor turned into machine code by themselves.

Gain, CPU to compile the vLLM kernel (Numba 0.68.1, busy machine, in turns): 21 s instead of 60 s, once for every
installation and every change of a kernel. The larger part: LLVM optimises one module instead of one a helper, and a
helper is compiled for one integer type. The rest: passes that kernels do not need are left out, and the typing of
built-in functions is remembered. The machine code is as fast within the noise. That is worth 200 lines, which nothing
but the time to compile depends on.

Any Numba version but those in `PARTS_KNOWN` compiles helpers in its own way, with the same results.
"""

# Numba's internals are hardly typed
# mypy: disable-error-code="attr-defined,misc,name-defined,no-any-return,no-untyped-call,override,untyped-decorator"
# mypy: no-warn-unused-ignores

import operator
from collections.abc import Callable
from functools import partial
from types import CodeType
from typing import Any

from numba import njit, types

HELPER_OPTIONS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""Python never calls a helper, so no wrappers for it: they were most of the compile time."""


def _nothing() -> None:
    return None


def helper_as_part() -> Callable[..., Any]:
    """A decorator like `njit` for functions that are only ever part of an entry. Uses Numba's internals."""
    from numba import _dynfunc
    from numba.core import typed_passes as typed
    from numba.core import typing
    from numba.core import untyped_passes as untyped
    from numba.core.codegen import JITCodeLibrary
    from numba.core.compiler import Compiler
    from numba.core.compiler_machinery import PassManager, register_pass
    from numba.core.datamodel.models import OpaqueModel
    from numba.core.errors import TypingError
    from numba.core.registry import CPUDispatcher
    from numba.extending import register_model

    class PartLibrary(JITCodeLibrary):  # type: ignore[misc]
        """The unoptimised module of one helper. `parts`: itself and all it calls, each once, for the entry to link."""

        def _optimize_functions(self, ll_module: Any) -> None:
            ll_module.data_layout = self._codegen._data_layout

        def finalize(self) -> None:
            self._raise_if_finalized()
            self._finalized = True
            parts = {self: None}
            for library in self._linking_libraries:
                parts.update(dict.fromkeys(getattr(library, "parts", (library,))))
            self.parts = list(parts)

    @register_pass(mutates_CFG=True, analysis_only=False)
    class PartLowering(typed.NativeLowering):  # type: ignore[misc]
        """Numba's lowering to LLVM, without the machine code."""

        _name = "fastsim_part_lowering"

        def run_pass(self, state: Any) -> bool:
            library = state.library = PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
            state.flags.no_compile = True
            super().run_pass(state)
            library.finalize()
            lowered = state["cr"]
            name = lowered.fndesc.qualname.split(".")[-1]
            # A key under which callers find the function; calling it from Python fails, as there is no wrapper
            key = _dynfunc.make_function(lowered.fndesc.lookup_module(), name, "", 0, lowered.env, (library,))
            state.targetctx.insert_user_function(key, lowered.fndesc, library.parts)
            state.reload_init.extend(library._reload_init)
            state["cr"] = lowered._replace(cfunc=key)
            return True

    class Remembering(types.Function):  # type: ignore[misc]
        """A built-in function (`+`, getitem, ...) that resolves each combination of argument types once."""

        def __init__(self, function: Any) -> None:
            self._function = function
            self._answers: dict[Any, Any] = {}
            super().__init__(function.templates)

        def get_impl_key(self, sig: Any) -> Any:
            return self._function.get_impl_key(sig)

        def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
            question = (tuple(args), tuple(kws.items()) if kws else ())
            if question not in self._answers:
                try:
                    self._answers[question] = self._function.get_call_type(context, args, kws)
                except TypingError as error:
                    self._answers[question] = error
            answer = self._answers[question]
            if isinstance(answer, Exception):
                raise answer.with_traceback(None)
            return answer

    register_model(Remembering)(OpaqueModel)
    remembered: dict[Any, Remembering] = {}

    def remember(function: Any) -> Any:
        if type(function) is not types.Function:
            return function
        if function not in remembered:
            remembered[function] = Remembering(function)
        return remembered[function]

    class InferenceContext(typing.Context):  # type: ignore[misc]
        """Numba's own typing context (it shares its state), which remembers how built-in functions resolve."""

        def __init__(self, context: Any) -> None:
            self.__dict__ = context.__dict__

        def _resolve_user_function_type(self, func: Any, args: Any, kws: Any, literals: Any = None) -> Any:
            func = self._lookup_global(func) or func
            return super()._resolve_user_function_type(remember(func), args, kws, literals)

        def resolve_setitem(self, target: Any, index: Any, value: Any) -> Any:
            fn = remember(self.resolve_value_type(operator.setitem))
            return fn.get_call_type(self, (target, index, value), {})

    class LoweringContext(InferenceContext):
        def resolve_value_type(self, value: Any) -> Any:
            # Only operators: lowering just calls these; other functions may become values in nested compilations
            resolved = super().resolve_value_type(value)
            return remember(resolved) if getattr(value, "__module__", None) == "_operator" else resolved

    class Passes(PassManager):  # type: ignore[misc]
        """Runs passes without the events and checks around each, whose texts repeat every field of every record."""

        def run(self, state: Any) -> None:
            for pass_class, _ in self.passes:
                step = pass_class()
                step.analysis = self._analysis
                step.run_pass(state)

    part_passes = (
        untyped.TranslateByteCode,
        untyped.FixupArgs,
        untyped.IRProcessing,
        untyped.RewriteSemanticConstants,
        untyped.DeadBranchPrune,
        untyped.GenericRewrites,
        untyped.RewriteDynamicRaises,
        untyped.ReconstructSSA,
        typed.NopythonTypeInference,
        typed.PreLowerStripPhis,
        typed.NoPythonSupportedFeatureValidation,
        typed.IRLegalization,
        PartLowering,
        typed.NoPythonBackend,
    )

    class PartCompiler(Compiler):  # type: ignore[misc]
        def define_pipelines(self) -> list[Any]:
            state = self.state
            state.typingctx = InferenceContext(state.typingctx)
            state.targetctx.typing_context = LoweringContext(state.typingctx)
            state.targetctx.refresh = _nothing  # the entry has just done it
            if any(isinstance(c, CodeType) for c in state.func_id.code.co_consts):
                return super().define_pipelines()  # closures need Numba's other passes
            manager = Passes("fastsim_part")
            for p in part_passes:
                manager.add_pass(p, p._name)
            manager.finalize()
            return [manager]

    def plain(argument: Any) -> Any:
        argument = types.unliteral(argument)
        narrow = isinstance(argument, types.Integer) and argument.signed and argument.bitwidth < 64
        return types.int64 if narrow else argument

    class PartDispatcher(CPUDispatcher):  # type: ignore[misc]
        """Compiles a helper once for all signed integers, not again for every constant and width."""

        def get_call_template(self, args: Any, kws: Any) -> Any:
            return super().get_call_template([plain(a) for a in args], {k: plain(a) for k, a in kws.items()})

        def compile(self, sig: Any) -> Any:
            known = self.overloads.get(tuple(sig)) if isinstance(sig, tuple) else None
            return known.entry_point if known else super().compile(sig)

    options = {**HELPER_OPTIONS, "nopython": True, "boundscheck": None}

    def part(function: Any = None, *, forceinline: bool = False) -> Any:
        if function is None:
            return partial(part, forceinline=forceinline)
        chosen = {**options, "forceinline": forceinline}
        return PartDispatcher(py_func=function, targetoptions=chosen, pipeline_class=PartCompiler)

    return part


def njit_helper(function: Any = None, *, forceinline: bool = False) -> Any:
    """Numba's own decorator with a helper's options."""
    chosen = njit(**HELPER_OPTIONS, forceinline=forceinline)
    return chosen if function is None else chosen(function)
