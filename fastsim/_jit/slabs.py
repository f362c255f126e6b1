"""Equal parts of arrays, one of which a kernel picks by a number: what several replicas of an engine each have.

A NamedTuple of arrays whose lengths are multiples of `count` is a slab of `count` parts; the fields that its class
names in `SHARED` are whole in every part. `lay_out` writes down, in the form in which Numba keeps arrays, where each
field of each part stands; `part` makes a borrowed NamedTuple of one of them, at the cost of an addition.

The slab must outlive its layout, and neither grows.
"""

# Numba's internals are hardly typed
# mypy: disable-error-code="attr-defined,misc,no-any-return,no-untyped-call,untyped-decorator"
# mypy: no-warn-unused-ignores

from typing import Any

import numpy as np
import numpy.typing as npt

WORDS = 7
"""Of an array: meminfo, parent, nitems, itemsize, data, shape, strides."""


def lay_out(slab: Any, count: int) -> npt.NDArray[np.int64]:
    """Where the parts stand: int64, shape (count * fields * WORDS,)."""
    words = np.zeros((count, len(slab), WORDS), np.int64)
    for place, (name, array) in enumerate(zip(slab._fields, slab, strict=True)):
        assert array.ndim == 1
        assert array.flags.c_contiguous
        size, step = _size_and_step(slab, name, array, count)
        for k in range(count):
            data = array.ctypes.data + k * step * array.itemsize
            words[k, place] = (0, 0, size, array.itemsize, data, size, array.itemsize)
    return words.reshape(-1)


def _size_and_step(slab: Any, name: str, array: npt.NDArray[Any], count: int) -> tuple[int, int]:
    """Length of a field in a part, and how far the next part's is away."""
    if name in getattr(type(slab), "SHARED", ()):
        return len(array), 0
    assert len(array) % count == 0, name
    return len(array) // count, len(array) // count


def part_of(slab: Any, layout: npt.NDArray[np.int64], k: int) -> Any:
    """Part `k` of a slab, for Python and for kernels that are not compiled."""
    count = len(layout) // (WORDS * len(slab))
    fields = []
    for name, array in zip(slab._fields, slab, strict=True):
        size, step = _size_and_step(slab, name, array, count)
        fields.append(array[k * step : k * step + size])
    return type(slab)(*fields)


def compiled_part() -> Any:
    """The same in kernels: `part(borrowed slab, column of the layout, k)`."""
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    from fastsim._jit.borrowed import Borrowed

    def part(typing_context: Any, slab: Any, layout: Any, k: Any) -> Any:
        if not isinstance(slab, Borrowed):
            return None

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            fields = slab.tuple_type.types
            for field in fields:
                members = context.data_model_manager[field]._fields
                assert members == ("meminfo", "parent", "nitems", "itemsize", "data", "shape", "strides"), members
                assert context.get_abi_sizeof(context.get_value_type(field)) == 8 * WORDS
            column = cgutils.create_struct_proxy(layout)(context, builder, args[1])
            if context.enable_boundscheck:
                count = builder.sdiv(column.length, context.get_constant(types.intp, WORDS * len(fields)))
                cgutils.do_boundscheck(context, builder, args[2], count, 0)
            first = builder.bitcast(column.data, context.get_value_type(slab))
            return builder.gep(first, [args[2]], inbounds=True)

        return slab(slab, layout, types.intp), codegen

    return intrinsic(part)
