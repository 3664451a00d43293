"""Sinks that chain to Kafka's bytes get what they would get through Spark."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import twophase
from harness.folder_sink import FolderTarget
from harness.tape import taped, taping_sink
from integration.kafka.chained_job import JOB, Pieces, pieces_of
from integration.kafka.topics import Topics, numbers
from twophase.contract.sink import Sink
from twophase.errors import TwoPhaseError
from twophase.events import CheckpointDecided, Event, SinksChained
from twophase.sinks.delta.sink import DeltaSink
from twophase.sinks.file.sink import FileSink
from twophase.sinks.mysql.sink import MySqlSink
from twophase.spark.batch.chaining import Chaining
from twophase.testing.services import MySqlService

pytestmark = [pytest.mark.part("kafka"), pytest.mark.spark, pytest.mark.thin(3)]

Transform = Callable[[DataFrame], DataFrame]
_OF_ITS_RUN = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|chained/\w+/|subtask \S+")
ENGINES = ["librdkafka", "kafka-python"]


@dataclass
class Outcome:
    """What a job has done.

    Attributes:
        tapes: what the writers of each sink were given.
        pieces: the committables.
        records: as the job's progress has counted them.
        error: what stopped it.
        chained: the sinks that chained, and why the others did not.
    """

    tapes: dict[str, dict[str, pa.Table]] = field(default_factory=dict)
    pieces: Pieces = field(default_factory=dict)
    records: int = 0
    error: str = ""
    chained: tuple[tuple[str, ...], Mapping[str, str]] = ((), {})


def source(spark: SparkSession, topics: Topics, topic: str, **options: str) -> Any:
    twophase.register(spark)
    named = {key.replace("__", "."): value for key, value in options.items()}
    reader = spark.readStream.format("twophase-kafka").options(**named)
    return reader.option("kafka.bootstrap.servers", topics.servers).option("subscribe", topic)


def run(
    folder: Path,
    frame: DataFrame,
    chaining: str,
    transforms: Mapping[str, Transform | None],
    new_sink: Callable[[Path], Sink] = taping_sink,
) -> Outcome:
    """Run a job to the end of its topic."""
    found = Outcome()

    def note(event: Event) -> None:
        if isinstance(event, SinksChained):
            found.chained = (event.chained, event.unchained)
        if isinstance(event, CheckpointDecided):
            found.pieces |= pieces_of(folder / "job", event.checkpoint)

    writer = twophase.write_stream(frame, name=JOB).observer(note)
    for name, transform in transforms.items():
        writer.sink(name, new_sink(folder / name), transform=transform)
    writer.option("checkpointLocation", str(folder / "job")).option("chaining", chaining)
    job = writer.option("restart.strategy", "none").trigger(availableNow=True).build()
    try:
        job.start()
        job.await_termination()
    except TwoPhaseError as error:
        found.error = _OF_ITS_RUN.sub("", f"{type(error).__name__}: {error}")
    found.records = job.status.query.records
    assert found.pieces or found.error
    for name in transforms:
        found.tapes[name] = taped(folder / name)
        assert FolderTarget(folder / name).prepared() == []
    return found


def both(
    folder: Path, frame: DataFrame, transforms: Mapping[str, Transform | None]
) -> tuple[Outcome, Outcome]:
    """Run a job twice, chained and through Spark."""
    return tuple(  # type: ignore[return-value]
        run(folder / chaining, frame, chaining, transforms) for chaining in ("auto", "off")
    )


def equal_ways(folder: Path, reader: Any, records: int) -> Outcome:
    """Run a job of two sinks that chain both ways; return what it has done either way."""
    frame = reader.schema("id BIGINT, kafka_offset BIGINT").load()
    chained, unchained = both(folder, frame, {"facts": None, "some": lambda rows: rows.drop("id")})
    assert chained.error == unchained.error == ""
    assert chained.chained == (("facts", "some"), {})
    assert chained.tapes == unchained.tapes
    assert chained.pieces == unchained.pieces
    assert chained.records == unchained.records == records
    return chained


DDL = "id BIGINT, at TIMESTAMP, tags ARRAY<STRING>, name STRING, kafka_offset BIGINT"
PROJECTIONS: dict[str, Transform | None] = {
    "as-they-are": None,
    "left-out": lambda rows: rows.drop("name"),
    "reordered": lambda rows: rows.select("tags", "kafka_offset", "id", "name", "at"),
    "renamed": lambda rows: rows.selectExpr(
        "name AS label", "at", "id AS number"
    ).withColumnRenamed("label", "title"),
    "twice": lambda rows: rows.selectExpr("id", "id AS again"),
    "by-sql": lambda rows: rows.sparkSession.sql(
        "SELECT id AS number, at FROM {rows} AS it", rows=rows
    ),
    "computed-on-the-way": lambda rows: rows.withColumn("id", rows.id + 1).select("name"),
}


@pytest.mark.parametrize("engine", ENGINES)
def test_chained_sinks_get_the_rows_that_spark_would_give_them(
    spark: SparkSession, topics: Topics, tmp_path: Path, engine: str
) -> None:
    topic = topics.create(3)
    for partition in (0, 1):
        values = [
            json.dumps({"id": i, "at": "2026-01-02T03:04:05.25Z", "tags": ["a", None]}).encode()
            for i in range(partition, 400, 2)
        ]
        topics.send(topic, values, partition)
    frame = source(
        spark,
        topics,
        topic,
        value__format="json",
        maxRecordsPerTrigger="250",
        min_read_tasks="5",
        fetch__engine=engine,
    )
    chained, unchained = both(tmp_path, frame.schema(DDL).load(), PROJECTIONS)
    assert chained.error == unchained.error == ""
    assert chained.chained == (tuple(PROJECTIONS), {})
    assert chained.pieces == unchained.pieces
    assert chained.records == unchained.records == 400
    for name in PROJECTIONS:
        assert chained.tapes[name].keys() == unchained.tapes[name].keys()
        for task, rows in chained.tapes[name].items():
            assert rows.schema.equals(unchained.tapes[name][task].schema, check_metadata=True)
            assert rows.equals(unchained.tapes[name][task])


BAD = b'{"id":"three"}'
_HEAD = b"\0\0\0\0\7"
Records = tuple[dict[str, str], list[bytes | None]]
REFUSED: dict[str, tuple[Records, int]] = {
    "a bad record": (({}, [b'{"id":1}', b'{"id":2}', BAD, b'{"id":4}']), 2),
    "a tombstone": (
        ({"json.on_error": "drop", "json.on_tombstone": "fail"}, [BAD, b'{"id":1}', None]),
        2,
    ),
    "nothing behind the head": (({"json.skip_bytes": "5"}, [_HEAD + b'{"id":1}', _HEAD]), 1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_errors_read_as_they_do_through_spark(
    spark: SparkSession, topics: Topics, tmp_path: Path, name: str
) -> None:
    (options, values), offset = REFUSED[name]
    topic = topics.create()
    topics.send(topic, values)
    reader = source(spark, topics, topic, value__format="json", **options)
    chained, unchained = both(tmp_path, reader.schema("id BIGINT").load(), {"facts": None})
    assert "BadRecordError" in chained.error
    assert f"the record at offset {offset} of {topic}-0" in chained.error
    assert chained.error == unchained.error
    assert chained.tapes == unchained.tapes == {"facts": {}}


DROPPED: dict[str, tuple[Records, list[int]]] = {
    "bad records": (
        ({"json.on_error": "drop"}, [b'{"id":0}', BAD, b"{", b"", b'{"id":4}', None]),
        [0, 4],
    ),
    "tombstones": (({"json.on_tombstone": "drop"}, [None, b'{"id":1}', None]), [1]),
    "all": (({"json.on_error": "drop"}, [BAD, None, b"["]), []),
    "heads": (({"json.skip_bytes": "5"}, [_HEAD + b'{"id":0}', _HEAD + b'{"id":1}']), [0, 1]),
    "heads of bad records": (
        (
            {"json.skip_bytes": "5", "json.on_error": "drop"},
            [_HEAD, b"\0", _HEAD + BAD, _HEAD + b'{"id":3}', b'{"id":4}', None],
        ),
        [3],
    ),
}


@pytest.mark.parametrize("name", DROPPED)
def test_records_that_are_left_out_are_those_that_spark_would_not_give(
    spark: SparkSession, topics: Topics, tmp_path: Path, name: str
) -> None:
    (options, values), offsets = DROPPED[name]
    topic = topics.create()
    topics.send(topic, values)
    reader = source(spark, topics, topic, value__format="json", min_read_tasks="2", **options)
    chained = equal_ways(tmp_path, reader, len(offsets))
    for tape in chained.tapes.values():
        found = [one for rows in tape.values() for one in rows["kafka_offset"].to_pylist()]
        assert sorted(found) == offsets


def test_a_range_that_is_gone_is_named_as_it_is_through_spark(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    errors = {}
    for chaining in ("auto", "off"):
        topic, folder = topics.create(name=f"cut-{chaining}"), tmp_path / chaining
        topics.send(topic, numbers(0, 10))
        frame = source(spark, topics, topic, columns="value,offset").load()
        run(folder, frame.selectExpr("value"), chaining, {"facts": None})
        topics.send(topic, numbers(10, 20))
        lost: Transform = partial(_cut, topics, topic)
        found = run(folder, frame.selectExpr("value"), chaining, {"facts": lost})
        errors[chaining] = found.error.replace(topic, "TOPIC")
    assert "OffsetOutOfRangeError" in errors["auto"]
    assert errors["auto"] == errors["off"]


def _cut(topics: Topics, topic: str, rows: DataFrame) -> DataFrame:
    if not rows.isStreaming:  # its offsets are frozen
        topics.cut(topic, 15)
    return rows


def hundred_twice(spark: SparkSession, topics: Topics) -> DataFrame:
    """A hundred ids, in each of two partitions."""
    topic = topics.create(2)
    for partition in (0, 1):
        topics.send(topic, [b'{"id":%d}' % i for i in range(100)], partition)
    reader = source(spark, topics, topic, value__format="json")
    frame: DataFrame = reader.schema("id BIGINT").load()
    return frame


def _copied(change: Transform, rows: DataFrame) -> DataFrame:
    """The rows as they are, by the streaming plan; in a micro-batch a copy of other ones."""
    return rows if rows.isStreaming else change(rows).localCheckpoint()


@pytest.mark.proof
def test_a_copy_of_other_rows_that_a_transform_makes_is_what_is_written(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    frame = hundred_twice(spark, topics)
    changes: dict[str, Transform] = {
        "filtered": lambda rows: rows.where("id % 2 = 0"),
        "doubled": lambda rows: rows.union(rows),
        "distinct": lambda rows: rows.dropDuplicates(),
        "same": lambda rows: rows,
    }
    copies: dict[str, Transform | None] = {
        name: partial(_copied, change) for name, change in changes.items()
    }
    chained, unchained = both(tmp_path, frame, copies)
    assert chained.error == unchained.error == ""
    assert chained.chained == (tuple(copies), {})
    for name in copies:
        found, expected = (
            sorted(row for rows in one.tapes[name].values() for row in rows["id"].to_pylist())
            for one in (chained, unchained)
        )
        assert found == expected


def test_sinks_that_may_be_ahead_of_each_other_do_not_chain(
    spark: SparkSession, topics: Topics
) -> None:
    frame = source(spark, topics, "nowhere", columns="value").load()
    sinks = {name: (taping_sink(Path("/nowhere")), frame) for name in ("a", "b")}
    why = "each sink is written on its own"
    assert Chaining(frame, sinks, why).unchained == {"a": why, "b": why}


def _drawn(rows: DataFrame) -> DataFrame:
    return rows.where("id % 2 = 0")


def test_others_go_the_way_through_spark_in_the_same_checkpoint(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    frame = hundred_twice(spark, topics)
    transforms: dict[str, Transform | None] = {
        "chain": None,
        "even": _drawn,
        "renamed": lambda rows: rows.withColumnRenamed("id", "number"),
        "counted": lambda rows: rows.groupBy("id").count(),
        "computed": lambda rows: rows.selectExpr("id + 1 AS id"),
    }
    for names in (["chain", "even"], [*transforms]):
        some = {name: transforms[name] for name in names}
        chained, unchained = both(tmp_path / str(len(names)), frame, some)
        assert chained.error == unchained.error == ""
        assert chained.chained[0] == tuple(n for n in names if n in ("chain", "renamed"))
        assert set(chained.chained[1]) == set(names) - {"chain", "renamed"}
        assert chained.pieces == unchained.pieces
        assert chained.records == unchained.records == 200
        for name in some:
            assert chained.tapes[name] == unchained.tapes[name]


def test_beside_another_sink_nothing_chains_to_a_compacted_topic(
    spark: SparkSession, topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Compaction could take records between the read of the chain and that of Spark."""
    topic = topics.create(settings={"cleanup.policy": "compact"})
    topics.send(topic, [b'{"id":%d}' % i for i in range(20)], key=b"one")
    frame = source(spark, topics, topic, value__format="json").schema("id BIGINT").load()
    alone = run(tmp_path / "alone", frame, "auto", {"chain": None})
    assert "No sink is chained" not in caplog.text
    beside, unchained = both(tmp_path / "beside", frame, {"chain": None, "even": _drawn})
    assert caplog.text.count(f"the topic '{topic}' is compacted (cleanup.policy=compact)") == 1
    assert beside.chained == (("chain",), {"even": "its rows are filtered"})
    assert alone.tapes["chain"] == beside.tapes["chain"]
    assert beside.tapes == unchained.tapes
    assert beside.pieces == unchained.pieces
    assert beside.records == unchained.records == 20


@pytest.mark.proof
def test_ranges_from_which_compaction_took_records_are_read_to_their_ends(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, pad = topics.create(), b"x" * 600_000
    topics.send(topic, [b'{"id":%d}' % i for i in range(100)])
    left = topics.compact(topic, 100, [b'{"id":%d,"pad":"%s"}' % (100 + i, pad) for i in range(3)])
    reader = source(
        spark, topics, topic, value__format="json", maxRecordsPerTrigger="40", min_read_tasks="2"
    )
    equal_ways(tmp_path, reader, left + 3)


UNCHAINED: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "filter": (lambda rows: rows.where("value IS NOT NULL"), "its rows are filtered"),
    "computed": (lambda rows: rows.selectExpr("upper(value) AS value"), "column 'value' is"),
    "union": (lambda rows: rows.union(rows), "its rows are a union"),
    "state": (lambda rows: rows.dropDuplicates(["value"]), "its rows are deduplicated"),
}


@pytest.mark.parametrize("name", UNCHAINED)
def test_rows_that_are_computed_say_why_they_do_not_chain(
    spark: SparkSession, topics: Topics, name: str
) -> None:
    change, why = UNCHAINED[name]
    frame = source(spark, topics, "nowhere", columns="value").load()
    sink = taping_sink(Path("/nowhere"))
    assert Chaining(frame, {"facts": (sink, frame)}).chained == ("facts",)
    for rows, of_sink in ((change(frame), change(frame)), (frame, change(frame))):
        found = Chaining(rows, {"facts": (sink, of_sink)})
        assert found.chained == ()
        assert found.unchained["facts"].startswith(why)


def test_a_source_that_only_spark_reads_does_not_chain(spark: SparkSession) -> None:
    frame = spark.readStream.format("rate").load()
    found = Chaining(frame, {"facts": (taping_sink(Path("/nowhere")), frame)})
    assert found.unchained == {"facts": "only Spark reads the source rate"}
    delta = DeltaSink(path="/nowhere")
    rows = source(spark, topics_of_nobody(), "nowhere", columns="value").load()
    found = Chaining(rows, {"lake": (delta, rows)})
    assert found.unchained == {"lake": "it is written from the driver"}


def topics_of_nobody() -> Any:
    return SimpleNamespace(servers="127.0.0.1:1")


def test_mysql_and_files_are_written_in_one_task(
    spark: SparkSession,
    topics: Topics,
    mysql: MySqlService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, count = topics.create(2), 2000
    for partition in (0, 1):
        values = [b'{"id":%d,"name":"n%d"}' % (i, i) for i in range(partition, count, 2)]
        topics.send(topic, values, partition)
    frame = source(
        spark, topics, topic, value__format="json", maxRecordsPerTrigger="600", min_read_tasks="3"
    )
    frame = frame.schema("id BIGINT, name STRING").load()
    database = f"chained{os.getpid()}"
    mysql.create_database(database)
    with mysql.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE facts (number BIGINT PRIMARY KEY, name VARCHAR(20))")
        cursor.execute("CREATE TABLE names (name VARCHAR(20))")
        connection.commit()
    monkeypatch.setenv("CHAINED_PASSWORD", mysql.password)
    options = {"url": mysql.url(database), "password_env": "CHAINED_PASSWORD"}
    records = list[int]()

    def note(event: Event) -> None:
        if isinstance(event, CheckpointDecided):
            context = spark.sparkContext
            group = context.getLocalProperty("spark.jobGroup.id")
            records.append(len(context.statusTracker().getJobIdsForGroup(group)))

    writer = (
        twophase.write_stream(frame, name="orders")
        .sink(
            "facts",
            MySqlSink(table="facts", **options),
            lambda rows: rows.select(rows.id.alias("number"), "name"),
        )
        .sink("names", MySqlSink(table="names", **options), lambda rows: rows.select("name"))
        .sink("files", FileSink(path=str(tmp_path / "files")))
        .option("checkpointLocation", str(tmp_path / "job"))
        .option("chaining", "auto")
        .observer(note)
    )
    job = writer.trigger(availableNow=True).start()
    job.await_termination()
    with mysql.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*), COUNT(DISTINCT name), SUM(number) FROM facts")
        assert cursor.fetchone() == (count, count, count * (count - 1) // 2)
        cursor.execute("SELECT COUNT(DISTINCT name), COUNT(*) FROM names")
        assert cursor.fetchone() == (count, count)
        cursor.execute("XA RECOVER")
        assert cursor.fetchall() == ()
    files = spark.read.parquet(str(tmp_path / "files"))
    assert sorted(row.id for row in files.collect()) == list(range(count))
    assert job.status.query.records == count
    query = job.query
    assert query is not None
    assert sum(progress["numInputRows"] for progress in query.recentProgress) == count
    assert [after - before for before, after in itertools.pairwise([0, *records])] == [1] * len(
        records
    )


def test_a_value_that_the_target_does_not_take_is_named_as_it_is_through_spark(
    spark: SparkSession,
    topics: Topics,
    mysql: MySqlService,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the column of the target, and with nothing left in the sinks beside it."""
    topic = topics.create()
    topics.send(topic, [b'{"id":%d,"name":"n%d"}' % (i, i) for i in (1, 2, 1000, 3)])
    reader = source(spark, topics, topic, value__format="json")
    frame = reader.schema("id BIGINT, name STRING").load()
    transforms: dict[str, Transform | None] = {
        "tape": None,
        "facts": lambda rows: rows.selectExpr("name AS label", "id AS number"),
    }
    monkeypatch.setenv("REFUSED_PASSWORD", mysql.password)
    errors = {}
    for chaining in ("auto", "off"):
        database = f"refused_{chaining}_{os.getpid()}"
        mysql.create_database(database)
        with mysql.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE facts (number BIGINT PRIMARY KEY, label VARCHAR(4))")
        options = {"url": mysql.url(database), "password_env": "REFUSED_PASSWORD"}
        new_sink = partial(_sink_of, MySqlSink(table="facts", **options))
        found = run(tmp_path / chaining, frame, chaining, transforms, new_sink)
        assert found.chained[0] == (("tape", "facts") if chaining == "auto" else ())
        errors[chaining] = found.error.replace(database, "DATABASE")
        assert FolderTarget(tmp_path / chaining / "tape").rows() == []
        with mysql.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute("XA RECOVER")
            assert cursor.fetchall() == ()
            cursor.execute("SELECT COUNT(*) FROM facts")
            assert cursor.fetchone() == (0,)
    assert "RejectedRowsError" in errors["auto"]
    assert "label" in errors["auto"]
    assert errors["auto"] == errors["off"]


def _sink_of(facts: MySqlSink, path: Path) -> Sink:
    return facts if path.name == "facts" else taping_sink(path)


TYPES = """
    flag BOOLEAN, tiny TINYINT, small SMALLINT, medium INT, large BIGINT, single FLOAT,
    twice DOUBLE, price DECIMAL(38, 18), cents DECIMAL(9, 2), text STRING, day DATE,
    at TIMESTAMP, local TIMESTAMP_NTZ, numbers ARRAY<INT>, times ARRAY<TIMESTAMP>,
    nested STRUCT<at: TIMESTAMP, prices: ARRAY<DECIMAL(20, 3)>, more: STRUCT<text: STRING>>,
    sizes MAP<STRING, DECIMAL(9, 2)>, `a"b%` ARRAY<MAP<STRING, STRUCT<`c\\d`: TIMESTAMP>>>,
    kafka_key BINARY, kafka_topic STRING, kafka_partition INT, kafka_offset BIGINT,
    kafka_timestamp TIMESTAMP
"""
HOSTILE: list[dict[str, Any]] = [
    {},
    {
        "flag": True,
        "tiny": -128,
        "small": 32767,
        "medium": -(2**31),
        "large": 2**63 - 1,
        "single": 3.4028234e38,
        "twice": -0.0,
        "price": "99999999999999999999.999999999999999999",
        "cents": -9999999.99,
        "text": "",
        "day": "0001-01-01",
        "at": "0001-01-01T00:00:00Z",
        "local": "9999-12-31T23:59:59.999999",
        "numbers": [],
        "times": [None, "1582-10-10T12:00:00.000001Z"],
        "nested": {"at": "2026-03-08T07:30:00Z", "prices": [None, 1.5], "more": {"text": None}},
        "sizes": {"é\n": 1.5, "": None},
        'a"b%': [None, {"k": {"c\\d": "2026-03-08T07:30:00Z"}, "n": None}],
    },
    {
        "flag": False,
        "single": 1e-45,
        "twice": 5e-324,
        "text": 'e\u0301 \U0001f600 \u2028 " \\\\ \n',
        "day": "9999-12-31",
        "at": "9999-12-31T23:59:59.999999Z",
        "local": "2026-03-08T02:30:00",
        "nested": {},
        "numbers": [None, 1],
        "times": [],
        "sizes": {},
        'a"b%': [],
    },
    {"text": 1.5, "nested": {"more": {"text": {"a": [1]}}}},
]


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_values_of_every_type_are_those_that_spark_would_give(
    spark: SparkSession, topics: Topics, tmp_path: Path, zone: str
) -> None:
    topic = topics.create()
    topics.send(topic, [json.dumps(one).encode() for one in HOSTILE], key=b"\xff\0")
    topics.send(topic, [json.dumps(HOSTILE[1]).encode()])
    frame = source(spark, topics, topic, value__format="json").schema(TYPES).load()
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        chained, unchained = both(tmp_path, frame, {"facts": None})
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    assert chained.error == unchained.error == ""
    [rows], [expected] = (one.tapes["facts"].values() for one in (chained, unchained))
    assert rows.num_rows == len(HOSTILE) + 1
    assert rows.schema.field("at").type.tz == zone
    assert rows.schema.equals(expected.schema, check_metadata=True)
    assert rows.equals(expected)


@pytest.mark.proof
def test_records_as_they_are_are_those_that_spark_would_give(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create()
    topics.send(topic, [b"v", None, b"", b"\0\xff"], key=b"k", headers=[("h", b"1"), ("h", None)])
    topics.send(topic, [b"x"])
    columns = "key,value,topic,partition,offset,timestamp,headers"
    for engine in ENGINES:
        frame = source(spark, topics, topic, columns=columns, fetch__engine=engine).load()
        transforms: dict[str, Transform | None] = {
            "facts": None,
            "some": lambda rows: rows.select("headers", rows.value.alias("key")),
        }
        chained, unchained = both(tmp_path / engine, frame, transforms)
        assert chained.error == unchained.error == ""
        for name in transforms:
            [rows], [expected] = (one.tapes[name].values() for one in (chained, unchained))
            assert rows.num_rows == 5
            assert rows.schema.equals(expected.schema, check_metadata=True)
            assert rows.equals(expected)


@pytest.mark.parametrize("records", [[b'{"id":1}'], [b'{"id":1}', b"{}"]], ids=len)
def test_a_column_without_null_is_one(
    spark: SparkSession, topics: Topics, tmp_path: Path, records: list[bytes]
) -> None:
    topic = topics.create()
    topics.send(topic, records)
    frame = source(spark, topics, topic, value__format="json").schema("id BIGINT NOT NULL").load()
    chained, unchained = both(tmp_path, frame, {"facts": None})
    assert chained.error == unchained.error
    assert chained.tapes == unchained.tapes
    for task, rows in chained.tapes["facts"].items():
        assert rows.schema.equals(unchained.tapes["facts"][task].schema)


def test_what_an_earlier_run_has_planned_is_checked_before_it_is_read(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    errors = {}
    for chaining in ("auto", "off"):
        topic, folder = topics.create(name=f"again-{chaining}"), tmp_path / chaining
        topics.send(topic, numbers(0, 10))
        frame = source(spark, topics, topic, columns="value").load()
        refused = run(folder, frame, chaining, {"facts": _refuse})
        assert "not now" in refused.error
        topics.recreate(topic)
        topics.send(topic, numbers(0, 10))
        errors[chaining] = run(folder, frame, chaining, {"facts": None}).error
        errors[chaining] = errors[chaining].replace(topic, "TOPIC")
    assert "TopicRecreatedError" in errors["auto"]
    assert errors["auto"] == errors["off"]


def _refuse(rows: DataFrame) -> DataFrame:
    if not rows.isStreaming:
        raise ValueError("not now")
    return rows


def test_a_declined_attempt_is_tried_again_and_a_sink_ahead_stays_out(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic, calls = topics.create(2), list[int]()
    for partition in (0, 1):
        topics.send(topic, [b'{"id":%d}' % i for i in range(10)], partition)
    frame = source(spark, topics, topic, value__format="json").schema("id BIGINT").load()

    def fail_once(rows: DataFrame) -> DataFrame:
        if not rows.isStreaming:
            calls.append(1)
            if len(calls) == 1:
                raise ValueError("not now")
        return rows.where("id >= 0")

    for mode in ("exactly_once", "at_least_once"):
        calls.clear()
        folder, names = tmp_path / mode, ("one", "two")
        writer = twophase.write_stream(frame, name="again")
        for name in names:
            writer.sink(name, taping_sink(folder / name))
        writer.sink("last", taping_sink(folder / "last"), fail_once)
        writer.options(**{"checkpoint.tolerable_failures": 2, "checkpoint.mode": mode})
        writer.option("checkpointLocation", str(folder / "job")).option("chaining", "auto")
        job = writer.trigger(availableNow=True).start()
        job.await_termination()
        assert job.status.declined == 1
        for name in (*names, "last"):
            rows = FolderTarget(folder / name).rows()
            assert sorted(row["id"] for row in rows) == sorted([*range(10)] * 2)
            assert FolderTarget(folder / name).prepared() == []
