"""Borrowed arrays: what kernels hand to each other, for nothing.

Numba counts references, atomically, for every array argument of every call (10 ns each, more than most helpers cost),
and passes a NamedTuple of arrays as hundreds of machine arguments (minutes of compile time). The caller of an entry
owns its arrays for the whole call, so kernels need neither: `borrow` stores the NamedTuple once in the entry's stack
frame and hands out a pointer to it. Reading a field loads the array's data pointer and shape, uncounted. Measured on a
helper that touches two arrays: 34 ns a call counted, 2.7 ns borrowed.

A borrowed array must not outlive the call that borrowed it, so no entry returns one.
"""

# Numba's internals are hardly typed
# mypy: disable-error-code="attr-defined,misc,name-defined,no-any-return,no-untyped-call,override,untyped-decorator"
# mypy: no-warn-unused-ignores

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_global, signature
from numba.extending import (
    infer_getattr,
    intrinsic,
    lower_builtin,
    lower_getattr,
    lower_getattr_generic,
    models,
    register_model,
)


class Borrowed(types.Type):  # type: ignore[misc]
    """Numba's type of a borrowed NamedTuple of arrays: a pointer into the stack frame of the entry."""

    def __init__(self, tuple_type: Any) -> None:
        self.tuple_type = tuple_type
        super().__init__(name=f"Borrowed({tuple_type})")

    def field_type(self, name: str) -> Any:
        """Type of the array in a field."""
        return self.tuple_type.types[self.tuple_type.fields.index(name)]


@register_model(Borrowed)
class _BorrowedModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, borrowed: Borrowed) -> None:
        struct = manager.lookup(borrowed.tuple_type).get_value_type()
        super().__init__(manager, borrowed, ir.PointerType(struct))


class Column(types.Type):  # type: ignore[misc]
    """A 1-D array read from a Borrowed: data pointer and length.

    Indices are not negative (no `a[-1]`), so no wrap-around is compiled into every access (a third of the kernel's
    instructions). With NUMBA_BOUNDSCHECK=1 an index outside the array raises IndexError as usual.
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Column({dtype})")


@register_model(Column)
class _ColumnModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, column: Column) -> None:
        super().__init__(manager, column, [("data", types.CPointer(column.dtype)), ("length", types.intp)])


def _type_of_field(field_type: Any) -> Any:
    simple = isinstance(field_type, types.Array) and field_type.ndim == 1 and field_type.layout == "C"
    return Column(field_type.dtype) if simple and isinstance(field_type.dtype, types.Number) else field_type


@infer_getattr
class _BorrowedAttribute(AttributeTemplate):  # type: ignore[misc]
    key = Borrowed

    def generic_resolve(self, borrowed: Borrowed, name: str) -> Any:
        if name in borrowed.tuple_type.fields:
            return _type_of_field(borrowed.field_type(name))
        return None


@lower_getattr_generic(Borrowed)  # type: ignore[untyped-decorator]
def _load_field(context: Any, builder: Any, borrowed: Borrowed, pointer: Any, name: str) -> Any:
    field_type = borrowed.field_type(name)
    place = borrowed.tuple_type.fields.index(name)
    members = context.data_model_manager[field_type]._fields

    def load(*path: int) -> Any:
        value = builder.load(cgutils.gep_inbounds(builder, pointer, 0, place, *path))
        # The frame is written once, before anything reads it, so a value read may be kept in a register
        value.set_metadata("invariant.load", builder.module.add_metadata([]))
        return value

    column_type = _type_of_field(field_type)
    if isinstance(column_type, Column):
        column = cgutils.create_struct_proxy(column_type)(context, builder)
        column.data = load(members.index("data"))
        column.length = load(members.index("shape"), 0)
        return column._getvalue()
    array = ir.Constant(context.get_value_type(field_type), None)  # all null, the reference count too
    for place_in_array, member in enumerate(members):
        if member not in ("meminfo", "parent"):
            array = builder.insert_value(array, load(place_in_array), place_in_array)
    return array


@infer_global(operator.getitem)
class _ColumnGetItem(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        column, index = args
        if isinstance(column, Column) and isinstance(index, types.Integer):
            return signature(column.dtype, column, types.intp)
        return None


@infer_global(operator.setitem)
class _ColumnSetItem(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        column, index, _ = args
        if isinstance(column, Column) and isinstance(index, types.Integer):
            return signature(types.none, column, types.intp, column.dtype)
        if isinstance(column, Column) and isinstance(index, types.SliceType):
            return signature(types.none, column, index, column.dtype)
        return None


def _element(context: Any, builder: Any, column_type: Column, value: Any, index: Any) -> Any:
    column = cgutils.create_struct_proxy(column_type)(context, builder, value)
    if context.enable_boundscheck:
        cgutils.do_boundscheck(context, builder, index, column.length, 0)
    return builder.gep(column.data, [index], inbounds=True)


@lower_builtin(operator.getitem, Column, types.intp)  # type: ignore[untyped-decorator]
def _get(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    place = _element(context, builder, sig.args[0], args[0], args[1])
    return context.unpack_value(builder, sig.args[0].dtype, place)


@lower_builtin(operator.setitem, Column, types.intp, types.Any)  # type: ignore[untyped-decorator]
def _set(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    place = _element(context, builder, sig.args[0], args[0], args[1])
    context.pack_value(builder, sig.args[0].dtype, args[2], place)
    return context.get_dummy_value()


@lower_builtin(operator.setitem, Column, types.SliceType, types.Any)  # type: ignore[untyped-decorator]
def _fill(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """`a[:] = value`, the only slice that kernels use."""
    column = cgutils.create_struct_proxy(sig.args[0])(context, builder, args[0])
    with cgutils.for_range(builder, column.length) as loop:
        place = builder.gep(column.data, [loop.index], inbounds=True)
        context.pack_value(builder, sig.args[0].dtype, args[2], place)
    return context.get_dummy_value()


@infer_getattr
class _ColumnAttribute(AttributeTemplate):  # type: ignore[misc]
    key = Column

    def resolve_shape(self, column: Column) -> Any:
        return types.UniTuple(types.intp, 1)


@lower_getattr(Column, "shape")  # type: ignore[untyped-decorator]
def _shape(context: Any, builder: Any, column_type: Column, value: Any) -> Any:
    column = cgutils.create_struct_proxy(column_type)(context, builder, value)
    return cgutils.pack_array(builder, [column.length])


def _borrow(typing_context: Any, arrays: Any) -> Any:
    """A NamedTuple of arrays, as a kernel may hand it on without cost."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return cgutils.alloca_once_value(builder, args[0])

    return Borrowed(arrays)(arrays), codegen


borrow: Callable[..., Any] = intrinsic(_borrow)
