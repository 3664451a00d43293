"""What the reader makes of Spark's limits."""

from __future__ import annotations

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from twophase.sources.kafka.offsets import Limits
from twophase.sources.kafka.options import KafkaOptions
from twophase.sources.kafka.reader import KafkaStreamReader

RAW = StructType([StructField("value", BinaryType())])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, Limits(None, None)),
        ({"maxRecordsPerTrigger": "400"}, Limits(400, None)),
        ({"maxRecordsPerPartition": "300"}, Limits(None, 300)),
        ({"maxRecordsPerTrigger": "400", "maxRecordsPerPartition": "300"}, Limits(400, 300)),
    ],
)
def test_a_trigger_that_leaves_it_to_the_options_has_their_limits(options: dict[str, str], expected: Limits) -> None:
    base = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "columns": "value"}
    reader = KafkaStreamReader(KafkaOptions.parse(base | options), RAW)
    assert reader._limits(reader.getDefaultReadLimit()) == expected
