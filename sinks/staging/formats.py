"""The file formats: what each takes, and how rows are written in it.

Parquet, ORC and CSV are written by pyarrow. For JSON lines pyarrow has a reader only; they are written here the way Spark
writes them: ISO dates and times, base64 for bytes, `NaN` and `Infinity` as text, no key for a null; a decimal is text, which Spark and
pyarrow both read with all its digits.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet

from sinks.staging.disk import NewFile


class Format(StrEnum):
    """A file format; its value ends the names of its files."""

    PARQUET = "parquet"
    ORC = "orc"
    JSON = "json"
    CSV = "csv"

    @property
    def suffix(self) -> str:
        """How the names of its files end."""
        return f".{self.value}"


def refusal(kind: Format, column: pa.DataType) -> str:
    """Why a column cannot be written so that it reads back unchanged; empty if it can."""
    if pa.types.is_nested(column):
        if kind is Format.CSV:
            return "CSV has no nested values; turn it into a string, for example with to_json"
        if pa.types.is_map(column) and kind is Format.JSON and not _is_text(column.key_type):
            return "the keys of a JSON object are strings"
        inner = [column.field(number).type for number in range(column.num_fields)]
        return next((reason for child in inner if (reason := refusal(kind, child))), "")
    if pa.types.is_binary(column) or pa.types.is_large_binary(column):
        return "CSV has no bytes; turn them into a string, for example with base64" if kind is Format.CSV else ""
    if pa.types.is_timestamp(column) and column.tz is None and kind is Format.ORC:
        return "pyarrow and Spark disagree about timestamps without a time zone in ORC; use a timestamp with one"
    plain = (
        _is_text(column)
        or pa.types.is_boolean(column)
        or pa.types.is_signed_integer(column)
        or pa.types.is_float32(column)
        or pa.types.is_float64(column)
        or pa.types.is_decimal128(column)
        or pa.types.is_date32(column)
        or (pa.types.is_timestamp(column) and column.unit == "us")
    )
    return "" if plain else f"{column} has no place in {kind.value} that reads back the same; cast it"


def write(kind: Format, rows: pa.Table, file: NewFile) -> None:
    """Write a whole file. Columns without fields are not possible: every format here needs one."""
    match kind:
        case Format.PARQUET:
            pa.parquet.write_table(rows, file)
        case Format.ORC:
            pa.orc.write_table(rows, file)
        case Format.CSV:
            pa.csv.write_csv(rows, file)
        case Format.JSON:
            for batch in rows.to_batches(max_chunksize=10_000):
                file.write("".join(f"{_line(row)}\n" for row in batch.to_pylist(maps_as_pydicts="strict")).encode())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _line(row: dict[str, Any]) -> str:
    return json.dumps(_plain(row), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    match value:
        case dict():
            return {key: _plain(item) for key, item in value.items() if item is not None}
        case list():
            return [_plain(item) for item in value]
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case decimal.Decimal():
            return f"{value:f}"
        case bytes():
            return base64.b64encode(value).decode()
        case datetime.datetime():
            return value.isoformat(timespec="microseconds")
        case datetime.date():
            return value.isoformat()
        case _:
            return value
