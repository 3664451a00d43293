"""The types of the columns: what pyarrow's JSON reader gives, and what Spark expects.

The reader is asked for a type that loses nothing, and its columns are converted. Dates and
timestamps are text that a pattern describes, and decimals have room for digits that do not fit, so
that the rows which do not fit are found at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from twophase.errors import ConfigError
from twophase.internals.arrow_values import booleans, scalar, texts
from twophase.internals.redaction import shown
from twophase.sources.kafka.offsets import WHERE

_DAY = (
    r"(?:\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    r"|02-(?:0[1-9]|1\d|2[0-8]))"
    r"|(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
)
_TIME = r"[ T](?:[01]\d|2[0-3])(?::[0-5]\d(?::[0-5]\d(?:\.\d{1,6}0*)?)?)?"
_ZONE = r"(?:Z|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?)"
_DIGITS_128, _DIGITS_256 = 38, 76
TO_TIMESTAMP = "give the column the type STRING, and convert it with to_timestamp."
TO_DATE = "give the column the type STRING, and convert it with to_date."


class UnfitError(Exception):
    """A value does not fit the schema.

    Args:
        reason: what is wrong with it.
        subject: the column, if it is known.
        value: the value, which the text shows as such.
        remedy: what to do, if it is not the same for all records.
    """

    def __init__(
        self, reason: str, subject: str = "", value: str | bytes | None = None, remedy: str = ""
    ) -> None:
        super().__init__(reason, subject, value, remedy)
        self.reason, self.subject, self.value, self.remedy = reason, subject, value, remedy

    def __str__(self) -> str:  # most are never shown
        value = "" if self.value is None else f"{shown(self.value)} "
        return f"{self.subject}: {value}{self.reason}" if self.subject else self.reason


def read_type(name: str, target: pa.DataType, *, lenient: bool = False) -> pa.DataType:
    """Return the type that the JSON reader is to produce for a column of type `target`.

    Args:
        name: the column, for the error.
        target: its type in the schema.
        lenient: with room for timestamps and decimals that do not fit.

    Raises:
        ConfigError: JSON values cannot become this type.
    """
    if pa.types.is_struct(target):
        if len(set(target.names)) < len(target.names):
            raise ConfigError(
                f"{WHERE}: column {name!r} names a field twice: {', '.join(target.names)}.",
                remedy="take one of them out of the schema.",
            )
        return pa.struct(
            [
                pa.field(
                    child.name,
                    read_type(f"{name}.{child.name}", child.type, lenient=lenient),
                )
                for child in target
            ]
        )
    if pa.types.is_list(target):
        return pa.list_(read_type(f"{name}[]", target.value_type, lenient=lenient))
    # The reader takes dates only as numbers, silently drops a time zone, and lets a float overflow.
    if is_time(target) and (lenient or not getattr(target, "tz", None)):
        return pa.string()
    if pa.types.is_float32(target):
        return pa.float64()
    if pa.types.is_decimal128(target):
        return _decimal_read(target, lenient=lenient)
    if not _readable(target):
        raise ConfigError(
            f"{WHERE}: column {name!r} has the type {target}, which value.format=json cannot read.",
            remedy="give it the type STRING, which keeps the raw text of objects and lists, and "
            "convert it as docs/kafka.md shows.",
        )
    return target


def _decimal_read(target: pa.Decimal128Type, *, lenient: bool) -> pa.DataType:
    """Return a type in which the reader computes exactly.

    It takes numbers of as many digits as the type has, and multiplies them by 10 to the power of
    its scale, without a look at what the product needs.
    """
    if lenient:
        scale = (_DIGITS_256 - (target.precision - target.scale)) // 2
        scale = min(scale, _DIGITS_128)
        return pa.decimal256(_DIGITS_256 - scale, scale)
    if target.precision + target.scale <= _DIGITS_128:
        return target
    return pa.decimal256(target.precision, target.scale)


def convert(name: str, array: pa.Array, field: pa.Field) -> pa.Array:
    """Convert an array of the read type to exactly the type of `field`.

    Raises:
        UnfitError: a value is null where the schema forbids it, or does not fit the type.
    """
    if not field.nullable and array.null_count:
        raise UnfitError("is null or missing, and the schema says NOT NULL", name)
    target = field.type
    if pa.types.is_struct(target):
        return _convert_struct(name, array, target)
    if pa.types.is_list(target):
        items = convert(f"{name}[]", array.values, target.value_field)
        return pa.ListArray.from_arrays(array.offsets, items, type=target, mask=array.is_null())
    if array.type == target:
        return array
    if pa.types.is_float32(target):
        cast = array.cast(target)
        if _overflows(array, cast).true_count:
            raise UnfitError("a number is too big for FLOAT", name)
        return cast
    if pa.types.is_decimal(target):
        return _convert_decimal(name, array, target)
    return _convert_time(name, array, target)


def unfit_rows(array: pa.Array, field: pa.Field) -> pa.BooleanArray:
    """Return which rows of an array of the read type `convert` refuses.

    Args:
        array: of a lenient read type.
        field: the column.
    """
    target = field.type
    unfit = _none(array) if field.nullable else array.is_null()
    if pa.types.is_struct(target):
        for index, child in enumerate(target):
            # a child of a struct that is null itself is null without being missing
            found = unfit_rows(array.field(index), child)
            unfit = pc.or_(unfit, pc.and_(found, array.is_valid()))
    elif pa.types.is_list(target):
        found = unfit_rows(array.flatten(), target.value_field)
        rows = set(pc.list_parent_indices(array).filter(found).to_pylist())
        if rows:
            unfit = pc.or_(unfit, booleans(row in rows for row in range(len(array))))
    elif is_time(target):
        fits = pc.match_substring_regex(array, pattern=_pattern(target))
        unfit = pc.or_(unfit, pc.invert(pc.fill_null(fits, scalar(True))))
    elif pa.types.is_float32(target):
        unfit = pc.or_(unfit, _overflows(array, array.cast(target)))
    elif pa.types.is_decimal(target):
        unfit = pc.or_(unfit, _loses_digits(array, target))
    return unfit


def has_infinity(array: pa.Array) -> bool:
    """Return whether a number in an array, or inside its values, is infinite."""
    if pa.types.is_struct(array.type):
        return any(map(has_infinity, array.flatten()))
    if pa.types.is_list(array.type):
        return has_infinity(array.flatten())
    return pa.types.is_floating(array.type) and bool(pc.any(pc.is_inf(array)).as_py())


def is_time(target: pa.DataType) -> bool:
    """Return whether JSON has this type as text."""
    return bool(pa.types.is_date32(target) or pa.types.is_timestamp(target))


def has(target: pa.DataType, is_of: Callable[[pa.DataType], bool]) -> bool:
    """Return whether a type, or one inside it, is of a kind, such as `pa.types.is_decimal`."""
    return any(map(is_of, _leaves(target)))


def _convert_struct(name: str, array: pa.StructArray, target: pa.StructType) -> pa.Array:
    absent = array.is_null()
    children = []
    for index, child in enumerate(target):
        values = array.field(index)
        path = f"{name}.{child.name}"
        if not child.nullable and pc.any(pc.and_not(values.is_null(), absent)).as_py():
            raise UnfitError("is null or missing, and the schema says NOT NULL", path)
        children.append(convert(path, values, child.with_nullable(True)))
    return pa.StructArray.from_arrays(children, fields=list(target), mask=absent)


def _convert_decimal(
    name: str, array: pa.Decimal256Array, target: pa.Decimal128Type
) -> pa.Decimal128Array:
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        first = array.filter(_loses_digits(array, target))[0].as_py()
    raise UnfitError(f"does not fit {target}", name, f"{first.normalize():f}".encode())


def _convert_time(name: str, array: pa.StringArray, target: pa.DataType) -> pa.Array:
    try:
        return array.cast(target)
    except pa.ArrowInvalid:
        unfit = array.filter(unfit_rows(array, pa.field(name, target)))
        if not len(unfit):
            return _as_the_cast_reads(array, target).cast(target)
    kind, remedy = "an ISO 8601 timestamp with up to microseconds", TO_TIMESTAMP
    if pa.types.is_date32(target):
        kind, remedy = "a date in the form 2024-12-31", TO_DATE
    elif target.tz is None:
        kind += " and without a zone"
    raise UnfitError(f"is not {kind}", name, unfit[0].as_py(), remedy)


def _as_the_cast_reads(array: pa.StringArray, target: pa.TimestampType) -> pa.StringArray:
    """Cut zeros past the sixth digit; give a `TIMESTAMP` without a zone the zone UTC."""
    zone = "" if target.tz is None else _ZONE
    reads = pc.match_substring_regex(
        array, pattern=rf"\A.{{10}}(?:[ T][\d:]+(?:\.\d{{1,6}})?{zone})\z"
    )
    odd = pc.fill_null(pc.invert(reads), scalar(False))
    texts = pc.replace_substring_regex(array.filter(odd), pattern=r"(\.\d{6})0+", replacement=r"\1")
    if target.tz is not None:
        texts = pc.replace_substring_regex(texts, pattern=r"\A(.{10})\z", replacement=r"\1T00")
        zoned = pc.match_substring_regex(texts, pattern=rf"\d\d{_ZONE}\z")
        texts = pc.if_else(
            zoned, texts, pc.binary_join_element_wise(texts, scalar("Z"), scalar(""))
        )
    return pc.replace_with_mask(array, odd, texts)


def _pattern(target: pa.DataType) -> str:
    if pa.types.is_date32(target):
        return rf"\A{_DAY}\z"
    zone = f"{_ZONE}?" if target.tz is not None else ""
    return rf"\A{_DAY}(?:{_TIME}{zone})?\z"


def _overflows(array: pa.Array, cast: pa.Array) -> pa.BooleanArray:
    found = pc.and_not(pc.is_inf(cast), pc.is_inf(array))
    return pc.fill_null(found, scalar(False))


def _loses_digits(array: pa.Decimal256Array, target: pa.Decimal128Type) -> pa.BooleanArray:
    # unsafe casts overflow without a word
    cut = array.cast(target, safe=False).cast(array.type, safe=False)
    nines = "9" * target.precision
    largest = texts([f"{nines}e-{target.scale}"]).cast(array.type)[0]
    unfit = pc.or_(pc.not_equal(cut, array), pc.greater(pc.abs(array), largest))
    return pc.fill_null(unfit, scalar(False))


def _none(array: pa.Array) -> pa.BooleanArray:
    return pc.and_not(array.is_null(), array.is_null())


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
        or is_of.is_timestamp(target)
    )
