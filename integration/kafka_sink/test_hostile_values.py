"""Hostile keys, values, headers, topics, partitions and timestamps: a consumer without the product
reads them back as they were, or they are refused by name before anything is visible.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from kafka import KafkaConsumer, TopicPartition

from harness.hostile_values import VALUES
from integration.kafka.topics import Topics
from integration.kafka_sink.sink_harness import PARTITIONS, KafkaHarness
from integration.kafka_sink.test_topics import committed, written
from twophase.contract.outcome import Committed
from twophase.contract.sink import SinkContext
from twophase.errors import ConfigError, RejectedRowsError
from twophase.ids import Subtask
from twophase.sinks.kafka.open_sink import OpenKafkaSink
from twophase.testing.harness import FIRST, JOB, SINK, fresh_name, transaction_id

pytestmark = [pytest.mark.part("kafka"), pytest.mark.server]

Row = dict[str, Any]
PATIENCE_MS = 30_000
MOMENT_MS = 1_700_000_000_123
SMALLEST = {"max.message.bytes": "1000"}

TEXTS = [*VALUES, "x" * 100_000]
NAMES = [text for text in TEXTS if text is not None and "\0" not in text]
BYTES = [b"\0", b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", bytes(range(256)), b"\0" * 10_000]
"""No text in UTF-8, half a surrogate among it."""


def raw(texts: pa.DataType) -> pa.Schema:
    """The columns of records, with keys, values and values of headers of a type."""
    return pa.schema(
        [
            ("key", texts),
            ("value", texts),
            ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", texts)]))),
            ("partition", pa.int32()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("topic", pa.string()),
        ]
    )


def row(**parts: Any) -> Row:
    """A row that is written, but for some parts."""
    good = {"key": "k", "value": "v", "headers": None, "partition": 0, "topic": None}
    return good | {"timestamp": MOMENT_MS * 1_000} | parts


def header(name: str | None, value: Any) -> Row:
    return {"key": name, "value": value}


@pytest.fixture(params=["transaction", "staged"])
def harness(topics: Topics, request: pytest.FixtureRequest) -> KafkaHarness:
    other = topics.create(1, fresh_name("other"))
    return KafkaHarness(topics, protocol=request.param, format="raw", other_topics=[other])


def opened(harness: KafkaHarness, schema: pa.Schema, **options: Any) -> OpenKafkaSink:
    sink = harness.new_sink(**options).open(SinkContext(JOB, SINK, schema, parallelism=1))
    sink.fence(FIRST)
    return sink


def read(harness: KafkaHarness, topic: str) -> list[Any]:
    """The committed records of a topic, by kafka-python: librdkafka's consumers cut a header's name
    at a NUL too.
    """
    numbers = harness.topics.admin.describe_topics([topic])[0]["partitions"]
    consumer = KafkaConsumer(
        bootstrap_servers=harness.topics.servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=1 << 24,
        check_crcs=False,  # in Python, a second for each megabyte
        request_timeout_ms=PATIENCE_MS,
    )
    with closing(consumer):
        every = [TopicPartition(topic, one["partition_index"]) for one in numbers]
        consumer.assign(every)
        ends = consumer.end_offsets(every)
        found: list[Any] = []
        while any(consumer.position(one) < ends[one] for one in every):
            for records in consumer.poll(timeout_ms=100).values():
                found += records
        return found


def bytes_of(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def parts(record: Any) -> tuple[Any, ...]:
    """What a row says of a record, without its topic and partition."""
    return record.key, record.value, [*record.headers], record.timestamp


def wanted(one: Mapping[str, Any]) -> tuple[Any, ...]:
    headers = [(each["key"], bytes_of(each["value"])) for each in one["headers"] or ()]
    return bytes_of(one["key"]), bytes_of(one["value"]), headers, one["timestamp"] // 1_000


def check(found: Sequence[Any], expected: Sequence[Any]) -> None:
    """Compare one by one: a difference of megabytes is not shown."""
    assert len(found) == len(expected)
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one == other, number


@pytest.mark.parametrize("kind", ["text", "bytes"])
def test_every_part_is_read_back_as_it_was(harness: KafkaHarness, kind: str) -> None:
    values: list[Any] = list(TEXTS) if kind == "text" else [None, b"", *BYTES]
    rows = [
        *(row(key=value) for value in values),
        *(row(value=value) for value in values),
        *(row(headers=[header("h", value)]) for value in values),
        *(row(headers=[header(name, values[-1])]) for name in NAMES),
        row(headers=[]),
        row(headers=[header("", values[1]), header("", None), header("h", None)]),
        row(headers=[header("h", value) for value in values[:50]]),
        row(key=None, value=None),
        row(timestamp=1_000),
        row(timestamp=1_001_999),
    ]
    schema = raw(pa.string() if kind == "text" else pa.binary())
    if kind == "bytes":
        rows = [
            one | {"key": bytes_of(one["key"]), "value": bytes_of(one["value"])} for one in rows
        ]
    with closing(opened(harness, schema)) as sink:
        piece = written(sink, rows, schema)
        assert read(harness, harness.topic) == []
        assert committed(sink, piece) == Committed()
    check([*map(parts, read(harness, harness.topic))], [*map(wanted, rows)])


FAR_MS = 4_000_000_000_000
NO_UTF8 = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xc3\x28")]
)
REFUSED: dict[str, tuple[Row, dict[str, str], str]] = {
    "a partition below 0": (row(partition=-1), {}, "partition is -1 in row 1 of a batch"),
    "a partition that is not there": (row(partition=PARTITIONS), {}, "[Pp]artition"),
    "the highest partition": (row(partition=2**31 - 1), {}, "[Pp]artition"),
    "a time before 1970": (row(timestamp=-1), {}, "1969-12-31 23:59:59.999999Z"),
    "the first time of 1970": (row(timestamp=0), {}, "timestamp is '1970-01-01 00:00:00Z'"),
    "a time that the topic does not take": (row(timestamp=FAR_MS * 1_000), {}, "timestamp"),
    "a year of five digits": (row(timestamp=2**62), {}, "timestamp"),
    "a header without a name": (row(headers=[header(None, "v")]), {}, "header .* has no key"),
    "no header": (row(headers=[None]), {}, "header .* has no key"),
    "a NUL in a header's name": (row(headers=[header("a\0b", "v")]), {}, r"'a\\x00b'"),
    "an empty topic": (row(topic=""), {}, "names the topic ''"),
    "a topic that no broker takes": (row(topic="a/b c"), {}, "names the topic 'a/b c'"),
    "a topic with a NUL": (row(topic="other\0"), {}, r"names the topic 'other\\x00'"),
    "a topic of 250 characters": (row(topic="t" * 250), {}, "names the topic 't+"),
    "a folder above as a topic": (row(topic=".."), {}, r"names the topic '\.\.'"),
    "a record over max.message.bytes": (row(value="x" * 2_000), SMALLEST, "too large"),
    "a key over max.message.bytes": (row(key="x" * 2_000), SMALLEST, "too large"),
    "a header over max.message.bytes": (
        row(headers=[header("x", "x" * 2_000)]),
        SMALLEST,
        "too large",
    ),
    "a record over the broker's limit": (row(value="x" * 1_100_000), {}, "too large"),
    "a record over the client's limit": (
        row(value="x" * (17 << 20)),
        {"max.message.bytes": str(20 << 20)},
        "too large",
    ),
    "no key for a compacted topic": (
        row(key=None),
        {"cleanup.policy": "compact"},
        "no key|validate",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_be_another_record_or_none_is_refused_by_name(
    harness: KafkaHarness, case: str
) -> None:
    """Nothing of the task is visible or in doubt, and the next one writes."""
    bad, settings, says = REFUSED[case]
    harness.topics.alter(harness.topic, settings)
    schema = raw(pa.string())
    with closing(opened(harness, schema)) as sink:
        with pytest.raises(RejectedRowsError, match=says) as caught:
            written(sink, [bad], schema)
        assert "correct or filter these rows" in caught.value.remedy
        assert sink.in_doubt() == []
        assert committed(sink, written(sink, [row()], schema, 1)) == Committed()
    assert [*map(parts, read(harness, harness.topic))] == [wanted(row())]


@pytest.mark.parametrize("column", ["key", "value", "header", "topic"])
def test_text_that_is_no_utf8_is_refused_by_its_column(harness: KafkaHarness, column: str) -> None:
    schema = raw(pa.string())
    good = pa.RecordBatch.from_pylist([row()], schema=schema)
    name, bad = column, NO_UTF8
    if column == "header":
        name, kind = "headers", schema.field("headers").type.value_type
        pairs = pa.StructArray.from_arrays([NO_UTF8, pa.array(["v"])], fields=[*kind])
        bad = pa.ListArray.from_arrays([0, 1], pairs)
    at = schema.get_field_index(name)
    with closing(opened(harness, schema)) as sink:
        writer = sink.writers()(transaction_id(), Subtask(0, 0))
        with pytest.raises(RejectedRowsError, match=f"^{name} .*is not text in UTF-8"):
            writer.write(good.set_column(at, schema.field(name), bad))
        writer.abort()
        assert sink.in_doubt() == []
    assert read(harness, harness.topic) == []


@pytest.mark.parametrize("name", ["", "a b", "a/b", "..", "ä", "a\0", "t" * 250, "a\n"])
@pytest.mark.parametrize("option", ["topic", "other_topics", "ledger"])
def test_a_name_that_no_topic_has_is_refused_by_its_option(
    harness: KafkaHarness, option: str, name: str
) -> None:
    value: Any = [name] if option == "other_topics" else name
    with pytest.raises(ConfigError, match=option):
        harness.new_sink(**{option: value})


# -- JSON ------------------------------------------------------------------------------------------

AS_JSON: dict[str, Any] = {"format": "json", "other_topics": []}
ENTRIES = pa.map_(pa.string(), pa.decimal128(38, 18))
WRITTEN: list[tuple[pa.DataType, Any, Any]] = [
    (pa.int64(), -(2**63), -(2**63)),
    (pa.float64(), -0.0, Decimal("-0.0")),
    (pa.float64(), 5e-324, Decimal("5e-324")),
    (pa.float32(), 0.5, Decimal("0.5")),
    (pa.decimal128(38, 38), Decimal("1e-38"), Decimal("1e-38")),
    (pa.decimal128(38, 0), Decimal(10**38 - 1), 10**38 - 1),
    (pa.bool_(), None, None),
    (pa.binary(), bytes(range(256)), base64.b64encode(bytes(range(256))).decode()),
    (pa.date32(), date(1, 1, 1), "0001-01-01"),
    (pa.date32(), date(9999, 12, 31), "9999-12-31"),
    (
        pa.timestamp("us", "UTC"),
        datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        "0001-01-01T00:00:00.000001Z",
    ),
    (pa.timestamp("us"), datetime(9999, 12, 31, 23, 59), "9999-12-31T23:59:00"),
    (pa.list_(pa.list_(pa.string())), [[], None, ["", None, "\0"]], [[], None, ["", None, "\0"]]),
    (
        pa.struct([("", ENTRIES)]),
        {"": [("\0", Decimal("0.5")), ("", None)]},
        {"": {"\0": Decimal("0.5"), "": None}},
    ),
]
"""A type, a value, and what its JSON has."""


def test_json_has_hostile_texts_names_and_values(harness: KafkaHarness) -> None:
    """As a reader of JSON gets them that keeps all digits."""
    names = [f"{number}{name}" for number, name in enumerate([*NAMES[:200], "\0", '"', "\\"])]
    fields = [*((str(number), kind) for number, (kind, _, _) in enumerate(WRITTEN))]
    schema = pa.schema([("text", pa.string()), *fields, *((name, pa.bool_()) for name in names)])
    values = {str(number): value for number, (_, value, _) in enumerate(WRITTEN)}
    rows = [{"text": text, **values, **dict.fromkeys(names, True)} for text in TEXTS]
    options = AS_JSON | {"key": "text"}
    with closing(opened(harness, schema, **options)) as sink:
        assert committed(sink, written(sink, rows, schema)) == Committed()
    found = {one.key: one.value for one in read(harness, harness.topic)}
    expected = {str(number): value for number, (_, _, value) in enumerate(WRITTEN)}
    for text in TEXTS:
        document = json.loads(found[bytes_of(text)], parse_float=Decimal)
        assert document == {"text": text, **expected, **dict.fromkeys(names, True)}


JSON_REFUSED: dict[str, tuple[pa.DataType, Any]] = {
    "NaN": (pa.float64(), math.nan),
    "infinity in a map": (pa.map_(pa.string(), pa.float32()), [("a", -math.inf)]),
    "a date of five digits": (pa.date32(), 2_932_897),
    "a time before the year 1": (pa.timestamp("us"), -62_135_596_800_000_001),
    "a map with a key twice": (pa.map_(pa.string(), pa.int64()), [("a", 1), ("a", 2)]),
}


@pytest.mark.parametrize("case", JSON_REFUSED)
def test_a_value_without_json_is_refused_before_anything_is_visible(
    harness: KafkaHarness, case: str
) -> None:
    kind, bad = JSON_REFUSED[case]
    schema = pa.schema([("x", kind)])
    with closing(opened(harness, schema, **AS_JSON)) as sink:
        with pytest.raises(RejectedRowsError, match=r"^x\b"):
            written(sink, [{"x": None}, {"x": bad}], schema)
        assert sink.in_doubt() == []
        assert committed(sink, written(sink, [{"x": None}], schema, 1)) == Committed()
    assert [one.value for one in read(harness, harness.topic)] == [b'{"x":null}']
