"""The values of a column as the server takes them, or the refusal of one that would change."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from itertools import islice, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from twophase.errors import RejectedRowsError
from twophase.internals.arrow_values import scalar, texts
from twophase.internals.redaction import shown
from twophase.sinks.mysql.rows.column_types import Encoding
from twophase.sinks.mysql.rows.refused_values import reject, rejected
from twophase.sinks.mysql.rows.text_formats import TextFormat
from twophase.sinks.mysql.rows.types import ColumnPlan

_HEX_PAIRS = np.array(
    [int.from_bytes(b"%02X" % byte, "little") for byte in range(256)], dtype=np.uint16
)
_FIRST_YEAR_DAYS = -354_285  # 1000-01-01, the first day MySQL promises to store
_LAST_YEAR_DAYS = 2_932_896  # 9999-12-31
_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}
_UNIT_DIGITS = {"s": 0, "ms": 3, "us": 6}
_LABELS_SHOWN = 20
_UUID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_INET4 = rf"^{_BYTE}(\.{_BYTE}){{3}}$"
_ZEROS = re.compile(r"(?<![^:])0(:0)*(?![^:])")
_MAPPED = 0xFFFF


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


def _text(values: pa.Array, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
    _check_utf8(values, plan)
    if plan.padded:
        reject(
            values,
            pc.ends_with(values, " "),
            plan,
            "CHAR would strip the spaces at its end; make it VARCHAR",
        )
    if plan.changed:
        reject(
            values,
            pc.match_substring(values, plan.changed),
            plan,
            f"the server would store {plan.changed!r} as another character; "
            "make its character set utf8mb4",
        )
    return _quoted(text_format.text(values), text_format)


def _check_utf8(values: pa.Array, plan: ColumnPlan) -> None:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise RejectedRowsError(
            f"Column {plan.column!r} holds text that is not UTF-8: {shown(str(error))}.",
            remedy="decode it before the sink.",
        ) from None


def _enum(values: pa.Array, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
    del text_format
    why = f"it is none of the labels {_listed(plan.labels)}, letter for letter"
    numbers = {label: str(number) for label, number in plan.labels.items()}
    return _converted_texts(values, plan, numbers.get, why)


def _set(values: pa.Array, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
    del text_format
    why = f"it is not a list of the labels {_listed(plan.labels)}, in this order, each once"
    return _converted_texts(values, plan, lambda text: _set_number(text, plan.labels), why)


def _listed(labels: Iterable[str]) -> str:
    first = [repr(label) for label in islice(labels, _LABELS_SHOWN + 1)]
    return ", ".join(first[:_LABELS_SHOWN]) + ", ..." * (len(first) > _LABELS_SHOWN)


def _inet6(values: pa.Array, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
    def unchanged(text: str) -> str | None:
        return text if _inet6_text(text) == text else None

    why = "MariaDB would write this address in another way, or it is none"
    return _quoted(_converted_texts(values, plan, unchanged, why), text_format)


def _converted_texts(
    values: pa.Array, plan: ColumnPlan, convert: Callable[[str], str | None], why: str
) -> pa.Array:
    """Return what each text becomes, having converted each different one once."""
    _check_utf8(values, plan)
    encoded = values.dictionary_encode()
    converted_texts = [convert(text) for text in encoded.dictionary.to_pylist()]
    if None in converted_texts:
        bad = scalar(converted_texts.index(None))
        raise rejected(values, pc.index(encoded.indices, bad.cast(pa.int32())).as_py(), plan, why)
    return texts(converted_texts).take(encoded.indices)


def _set_number(text: str, labels: Mapping[str, int]) -> str | None:
    """Return the number of a set of labels; None unless they come in their order, each once."""
    if not text:
        return "0"
    bits = [labels.get(label, 0) for label in text.split(",")]
    is_read_back = bits[0] and all(one < two for one, two in pairwise(bits))
    return str(sum(bits)) if is_read_back else None


def _inet6_text(text: str) -> str | None:
    """Return the text of an address as MariaDB writes it; None if it is not an address."""
    try:
        words = struct.unpack("!8H", socket.inet_pton(socket.AF_INET6, text))
    except (OSError, ValueError):
        return None
    parts = [f"{word:x}" for word in words]
    if not any(words[:5]) and (words[5] == _MAPPED or (not words[5] and words[6])):
        parts[6:] = [socket.inet_ntoa(struct.pack("!2H", *words[6:]))]
    whole = ":".join(parts)
    zeros = max(_ZEROS.finditer(whole), key=lambda found: len(found[0]), default=None)
    if zeros is None:
        return whole
    return f"{whole[: zeros.start()].rstrip(':')}::{whole[zeros.end() :].lstrip(':')}"


def _spelled(pattern: str, why: str) -> Encoder:
    def encoder(values: pa.Array, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
        _check_utf8(values, plan)
        reject(values, pc.invert(pc.match_substring_regex(values, pattern)), plan, why)
        return _quoted(values, text_format)

    return encoder


def _quoted(values: pa.Array, text_format: TextFormat) -> pa.Array:
    if not text_format.quote:
        return values
    quote = scalar(text_format.quote)
    return pc.binary_join_element_wise(quote, values, quote, scalar(""), null_handling="emit_null")


def _plain(values: pa.Array, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
    if plan.bounds is not None:
        _check_bounds(values, plan, *plan.bounds)
    if not pa.types.is_decimal(values.type):
        return values.cast(pa.string())
    if values.type.scale > plan.fraction_digits:
        values = _without_zeros(values, plan)
    text = values.cast(pa.string())
    small = pc.match_substring(text, "E")
    if not text_format.quote or not pc.any(small, min_count=0).as_py():
        return text
    return pc.if_else(small, _quoted(text, text_format), text)  # in an INSERT, 1E-7 is a DOUBLE


def _check_bounds(
    values: pa.Array, plan: ColumnPlan, low: int | Decimal, high: int | Decimal
) -> None:
    found = pc.min_max(values).as_py()
    if found["min"] is not None and (found["min"] < low or found["max"] > high):
        numbers = enumerate(values.to_pylist())
        bad = (row for row, number in numbers if number is not None and not low <= number <= high)
        raise rejected(values, next(bad), plan, f"the column keeps {low} to {high}")


def _without_zeros(values: pa.Array, plan: ColumnPlan) -> pa.Array:
    """Return decimals with as many digits after the point as the column keeps."""
    kind = values.type
    make = pa.decimal128 if pa.types.is_decimal128(kind) else pa.decimal256
    short = values.cast(make(kind.precision, plan.fraction_digits), safe=False)
    reject(
        values,
        pc.not_equal(short.cast(kind), values),
        plan,
        f"the column keeps {plan.fraction_digits} digits after the point",
    )
    return short


def _float(values: pa.Array, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
    finite = pc.is_finite(values)
    if pc.all(finite, min_count=0).as_py() is False:
        reject(values, pc.invert(finite), plan, "MySQL has no NaN and no infinity")
    if pa.types.is_float32(values.type):
        values = values.cast(pa.float64())  # the shortest text would be rounded once more
    text = _plain(values, plan, text_format)
    negative_zero = pc.equal(text, scalar("-0"))
    if not pc.any(negative_zero).as_py():
        return text
    return pc.if_else(negative_zero, scalar("-0e0"), text)  # in an INSERT, -0 is the integer 0


def _bits(values: pa.Array, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    return _plain(values, plan, text_format)


def _binary(values: pa.Array, plan: ColumnPlan, text_format: TextFormat) -> pa.Array:
    if plan.padded:
        reject(
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
            "A batch holds more than 1 GB of bytes in one column.",
            remedy="lower load_rows, so that fewer rows are sent at once.",
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
        reject(ticks, bad, plan, "MySQL keeps the years 1000 to 9999 (shown as counted from 1970)")


def _check_fraction(values: pa.Array, ticks: pa.Array, plan: ColumnPlan) -> None:
    """Refuse fractions of a second that the server would round without a warning."""
    excess = _UNIT_DIGITS[values.type.unit] - plan.fraction_digits
    if excess > 0:
        unit = scalar(10**excess)
        lost = pc.not_equal(pc.multiply(pc.divide(ticks, unit), unit), ticks)
        reject(values, lost, plan, f"the column keeps {plan.fraction_digits} digits of a second")


Encoder = Callable[[pa.Array, ColumnPlan, TextFormat], pa.Array]
ENCODERS: dict[Encoding, Encoder] = {
    Encoding.TEXT: _text,
    Encoding.JSON: _text,
    Encoding.ENUM: _enum,
    Encoding.SET: _set,
    Encoding.UUID: _spelled(
        _UUID, "a UUID column keeps small letters and four hyphens; use lower()"
    ),
    Encoding.INET4: _spelled(_INET4, "it is not an IPv4 address, or has leading zeros"),
    Encoding.INET6: _inet6,
    Encoding.PLAIN: _plain,
    Encoding.FLOAT: _float,
    Encoding.BOOL: _bits,
    Encoding.BIT: _bits,
    Encoding.BINARY: _binary,
    Encoding.DATE: _date,
    Encoding.TIMESTAMP: _timestamp,
    Encoding.TIME: _time,
}
