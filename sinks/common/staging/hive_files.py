"""The encoding that Hive's own reader expects, and in which Spark writes to Hive's tables.

Hive 2.3 knows neither parquet's 64-bit timestamps nor ORC's timestamps with a zone. INT96
timestamps are instants to it only if parquet-mr has written the file; otherwise it takes them for
times of its own zone. A timestamp of ORC is a time of the writer's zone, which is UTC here.

It counts days before 1582-10-15 in the Julian calendar. Parquet files with such days have the
properties that tell Spark so; in ORC files it is the default.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc
import pyarrow.parquet

from twophase.sinks.common.partition_names import RefusedValueError
from twophase.sinks.common.staging.disk import NewFile
from twophase.sinks.common.staging.parquet_dictionaries import with_dictionary
from twophase.sinks.common.staging.parquet_statistics import with_bounds
from twophase.sinks.common.staging.times import (
    is_time,
    numbers_of,
    shown_time,
    times_inside,
    unit_of,
)

GREGORIAN_DAY = -141_427
"""1582-10-15, the first day of the Gregorian calendar, in days since 1970."""

_JULIAN_DAY_OF_1970 = 2_440_588
_PYARROW = b"parquet-cpp-arrow version"
_CREATED_BY = b"parquet-mr version 1.12.3 (build twophase)"
_JULIAN = {
    "org.apache.spark.version": "3.1.0",
    "org.apache.spark.timeZone": "UTC",
    "org.apache.spark.legacyDateTime": "",
    "org.apache.spark.legacyINT96": "",
}


def write_parquet(rows: pa.Table, file: NewFile) -> None:
    """Write a parquet file.

    Raises:
        RefusedValueError: Hive would read a value as another one.
    """
    encoded = _in_hybrid_calendar(rows)
    if encoded is not rows:
        encoded = encoded.replace_schema_metadata(_JULIAN)
    buffer = pa.BufferOutputStream()
    # Only Spark reads a table with times without a zone, and not as INT96.
    local = any(has_local_times(field.type) for field in rows.schema)
    pa.parquet.write_table(
        encoded,
        buffer,
        use_deprecated_int96_timestamps=not local,
        use_dictionary=with_dictionary(encoded),
        write_statistics=with_bounds(encoded),
    )
    data = memoryview(buffer.getvalue())
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    file.write(data[:footer])
    changed = _of_parquet_mr(bytes(data[footer:-8]))
    file.write(changed + len(changed).to_bytes(4, "little") + bytes(data[-4:]))


def _of_parquet_mr(footer: bytes) -> bytes:
    """Replace `created_by` in a footer, which pyarrow has no option for.

    It is a text behind its length, and the last one: only the columns' orders follow.
    """
    start = footer.rindex(_PYARROW)
    end = start + footer[start - 1]
    return footer[: start - 1] + bytes([len(_CREATED_BY)]) + _CREATED_BY + footer[end:]


def write_orc(rows: pa.Table, file: NewFile) -> None:
    """Write an ORC file.

    Raises:
        RefusedValueError: Hive would read a value as another one.
    """
    encoded = _in_hybrid_calendar(rows)
    for number, field in enumerate(encoded.schema):
        if pa.types.is_timestamp(field.type):
            local = encoded.column(number).cast(pa.timestamp("us"))
            encoded = encoded.set_column(number, field.name, local)
    # Hive finds columns by their names in the metastore, which has no capital letters.
    lower = [name.lower() for name in encoded.schema.names]
    pa.orc.write_table(encoded.rename_columns(lower), file)


def has_local_times(kind: pa.DataType) -> bool:
    """Return whether a type has timestamps without a time zone."""
    return any(pa.types.is_timestamp(one) and one.tz is None for one in _types(kind))


def struct_names(kind: pa.DataType) -> Iterator[str]:
    """Return the names of the fields of the structs in a type."""
    for one in _types(kind):
        if pa.types.is_struct(one):
            yield from (one.field(number).name for number in range(one.num_fields))


def _types(kind: pa.DataType) -> Iterator[pa.DataType]:
    """Return a type and those inside it."""
    yield kind
    for number in range(kind.num_fields):
        yield from _types(kind.field(number).type)


def _in_hybrid_calendar(rows: pa.Table) -> pa.Table:
    """Return rows whose days have the same names in the hybrid calendar; the same if all have."""
    for number, field in enumerate(rows.schema):
        column = rows.column(number)
        if pa.types.is_nested(field.type):
            for chunk in column.chunks:
                for inner in times_inside(chunk):
                    _check_inside(field.name, inner)
        elif is_time(field.type):
            changed = _rebased(field.name, column)
            if changed is not column:
                rows = rows.set_column(number, field, changed)
    return rows


def _rebased(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    numbers, unit = numbers_of(column), unit_of(column.type)
    if not _is_old(numbers, unit):
        return column
    values = numbers.combine_chunks().fill_null(0).to_numpy(zero_copy_only=False)
    days = np.floor_divide(values, unit)
    julian = np.where(days < GREGORIAN_DAY, _julian(days), days)
    missing = (days < GREGORIAN_DAY) & (julian >= GREGORIAN_DAY)
    if missing.any():
        _refuse(name, column, int(np.argmax(missing)), "does not exist in Hive's calendar")
    values = values + (julian - days) * unit
    nulls = np.asarray(column.is_null())
    exact = pa.array(values, numbers.type, mask=nulls)
    return pa.chunked_array([exact.cast(column.type)])


def _julian(days: np.ndarray) -> np.ndarray:
    """Return the days whose names in the Julian calendar are those of the given days in ours."""
    dates = days.astype("datetime64[D]")
    months, years = dates.astype("datetime64[M]"), dates.astype("datetime64[Y]").astype(np.int64)
    day, month = (dates - months).astype(np.int64) + 1, months.astype(np.int64) % 12 + 1
    # The usual formula of the Julian day number, with years that begin in March.
    year, month = years + 1970 + 4800 - (month <= 2), (month - 3) % 12
    number = day + (153 * month + 2) // 5 + 365 * year + year // 4 - 32083
    return np.asarray(number - _JULIAN_DAY_OF_1970)


def _check_inside(name: str, times: pa.Array) -> None:
    numbers, unit = numbers_of(times), unit_of(times.type)
    if _is_old(numbers, unit):
        row = pc.index(pc.less(numbers, GREGORIAN_DAY * unit), value=True).as_py()
        _refuse(
            name,
            times,
            row,
            "is before 1582-10-15 and inside another value; make it a column of its own",
        )


def _refuse(name: str, times: pa.Array | pa.ChunkedArray, row: int, why: str) -> None:
    value = shown_time(numbers_of(times)[row].as_py(), times.type)
    raise RefusedValueError(f"{name} = {value} {why}")


def _is_old(numbers: pa.ChunkedArray, unit: int) -> bool:
    least = pc.min(numbers).as_py()
    return least is not None and least < GREGORIAN_DAY * unit
