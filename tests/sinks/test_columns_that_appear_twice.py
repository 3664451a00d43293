"""Rows with two columns of one name are refused by name, also where the table exists."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType as IcebergLong
from pyiceberg.types import NestedField
from pyspark.sql.types import LongType, StructField, StructType

from twophase.errors import ConfigError
from twophase.sinks.common.staging.column_check import check_columns
from twophase.sinks.common.staging.formats import Format
from twophase.sinks.delta.layout import TableLayout
from twophase.sinks.delta.rows import check_rows as check_delta
from twophase.sinks.hive.catalog import HiveTable
from twophase.sinks.hive.options import HiveOptions
from twophase.sinks.hive.preflight import check_table
from twophase.sinks.iceberg.columns import check_rows as check_iceberg
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.sinks.kafka.rows import check_columns as check_kafka
from twophase.sinks.mysql import preflight as mysql
from twophase.sinks.mysql.columns import Column as MySqlColumn
from twophase.sinks.mysql.table import Table
from twophase.sinks.paimon.columns import Column as PaimonColumn
from twophase.sinks.paimon.columns import check_rows as check_paimon

NAMES = "key", "value"
"""The columns of each table, all of them BIGINT, or of a record."""


def of(names: tuple[str, ...], kind: pa.DataType) -> pa.Schema:
    return pa.schema([(name, kind) for name in names])


def fits_hive(rows: tuple[str, ...]) -> None:
    columns = of(NAMES, pa.int64())
    table = HiveTable("shop.orders", "/lake/orders", Format.PARQUET, columns, (), ())
    check_table(
        table, HiveOptions.parse({"table": "shop.orders"}, "HiveSink"), of(rows, pa.int64())
    )


def fits_mysql(rows: tuple[str, ...]) -> None:
    columns = tuple(MySqlColumn(name, "bigint", "bigint", precision=19) for name in NAMES)
    table = Table("shop", "orders", "BASE TABLE", "InnoDB", columns)
    mysql._plan_columns(of(rows, pa.int64()), table)


def fits_delta(rows: tuple[str, ...]) -> None:
    given, table = (
        StructType([StructField(name, LongType()) for name in names]) for names in (rows, NAMES)
    )
    layout = TableLayout(tuple(table.jsonValue()["fields"]), (), (), {})
    if problems := check_delta(given, table, layout).problems:
        raise ConfigError("; ".join(problems))


def fits_iceberg(rows: tuple[str, ...]) -> None:
    fields = (NestedField(number, name, IcebergLong()) for number, name in enumerate(NAMES))
    check_iceberg(of(rows, pa.int64()), Schema(*fields))


def fits_paimon(rows: tuple[str, ...]) -> None:
    columns = [PaimonColumn(number, name, "BIGINT") for number, name in enumerate(NAMES)]
    check_paimon(of(rows, pa.int64()), columns)


def fits_files(rows: tuple[str, ...]) -> None:
    check_columns(of(rows, pa.int64()), Format.PARQUET, ())


def fits_records(record: str) -> Callable[[tuple[str, ...]], None]:
    def fits(rows: tuple[str, ...]) -> None:
        given = {"kafka.bootstrap.servers": "h:1", "topic": "orders", "format": record}
        check_kafka(of(rows, pa.string()), KafkaSinkOptions.parse(given, "KafkaSink"))

    return fits


SINKS = {
    "hive": fits_hive,
    "mysql": fits_mysql,
    "delta": fits_delta,
    "iceberg": fits_iceberg,
    "paimon": fits_paimon,
    "file": fits_files,
    "kafka, JSON": fits_records("json"),
    "kafka, raw": fits_records("raw"),
}


@pytest.mark.parametrize("twice", ["key", "KEY"])
@pytest.mark.parametrize("sink", SINKS)
def test_it_is_named(sink: str, twice: str) -> None:
    SINKS[sink](NAMES)
    if sink == "kafka, JSON" and twice == "KEY":  # names in JSON differ in case
        SINKS[sink]((*NAMES, twice))
        return
    with pytest.raises(ConfigError, match=r"(?i)\bkey"):
        SINKS[sink]((*NAMES, twice))


def test_headers_have_one_key() -> None:
    fields = [("key", pa.string()), ("key", pa.string()), ("value", pa.binary())]
    rows = pa.schema([("value", pa.binary()), ("headers", pa.list_(pa.struct(fields)))])
    given = {"kafka.bootstrap.servers": "h:1", "topic": "orders", "format": "raw"}
    with pytest.raises(ConfigError, match="column 'headers' is list"):
        check_kafka(rows, KafkaSinkOptions.parse(given, "KafkaSink"))
