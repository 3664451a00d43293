"""Tables of the types that a sink takes, as its own checks say.

<!-- types: file -->    every format, by the checks and the writers of the file sink
<!-- types: hive -->    parquet and ORC, as Hive's own reader gets them
<!-- types: delta -->   columns of a Delta table, and the rows that fit them
<!-- types: iceberg --> rows, the column of a new table, and others that hold them
<!-- types: kafka -->   rows, and the JSON of a value
<!-- types: paimon -->  as of Iceberg

A cell of files is what the check says of a type, or what the writer says of values at its limits;
`refused` alone stands for a type that does not read back unchanged. Types have Spark's names.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

Kinds = Sequence[pa.DataType]

_DATE, _ZONED, _LOCAL = pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us")
_TEXTS = pa.map_(pa.string(), pa.int64())
_NUMBERED = pa.map_(pa.int64(), pa.string())


def _around(kind: pa.DataType) -> Kinds:
    return [pa.list_(kind), pa.struct([("a", kind)]), pa.map_(pa.string(), kind)]


_ROWS: Mapping[str, Kinds] = {
    "boolean": [pa.bool_()],
    "tinyint, smallint, int, bigint": [pa.int8(), pa.int16(), pa.int32(), pa.int64()],
    "float, double": [pa.float32(), pa.float64()],
    "decimal": [pa.decimal128(38, 18)],
    "string": [pa.string()],
    "binary": [pa.binary()],
    "date": [_DATE],
    "timestamp": [_ZONED],
    "timestamp_ntz": [_LOCAL],
    "array, struct, map": [*_around(pa.string()), _TEXTS],
    "map whose keys are no strings": [_NUMBERED],
    "date inside these": _around(_DATE),
    "timestamp inside these": _around(_ZONED),
    "timestamp_ntz inside these": _around(_LOCAL),
    "time, interval": [pa.time64("us"), pa.duration("us")],
}
_MOMENTS = (
    datetime(1, 1, 1),  # noqa: DTZ001 - each is a time with and without a zone
    datetime(1582, 10, 10),  # noqa: DTZ001
    datetime(1969, 12, 31, 23, 59, 59, 500_000),  # noqa: DTZ001
    datetime(2400, 1, 1),  # noqa: DTZ001
    datetime(9999, 12, 31, 23, 59, 59, 999_999),  # noqa: DTZ001
)
_NESTED = (pa.types.is_list, pa.types.is_struct, pa.types.is_map)
_PLAIN = [
    BooleanType(),
    ByteType(),
    ShortType(),
    IntegerType(),
    LongType(),
    DecimalType(10, 0),
    DecimalType(10, 2),
    DecimalType(20, 2),
    FloatType(),
    DoubleType(),
    StringType(),
    BinaryType(),
    DateType(),
    TimestampType(),
    TimestampNTZType(),
]
_DELTA: Sequence[DataType] = [
    *_PLAIN,
    *(ArrayType(kind) for kind in (IntegerType(), LongType())),
    *(MapType(StringType(), kind) for kind in (IntegerType(), LongType())),
    *(StructType([StructField("a", kind)]) for kind in (IntegerType(), LongType())),
]
_ICEBERG: Kinds = [
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.decimal128(10, 2), pa.string(), pa.binary(), _DATE, _ZONED, _LOCAL),
    *_around(pa.int64()),
    *(pa.time64("us"), pa.duration("us")),
]
_MOMENT = datetime(2026, 1, 31, 12, 0, 0, 1, tzinfo=UTC)
_KAFKA: Sequence[tuple[pa.DataType, Any]] = [
    *((pa.bool_(), True), (pa.int8(), 1), (pa.int16(), 1), (pa.int32(), 1)),
    *((pa.int64(), 2**63 - 1), (pa.float32(), 0.5), (pa.float64(), 0.1)),
    *((pa.decimal128(10, 2), Decimal("1.50")), (pa.string(), "Zoë"), (pa.binary(), b"Zo")),
    *((_DATE, date(2026, 1, 31)), (_ZONED, _MOMENT), (_LOCAL, _MOMENT.replace(tzinfo=None))),
    (pa.list_(pa.int64()), [1, None]),
    (pa.struct([("a", pa.int64())]), {"a": 1}),
    *((pa.map_(pa.string(), pa.int64()), [("a", 1)]), (pa.map_(pa.int64(), pa.int64()), [])),
    *((pa.time64("us"), None), (pa.duration("us"), None)),
]
_NO_LAYOUT: Any = None  # it is asked about columns that the rows lack


def type_rows(sink: str) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of a sink's table."""
    tables = {
        "file": _of_files,
        "hive": _of_hive,
        "delta": _of_delta,
        "iceberg": _of_iceberg,
        "kafka": _of_kafka,
        "paimon": _of_paimon,
    }
    return tables[sink]()


def _of_files() -> tuple[list[str], list[list[str]]]:
    return _of_formats(["parquet", "orc", "json", "csv"], for_hive=False)


def _of_hive() -> tuple[list[str], list[list[str]]]:
    return _of_formats(["parquet", "orc"], for_hive=True)


def _of_formats(names: Sequence[str], *, for_hive: bool) -> tuple[list[str], list[list[str]]]:
    from twophase.sinks.common.staging import formats, rows

    def in_files(name: str) -> Callable[[pa.DataType], Iterator[str]]:
        kind = formats.Format(name)
        return lambda column: _said_of(column, kind, formats, for_hive=for_hive)

    def in_folders(column: pa.DataType) -> Iterator[str]:
        if reason := rows.refusal(column):
            yield _refused(reason, column)

    columns = [*map(in_files, names), in_folders]
    return ["rows", *names, "partition column"], [
        [label, *(_cell(kinds, said) for said in columns)] for label, kinds in _ROWS.items()
    ]


def _cell(kinds: Kinds, said: Callable[[pa.DataType], Iterator[str]]) -> str:
    """Return all that is said of some types, each once."""
    return "; ".join(dict.fromkeys(text for kind in kinds for text in said(kind))) or "yes"


def _said_of(column: pa.DataType, kind: Any, formats: Any, *, for_hive: bool) -> Iterator[str]:
    if reason := formats.refusal(kind, column):
        yield _refused(reason, column)
        return
    for value in _values(column):
        table = pa.table({"x": pa.array([value], column)})
        try:
            formats.write(kind, table, io.BytesIO(), for_hive=for_hive)
        except ValueError as error:
            yield re.sub(r"^x = ('[^']*'|\S+) ", "refused if it ", str(error))


def _values(column: pa.DataType) -> list[Any]:
    """Return values at the limits of dates and times, in whatever they are."""
    if not any(is_nested(column) for is_nested in _NESTED):
        return _times(column)
    inner = column.field(column.num_fields - 1).type
    if pa.types.is_map(column):
        return [[("a", value)] for value in _times(inner)]
    wrap = (lambda value: {"a": value}) if pa.types.is_struct(column) else (lambda value: [value])
    return [wrap(value) for value in _times(inner)]


def _times(kind: pa.DataType) -> list[date]:
    if pa.types.is_date32(kind):
        return [moment.date() for moment in _MOMENTS]
    if pa.types.is_timestamp(kind):
        return [moment.replace(tzinfo=UTC) if kind.tz else moment for moment in _MOMENTS]
    return []


def _refused(reason: str, column: pa.DataType) -> str:
    """Return what a cell says, without the name that Arrow has for the type."""
    return "refused" if reason.startswith(f"{column} ") else f"refused: {reason}"


def _of_delta() -> tuple[list[str], list[list[str]]]:
    from twophase.sinks.delta.rows import check_rows

    def fits(rows: DataType, column: DataType) -> bool:
        given, table = (StructType([StructField("x", kind)]) for kind in (rows, column))
        return not check_rows(given, table, _NO_LAYOUT).problems

    return ["column", "rows"], [
        [_named(column), ", ".join(_named(rows) for rows in _DELTA if fits(rows, column))]
        for column in _DELTA
    ]


def _of_iceberg() -> tuple[list[str], list[list[str]]]:
    from twophase.errors import ConfigError
    from twophase.sinks.iceberg import columns

    def made(kind: pa.DataType) -> str:
        try:
            return str(columns.table_schema(pa.schema([("x", kind)])).fields[0].field_type)
        except ConfigError as error:
            return _refused(str(error).partition("'x': ")[2].partition(".")[0], kind)

    def fits(kind: pa.DataType) -> list[str]:
        own = made(kind)
        return [
            str(other)
            for other in columns.PLAIN
            if str(other) != own and not columns.refusal(kind, other)
        ]

    return ["rows", "column of a new table", "other columns that hold them"], [
        [_spark(kind), _coded(made(kind)), ", ".join(fits(kind))] for kind in _ICEBERG
    ]


def _of_paimon() -> tuple[list[str], list[list[str]]]:
    from twophase.errors import ConfigError
    from twophase.sinks.paimon import columns

    def made(kind: pa.DataType) -> str:
        try:
            columns.check_new(pa.schema([("x", kind)]))
        except ConfigError as error:
            return _refused(str(error).partition("'x': ")[2].partition(".")[0], kind)
        return columns.shown(kind)

    def fits(kind: pa.DataType) -> list[str]:
        own = made(kind)
        return [
            other for other in columns.PLAIN if other != own and not columns.refusal(kind, other)
        ]

    return ["rows", "column of a new table", "other columns that hold them"], [
        [_spark(kind), _coded(made(kind)), ", ".join(fits(kind))] for kind in _ICEBERG
    ]


def _of_kafka() -> tuple[list[str], list[list[str]]]:
    from twophase.sinks.kafka import rows

    def written(kind: pa.DataType, value: Any) -> str:
        if reason := rows.refusal(kind):
            return _refused(reason, kind)
        batch = pa.RecordBatch.from_arrays([pa.array([value], kind)], ["x"])
        [record] = rows.JsonRecords(None).records(batch)
        return f"`{(record.value or b'').decode()}`"

    return ["rows", "JSON"], [[_spark(kind), written(kind, value)] for kind, value in _KAFKA]


def _spark(kind: pa.DataType) -> str:
    from pyspark.sql.pandas.types import from_arrow_type

    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return "time" if pa.types.is_time(kind) else "interval"
    return _coded(from_arrow_type(kind, prefer_timestamp_ntz=True).simpleString())


def _coded(name: str) -> str:
    return f"`{name}`" if "<" in name else name


def _named(kind: DataType) -> str:
    name = kind.simpleString()
    return f"`{name}`" if "<" in name else name
