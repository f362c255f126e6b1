"""Borrowed arrays and records: what kernels hand to each other, for nothing.

Numba counts references, atomically, for every array argument of every call (10 ns each, more than most helpers cost),
and passes a NamedTuple of arrays as hundreds of machine arguments (minutes of compile time). The caller of an entry
owns its arrays for the whole call, so kernels need neither: `borrow` stores the NamedTuple once in the stack frame and
hands out a pointer to it. Reading a field loads the array's data pointer and shape, uncounted. Measured on a helper
that touches two arrays: 34 ns a call counted, 2.7 ns borrowed. A NamedTuple of borrowed parts is borrowed in turn, so
that a helper has one argument for all of them.

`borrow` of a record hands out its fields; `constant` does for a record that nobody writes during the call. `counters`
is a record of the kernel's own: where only inlined helpers receive it, its fields are registers.

The compiler is told that two columns never overlap, nor do two fields of records (each has a type of its own in LLVM's
type-based alias analysis): a store to one need not make it load the others again. So no two arrays that are borrowed
as different columns may share memory.

A borrowed array must not outlive the call that borrowed it, so no entry returns one.
"""

# Numba's internals are hardly typed
# mypy: disable-error-code="attr-defined,misc,name-defined,no-any-return,no-untyped-call,override,untyped-decorator"
# mypy: no-warn-unused-ignores

import operator
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer, infer_global, signature
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


def _tag(builder: Any, access: Any, name: str) -> Any:
    """Mark a load or a store as one of `name`: it overlaps with no access of another name."""
    module = builder.module
    root = module.add_metadata([ir.MetaDataString(module, "fastsim")])
    kind = module.add_metadata([ir.MetaDataString(module, name), root, ir.IntType(64)(0)])
    access.set_metadata("tbaa", module.add_metadata([kind, kind, ir.IntType(64)(0)]))
    return access


def _tag_invariant(builder: Any, value: Any) -> Any:
    """Mark a load as one from memory that is written before the first load and never again."""
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


@register_model(Borrowed)
class _BorrowedModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, borrowed: Borrowed) -> None:
        struct = manager.lookup(borrowed.tuple_type).get_value_type()
        super().__init__(manager, borrowed, ir.PointerType(struct))


class BorrowedColumn(types.Type):  # type: ignore[misc]
    """A 1-D array read from a Borrowed: data pointer and length.

    Indices are not negative (no `a[-1]`), so no wrap-around is compiled into every access (a third of the kernel's
    instructions). With NUMBA_BOUNDSCHECK=1 an index outside the array raises IndexError as usual.
    """

    def __init__(self, dtype: Any, tag: str) -> None:
        self.dtype = dtype
        self.tag = tag
        super().__init__(name=f"Column({dtype}, {tag})")


@register_model(BorrowedColumn)
class _ColumnModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, column: BorrowedColumn) -> None:
        super().__init__(manager, column, [("data", types.CPointer(column.dtype)), ("length", types.intp)])


def _type_of_field(borrowed: Borrowed, name: str) -> Any:
    field_type = borrowed.field_type(name)
    simple = isinstance(field_type, types.Array) and field_type.ndim == 1 and field_type.layout == "C"
    if simple and isinstance(field_type.dtype, types.Number):
        return BorrowedColumn(field_type.dtype, f"{borrowed.tuple_type.instance_class.__name__}.{name}")
    return field_type


@infer_getattr
class _BorrowedAttribute(AttributeTemplate):  # type: ignore[misc]
    key = Borrowed

    def generic_resolve(self, borrowed: Borrowed, name: str) -> Any:
        return _type_of_field(borrowed, name) if name in borrowed.tuple_type.fields else None


@lower_getattr_generic(Borrowed)  # type: ignore[untyped-decorator]
def _load_field(context: Any, builder: Any, borrowed: Borrowed, pointer: Any, name: str) -> Any:
    field_type = borrowed.field_type(name)
    place = borrowed.tuple_type.fields.index(name)

    def load(*path: int) -> Any:
        # The frame is written once, before anything reads it, so a value read may be kept in a register
        return _tag_invariant(builder, builder.load(cgutils.gep_inbounds(builder, pointer, 0, place, *path)))

    if not isinstance(field_type, types.Array):
        return load()
    members = context.data_model_manager[field_type]._fields
    column_type = _type_of_field(borrowed, name)
    if isinstance(column_type, BorrowedColumn):
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
        if isinstance(column, BorrowedColumn) and isinstance(index, types.Integer):
            return signature(column.dtype, column, types.intp)
        return None


@infer_global(operator.setitem)
class _ColumnSetItem(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Any, kws: Any) -> Any:
        column, index, _ = args
        if isinstance(column, BorrowedColumn) and isinstance(index, types.Integer):
            return signature(types.none, column, types.intp, column.dtype)
        if isinstance(column, BorrowedColumn) and isinstance(index, types.SliceType):
            return signature(types.none, column, index, column.dtype)
        return None


def _element(context: Any, builder: Any, column_type: BorrowedColumn, value: Any, index: Any) -> Any:
    column = cgutils.create_struct_proxy(column_type)(context, builder, value)
    if context.enable_boundscheck:
        cgutils.do_boundscheck(context, builder, index, column.length, 0)
    return builder.gep(column.data, [index], inbounds=True)


def _load(context: Any, builder: Any, dtype: Any, place: Any, tag: str) -> Any:
    return context.data_model_manager[dtype].from_data(builder, _tag(builder, builder.load(place), tag))


def _store(context: Any, builder: Any, dtype: Any, value: Any, place: Any, tag: str) -> None:
    _tag(builder, builder.store(context.data_model_manager[dtype].as_data(builder, value), place), tag)


@lower_builtin(operator.getitem, BorrowedColumn, types.intp)  # type: ignore[untyped-decorator]
def _get(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    column_type = sig.args[0]
    return _load(context, builder, column_type.dtype, _element(context, builder, column_type, *args), column_type.tag)


@lower_builtin(operator.setitem, BorrowedColumn, types.intp, types.Any)  # type: ignore[untyped-decorator]
def _set(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    column_type = sig.args[0]
    place = _element(context, builder, column_type, *args[:2])
    _store(context, builder, column_type.dtype, args[2], place, column_type.tag)
    return context.get_dummy_value()


@lower_builtin(operator.setitem, BorrowedColumn, types.SliceType, types.Any)  # type: ignore[untyped-decorator]
def _fill(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """`a[:] = value`, the only slice that kernels use."""
    column_type = sig.args[0]
    column = cgutils.create_struct_proxy(column_type)(context, builder, args[0])
    with cgutils.for_range(builder, column.length) as loop:
        place = builder.gep(column.data, [loop.index], inbounds=True)
        _store(context, builder, column_type.dtype, args[2], place, column_type.tag)
    return context.get_dummy_value()


@infer_getattr
class _ColumnAttribute(AttributeTemplate):  # type: ignore[misc]
    key = BorrowedColumn

    def resolve_shape(self, column: BorrowedColumn) -> Any:
        return types.UniTuple(types.intp, 1)


@lower_getattr(BorrowedColumn, "shape")  # type: ignore[untyped-decorator]
def _shape(context: Any, builder: Any, column_type: BorrowedColumn, value: Any) -> Any:
    column = cgutils.create_struct_proxy(column_type)(context, builder, value)
    return cgutils.pack_array(builder, [column.length])


# --- Records ----------------------------------------------------------------------------------------------------------


class Fields(types.Type):  # type: ignore[misc]
    """A borrowed record: `fields["name"]` is a load or a store that overlaps with no other field or column."""

    def __init__(self, record: Any, is_constant: bool) -> None:
        self.record = record
        self.is_constant = is_constant
        super().__init__(name=f"{'Constant' if is_constant else 'Fields'}({record})")
        self.tag = blake2b(str(record).encode(), digest_size=4).hexdigest()


@register_model(Fields)
class _FieldsModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, fields: Fields) -> None:
        super().__init__(manager, fields, manager.lookup(fields.record).get_value_type())


@infer
class _FieldsGetItem(AbstractTemplate):  # type: ignore[misc]
    key = "static_getitem"

    def generic(self, args: Any, kws: Any) -> Any:
        fields, name = args
        if isinstance(fields, Fields) and name in fields.record.fields:
            return signature(_type_in_record(fields, name), *args)
        return None


@infer
class _FieldsSetItem(AbstractTemplate):  # type: ignore[misc]
    key = "static_setitem"

    def generic(self, args: Any, kws: Any) -> Any:
        fields, name, _ = args
        if isinstance(fields, Fields) and not fields.is_constant and name in fields.record.fields:
            return signature(types.void, fields, types.literal(name), fields.record.typeof(name))
        return None


def _type_in_record(fields: Fields, name: str) -> Any:
    """A number, or, of an array in a record, a BorrowedColumn."""
    field_type = fields.record.typeof(name)
    return (
        BorrowedColumn(field_type.dtype, f"{fields.tag}.{name}")
        if isinstance(field_type, types.NestedArray)
        else field_type
    )


def _place_of_field(context: Any, builder: Any, fields: Fields, pointer: Any, name: str) -> Any:
    dtype = context.get_data_type(fields.record.typeof(name))
    return cgutils.get_record_member(builder, pointer, fields.record.offset(name), dtype)


@lower_builtin("static_getitem", Fields, types.StringLiteral)  # type: ignore[untyped-decorator]
def _get_field(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    fields, name = sig.args[0], args[1]
    dtype = fields.record.typeof(name)
    if isinstance(dtype, types.NestedArray):
        column = cgutils.create_struct_proxy(_type_in_record(fields, name))(context, builder)
        element = context.get_data_type(dtype.dtype)
        column.data = cgutils.get_record_member(builder, args[0], fields.record.offset(name), element)
        column.length = context.get_constant(types.intp, dtype.nitems)
        return column._getvalue()
    place = _place_of_field(context, builder, fields, args[0], name)
    if fields.is_constant:
        return context.data_model_manager[dtype].from_data(builder, _tag_invariant(builder, builder.load(place)))
    return _load(context, builder, dtype, place, f"{fields.tag}.{name}")


@lower_builtin("static_setitem", Fields, types.StringLiteral, types.Any)  # type: ignore[untyped-decorator]
def _set_field(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    fields, (pointer, name, value) = sig.args[0], args
    place = _place_of_field(context, builder, fields, pointer, name)
    _store(context, builder, fields.record.typeof(name), value, place, f"{fields.tag}.{name}")
    return context.get_dummy_value()


# --- What kernels call ------------------------------------------------------------------------------------------------


def _borrow(typing_context: Any, part: Any) -> Any:
    """A NamedTuple of arrays or of borrowed parts, or a record, as a kernel may hand it on without cost."""
    if isinstance(part, types.Record):
        return _fields(part, is_constant=False)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return cgutils.alloca_once_value(builder, args[0])

    return Borrowed(part)(part), codegen


def _constant(typing_context: Any, record: Any) -> Any:
    """A record that nobody writes while it is borrowed."""
    return _fields(record, is_constant=True)


def _fields(record: Any, is_constant: bool) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return args[0]

    return Fields(record, is_constant)(record), codegen


def _clear(typing_context: Any, fields: Any) -> Any:
    """Set every field of a borrowed record to 0."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        cgutils.memset(builder, args[0], context.get_constant(types.intp, fields.record.size), 0)
        return context.get_dummy_value()

    return types.none(fields), codegen


def _counters(typing_context: Any, dtype: Any) -> Any:
    """A record of zeros, numbers all of them, in the stack frame of the kernel."""
    record = dtype.dtype

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        # `alloca_once` would store zeros to it as a whole, which falls apart into bytes instead of fields
        with builder.goto_entry_block():
            place = builder.alloca(context.get_data_type(record))
        for name in record.fields:
            field = record.typeof(name)
            zero = context.get_constant(field, 0)
            member = cgutils.get_record_member(builder, place, record.offset(name), context.get_data_type(field))
            builder.store(context.data_model_manager[field].as_data(builder, zero), member)
        return place

    return Fields(record, is_constant=False)(dtype), codegen


borrow: Callable[..., Any] = intrinsic(_borrow)
constant: Callable[..., Any] = intrinsic(_constant)
clear: Callable[..., Any] = intrinsic(_clear)
counters: Callable[..., Any] = intrinsic(_counters)


# --- Numba versions ---------------------------------------------------------------------------------------------------

TRIED = ("0.62.", "0.63.", "0.64.", "0.65.", "0.66.", "0.67.", "0.68.")
"""Numba versions that are known to compile what stands above."""


class _Probe(NamedTuple):
    values: Any
    flags: Any


def check_numba(version: str) -> None:
    """Try a version of Numba that was never tried: borrow, read, write and clear.

    Raises
    ------
    ImportError
        When that fails: the version and the range to install.
    """
    if version.startswith(TRIED):
        return

    def probe(arrays: Any, records: Any) -> Any:
        part = borrow(arrays)
        part.values[1] += part.flags[0] + part.values.shape[0]
        part.flags[:] = 5
        fields = borrow(records[0])
        fields["count"] += 2
        count = fields["count"]
        clear(fields)
        return part.values[1] + part.flags[1] + count

    records = np.ones(1, np.dtype([("count", np.int64)]))
    why = "wrong numbers"
    try:
        answer = njit(probe)(_Probe(np.arange(3), np.array([7, 0], np.int8)), records)
    except Exception as error:  # noqa: BLE001 - whatever breaks in there, the answer is another version of Numba
        answer, why = None, f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
    if answer != 19 or records["count"][0] != 0:
        raise ImportError(
            f"fastsim's kernels do not compile with Numba {version} ({why}); "
            f"versions {TRIED[0]}x to {TRIED[-1]}x work: pip install 'numba=={TRIED[-1]}*'"
        )
