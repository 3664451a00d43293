"""The Kafka source against a real broker: through Spark where Spark matters, else through the
reader that Spark calls.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import kafka.codec
import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from kafka import KafkaProducer
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

import twophase
from harness.selection import representatives
from harness.spark_features import needs
from harness.tcp_proxy import Switchboard
from integration.kafka.topics import Topics, numbers
from twophase.errors import (
    BadRecordError,
    ConfigError,
    OffsetOutOfRangeError,
    PartitionVanishedError,
    PreflightError,
    SourceUnavailableError,
    TopicRecreatedError,
    TwoPhaseError,
    carried,
)
from twophase.internals.json_values import to_json
from twophase.internals.redaction import REDACTED
from twophase.kafka_client import bounded_close
from twophase.kafka_client.connection import CLIENT_ID
from twophase.kafka_client.partitions import Partition
from twophase.sources.kafka import GroupOffsets, KafkaDataSource, KafkaSource, fetch_librdkafka
from twophase.sources.kafka.data_source import KafkaPartition, KafkaStreamReader
from twophase.sources.kafka.offsets import SourceOffset
from twophase.spark_versions import LIMITED_READS, ReadAllAvailable
from twophase.testing.services import KafkaService
from twophase.testing.services.spark_start import spark_environment

pytestmark = [pytest.mark.part("kafka"), pytest.mark.thin(2), needs(LIMITED_READS)]

ENGINES = ["librdkafka", "kafka-python"]
ENGINE = representatives(ENGINES, {"kafka-python"})
ROOT = Path(__file__).parents[2]


class Stream:
    """Drives a reader as Spark does, in this process."""

    def __init__(self, topics: Topics, topic: str, **options: str) -> None:
        base = {
            "kafka.bootstrap.servers": topics.servers,
            "subscribe": topic,
            "columns": "value,offset",
        }
        self.options = base | {key.replace("__", "."): value for key, value in options.items()}
        self.reader = self.new_reader()
        self.offset: dict[str, Any] = self.reader.initialOffset()

    def new_reader(self, schema: StructType | None = None) -> KafkaStreamReader:
        source = KafkaDataSource(self.options)
        declared = schema or StructType(
            [StructField("value", BINARY), StructField("offset", LongType())]
        )
        return source.streamReader(declared)

    def step(self) -> list[int]:
        """Plan and read one batch; the values as numbers."""
        end = self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit())
        values = self.read(self.offset, end)
        self.offset = end
        return values

    def first(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The offsets of a first batch, which reads all there is."""
        return self.offset, self.reader.latestOffset(self.offset, ReadAllAvailable())

    def rest(self) -> list[int]:
        """Batches until nothing is new."""
        values: list[int] = []
        while True:
            before = self.offset
            values += self.step()
            if self.offset is before:
                return values

    def read(self, start: dict[str, Any], end: dict[str, Any], *, again: bool = False) -> list[int]:
        """The values of one batch as numbers; `again`: after a restart, as Spark
        runs its last one.
        """
        reader = self.new_reader() if again else self.reader
        batches = [batch for item in reader.partitions(start, end) for batch in reader.read(item)]
        return [int(value) for batch in batches for value in batch.column("value").to_pylist()]

    def at(self) -> list[int]:
        return [entry["offset"] for entry in self.offset["partitions"]]


BINARY = StructType.fromJson(
    {
        "type": "struct",
        "fields": [{"name": "x", "type": "binary", "nullable": True, "metadata": {}}],
    }
)["x"].dataType


# --- through Spark


def stream(spark: SparkSession, topics: Topics, topic: str, **options: str) -> Any:
    twophase.register(spark)
    reader = spark.readStream.format("twophase-kafka").option(
        "kafka.bootstrap.servers", topics.servers
    )
    return reader.option("subscribe", topic).options(
        **{key.replace("__", "."): v for key, v in options.items()}
    )


def collect(frame: DataFrame, folder: Path) -> list[Any]:
    """Run a query to the end of what is there; its rows."""
    rows: list[Any] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        .option("checkpointLocation", str(folder / "spark"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert not query.isActive
    return rows


def failure(frame: DataFrame, folder: Path) -> TwoPhaseError:
    """Run a query that must fail; the error found in Spark's text."""
    with pytest.raises(StreamingQueryException) as caught:
        collect(frame, folder)
    error = carried(caught.value)
    assert error is not None, str(caught.value)
    return error


@pytest.mark.spark
def test_json_through_spark_in_limited_batches(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(2)
    for partition in (0, 1):
        values = [
            json.dumps(
                {"id": 2 * i + partition, "at": "2026-01-02T03:04:05Z", "tags": ["a"]}
            ).encode()
            for i in range(500)
        ]
        topics.send(topic, values, partition, key=b"k", timestamp=1_700_000_000_123)
    frame = (
        stream(spark, topics, topic, value__format="json", maxRecordsPerTrigger="300")
        .schema(
            "id BIGINT, at TIMESTAMP, tags ARRAY<STRING>, missing STRING, kafka_partition INT, "
            "kafka_offset BIGINT, kafka_timestamp TIMESTAMP, kafka_key STRING, kafka_topic STRING"
        )
        .load()
    )
    rows = collect(frame, tmp_path)
    assert sorted(row.id for row in rows) == list(range(1000))
    assert all(row.id == 2 * row.kafka_offset + row.kafka_partition for row in rows)
    assert {(row.tags[0], row.missing, row.kafka_key, row.kafka_topic) for row in rows} == {
        ("a", None, "k", topic)
    }
    assert {row.kafka_timestamp.replace(tzinfo=dt.UTC).timestamp() for row in rows} == {
        1_700_000_000.123
    }
    logged = sorted(
        int(path.name) for path in (tmp_path / "spark" / "offsets").iterdir() if path.name.isdigit()
    )
    lines = [(tmp_path / "spark" / "offsets" / str(n)).read_text().splitlines()[2] for n in logged]
    ends = [sum(entry["offset"] for entry in KafkaSource().entries(line)) for line in lines]
    assert ends == [300, 600, 900, 1000]


@pytest.mark.spark
def test_the_first_micro_batch_has_records(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    """They would wait for the second one as long as the trigger says."""
    topic, read, seen = topics.create(), list[int](), threading.Event()
    topics.send(topic, numbers(0, 3))

    def note(batch: DataFrame, _: int) -> None:
        read.extend(int(row.value) for row in batch.collect())
        seen.set()

    written = stream(spark, topics, topic, columns="value").load().writeStream.foreachBatch(note)
    query = (
        written.option("checkpointLocation", str(tmp_path)).trigger(processingTime="1 hour").start()
    )
    try:
        assert seen.wait(120), query.exception()
        assert read == [0, 1, 2]
    finally:
        query.stop()


@pytest.mark.spark
def test_raw_through_spark(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.send(
        topic,
        [b"v", None, b""],
        key=b"k",
        headers=[("h", b"1"), ("h", None)],
        timestamp=1_700_000_000_000,
    )
    columns = "key,value,topic,partition,offset,timestamp,headers"
    rows = collect(stream(spark, topics, topic, columns=columns).load(), tmp_path)
    assert [(row.value and bytes(row.value), row.offset) for row in rows] == [
        (b"v", 0),
        (None, 1),
        (b"", 2),
    ]
    assert {(bytes(row.key), row.topic, row.partition) for row in rows} == {(b"k", topic, 0)}
    assert rows[0].headers[0].key == "h"
    assert [header.value and bytes(header.value) for header in rows[0].headers] == [b"1", None]
    assert rows[0].timestamp.replace(tzinfo=dt.UTC).timestamp() == 1_700_000_000


@pytest.mark.spark
def test_errors_of_executors_and_of_the_planner_are_found_in_sparks_text(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.send(topic, [b'{"id":1}', b'{"id":2}', b'{"id":"three"}', b'{"id":4}'])

    def frame(**more: str) -> DataFrame:
        loaded: DataFrame = (
            stream(spark, topics, topic, value__format="json", **more).schema("id BIGINT").load()
        )
        return loaded

    error = failure(frame(), tmp_path / "bad")
    assert isinstance(error, BadRecordError)
    assert f"the record at offset 2 of {topic}-0" in str(error)
    assert [row.id for row in collect(frame(json__on_error="drop"), tmp_path / "good")] == [1, 2, 4]

    topics.recreate(topic)
    topics.send(topic, [b"{}"] * 9)
    error = failure(frame(), tmp_path / "good")
    assert isinstance(error, TopicRecreatedError)
    assert "created again" in str(error)
    assert "Offset 4 of the old one is wanted" in str(error)

    topics.delete(topic)
    assert isinstance(failure(frame(), tmp_path / "new"), PreflightError)


SECRET = "4111-1111-1111-1111"


def error_of_a_bad_record(spark: SparkSession, topics: Topics, folder: Path) -> str:
    topic = topics.create()
    topics.send(topic, [b'{"day":"%s"}' % SECRET.encode()])
    error = failure(
        stream(spark, topics, topic, value__format="json").schema("day DATE").load(), folder
    )
    assert isinstance(error, BadRecordError)
    return str(error)


@pytest.mark.spark
def test_a_bad_record_is_quoted(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    assert SECRET in error_of_a_bad_record(spark, topics, tmp_path)


@pytest.mark.spark
@pytest.mark.usefixtures("redacting")
def test_a_bad_record_is_not_quoted_where_the_application_says_so(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    message = error_of_a_bad_record(spark, topics, tmp_path)
    assert SECRET not in message
    assert REDACTED in message


@pytest.mark.spark
def test_wrong_options_are_named_when_the_stream_is_loaded(
    spark: SparkSession, topics: Topics
) -> None:
    with pytest.raises(Exception, match="did you mean 'subscribe'") as caught:
        stream(spark, topics, "t", subscrib="x").load()
    assert isinstance(carried(caught.value), ConfigError)


@pytest.mark.spark
def test_a_read_without_a_schema_and_one_that_is_no_stream_say_what_to_call(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.send(topic, [b'{"id":1}', b'{"id":2}'])
    reader = stream(spark, topics, topic, value__format="json")
    with pytest.raises(Exception, match=r"Next: call \.schema\(\.\.\.\) before \.load\(\)"):
        reader.load()
    batch = spark.read.format("twophase-kafka").schema("id BIGINT")
    batch.option("kafka.bootstrap.servers", topics.servers).option("subscribe", topic)
    with pytest.raises(
        Exception, match=r"Next: use spark\.readStream, with \.trigger\(availableNow=True\)"
    ):
        batch.option("value.format", "json").load().collect()
    assert [row.id for row in collect(reader.schema("id BIGINT").load(), tmp_path)] == [1, 2]


MODES = {
    "earliest": {"startingOffsets": "earliest"},
    "latest": {"startingOffsets": "latest"},
    "committed": {"startingOffsets": "committed", "group.id": "starts"},
}


@pytest.mark.proof
def test_each_start_mode_killed_in_batch_0_begins_at_the_same_start_again(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.send(topic, numbers(0, 10), timestamp=1_000)
    topics.send(topic, numbers(10, 30), timestamp=2_000)
    topics.group("starts", topic, {0: 7})
    modes = MODES | {
        "timestamp": {"startingOffsets": "timestamp:2000"},
        "specific": {"startingOffsets": json.dumps({topic: {"0": 3}})},
    }
    settings = {"servers": topics.servers, "topic": topic, "folder": str(tmp_path), "modes": modes}
    killed = drive(settings | {"kill": True})
    assert killed.returncode == -9, killed.stderr
    starts = {mode: first_offset(tmp_path / mode) for mode in modes}
    assert starts == {"earliest": 0, "latest": 30, "committed": 7, "timestamp": 10, "specific": 3}
    # by now each mode would resolve to something else
    topics.cut(topic, 2)
    topics.send(topic, numbers(30, 40), timestamp=3_000)
    topics.group("starts", topic, {0: 35})
    del modes["earliest"]  # its range is cut now: that it stops is for the tests below
    finished = drive(settings)
    assert finished.returncode == 0, finished.stderr
    for mode in modes:
        assert first_offset(tmp_path / mode) == starts[mode]
        files = sorted((tmp_path / mode).glob("*.json"), key=lambda path: int(path.stem))
        assert [value for file in files for value in json.loads(file.read_text())] == list(
            range(starts[mode], 40)
        )


def drive(settings: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "integration.kafka.start_driver", json.dumps(settings)],
        cwd=ROOT,
        env=os.environ | spark_environment() | {"PYTHONPATH": str(ROOT)},
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def first_offset(folder: Path) -> int:
    line = (folder / "spark" / "offsets" / "0").read_text().splitlines()[2]
    [entry] = SourceOffset.parse(line).begin or ()
    return entry.offset


# --- through the reader


@pytest.mark.parametrize("engine", ENGINES)
def test_every_record_is_read_once_within_the_limits(topics: Topics, engine: str) -> None:
    topic = topics.create(3)
    for partition, (low, high) in enumerate([(0, 1000), (1000, 1010), (2000, 2000)]):
        topics.send(topic, numbers(low, high), partition)
    stream = Stream(
        topics,
        topic,
        fetch__engine=engine,
        maxRecordsPerTrigger="400",
        maxRecordsPerPartition="300",
    )
    sizes, values = [], []
    while batch := stream.step():
        sizes.append(len(batch))
        values += batch
    assert sorted(values) == [*range(1000), *range(1000, 1010)]
    assert max(sizes) <= 310
    topics.send(topic, numbers(2000, 2005), 2)
    assert wait_for(stream, 5) == list(range(2000, 2005))


def wait_for(stream: Stream, count: int) -> list[int]:
    deadline, values = time.monotonic() + 60, list[int]()
    while len(values) < count and time.monotonic() < deadline:
        values += stream.step()
    return values


@pytest.mark.parametrize("engine", ENGINE)
def test_only_committed_records_are_read_and_gaps_do_not_stop_a_read(
    topics: Topics, engine: str
) -> None:
    topic = topics.create()
    topics.transaction(topic, numbers(0, 5), "commit")
    topics.transaction(topic, numbers(90, 99), "abort")
    topics.transaction(topic, numbers(5, 10), "commit")
    topics.transaction(topic, numbers(90, 93), "abort")
    open_one = topics.transaction(topic, numbers(10, 12), "leave open")
    topics.send(topic, numbers(12, 15))
    committed = Stream(topics, topic, fetch__engine=engine)
    assert committed.rest() == list(range(10))
    assert committed.at() == [26], (
        "the last stable offset: behind every marker, before the open transaction"
    )
    limited = Stream(topics, topic, fetch__engine=engine, maxRecordsPerTrigger="4")
    assert limited.rest() == list(range(10))
    everything = Stream(topics, topic, fetch__engine=engine, isolation__level="read_uncommitted")
    assert len(everything.rest()) == 27
    open_one.commit_transaction(10)
    assert wait_for(committed, 5) == [10, 11, 12, 13, 14]


@pytest.mark.parametrize("starting", ["committed", "a time", "a time behind all"])
def test_a_start_behind_the_last_stable_offset_reads_once_the_transaction_has_ended(
    topics: Topics, starting: str
) -> None:
    """A group last used by a consumer that reads uncommitted records stands there."""
    topic, soon = topics.create(), int(time.time() * 1_000) + 1_000_000
    topics.send(topic, numbers(0, 5))
    open_one = topics.transaction(topic, numbers(5, 8), "leave open")
    topics.send(topic, numbers(8, 10), timestamp=soon)
    topics.group(topic, topic, {0: 10})
    option, begin = {
        "committed": ("committed", 10),
        "a time": (f"timestamp:{soon}", 8),
        "a time behind all": (f"timestamp:{soon + 1}", 10),
    }[starting]
    stream = Stream(topics, topic, group__id=topic, startingOffsets=option)
    assert stream.rest() == []
    assert stream.at() == [begin]
    topics.send(topic, numbers(10, 13))
    assert stream.rest() == []
    open_one.commit_transaction(10)
    assert wait_for(stream, 13 - begin) == [*range(begin, 13)]


def test_a_start_behind_the_high_watermark_is_named(topics: Topics) -> None:
    topic = topics.create()
    open_one = topics.transaction(topic, numbers(0, 3), "leave open")
    stream = Stream(topics, topic, startingOffsets=json.dumps({topic: {"0": 4}}))
    with pytest.raises(OffsetOutOfRangeError, match="1 record is gone: offsets 3 to 3"):
        stream.step()
    open_one.abort_transaction(10)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_batch_of_uncommitted_records_that_runs_again_waits_for_the_transaction(
    topics: Topics, engine: str
) -> None:
    """`isolation.level` was changed after the batch was planned."""
    topic = topics.create()
    topics.send(topic, numbers(0, 5))
    open_one = topics.transaction(topic, numbers(5, 8), "leave open")
    topics.send(topic, numbers(8, 12))
    stream = Stream(
        topics,
        topic,
        fetch__engine=engine,
        isolation__level="read_uncommitted",
        read__timeout="1 s",
    )
    start, end = stream.first()
    assert stream.read(start, end) == [*range(12)]
    stream.options["isolation.level"] = "read_committed"
    behind = moved(end, 9)
    for begin in (start, behind):
        with pytest.raises(
            SourceUnavailableError, match="a transaction is open at offset 5"
        ) as told:
            stream.read(begin, end, again=True)
        assert "let its producer end it" in told.value.remedy
    stream.reader, stream.offset = stream.new_reader(), end
    assert stream.rest() == []
    open_one.commit_transaction(10)
    stream.options["read.timeout"] = "60 s"
    assert stream.read(start, end, again=True) == [*range(12)]
    assert stream.read(behind, end, again=True) == [9, 10, 11]


@pytest.mark.proof
@pytest.mark.parametrize("engine", ENGINES)
def test_a_read_of_aborted_records_that_takes_longer_than_its_timeout_is_one_with_progress(
    topics: Topics, engine: str
) -> None:
    topic = topics.create()
    topics.send(topic, [b"1"])
    topics.transaction(topic, [b"0" * 100_000] * 600, "abort")
    topics.send(topic, [b"2"])
    stream = Stream(topics, topic, fetch__engine=engine, read__timeout="14 s")
    start, end = stream.first()
    topics.throttle(CLIENT_ID, 2_000_000)  # it answers at least every 11 s
    begun = time.monotonic()
    try:
        assert stream.read(start, end) == [1, 2]
    finally:
        topics.throttle(CLIENT_ID, 0)
    assert time.monotonic() - begun > 17, "too short to prove anything"


def test_records_that_compaction_took_from_a_range_are_not_missed(topics: Topics) -> None:
    """A range that is read again may have fewer records: what stays is the newest
    of each key (H35).
    """
    topic = topics.create(
        settings={
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.bytes": str(1 << 20),
        }
    )
    topics.send(topic, numbers(0, 100), key=b"one")
    stream = Stream(topics, topic)
    start, end = stream.first()
    assert stream.read(start, end) == list(range(100))
    # the segment is full, and the cleaner may take it
    topics.send(topic, [b"9" * 600_000] * 3, key=b"one")
    while stream.read(start, end, again=True):
        time.sleep(0.2)


def test_both_engines_read_the_same(topics: Topics) -> None:
    topic = topics.create(settings={"max.message.bytes": "8000000"})
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = topics.producer(**{"compression.type": codec})
        for i in range(200):
            producer.produce(
                topic,
                b"%d" % i * (i + 1),
                key=None if i % 3 else b"k%d" % i,
                headers=[(codec, b"x"), (codec, None), ("", b"")],
            )
        assert producer.flush(10) == 0
    large = topics.producer(**{"message.max.bytes": 8_000_000})
    for number in range(3):
        large.produce(topic, b"%d" % number * 6_000_000, key=b"")
    assert large.flush(30) == 0
    topics.send(topic, [None, b"", b"x" * 900_000])
    read = []
    for engine in ENGINES:
        options = {
            "kafka.bootstrap.servers": topics.servers,
            "subscribe": topic,
            "fetch.engine": engine,
        }
        options["columns"] = "key,value,topic,partition,offset,timestamp,headers"
        reader = raw_reader(options)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        batches = [batch for item in reader.partitions(start, end) for batch in reader.read(item)]
        read.append(pa.Table.from_batches(batches).combine_chunks())
    assert read[0].num_rows == 1006
    assert read[0].equals(read[1])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_timestamp_before_1970_arrives_as_it_was_written(topics: Topics, engine: str) -> None:
    topic, times = topics.create(), [-62_135_596_800_000, -2, -1, 0, 1_700_000_000_000]
    with closing(KafkaProducer(bootstrap_servers=topics.servers, linger_ms=100)) as producer:
        sent = [producer.send(topic, b"", timestamp_ms=at, partition=0) for at in times]
        for one in sent:
            one.get(30)
    options = {"kafka.bootstrap.servers": topics.servers, "subscribe": topic}
    reader = raw_reader(options | {"fetch.engine": engine})
    start = reader.initialOffset()
    [item] = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    found = [at for batch in reader.read(item) for at in batch["timestamp"].cast(pa.int64())]
    none = times.index(-1)
    expected = [None if number == none else at * 1000 for number, at in enumerate(times)]
    assert [at.as_py() for at in found] == expected


class NoText(str):
    """The name of a header that is no UTF-8, as clients write it whose names are bytes."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return b"\xff\xfe"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_header_whose_name_is_no_utf8_is_named_and_its_record_read_without_headers(
    topics: Topics, engine: str
) -> None:
    topic = topics.create()
    topics.send(topic, numbers(0, 2))
    with closing(KafkaProducer(bootstrap_servers=topics.servers, linger_ms=500)) as producer:
        producer.send(topic, b"2")
        producer.send(topic, b"3", headers=[(NoText("name"), b"x")]).get(30)
    topics.send(topic, numbers(4, 6))
    stream = Stream(topics, topic, fetch__engine=engine, columns="value,headers")
    start, end = stream.first()
    reader = raw_reader(stream.options)
    with pytest.raises(
        BadRecordError, match=rf"from offset [0-3] of {topic}-0 .* not UTF-8"
    ) as caught:
        [[*reader.read(item)] for item in reader.partitions(start, end)]
    assert "`fetch.engine=librdkafka` and without headers in `columns`" in caught.value.remedy
    stream.options |= {"fetch.engine": "librdkafka", "columns": "value,offset"}
    stream.reader = stream.new_reader()
    assert stream.read(start, end) == [*range(6)]


def test_records_whose_codec_is_not_installed_are_read_once_it_is(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topics.create()
    with_codec = topics.producer(**{"compression.type": "zstd"})
    for number in numbers(0, 10):
        with_codec.produce(topic, number)
    with_codec.flush()
    stream = Stream(topics, topic, fetch__engine="kafka-python")
    start, end = stream.first()
    with monkeypatch.context() as without:
        without.setattr(kafka.codec, "zstd", None)
        with pytest.raises(SourceUnavailableError, match="failed at offset 0") as caught:
            stream.read(start, end)
    assert "check the brokers' logs and the installed codecs" in caught.value.remedy
    assert stream.read(start, end) == list(range(10))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_record_that_was_damaged_on_a_broker_s_disk_is_not_read_as_another(
    topics: Topics, engine: str
) -> None:
    topic = topics.create()
    topics.send(topic, numbers(1_000, 1_010))
    topics.send(topic, [b"4242"])
    stream = Stream(topics, topic, fetch__engine=engine)
    start, end = stream.first()
    topics.replace_on_disk(topic, b"4242", b"4343")
    with pytest.raises(SourceUnavailableError, match=r"failed at offset \d+: .*(?i:crc)") as caught:
        stream.read(start, end)
    assert "check the brokers' logs" in caught.value.remedy
    topics.replace_on_disk(topic, b"4343", b"4242")
    assert stream.read(start, end) == [*range(1_000, 1_010), 4242]


def test_a_read_that_reaches_no_broker_from_its_executor_begins_once_it_does(
    topics: Topics,
) -> None:
    topic = topics.create()
    topics.send(topic, numbers(0, 10))
    host, _, port = topics.servers.partition(":")
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = server.getsockname()[1]
    with Switchboard(host, int(port)) as proxy:
        servers = {"kafka.bootstrap.servers": f"127.0.0.1:{proxy.port}"}
        stream = Stream(topics, topic, fetch__engine="kafka-python", **servers)
        start, end = stream.first()  # the driver's connection leads to the broker itself by now
        proxy.lead_to(nobody)
        with pytest.raises(SourceUnavailableError, match="cannot begin") as caught:
            stream.read(start, end)
        assert "that the brokers can be reached from the executors" in caught.value.remedy
        proxy.lead_to(int(port))
        assert stream.read(start, end) == list(range(10))


def raw_reader(options: dict[str, str]) -> KafkaStreamReader:
    from pyspark.sql.types import ArrayType, BinaryType, TimestampType

    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    types = {
        "key": BinaryType(), "value": BinaryType(), "topic": StringType(),
        "partition": IntegerType(), "offset": LongType(), "timestamp": TimestampType(),
        "headers": ArrayType(header),
    }  # fmt: skip
    return KafkaDataSource(options).streamReader(
        StructType([StructField(name, types[name]) for name in types])
    )


def test_new_partitions_are_discovered_and_read_from_their_first_record(topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, numbers(0, 3))
    stream = Stream(topics, topic, partition__discovery__interval="100 ms")
    assert stream.rest() == [0, 1, 2]
    topics.grow(topic, 3)
    topics.send(topic, numbers(3, 6), partition=2)
    assert wait_for(stream, 3) == [3, 4, 5]
    assert stream.at() == [3, 0, 3]


def test_available_now_reads_to_the_end_frozen_at_its_start(topics: Topics) -> None:
    topic = topics.create(2)
    topics.send(topic, numbers(0, 50), 0)
    topics.send(topic, numbers(50, 60), 1)
    stream = Stream(topics, topic, maxRecordsPerTrigger="25")
    stream.reader.prepareForTriggerAvailableNow()
    topics.send(topic, numbers(60, 99), 1)
    assert sorted(stream.rest()) == list(range(60))
    following = stream.new_reader()
    following.prepareForTriggerAvailableNow()
    stream.reader = following
    assert stream.rest() == list(range(60, 99))


@pytest.mark.parametrize("engine", ENGINE)
def test_deleted_records_are_named_by_the_planner_and_by_the_executors(
    topics: Topics, engine: str
) -> None:
    topic = topics.create()
    topics.send(topic, numbers(0, 20))
    stream = Stream(topics, topic, fetch__engine=engine, maxRecordsPerTrigger="5")
    assert stream.step() == [0, 1, 2, 3, 4]
    start = stream.offset
    end = stream.reader.latestOffset(start, stream.reader.getDefaultReadLimit())
    planned = stream.reader.partitions(start, end)
    topics.cut(topic, 12)
    expected = (
        r"offset 5 is wanted, offsets 12 to 20 are available. 7 records are gone: offsets 5 to 11"
    )
    with pytest.raises(OffsetOutOfRangeError, match=expected):
        list(stream.reader.read(planned[0]))
    with pytest.raises(OffsetOutOfRangeError, match=expected):
        stream.reader.latestOffset(start, stream.reader.getDefaultReadLimit())
    with pytest.raises(OffsetOutOfRangeError, match=expected):  # a batch that Spark runs again
        stream.read(start, end, again=True)


@pytest.mark.parametrize("engine", ENGINE)
def test_a_recreated_topic_is_named_by_the_planner_and_by_the_executors(
    topics: Topics, engine: str
) -> None:
    topic = topics.create()
    topics.send(topic, numbers(0, 10))
    stream = Stream(topics, topic, fetch__engine=engine)
    start, end = stream.first()
    planned = stream.reader.partitions(start, end)
    topics.recreate(topic)
    topics.send(topic, numbers(500, 530))  # the wanted offsets exist again, with other records
    with pytest.raises(TopicRecreatedError, match="deleted and created again"):
        list(stream.reader.read(planned[0]))
    for offset in (to_json(SourceOffset.parse(end).start), end):
        with pytest.raises(TopicRecreatedError):
            stream.new_reader().latestOffset(offset, ReadAllAvailable())
    with pytest.raises(TopicRecreatedError):
        stream.read(start, end, again=True)


@pytest.mark.parametrize("engine", ENGINE)
def test_a_vanished_topic_is_named_by_the_planner_and_by_the_executors(
    topics: Topics, engine: str
) -> None:
    topic = topics.create()
    topics.send(topic, numbers(0, 10))
    stream = Stream(topics, topic, fetch__engine=engine)
    start, end = stream.first()
    planned = stream.reader.partitions(start, end)
    topics.delete(topic)
    with pytest.raises(PartitionVanishedError, match="no longer exists"):
        list(stream.reader.read(planned[0]))
    with pytest.raises(PartitionVanishedError):
        stream.reader.latestOffset(end, ReadAllAvailable())


@pytest.mark.parametrize("engine", ENGINE)
def test_a_range_beyond_the_end_of_the_log_is_named(topics: Topics, engine: str) -> None:
    topic = topics.create()
    topics.send(topic, numbers(0, 10))
    stream = Stream(topics, topic, fetch__engine=engine)
    stream.rest()
    item = stream.reader.partitions(moved(stream.offset, 5), stream.offset)[0]
    assert isinstance(item, KafkaPartition)
    from dataclasses import replace

    beyond = KafkaPartition(replace(item.item, start=5, end=25))
    with pytest.raises(OffsetOutOfRangeError, match="15 records are gone: offsets 10 to 24"):
        list(stream.reader.read(beyond))
    with pytest.raises(OffsetOutOfRangeError, match="20 records are gone: offsets 10 to 29"):
        stream.new_reader().latestOffset(moved(stream.offset, 30), ReadAllAvailable())


def moved(offset: dict[str, Any], to: int) -> dict[str, Any]:
    return offset | {"partitions": [entry | {"offset": to} for entry in offset["partitions"]]}


def test_group_offsets_go_forward_only_and_join_nothing(topics: Topics) -> None:
    topic = topics.create(2)
    topics.send(topic, numbers(0, 20))
    topics.send(topic, numbers(100, 109), 1)
    stream = Stream(topics, topic, group__id="committer")
    stream.rest()
    group = GroupOffsets(stream.options)
    line = json.dumps(stream.offset)
    assert group.committed(line) == {}
    group.commit(json.dumps(stream.reader.initialOffset()))
    group.commit(json.dumps(moved(stream.offset, 7)))
    assert group.committed(line) == {Partition(topic, 0): 7, Partition(topic, 1): 7}
    group.commit(line)
    for back in (0, 8, 15):
        group.commit(json.dumps(moved(stream.offset, back)))
    assert group.committed(line) == {Partition(topic, 0): 20, Partition(topic, 1): 15}
    state = topics.admin.describe_groups(["committer"])["committer"]
    assert not state["members"]
    topics.send(topic, numbers(20, 23))
    topics.send(topic, numbers(109, 120), 1)
    following = Stream(topics, topic, group__id="committer", startingOffsets="committed")
    assert sorted(wait_for(following, 8)) == [20, 21, 22, 115, 116, 117, 118, 119]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_of_a_group_that_others_are_members_of_are_committed_once_they_have_left(
    topics: Topics, protocol: str
) -> None:
    topic, name = topics.create(), f"shared-{protocol}"
    topics.send(topic, numbers(0, 5))
    stream = Stream(topics, topic, group__id=name)
    stream.rest()
    group, line = GroupOffsets(stream.options), json.dumps(stream.offset)
    settings = {"bootstrap.servers": topics.servers, "group.id": name, "group.protocol": protocol}
    with closing(Consumer(settings | {"auto.offset.reset": "earliest"})) as other:
        other.subscribe([topic])
        deadline = time.monotonic() + 60
        while other.poll(0.1) is None:
            assert time.monotonic() < deadline, "the other consumer has joined no group"
        with pytest.raises(SourceUnavailableError, match=f"group '{name}' has members") as caught:
            group.commit(line)
    assert "let its other consumers leave, or set another group.id" in caught.value.remedy
    group.commit(line)
    assert group.committed(line) == {Partition(topic, 0): 5}


def test_a_consumer_that_does_not_end_holds_up_no_task(
    topics: Topics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    may, done = threading.Event(), threading.Event()

    class Endless(Consumer):
        def close(self) -> None:
            may.wait()
            super().close()
            done.set()

    monkeypatch.setattr(fetch_librdkafka, "Consumer", Endless)
    monkeypatch.setattr(bounded_close, "PATIENCE_S", 0.1)
    topic = topics.create()
    topics.send(topic, numbers(0, 3))
    reading = Stream(topics, topic, fetch__engine="librdkafka")
    assert reading.rest() == [0, 1, 2]
    assert "left behind with its threads" in caplog.text
    may.set()
    done.wait()


def test_a_broker_that_does_not_answer_is_named_and_its_threads_end() -> None:
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "subscribe": "t",
        "request.timeout": "1 s",
        "columns": "value,offset",
    }
    reader = KafkaDataSource(options).streamReader(
        StructType([StructField("value", BINARY), StructField("offset", LongType())])
    )
    before = threading.active_count()
    with pytest.raises(SourceUnavailableError, match=r"127\.0\.0\.1:1"):
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    deadline = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= before


def test_a_restarted_broker_is_no_loss(kafka: KafkaService, topics: Topics) -> None:
    topic = topics.create()
    topics.send(topic, numbers(0, 10))
    stream = Stream(topics, topic)
    assert stream.rest() == list(range(10))
    epoch = stream.offset["partitions"][0]["leader_epoch"]
    kafka.restart()
    topics.send(topic, numbers(10, 20))
    assert wait_for(stream, 10) == list(range(10, 20))
    assert stream.offset["partitions"][0]["leader_epoch"] >= epoch
    assert SourceOffset.parse(stream.offset).source == "kafka"


@pytest.mark.proof
def test_a_broker_that_hangs_is_named_after_the_request_timeout(
    kafka: KafkaService, topics: Topics
) -> None:
    topic = topics.create()
    topics.send(topic, numbers(0, 10))
    stream = Stream(topics, topic, request__timeout="5 s", read__timeout="2 s")
    start, end = stream.first()
    planned = stream.reader.partitions(start, end)
    kafka.suspend()
    try:
        with pytest.raises(SourceUnavailableError):
            stream.new_reader().latestOffset(end, ReadAllAvailable())
        with pytest.raises(SourceUnavailableError):
            list(stream.reader.read(planned[0]))
    finally:
        kafka.resume()
    assert Stream(topics, topic).read(start, end) == list(range(10))
