"""Converts what pyarrow's JSON reader produces to the exact Arrow types that Spark expects."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from twophase.errors import ConfigError
from twophase.redaction import shown
from twophase.sources.kafka.offsets import WHERE


class UnfitError(Exception):
    """A value does not fit the schema."""


def read_type(name: str, target: pa.DataType) -> pa.DataType:
    """Return the type that the JSON reader is to produce for a column of type `target`.

    Raises:
        ConfigError: JSON values cannot become this type.
    """
    if pa.types.is_struct(target):
        return pa.struct(
            [
                pa.field(child.name, read_type(f"{name}.{child.name}", child.type))
                for child in target
            ]
        )
    if pa.types.is_list(target):
        return pa.list_(read_type(f"{name}[]", target.value_type))
    # The reader takes dates only as numbers, silently drops a time zone, and lets a float overflow.
    if pa.types.is_date32(target) or (pa.types.is_timestamp(target) and target.tz is None):
        return pa.string()
    if pa.types.is_float32(target):
        return pa.float64()
    if not _readable(target):
        raise ConfigError(
            f"{WHERE}: column {name!r} has the type {target}, which value.format=json does not "
            "read.",
            remedy="read binary columns and maps as STRING or STRUCT, "
            "or use value.format=raw and from_json.",
        )
    return target


def convert(name: str, array: pa.Array, field: pa.Field) -> pa.Array:
    """Convert an array of the read type to exactly the type of `field`.

    Raises:
        UnfitError: a value is null where the schema forbids it, or does not fit the type.
    """
    if not field.nullable and array.null_count:
        raise UnfitError(f"{name} is null or missing, and the schema says NOT NULL")
    target = field.type
    if pa.types.is_struct(target):
        return _convert_struct(name, array, target)
    if pa.types.is_list(target):
        items = convert(f"{name}[]", array.values, target.value_field)
        return pa.ListArray.from_arrays(array.offsets, items, type=target, mask=array.is_null())
    if array.type == target:
        return array
    try:
        cast = array.cast(target)
    except pa.ArrowInvalid as error:
        raise UnfitError(f"{name}: {shown(str(error))}") from None
    if pa.types.is_float32(target) and _infinite(cast) != _infinite(array):
        raise UnfitError(f"{name}: a number is too big for FLOAT")
    return cast


def has_decimals(target: pa.DataType) -> bool:
    """Return whether a type contains a decimal: the reader accepts some that are too long."""
    return any(pa.types.is_decimal(leaf) for leaf in _leaves(target))


def _convert_struct(name: str, array: pa.StructArray, target: pa.StructType) -> pa.Array:
    absent = array.is_null()
    children = []
    for index, child in enumerate(target):
        values = array.field(index)
        path = f"{name}.{child.name}"
        # a child of a struct that is null itself is null without being missing
        if not child.nullable and pc.any(pc.and_not(values.is_null(), absent)).as_py():
            raise UnfitError(f"{path} is null or missing, and the schema says NOT NULL")
        children.append(convert(path, values, child.with_nullable(True)))
    return pa.StructArray.from_arrays(children, fields=list(target), mask=absent)


def _infinite(array: pa.Array) -> int:
    return pc.sum(pc.is_inf(array)).as_py() or 0


def _leaves(target: pa.DataType) -> Iterator[pa.DataType]:
    if pa.types.is_struct(target):
        for child in target:
            yield from _leaves(child.type)
    elif pa.types.is_list(target):
        yield from _leaves(target.value_type)
    else:
        yield target


def _readable(target: pa.DataType) -> bool:
    is_of = pa.types
    return bool(
        is_of.is_boolean(target)
        or is_of.is_signed_integer(target)
        or is_of.is_float64(target)
        or is_of.is_string(target)
        or is_of.is_decimal128(target)
        or is_of.is_timestamp(target)
    )
