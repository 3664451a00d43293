"""Dates and timestamps as numbers: Python and texts hold fewer years than Spark does.

Spark's dates and timestamps reach far beyond the years 1 to 9999, which are all that Python's can
be, and all that are written with four digits. So values are compared and shown as numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from twophase.internals.arrow_values import scalar
from twophase.internals.redaction import shown
from twophase.sinks.common.partition_names import RefusedValueError

DAY_US = 86_400_000_000
_FIRST_DAY = -719_162  # 0001-01-01
_END_DAY = 2_932_897  # 10000-01-01


def is_time(kind: pa.DataType) -> bool:
    """Return whether a type is one of dates or timestamps."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date32(kind))


def unit_of(kind: pa.DataType) -> int:
    """Return how many of its numbers a day has: dates count days, timestamps microseconds."""
    return 1 if pa.types.is_date32(kind) else DAY_US


def numbers_of(times: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return days or microseconds since 1970."""
    return times.cast(pa.int32() if pa.types.is_date32(times.type) else pa.int64())


def as_moments(kind: pa.DataType) -> pa.DataType:
    """Return a type whose timestamps are all moments, in UTC."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp(kind.unit, "UTC")
    return inside(kind, as_moments)


def in_utc(kind: pa.DataType) -> pa.DataType:
    """Return a type whose moments are shown in UTC; times without a zone stay so."""
    if pa.types.is_timestamp(kind):
        return kind if kind.tz is None else as_moments(kind)
    return inside(kind, in_utc)


def inside(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with the types inside it changed."""
    if pa.types.is_map(kind):
        return pa.map_(change(kind.key_type), change(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(change(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(change(kind.value_type)))
    if pa.types.is_large_list(kind):
        return pa.large_list(kind.value_field.with_type(change(kind.value_type)))
    return kind


def times_inside(array: pa.Array) -> Iterator[pa.Array]:
    """Return the dates and times of an array, also those inside other values."""
    kind = array.type
    if pa.types.is_map(kind):
        children = [array.keys, array.items]
    elif pa.types.is_nested(kind):
        children = array.flatten() if pa.types.is_struct(kind) else [array.flatten()]
    else:
        if is_time(kind):
            yield array
        return
    for child in children:
        yield from times_inside(child)


def shown_time(number: int, kind: pa.DataType) -> str:
    """Return a date or timestamp for a message, whatever its year."""
    if _FIRST_DAY <= number // unit_of(kind) < _END_DAY:
        if pa.types.is_date32(kind):
            return shown(str(pa.scalar(number, pa.int32()).cast(kind)))
        # as UTC has it: the zone's clock may show a year that has no text
        text = str(pa.scalar(number, pa.int64()).cast(pa.timestamp(kind.unit)))
        return shown(text if kind.tz is None else f"{text}Z")
    unit = "days" if pa.types.is_date32(kind) else "microseconds"
    return f"{shown(number)} {unit} from 1970-01-01"


def check_years(
    name: str, times: pa.Array | pa.ChunkedArray, where: str, *, rows: bool = True
) -> None:
    """Refuse the years that have no text of four digits.

    Args:
        name: of the column.
        times: dates or timestamps.
        where: what has the text.
        rows: whether each value is that of a row.

    Raises:
        RefusedValueError: a value is before the year 1 or after 9999.
    """
    numbers, unit = numbers_of(times), unit_of(times.type)
    least, most = (pc.min_max(numbers).as_py()[end] for end in ("min", "max"))
    if least is None or (least >= _FIRST_DAY * unit and most < _END_DAY * unit):
        return
    bad = pc.or_(
        pc.less(numbers, scalar(_FIRST_DAY * unit)),
        pc.greater_equal(numbers, scalar(_END_DAY * unit)),
    )
    row = pc.index(bad, scalar(value=True)).as_py()
    raise RefusedValueError(
        f"{name} = {shown_time(numbers[row].as_py(), times.type)}"
        f"{f' in row {row + 1} of {len(times)}' if rows else ''}: {where} keeps the years 1 to "
        "9999"
    )
