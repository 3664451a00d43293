"""What docs/kafka.md says about JSON and Spark's functions, followed literally on real Spark."""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark.sql.functions as F
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from twophase.errors import BadRecordError, ConfigError
from twophase.sources.kafka.block import Block
from twophase.sources.kafka.json_format import JsonDecoder
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import OnBadRecord
from twophase.spark_versions import to_arrow_schema

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[3] / "docs" / "kafka.md"
SECTION = PAGE.read_text().split("\n## JSON\n")[1].split("\n## ")[0]
STOPPED = (PySparkException, Py4JJavaError)
[OTHERS] = re.findall(r"```python\n(.*?)```", SECTION, flags=re.DOTALL)
SCHEMA = (
    "id BIGINT, sizes MAP<STRING, INT>, picture STRING, created STRING, updated BIGINT, "
    "shipped ARRAY<INT>"
)
RECORD: dict[str, Any] = {
    "id": 1,
    "sizes": {"7": 1, "8": None},
    "picture": base64.b64encode(b"\x00\xff").decode(),
    "created": "2024-05-01T10:00:00.1234567Z",
    "updated": 1714557600000,
    "shipped": [2024, 5, 1, 10, 0, 7],
}


def read(spark: SparkSession, value: bytes, ddl: str) -> DataFrame:
    """The rows that the source gives for one record."""
    parsed = StructType.fromDDL(ddl)
    assert isinstance(parsed, StructType)
    schema = to_arrow_schema(parsed, timezone="UTC")
    decoder = JsonDecoder(schema, OffsetRange("kafka", "t", "id", 0, 0, 1), OnBadRecord.FAIL)
    decoder.take(Block([value], range(1)))
    return spark.createDataFrame(pa.Table.from_batches([decoder.batch()]))


def follow(block: str, **given: DataFrame) -> list[dict[str, Any]]:
    names: dict[str, Any] = dict(given)
    exec(block, names)
    return [row.asDict(recursive=True) for row in names["rows"].collect()]


def orders(spark: SparkSession, **changed: Any) -> list[dict[str, Any]]:
    return follow(OTHERS, orders=read(spark, json.dumps(RECORD | changed).encode(), SCHEMA))


def test_what_json_does_not_read_is_converted_without_loss(spark: SparkSession) -> None:
    [row] = orders(spark)
    local = spark.sql(
        "SELECT TIMESTAMP '2024-05-01T10:00:00.123456Z', TIMESTAMP '2024-05-01T10:00:00Z', "
        "TIMESTAMP '2024-05-01 10:00:07'"
    ).first()
    assert local is not None
    assert row == {
        "id": 1,
        "sizes": {7: 1, 8: None},
        "picture": bytearray(b"\x00\xff"),
        "created": local[0],
        "updated": local[1],
        "shipped": local[2],
    }
    [row] = orders(spark, **dict.fromkeys(RECORD))
    assert row == dict.fromkeys(RECORD)


@pytest.mark.parametrize(
    "changed",
    [
        {"sizes": {"x": 1}},
        {"sizes": {"7": 1, "07": 2}},
        {"sizes": {"99999999999": 1}},
        {"picture": "?"},
        {"created": "yesterday"},
    ],
    ids=str,
)
def test_what_cannot_be_converted_stops_the_job(
    spark: SparkSession, changed: dict[str, Any]
) -> None:
    with pytest.raises(STOPPED):
        orders(spark, **changed)


def remedy(spark: SparkSession, value: bytes, ddl: str) -> str:
    with pytest.raises((BadRecordError, ConfigError)) as caught:
        read(spark, value, ddl)
    return caught.value.remedy


DAY, NOON = dt.date(2024, 5, 1), dt.datetime(2024, 5, 1, 12)


@pytest.mark.parametrize(
    ("kind", "value", "call", "expected"),
    [
        ("TIMESTAMP", [2024, 5, 1, 12, 0, 0], "{}(v[0], v[1], v[2], v[3], v[4], v[5])", NOON),
        ("DATE", [2024, 5, 1], "{}(v[0], v[1], v[2])", DAY),
        ("TIMESTAMP", int(NOON.timestamp() * 1000), "{}(v)", NOON),
        ("DATE", (DAY - dt.date(1970, 1, 1)).days, "{}(v)", DAY),
        ("TIMESTAMP", "01.05.2024 12:00", "{}(v, 'dd.MM.yyyy HH:mm')", NOON),
        ("DATE", "01.05.2024", "{}(v, 'dd.MM.yyyy')", DAY),
    ],
)
def test_a_time_of_another_form_has_the_type_and_the_function_that_the_error_names(
    spark: SparkSession, kind: str, value: Any, call: str, expected: dt.date
) -> None:
    record = json.dumps({"v": value}).encode()
    said = remedy(spark, record, f"v {kind}")
    way = re.search(r"give the column the type (\S+), and convert it with (\w+)", said)
    assert way is not None
    rows = read(spark, record, f"v {way[1]}").selectExpr(f"{call.format(way[2])} AS v")
    assert [row.v for row in rows.collect()] == [expected]


@pytest.mark.parametrize(
    ("text", "kind", "given"),
    [
        ('{"v":1}{"v":2}', "INT", 1),
        ('{"v":1,"v":2}', "INT", 2),
        ('{"v":1.555}', "DECIMAL(10, 2)", Decimal("1.56")),
        ('{"v":0.12345678901234567890}', "DECIMAL(38, 20)", Decimal("0.12345678901234567890")),
        ('{"v":1e400}', "DOUBLE", float("inf")),
        ('{"v":1e39}', "FLOAT", float("inf")),
        ('{"v":1e400}', "STRING", '"Infinity"'),
    ],
)
def test_what_from_json_passes_over_is_not_noticed(
    spark: SparkSession, text: str, kind: str, given: Any
) -> None:
    """Nothing stops; by the source the record does not fit, or is kept as it is."""
    theirs = spark.createDataFrame([(text,)], "j STRING").select(
        F.from_json("j", f"v {kind}", {"mode": "FAILFAST"}).getField("v").alias("v")
    )
    assert [row.v for row in theirs.collect()] == [given]
    if kind == "STRING" or "38" in kind:
        kept = [row.v for row in read(spark, text.encode(), f"v {kind}").collect()]
        assert kept == ["1e400" if kind == "STRING" else given]
        return
    with pytest.raises(BadRecordError):
        read(spark, text.encode(), f"v {kind}")


@pytest.mark.parametrize("text", ['{"a":[1,2]}', "[1,null]", "7", "true", "null", '"x"', '"7"'])
def test_a_string_has_the_text_that_from_json_gives(spark: SparkSession, text: str) -> None:
    ddl = "v STRING, o STRUCT<v: STRING>, l ARRAY<STRING>"
    value = f'{{"v":{text},"o":{{"v":{text}}},"l":[{text}]}}'
    theirs = spark.createDataFrame([(value,)], "j STRING").selectExpr(f"from_json(j, '{ddl}') r")
    assert read(spark, value.encode(), ddl).collect() == theirs.select("r.*").collect()


def test_raw_text_is_kept_where_from_json_rewrites_it(spark: SparkSession) -> None:
    value = '{"v":{ "a" : 1.50 }}'
    theirs = spark.createDataFrame([(value,)], "j STRING").selectExpr(
        "from_json(j, 'v STRING').v v"
    )
    assert [row.v for row in theirs.collect()] == ['{"a":1.5}']
    assert [row.v for row in read(spark, value.encode(), "v STRING").collect()] == [
        '{ "a" : 1.50 }'
    ]
