"""The only ways a kernel is compiled, and how it receives arrays. What reaches into Numba's internals is in this room.

`entry` marks a function that Python calls: it is compiled once per signature and cached on disk (see `cache`). `helper`
marks a function that only kernels call: it becomes part of the entry that uses it (see `parts`). `inlined` is a helper
that is copied into its caller. `borrow` makes arrays cheap to hand on (see `borrowed`): an entry borrows its arrays
once, at its head.

==========  ===================================  =======================================================================
room        reaches into                         measured gain, and what an unknown Numba version does instead
==========  ===================================  =======================================================================
borrowed    types, data models, lowering         34 ns a call became 2.7, minutes of compile time seconds. There is no
                                                 other way: a version that was never tried is tried on a kernel of three
                                                 lines when fastsim is imported, and an error names the versions to use
parts       compiler pipeline, code libraries    the vLLM kernel compiles in 21 s of CPU instead of 60, once an
                                                 installation. Otherwise: Numba's own way, same results
indirect    typing, lowering, calls              policies of one's own compile in 0.4 s instead of 15: kernels are not
                                                 compiled again for them. A version that fails cannot run them
checking    typing, lowering                     the arithmetic of such policies fails aloud; likewise
slabs       layout of arrays                     a part of arrays picked by number: see there. Its layout is checked
                                                 when a kernel is compiled
cache       loading of cached machine code       0.4 s less in the start of every process. Otherwise: Numba's own way
==========  ===================================  =======================================================================

With NUMBA_DISABLE_JIT=1 all of it is plain Python: the same functions on the same arrays.
"""

# Numba's internals are hardly typed
# mypy: disable-error-code="attr-defined,misc,no-untyped-call,untyped-decorator"
# mypy: no-warn-unused-ignores

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import njit
from numba.core import event

from fastsim import _notice
from fastsim._jit.cache import QuickCache, cache_folder
from fastsim._jit.slabs import lay_out as lay_out
from fastsim._jit.slabs import part_of as part_of

INTERPRETED = bool(numba.config.DISABLE_JIT)
PARTS_KNOWN = ("0.68.",)
"""Numba versions whose compiler `parts` and `cache` reach into."""

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

_parts_known = numba.__version__.startswith(PARTS_KNOWN) and not INTERPRETED


def entry(function: Callable[..., Any]) -> Any:
    """The decorator of functions that Python calls. They release the GIL."""
    if INTERPRETED:
        return np.errstate(over="ignore")(function)  # integers wrap around, as a machine's do
    compiled = njit(cache=True, nogil=True)(function)
    if _parts_known:
        compiled._cache = QuickCache(function)
    return compiled


def _inlining(decorator: Callable[..., Any]) -> Callable[..., Any]:
    """The decorator for functions that are copied into their caller."""
    copied: Callable[..., Any] = decorator(forceinline=True)
    return copied


def _unchanged(part: Any) -> Any:
    return part


def _clear_record(record: Any) -> None:
    """Set every field of a record to 0."""
    for name in record.dtype.names:
        record[name] = 0


def _counters_of(dtype: Any) -> Any:
    """A record of zeros."""
    return np.zeros(1, dtype)[0]


if INTERPRETED:
    borrow: Callable[..., Any] = _unchanged
    constant: Callable[..., Any] = _unchanged
    clear: Callable[..., Any] = _clear_record
    counters: Callable[..., Any] = _counters_of
    part: Callable[..., Any] = part_of
    helper: Callable[..., Any] = _unchanged
    inlined: Callable[..., Any] = helper
else:
    from fastsim._jit.borrowed import borrow as borrow
    from fastsim._jit.borrowed import check_numba
    from fastsim._jit.borrowed import clear as clear
    from fastsim._jit.borrowed import constant as constant
    from fastsim._jit.borrowed import counters as counters
    from fastsim._jit.parts import helper_as_part, njit_helper
    from fastsim._jit.slabs import compiled_part

    check_numba(numba.__version__)
    part = compiled_part()
    helper = helper_as_part() if _parts_known else njit_helper
    # For what stands in a loop over requests or steps and has one caller: array pointers then stay in registers. Plain
    # stepping fell from 20 to 12 ns a decode, a run of the discussion's first row from 0.60 to 0.45 ms.
    inlined = _inlining(helper)
