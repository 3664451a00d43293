"""Topics that are not what they were, and rows that are records already."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.memory_driver import Driver, completed_of, open_sinks, restoring
from integration.kafka.topics import Topics
from integration.kafka_sink.sink_harness import KafkaHarness
from twophase.contract.committable import Committable
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest, Predecessor, SinkContext
from twophase.errors import (
    ConfigError,
    RejectedRowsError,
    TargetChangedError,
    TargetUnreachableError,
    TwoPhaseError,
)
from twophase.ids import Subtask
from twophase.sinks.kafka.open_sink import OpenKafkaSink
from twophase.testing.harness import FIRST, JOB, LINEAGE, SINK, transaction_id

RAW = pa.schema(
    [
        ("key", pa.string()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("partition", pa.int32()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)


@pytest.fixture
def harness(topics: Topics) -> KafkaHarness:
    return KafkaHarness(topics)


def written(
    sink: OpenKafkaSink, rows: list[dict[str, Any]], schema: pa.Schema, checkpoint: int = 0
) -> Committable:
    """A piece, pre-committed."""
    writer = sink.writers()(transaction_id(checkpoint), Subtask(0, checkpoint))
    try:
        writer.write(pa.RecordBatch.from_pylist(rows, schema=schema))
        piece = writer.pre_commit()
    except TwoPhaseError:
        writer.abort()
        raise
    assert piece is not None
    return piece


def committed(sink: OpenKafkaSink, piece: Committable, before: Predecessor | None = None) -> Any:
    return sink.commit([CommitRequest(piece, 0, before)])[0]


def test_a_topic_that_is_created_again_gets_nothing(harness: KafkaHarness) -> None:
    sink = harness.opened()
    assert committed(sink, written(sink, harness.rows([0]), harness.schema)) == Committed()
    waiting = written(sink, harness.rows([1]), harness.schema, 1)
    harness.topics.recreate(harness.topic, 3)
    with pytest.raises(TargetChangedError):
        committed(sink, waiting, Predecessor(LINEAGE, 0))
    again = harness.opened()
    history = again.history()
    assert history.committed == {LINEAGE: 0}
    assert harness.topic in history.replaced
    with pytest.raises(TargetChangedError):
        committed(again, waiting, Predecessor(LINEAGE, 0))
    again.abort([waiting])
    assert harness.rows_visible() == []
    for one in (sink, again):
        one.close()


def test_a_ledger_that_is_created_again_proves_nothing(harness: KafkaHarness) -> None:
    sink = harness.opened()
    assert committed(sink, written(sink, harness.rows([0]), harness.schema)) == Committed()
    waiting = written(sink, harness.rows([1]), harness.schema, 1)
    harness.topics.delete(harness.ledger)
    again = harness.new_sink().open(SinkContext(JOB, SINK, harness.schema, parallelism=2))
    assert again.history().committed == {}
    for one in (sink, again):
        with pytest.raises(TargetChangedError):
            committed(one, waiting)
    again.abort([waiting])
    assert [row["id"] for row in harness.rows_visible()] == [0]
    for one in (sink, again):
        one.close()


def test_a_ledger_that_is_deleted_under_a_job_is_named_and_the_next_start_says_how_to_go_on(
    harness: KafkaHarness, tmp_path: Path
) -> None:
    with ExitStack() as left:

        def driver() -> Driver:
            sinks = open_sinks({SINK: harness.new_sink()})
            left.callback(sinks[SINK].close)
            return Driver(tmp_path, {}, sinks=sinks)

        first = driver().recover()
        first.run(0)
        harness.topics.delete(harness.ledger)
        with pytest.raises(TargetUnreachableError, match="does not exist") as caught:
            first.sinks[SINK].history()
        assert "then start the job again, which says what has no proof" in caught.value.remedy
        with pytest.raises(TargetChangedError, match=r"checkpoint 0 .* is committed") as told:
            driver().recover()
        assert "begin there with restore.path" in told.value.remedy
        restore = restoring(completed_of(tmp_path, 0), committed=True)
        last = driver()
        last.coordinator.recover(restore=restore)
        last.coordinator.begin_lineage(restore.lineage)
        last.run(1)
    assert sorted(row["id"] for row in harness.rows_visible()) == [*range(20)]


def test_rows_are_records_with_all_of_their_parts(harness: KafkaHarness) -> None:
    sink = harness.new_sink(format="raw").open(SinkContext(JOB, SINK, RAW, parallelism=2))
    sink.fence(FIRST)
    rows: list[dict[str, Any]] = [
        {
            "key": "k",
            "value": b"\x00v",
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
            "partition": 2,
            "timestamp": 1_700_000_000_123_000,
        },
        {"key": None, "value": None, "headers": None, "partition": 1, "timestamp": None},
    ]
    assert committed(sink, written(sink, rows, RAW)) == Committed()
    found = {message.partition(): message for message in harness.topics.records(harness.topic)}
    assert {*found} == {1, 2}
    assert (found[2].key(), found[2].value()) == (b"k", b"\x00v")
    assert found[2].headers() == [("h", b"1"), ("h", None)]
    assert found[2].timestamp()[1] == 1_700_000_000_123
    assert (found[1].key(), found[1].value(), found[1].headers()) == (None, None, None)
    sink.close()


def test_a_partition_that_is_not_there_rejects_the_row(harness: KafkaHarness) -> None:
    sink = harness.new_sink(format="raw").open(SinkContext(JOB, SINK, RAW, parallelism=2))
    sink.fence(FIRST)
    row = {"key": "k", "value": b"v", "headers": None, "partition": 7, "timestamp": None}
    with pytest.raises(RejectedRowsError, match="partition"):
        written(sink, [row], RAW)
    assert sink.in_doubt() == []
    sink.close()


VALUE = pa.schema([("value", pa.string())])
TEXT = pa.schema([("v", pa.string())])
PLACE = pa.schema([("t", pa.string())])


@pytest.mark.parametrize(
    ("options", "schema", "reason", "changed"),
    [
        ({"format": "raw"}, TEXT, "column 'v' is not part of a record", VALUE),
        ({"format": "raw"}, pa.schema([("key", pa.string())]), "no column 'value'", VALUE),
        ({"format": "raw"}, pa.schema([("value", pa.int64())]), "neither text nor bytes", VALUE),
        ({"key": "nobody"}, TEXT, "no column 'nobody'", pa.schema([("nobody", pa.string())])),
        (
            {"key": "v"},
            pa.schema([("v", pa.float64())]),
            "column 'v' is double, and cannot be a key",
            TEXT,
        ),
        ({}, pa.schema([("v", pa.duration("us"))]), "no JSON", TEXT),
        (
            {"format": "raw", "other_topics": "OTHER"},
            VALUE,
            "'topic'",
            VALUE.append(pa.field("topic", pa.string())),
        ),
        (
            {"format": "raw"},
            VALUE.append(pa.field("topic", pa.int64())),
            "column 'topic' is int64, not text",
            VALUE,
        ),
        (
            {"other_topics": "OTHER", "topic_column": "t"},
            TEXT,
            "no column 't', which the option topic_column names",
            PLACE,
        ),
        (
            {"other_topics": "OTHER", "topic_column": "t"},
            pa.schema([("t", pa.int64())]),
            "column 't' is int64, and cannot be the name of a topic",
            PLACE,
        ),
        ({}, pa.schema([("v", pa.map_(pa.int64(), pa.int64()))]), "have to be text", TEXT),
    ],
)
def test_columns_that_do_not_fit_are_refused_by_name_and_changed_they_are_taken(
    harness: KafkaHarness,
    options: dict[str, str],
    schema: pa.Schema,
    reason: str,
    changed: pa.Schema,
) -> None:
    other = harness.topics.create(1)
    options = {name: value.replace("OTHER", other) for name, value in options.items()}
    with pytest.raises(ConfigError, match=reason) as caught:
        harness.new_sink(**options).open(SinkContext(JOB, SINK, schema, parallelism=2))
    assert caught.value.remedy == "change the rows in the query or the sink's transform."
    harness.new_sink(**options).open(SinkContext(JOB, SINK, changed, parallelism=2)).close()


def test_the_key_of_a_record_is_the_value_of_its_column(harness: KafkaHarness) -> None:
    sink = harness.opened(key="name")
    assert committed(sink, written(sink, harness.rows([7]), harness.schema)) == Committed()
    [message] = harness.topics.records(harness.topic)
    assert message.key() == b"row 7"
    sink.close()


# Of Kafka's own UtilsTest: keys and their murmur2.
MURMUR2 = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


@pytest.mark.parametrize("protocol", ["transaction", "staged"])
@pytest.mark.parametrize("largest", [1_000, 20_000, 600_000])
def test_rows_that_are_larger_together_than_a_topic_takes_are_written_in_parts(
    topics: Topics, protocol: str, largest: int
) -> None:
    """The brokers count the bytes of a batch, which Kafka calls a message."""
    harness = KafkaHarness(topics, protocol=protocol, format="raw")
    topics.alter(harness.topic, {"max.message.bytes": str(largest)})
    values = [os.urandom(min(largest // 3, 20_000)) for _ in range(200)]
    with closing(harness.new_sink().open(SinkContext(JOB, SINK, RAW, parallelism=1))) as sink:
        sink.fence(FIRST)
        row = {"key": None, "headers": None, "partition": 0, "timestamp": None}
        piece = written(sink, [row | {"value": value} for value in values], RAW)
        assert committed(sink, piece) == Committed()
    assert [one.value() for one in topics.records(harness.topic)] == values


@pytest.mark.parametrize("protocol", ["transaction", "staged"])
def test_a_key_has_the_partition_that_java_s_clients_give_it(topics: Topics, protocol: str) -> None:
    harness = KafkaHarness(topics, protocol=protocol, format="raw")
    harness.topics.recreate(harness.topic, 7)
    nothing = dict.fromkeys(RAW.names)
    rows = [nothing | {"key": key, "value": b""} for key in MURMUR2]
    context = SinkContext(JOB, SINK, RAW, parallelism=1)
    with closing(harness.new_sink().open(context)) as sink:
        sink.fence(FIRST)
        assert committed(sink, written(sink, rows, RAW)) == Committed()
    found = {one.key(): one.partition() for one in harness.topics.records(harness.topic)}
    assert found == {key.encode(): (hash & 0x7FFFFFFF) % 7 for key, hash in MURMUR2.items()}
