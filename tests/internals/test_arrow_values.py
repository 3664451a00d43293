"""Arrow arrays without pandas: they are those that pyarrow makes, and Spark's workers get
by without pandas.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from twophase.internals.arrow_values import binaries, booleans, integers, scalar, texts

_WORKER = """
import sys, tempfile
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext

from twophase.sinks.file.sink import FileSink
from twophase.sinks.mysql.rows.text_formats import INSERT_VALUES, LOAD_DATA
from twophase.sinks.mysql.rows.encoding import encode
from twophase.sinks.mysql.rows.column_types import Encoding
from twophase.sinks.mysql.rows.types import ColumnPlan
from twophase.ids import Attempt, TransactionId
from twophase.contract.sink import SinkContext
from twophase.spark.batch.writer_task import WriterTask
from twophase.sources.kafka.block import Block
from twophase.sources.kafka.json_format import JsonDecoder
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import OnBadRecord
from twophase.sources.kafka.raw_format import _TYPES, RawDecoder

context = TaskContext._getOrCreate()
context._partitionId, context._taskAttemptId = 0, 7
item = OffsetRange("source", "orders", "", 0, 0, 2)
values = [b'{"id": 1, "name": "a", "price": 1.5}', b'{"id": 2, "name": null, "price": 2.5}']
block = Block(values, range(2), [b"k", None], [5, -1], [[("h", b"x"), ("g", None)], None])

raw = RawDecoder(pa.schema(list(_TYPES.items())), item)
raw.take(block)
assert raw.batch().num_rows == 2
schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64()), ("kafka_key", pa.string()),
                    ("kafka_timestamp", pa.timestamp("us", tz="UTC")), ("kafka_topic", pa.string())])
decoder = JsonDecoder(schema, item, OnBadRecord.FAIL)
assert decoder.batch().num_rows == 0
decoder.take(block)
batch = decoder.batch()

plans = [ColumnPlan("id", "id", pa.int64(), Encoding.PLAIN, False),
         ColumnPlan("price", "price", pa.float64(), Encoding.FLOAT, True),
         ColumnPlan("kafka_timestamp", "at", pa.timestamp("us"), Encoding.TIMESTAMP, True, fraction_digits=3),
         ColumnPlan("name", "name", pa.string(), Encoding.TEXT, True, padded=True)]
for text_format in (LOAD_DATA, INSERT_VALUES):
    assert encode(batch, plans, text_format).rows == 2

with tempfile.TemporaryDirectory() as folder:
    sink = FileSink(path=folder + "/table", partition_by=["name"]).open(SinkContext("job", "sink", schema, 1))
    transaction = TransactionId("job", "0f0e0d0c-0b0a-4908-8706-050403020100", 0, Attempt(1, 1), "sink", "0" * 64)
    sink.fence(Attempt(1, 1))
    [result] = WriterTask(sink.writers(), transaction)(iter([batch]))
    assert result.num_rows == 1 and result.column(1)[0].is_valid
print("pandas" in sys.modules)
"""  # noqa: E501


def test_no_worker_imports_pandas() -> None:
    """What a reader and a writer do in a worker; in an interpreter of its own,
    because ours has pandas.
    """
    done = subprocess.run(
        [sys.executable, "-c", _WORKER], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
@pytest.mark.parametrize("values", [[], [0], [-1, 2**31 - 1, -(2**31)], range(5, 9)])
def test_integers(values: Any, kind: pa.DataType) -> None:
    made = integers(values, kind)
    made.validate(full=True)
    assert made.equals(pa.array(values, kind))


@pytest.mark.parametrize(("value", "kind"), [(2**31, pa.int32()), (2**63, pa.int64())])
def test_an_integer_that_does_not_fit_is_an_error(value: int, kind: pa.DataType) -> None:
    with pytest.raises(OverflowError):
        integers([value], kind)


@pytest.mark.parametrize(
    "values",
    [[], [b""], [None], [b"a", None, b"", b"\x00\xff"], [None] * 9, [b"x"] * 17 + [None, b"y"]],
)
def test_binaries(values: list[bytes | None]) -> None:
    made = binaries(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.binary()))
    assert made.null_count == values.count(None)


@pytest.mark.parametrize("values", [[], ["ä", None, "", "a" * 300]])
def test_texts(values: list[str | None]) -> None:
    made = texts(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.string()))


@pytest.mark.parametrize("values", [[], [True], [False] * 9 + [True]])
def test_booleans(values: list[bool]) -> None:
    assert booleans(values).equals(pa.array(values, pa.bool_()))


def test_scalars_keep_their_types_apart() -> None:
    for value, kind in [
        (1, pa.int64()),
        (True, pa.bool_()),
        ("1", pa.string()),
        (0, pa.int64()),
        (False, pa.bool_()),
    ]:
        assert scalar(value).equals(pa.scalar(value, kind))
