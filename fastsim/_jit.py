"""The only ways a kernel is compiled, and how it receives arrays.

`entry` marks a function that Python calls: it is compiled once per signature and cached on disk. `helper` marks a
function that only kernels call: it becomes part of the entry that uses it, so in a Numba version known to allow it a
helper is typed and lowered but not optimised, nor turned into machine code, by itself: the vLLM kernel of 110 helpers
compiles in 11 s of CPU instead of 28 s, and runs as fast within the noise. Any other Numba version compiles as usual.

`borrow` makes arrays cheap to hand on (see `_borrowed`): an entry borrows its arrays once, at its head.

Numba's own cache notices a change of the file that holds the entry, but not of a helper in another file, and then
returns stale machine code. The cache folder is therefore named by a hash of every source that kernels are made of, the
Numba version and the CPU: another source tree means another folder.
"""

# Numba's internals are hardly typed
# mypy: disable-error-code="attr-defined,misc,name-defined,no-any-return,no-untyped-call,override,untyped-decorator"
# mypy: no-warn-unused-ignores

import hashlib
import operator
import os
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import CodeType
from typing import Any

import numba
from numba import njit, types
from numba.core import event
from numba.core.caching import FunctionCache
from numba.core.runtime.nrt import rtsys

from fastsim import _notice

KNOWN_NUMBA = ("0.68.",)


COMPILED = ("_jit.py", "_borrowed.py", "simulation.py", "metrics", "engines")
"""Sources that kernels are made of, below the package: another command line need not compile them again."""


@cache
def source_hash() -> str:
    """Hex digest over every source that is compiled."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    files = [
        path for name in COMPILED for path in ((root / name).rglob("*.py") if (root / name).is_dir() else [root / name])
    ]
    for path in sorted(files):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Where compiled kernels are kept: below FASTSIM_CACHE_DIR, the user's cache folder, or a temporary folder."""
    chosen = os.environ.get("FASTSIM_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    candidates = [Path(chosen)] if chosen else []
    if home := os.environ.get("HOME"):
        candidates.append(Path(home) / ".cache")
    user = os.getuid() if hasattr(os, "getuid") else "user"
    candidates.append(Path(tempfile.gettempdir()) / f"fastsim-{user}")
    cpu = os.environ.get("NUMBA_CPU_NAME", "host")
    name = f"{source_hash()[:16]}-numba{numba.__version__}-py{sys.version_info[0]}{sys.version_info[1]}-{cpu}"
    if os.environ.get("NUMBA_BOUNDSCHECK"):
        name += "-bounds"
    for candidate in candidates:
        folder = candidate / "fastsim" / "kernels" / name
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                return folder
        except OSError:
            continue
    return Path(tempfile.mkdtemp(prefix="fastsim-kernels-"))


numba.config.CACHE_DIR = str(cache_folder())


class _Announcer(event.Listener):  # type: ignore[misc]
    """Tells once that something is compiled: what comes out of the cache makes no such event."""

    def on_start(self, _: Any) -> None:
        if _notice.tell is not None:
            _notice.tell(_notice.COMPILING)
            _notice.tell = None

    def on_end(self, _: Any) -> None:
        pass


event.register("numba:compile", _Announcer())


class _QuickCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of machine code, read without importing what only compiling needs.

    Those are 200 modules, a third of Numba and most of SciPy: 0.4 s of CPU of every process's start. Machine code
    needs the runtime alone. A miss compiles, and imports them then.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


_IS_KNOWN = numba.__version__.startswith(KNOWN_NUMBA) and not numba.config.DISABLE_JIT


def entry(function: Callable[..., Any]) -> Any:
    """The decorator of functions that Python calls. They release the GIL."""
    compiled = njit(cache=True, nogil=True)(function)
    if _IS_KNOWN:
        compiled._cache = _QuickCache(function)
    return compiled


# Python never calls a helper, so no wrappers for it: they were most of the compile time
_HELPER_OPTIONS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def _unchanged(arrays: Any) -> Any:
    return arrays


def _nothing() -> None:
    return None


def _helper_as_part() -> Callable[..., Any]:
    """A decorator like `njit` for functions that are only ever part of an entry. Uses Numba's internals.

    CPU to compile the vLLM kernel (110 helpers, Numba 0.68.0, busy machine, runs minutes apart): 11 s instead of 28 s.
    The larger part of the gain: helpers are neither optimised nor turned into machine code by themselves, and are
    compiled for one integer type. The rest: passes that kernels do not need are left out, and the typing of built-in
    functions is remembered.
    """
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

    options = {**_HELPER_OPTIONS, "nopython": True, "boundscheck": None}

    def part(function: Any = None, *, forceinline: bool = False) -> Any:
        if function is None:
            return partial(part, forceinline=forceinline)
        chosen = {**options, "forceinline": forceinline}
        return PartDispatcher(py_func=function, targetoptions=chosen, pipeline_class=PartCompiler)

    return part


def _inlining(decorator: Callable[..., Any]) -> Callable[..., Any]:
    """The decorator for functions that are copied into their caller."""
    copied: Callable[..., Any] = decorator(forceinline=True)
    return copied


def _njit_helper(function: Any = None, *, forceinline: bool = False) -> Any:
    """Numba's own decorator with a helper's options."""
    chosen = njit(**_HELPER_OPTIONS, forceinline=forceinline)
    return chosen if function is None else chosen(function)


helper: Callable[..., Any] = _njit_helper
if numba.config.DISABLE_JIT:
    borrow: Callable[..., Any] = _unchanged
else:
    from fastsim._borrowed import borrow as borrow
if _IS_KNOWN:
    helper = _helper_as_part()

# For what stands in a loop over requests or steps and has one caller: array pointers then stay in registers. Plain
# stepping fell from 20 to 12 ns a decode, a run of the discussion's first row from 0.60 to 0.45 ms.
inlined: Callable[..., Any] = helper if numba.config.DISABLE_JIT else _inlining(helper)
