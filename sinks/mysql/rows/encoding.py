"""Rows as text for the server, column by column, without touching a single value in Python.

Each column is cast to strings, NULL is written as the text format writes it, and the strings of a
row are joined; the buffer of the joined array is sent as it is. What else was measured is in
docs/benchmarks.md, "Rows as text for MySQL".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from twophase.errors import RejectedRowsError
from twophase.internals.arrow_values import scalar
from twophase.internals.redaction import shown
from twophase.sinks.mysql.rows.types import ColumnPlan, Encoding

_HEX_PAIRS = np.array(
    [int.from_bytes(b"%02X" % byte, "little") for byte in range(256)], dtype=np.uint16
)
_FIRST_YEAR_DAYS = -354_285  # 1000-01-01, the first day MySQL promises to store
_LAST_YEAR_DAYS = 2_932_896  # 9999-12-31
_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}
_UNIT_DIGITS = {"s": 0, "ms": 3, "us": 6}


@dataclass(frozen=True)
class TextFormat:
    """The format in which one kind of statement takes rows.

    Attributes:
        text: escapes a string array.
        binary: text before and after the hex digits of bytes.
        quote: text before and after a text, a date or a time.
        null: the text of NULL.
        row: text before a row, between two columns and after a row.
    """

    text: Callable[[pa.Array], pa.Array]
    binary: tuple[str, str]
    quote: str
    null: str
    row: tuple[str, str, str]


@dataclass(frozen=True)
class Encoded:
    """Rows as bytes.

    Attributes:
        data: all rows, one after the other.
        ends: the start of each row, and the end of the last one: one entry more
            than there are rows.
    """

    data: memoryview
    ends: np.ndarray[tuple[int], np.dtype[np.int32]]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.ends) - 1


def encode(batch: pa.RecordBatch, plans: Sequence[ColumnPlan], text_format: TextFormat) -> Encoded:
    """Encode the rows of a batch.

    Args:
        batch: has a column for each plan, found by name; at least one row.
        plans: the columns, in the order in which they are written. A short last one is cheapest.
        text_format: the format.

    Raises:
        RejectedRowsError: a value cannot be stored unchanged; names the first.
    """
    before, between, after = text_format.row
    columns = [_column(batch, plan, text_format) for plan in plans]
    columns[-1] = _join([columns[-1], after], "", text_format)
    if before:
        columns[0] = _join([before, columns[0]], "", text_format)
    return _as_bytes(_join(columns, between, text_format))


def _join(parts: Sequence[pa.Array | str], separator: str, text_format: TextFormat) -> pa.Array:
    whole = (scalar(part) if isinstance(part, str) else part for part in (*parts, separator))
    return pc.binary_join_element_wise(
        *whole, null_handling="replace", null_replacement=text_format.null
    )


def _as_bytes(rows: pa.Array) -> Encoded:
    _, offsets, data = rows.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[rows.offset : rows.offset + len(rows) + 1]
    return Encoded(memoryview(data)[ends[0] : ends[-1]].cast("B"), ends - ends[0])


def _column(batch: pa.RecordBatch, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
    index = batch.schema.get_field_index(plan.field)
    if index < 0:
        raise RejectedRowsError(
            f"A batch needs exactly one column {plan.field!r}; it has {batch.schema.names}.",
            remedy="restart the job with the schema that the rows have.",
        )
    values = converted(batch.column(index), plan)
    if values.null_count and not plan.nullable:
        _reject(values, pc.is_null(values), plan, "the column takes no NULL")
    return _ENCODERS[plan.encoding](values, plan, text_format)


def converted(values: pa.Array, plan: ColumnPlan) -> pa.Array:
    """Return the values of a column of the rows in the type of its plan.

    Raises:
        RejectedRowsError: a value would change.
    """
    if values.type == plan.type:
        return values
    try:
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        return values.cast(plan.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise RejectedRowsError(
            f"Column {plan.field!r} is {values.type} and cannot be converted to {plan.type} "
            f"unchanged: {shown(str(error))}.",
            remedy="correct the rows or cast the column.",
        ) from None


def _reject(values: pa.Array, bad: pa.Array, plan: ColumnPlan, why: str) -> None:
    """Raise if any value is bad, naming the first."""
    row = pc.index(bad, scalar(True)).as_py()
    if row >= 0:
        raise rejected(values, row, plan, why)


def rejected(values: pa.Array, row: int, plan: ColumnPlan, why: str) -> RejectedRowsError:
    """Return the error of a value that cannot be stored unchanged.

    Args:
        values: of the column, in a batch.
        row: its index in them.
        plan: of the column.
        why: half a sentence.
    """
    return RejectedRowsError(
        f"Row {row + 1} of a batch of {len(values)}: column {plan.column!r} cannot store "
        f"{shown(values[row].as_py())}: {why}.",
        remedy="correct the rows or change the column.",
    )


def _text(values: pa.Array, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise RejectedRowsError(
            f"Column {plan.column!r} holds text that is not UTF-8: {shown(str(error))}.",
            remedy="decode it before the sink.",
        ) from None
    if plan.padded:
        _reject(
            values,
            pc.ends_with(values, " "),
            plan,
            "CHAR would strip the spaces at its end; make it VARCHAR",
        )
    return _quoted(text_format.text(values), text_format)


def _quoted(values: pa.Array, text_format: TextFormat) -> pa.Array:
    if not text_format.quote:
        return values
    quote = scalar(text_format.quote)
    return pc.binary_join_element_wise(quote, values, quote, scalar(""), null_handling="emit_null")


def _plain(values: pa.Array, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
    del plan, text_format
    return values.cast(pa.string())


def _float(values: pa.Array, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
    finite = pc.is_finite(values)
    if pc.all(finite, min_count=0).as_py() is False:
        _reject(values, pc.invert(finite), plan, "MySQL has no NaN and no infinity")
    return _plain(values, plan, text_format)


def _boolean(values: pa.Array, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
    return _plain(values.cast(pa.int8()), plan, text_format)


def _binary(values: pa.Array, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
    if plan.padded:
        _reject(
            values,
            pc.not_equal(pc.binary_length(values), scalar(plan.length)),
            plan,
            "BINARY would pad it with zeros",
        )
    before, after = map(scalar, text_format.binary)
    return pc.binary_join_element_wise(
        before, to_hex(values), after, scalar(""), null_handling="emit_null"
    )


def to_hex(values: pa.Array) -> pa.Array:
    """Return the bytes of each value as hex digits."""
    validity, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[values.offset : values.offset + len(values) + 1]
    raw = np.frombuffer(data if data is not None else b"", dtype=np.uint8)[ends[0] : ends[-1]]
    if 2 * len(raw) > np.iinfo(np.int32).max:
        raise RejectedRowsError(
            "A batch holds more than 1 GB of bytes in one column.", remedy="make batches smaller."
        )
    digits = pa.py_buffer(_HEX_PAIRS[raw].tobytes())
    if values.null_count and values.offset:
        validity = pc.is_valid(values).buffers()[1]
    doubled = pa.py_buffer(((ends - ends[0]) * 2).astype(np.int32).tobytes())
    return pa.StringArray.from_buffers(
        len(values), doubled, digits, validity if values.null_count else None
    )


def _date(values: pa.Array, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
    _check_years(values.cast(pa.int32()), 1, plan)
    return _quoted(values.cast(pa.string()), text_format)


def _timestamp(values: pa.Array, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
    ticks = values.cast(pa.int64())
    _check_years(ticks, _PER_DAY[values.type.unit], plan)
    _check_fraction(values, ticks, plan)
    return _quoted(values.cast(pa.string()), text_format)


def _time(values: pa.Array, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
    wide = pa.int32() if pa.types.is_time32(values.type) else pa.int64()
    _check_fraction(values, values.cast(wide).cast(pa.int64()), plan)
    return _quoted(values.cast(pa.string()), text_format)


def _check_years(ticks: pa.Array, per_day: int, plan: ColumnPlan) -> None:
    bounds = pc.min_max(ticks).as_py()
    first, last = _FIRST_YEAR_DAYS * per_day, (_LAST_YEAR_DAYS + 1) * per_day
    if bounds["min"] is not None and (bounds["min"] < first or bounds["max"] >= last):
        bad = pc.or_(pc.less(ticks, scalar(first)), pc.greater_equal(ticks, scalar(last)))
        # As numbers: Python's dates cover a smaller range than some of these types.
        _reject(ticks, bad, plan, "MySQL keeps the years 1000 to 9999 (shown as counted from 1970)")


def _check_fraction(values: pa.Array, ticks: pa.Array, plan: ColumnPlan) -> None:
    """Refuse fractions of a second that the server would round without a warning."""
    excess = _UNIT_DIGITS[values.type.unit] - plan.fraction_digits
    if excess > 0:
        unit = scalar(10**excess)
        lost = pc.not_equal(pc.multiply(pc.divide(ticks, unit), unit), ticks)
        _reject(values, lost, plan, f"the column keeps {plan.fraction_digits} digits of a second")


_ENCODERS: dict[Encoding, Callable[[pa.Array, ColumnPlan, TextFormat], pa.Array]] = {
    Encoding.TEXT: _text,
    Encoding.JSON: _text,
    Encoding.PLAIN: _plain,
    Encoding.FLOAT: _float,
    Encoding.BOOL: _boolean,
    Encoding.BIT: _boolean,
    Encoding.BINARY: _binary,
    Encoding.DATE: _date,
    Encoding.TIMESTAMP: _timestamp,
    Encoding.TIME: _time,
}
