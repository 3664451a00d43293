"""Chunks of a staging topic: what is written is read back, and nothing else is read."""

from __future__ import annotations

import pytest

from twophase.errors import NewerFormatError
from twophase.internals.record import DamagedRecordError
from twophase.sinks.kafka.chunks import CHUNK_BYTES, MOST_BYTES, Chunk, decoded
from twophase.sinks.kafka.rows import KafkaRecord

RECORDS = [
    KafkaRecord(b"\x00v", b"k", [("h", b"\xff"), ("h", None), ("ä\n", b"")], 2, 1_700_000_000_123),
    KafkaRecord(None),
    KafkaRecord(b"", b"", (), 0, 0),
]


def chunk(number: int = 3) -> Chunk:
    made = Chunk(number, [])
    for record in RECORDS:
        made.add(record)
    return made


def test_records_are_read_back_as_they_were() -> None:
    found = decoded(chunk().encoded(), "here")
    assert found.number == 3
    assert [(one.value, one.key, [*one.headers]) for one in found.records] == [
        (one.value, one.key, [*one.headers]) for one in RECORDS
    ]
    assert [(one.partition, one.timestamp_ms) for one in found.records] == [
        (2, 1_700_000_000_123),
        (None, None),
        (0, 0),
    ]


def test_a_record_keeps_the_topic_that_it_names() -> None:
    made = Chunk(0, [])
    for topic in ("eu", None):
        made.add(KafkaRecord(b"v", topic=topic))
    assert [one.topic for one in decoded(made.encoded(), "here").records] == ["eu", None]
    assert [one.topic for one in decoded(chunk().encoded(), "here").records] == [None] * 3


@pytest.mark.parametrize("cut", [0, 1, 100])
def test_what_is_cut_off_is_damaged(cut: int) -> None:
    data = chunk().encoded()
    with pytest.raises(DamagedRecordError):
        decoded(data[: len(data) - cut - 1], "here")


def test_a_changed_bit_is_damage() -> None:
    data = bytearray(chunk().encoded())
    data[-20] ^= 1
    with pytest.raises(DamagedRecordError):
        decoded(bytes(data), "here")


def test_a_newer_format_is_named() -> None:
    data = chunk().encoded().replace(b"rows/1 ", b"rows/3 ", 1)
    with pytest.raises(NewerFormatError, match="The durable file here"):
        decoded(data, "here")


def test_an_older_version_knows_rows_with_topics_by_their_version() -> None:
    made = Chunk(0, [])
    made.add(KafkaRecord(b"v", topic="eu"))
    assert made.encoded().startswith(b"twophase-kafka-rows/2 ")
    assert chunk().encoded().startswith(b"twophase-kafka-rows/1 ")


@pytest.mark.parametrize(
    "small",
    [
        KafkaRecord(b"x" * 1_000),
        KafkaRecord(b"x" * 8),
        KafkaRecord(b"x" * 8, topic="t" * 249),
        KafkaRecord(None, headers=(("h" * 20, b"1"),)),
    ],
    ids=["large", "small", "long topic", "headers"],
)
def test_a_chunk_of_many_rows_has_the_size_that_it_may_have(small: KafkaRecord) -> None:
    made = Chunk(0, [])
    while made.has_room(small):
        made.add(small)
    assert CHUNK_BYTES * 0.4 < len(made.encoded()) < CHUNK_BYTES * 1.1


def test_a_chunk_with_the_largest_rows_is_one_that_a_staging_topic_takes() -> None:
    made, small = Chunk(0, []), KafkaRecord(b"x" * 1_000)
    made.add(small)
    large = KafkaRecord(b"x" * 500_000, b"k" * 499_000)
    assert not made.has_room(large)
    alone = Chunk(1, [])
    assert alone.has_room(large)
    alone.add(large)
    assert len(alone.encoded()) < MOST_BYTES
