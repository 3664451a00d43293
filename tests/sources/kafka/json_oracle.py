"""What one JSON record means, by Python's own parser: an oracle for the decoder."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

_DAY = r"\d{4}-\d\d-\d\d"
_TIME = r"[ T]\d\d(?::\d\d(?::\d\d(?:\.\d{1,6}0*)?)?)?"
_ZONE = r"(?:Z|[+-]\d\d(?::?\d\d)?)"
_QUOTED = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BLANKS = re.compile(r"[ \t\r\n]*")
_CONSTANTS = re.compile(r"-?(?:NaN|Infinity)")


class BadError(Exception):
    """The record does not fit."""


def row_of(value: bytes | None, schema: pa.Schema) -> dict[str, Any] | None:
    """Return the row that a record gives, or None if it does not fit the schema."""
    try:
        # bytes as characters: only the text of a STRING has to be UTF-8
        text = (value or b"").decode("latin-1").strip(" \t\r\n")
        json.dumps(json.loads(text), ensure_ascii=False).encode()  # refuses lone surrogates
        if not text.startswith("{"):
            return None
        return _struct(text, pa.struct(list(schema)))
    except (BadError, ValueError, ArithmeticError):
        return None


def _value(text: str, field: pa.Field) -> Any:
    target = field.type
    if text == "null":
        if not field.nullable:
            raise BadError
        return None
    if pa.types.is_struct(target):
        return _struct(text, target)
    if pa.types.is_list(target):
        if not text.startswith("["):
            raise BadError
        return [_value(item, target.value_field) for item in _items(text)]
    if pa.types.is_map(target):
        return _map(text, target)
    if pa.types.is_string(target):
        return _string(text)
    return _scalar(text, target)


def _struct(text: str, target: pa.StructType) -> dict[str, Any]:
    if not text.startswith("{"):
        raise BadError
    given = [pair for pair in _pairs(text) if target.get_field_index(pair[0]) >= 0]
    found = dict(given)
    if len(found) < len(given):
        raise BadError
    return {child.name: _value(found.get(child.name, "null"), child) for child in target}


def _map(text: str, target: pa.MapType) -> list[tuple[str, Any]]:
    given = [*_pairs(text)] if text.startswith("{") else _bad()
    found = {key: _value(raw, target.item_field) for key, raw in given}
    return [*found.items()] if len(found) == len(given) else _bad()


def _string(text: str) -> str:
    text = text.encode("latin-1").decode()
    if text.startswith('"'):
        return str(json.loads(text))
    if _CONSTANTS.search(re.sub(r'"(?:[^"\\]|\\.)*"', "", text)):
        raise BadError  # NaN is read as a number, but could not be kept as text: it is not JSON
    return text


def _scalar(text: str, target: pa.DataType) -> Any:
    is_of = pa.types
    if is_of.is_boolean(target):
        return {"true": True, "false": False}[text] if text in ("true", "false") else _bad()
    if is_of.is_date32(target):
        found = json.loads(text)
        return dt.date.fromisoformat(found) if re.fullmatch(_DAY, str(found)) else _bad()
    if is_of.is_timestamp(target):
        return _timestamp(json.loads(text), utc=target.tz is not None)
    if is_of.is_decimal(target) and text[0] == '"':
        text = json.loads(text)
        if not _QUOTED.fullmatch(text):
            raise BadError
        return _decimal(text, target)
    if text[0] not in "-0123456789NI":
        raise BadError
    if is_of.is_integer(target):
        limit = 2 ** (target.bit_width - 1)
        return int(text) if -limit <= int(text) < limit else _bad()
    if is_of.is_decimal(target):
        return _decimal(text, target)
    number = float(text)
    if _CONSTANTS.fullmatch(text):
        return number
    with np.errstate(over="ignore"):
        kept = np.float32(number) if is_of.is_float32(target) else number
    return number if np.isfinite(kept) else _bad()


def _decimal(text: str, target: pa.Decimal128Type) -> decimal.Decimal:
    number = decimal.Decimal(text)
    if not number.is_finite():
        raise BadError
    with decimal.localcontext(_EXACT):
        number = number.quantize(decimal.Decimal(1).scaleb(-target.scale))
        fits = abs(number.scaleb(target.scale)) < 10**target.precision
    return number if fits else _bad()


def _timestamp(found: Any, *, utc: bool) -> dt.datetime:
    if not isinstance(found, str) or not re.fullmatch(f"{_DAY}(?:{_TIME}{_ZONE}?)?", found):
        raise BadError
    moment = dt.datetime.fromisoformat(re.sub(r"(\.\d{6})0+", r"\1", found))
    if not utc:
        return moment if moment.tzinfo is None else _bad()
    return moment.replace(tzinfo=moment.tzinfo or dt.UTC).astimezone(dt.UTC)


def _bad() -> Any:
    raise BadError


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    return _walk(text, with_keys=True)


def _items(text: str) -> Iterator[str]:
    for _, raw in _walk(text, with_keys=False):
        yield raw


def _walk(text: str, *, with_keys: bool) -> Iterator[tuple[Any, str]]:
    """Yield the members of an object or array, with the raw text of each value."""
    at = _skip(text, 1)
    while text[at] not in "}]":
        key = None
        if with_keys:
            key, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        _, end = _DECODER.raw_decode(text, at)
        yield key, text[at:end]
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    assert found is not None
    return found.end()


_EXACT = decimal.Context(prec=200, traps=[decimal.Inexact, decimal.InvalidOperation])
_DECODER = json.JSONDecoder()
