"""What others do to a topic, its transactions and the ledger while a job writes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from integration.kafka.topics import LATEST, Topics
from integration.kafka_sink.sink_harness import PARTITIONS, KafkaHarness
from integration.kafka_sink.test_topics import committed, written
from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, Committed, Lost
from twophase.contract.sink import Predecessor, SinkContext, SinkHistory
from twophase.errors import DeclinedError, FencedError, StopJobError, TargetUnreachableError
from twophase.ids import Attempt, Subtask
from twophase.sinks.kafka.brokers import Brokers
from twophase.sinks.kafka.ledger import FENCES, PROOFS
from twophase.sinks.kafka.names import Owner
from twophase.sinks.kafka.open_sink import OpenKafkaSink
from twophase.sinks.kafka.records import Mark, encoded
from twophase.sinks.kafka.writer import KafkaWriter
from twophase.testing.harness import JOB, LINEAGE, SINK, fresh_name, transaction_id

pytestmark = [pytest.mark.part("kafka"), pytest.mark.server]

NEWER = Attempt(1, 3)
FORGETFUL = {"cleanup.policy": "compact", "delete.retention.ms": "0"}
FILLER = [b"x" * 400_000] * 4
"""Of more than a segment."""


@pytest.fixture(params=["transaction", "staged"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def harness(topics: Topics, protocol: str) -> KafkaHarness:
    return KafkaHarness(topics, protocol=protocol)


@pytest.fixture
def sink(harness: KafkaHarness) -> Iterator[OpenKafkaSink]:
    with closing(harness.opened()) as opened:
        yield opened


def piece(harness: KafkaHarness, sink: OpenKafkaSink, *ids: int, checkpoint: int) -> Committable:
    """Rows of one task of a checkpoint, pre-committed."""
    return written(sink, harness.rows(ids), harness.schema, checkpoint)


def after(checkpoint: int) -> Predecessor:
    return Predecessor(LINEAGE, checkpoint)


def ids_of(harness: KafkaHarness) -> list[int]:
    """As a reader of committed records gets them; what others wrote is left out."""
    found = [message.value() or b"" for message in harness.topics.records(harness.topic)]
    return sorted(json.loads(value)["id"] for value in found if value != b"theirs")


def test_partitions_that_are_added_change_nothing(
    harness: KafkaHarness, sink: OpenKafkaSink
) -> None:
    waiting = piece(harness, sink, 0, checkpoint=0)
    harness.topics.grow(harness.topic, PARTITIONS + 2)
    assert committed(sink, waiting) == Committed()
    later = piece(harness, sink, *range(1, 40), checkpoint=1)
    assert committed(sink, later, after(0)) == Committed()
    assert ids_of(harness) == [*range(40)]


def test_an_open_transaction_of_others_in_the_topic_delays_readers_and_no_commit(
    harness: KafkaHarness, sink: OpenKafkaSink
) -> None:
    others = [
        harness.topics.transaction(harness.topic, [b"theirs"], "leave", partition)
        for partition in range(PARTITIONS)
    ]
    assert committed(sink, piece(harness, sink, 0, 1, checkpoint=0)) == Committed()
    assert ids_of(harness) == []
    for other in others:
        other.commit_transaction(30)
    assert committed(sink, piece(harness, sink, 2, checkpoint=1), after(0)) == Committed()
    assert ids_of(harness) == [0, 1, 2]


def test_records_that_somebody_deletes_are_not_noticed(
    harness: KafkaHarness, sink: OpenKafkaSink
) -> None:
    """See docs/loss.md."""
    assert committed(sink, piece(harness, sink, 0, checkpoint=0)) == Committed()
    for partition in range(PARTITIONS):
        harness.topics.cut(harness.topic, LATEST, partition)
    assert ids_of(harness) == []
    assert sink.history().committed == {LINEAGE: 0}
    assert committed(sink, piece(harness, sink, 1, checkpoint=1), after(0)) == Committed()
    assert ids_of(harness) == [1]


@pytest.mark.parametrize("protocol", ["transaction"], indirect=True)
@pytest.mark.parametrize("is_prepared", [False, True], ids=["being written", "prepared"])
def test_a_transaction_that_somebody_else_takes_over(
    harness: KafkaHarness, sink: OpenKafkaSink, is_prepared: bool
) -> None:
    """By InitProducerId, as a producer with its id does. While it is written, its attempt is
    declined; once it is prepared, nobody notices before the commit.
    """
    writer = sink.writers()(transaction_id(), Subtask(0, 0))
    assert isinstance(writer, KafkaWriter)
    writer.write(pa.RecordBatch.from_pylist(harness.rows([0]), schema=harness.schema))
    writer.flush()
    made = writer.pre_commit() if is_prepared else None
    name = Owner(JOB, SINK, harness.topic).piece(transaction_id(), Subtask(0, 0))
    harness.topics.producer(**{"transactional.id": name}).init_transactions(30)
    if made is None:
        with pytest.raises(DeclinedError):
            writer.pre_commit()
        writer.abort()
    else:
        assert isinstance(committed(sink, made), Lost)
    assert sink.in_doubt() == []
    assert ids_of(harness) == []


FOREIGN: dict[str, tuple[int, str, bytes]] = {
    "a proof that is none": (PROOFS, "twophase/{topic}/theirs", b"theirs"),
    "a fence that is none": (FENCES, "fence/{topic}/{job}/{sink}/1.9", b"theirs"),
    "a mark as a fence": (
        FENCES,
        "fence/{topic}/{job}/{sink}/1.9",
        encoded(Mark("topic", JOB, SINK, LINEAGE, 0, "target")),
    ),
}


@pytest.mark.parametrize("when", ["before", "behind"])
@pytest.mark.parametrize("what", FOREIGN)
def test_a_record_of_somebody_else_in_the_ledger_stops_the_job_until_it_is_deleted(
    harness: KafkaHarness, sink: OpenKafkaSink, what: str, when: str
) -> None:
    """As the message says it, while a transaction of the job is open: the record comes before it,
    or behind it.
    """
    partition, form, value = FOREIGN[what]
    key = form.format(topic=harness.topic, job=JOB, sink=SINK).encode()
    if when == "before":
        harness.topics.send(harness.ledger, [value], partition, key=key)
        with pytest.raises(StopJobError):
            sink.history()
        harness.topics.send(harness.ledger, [None], partition, key=key)
    waiting = piece(harness, sink, 0, checkpoint=0)
    harness.topics.send(harness.ledger, [value], partition, key=key)
    with pytest.raises(StopJobError, match=f"{harness.ledger}-{partition}, offset") as caught:
        sink.history()
    assert "write a record with the same key and without a value" in caught.value.remedy
    harness.topics.send(harness.ledger, [None], partition, key=key)
    with closing(harness.opened(NEWER)) as again:
        assert committed(again, waiting) == Committed()
        assert again.history().committed == {LINEAGE: 0}
    assert ids_of(harness) == [0]


def test_a_fence_that_somebody_deletes_is_missed_and_without_them_the_next_start_goes_on(
    harness: KafkaHarness, sink: OpenKafkaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger: Any = sink._ledger
    write = ledger.raise_fence

    def deleted(owner: Owner, attempt: Attempt) -> None:
        write(owner, attempt)
        harness.topics.send(harness.ledger, [None], FENCES, key=owner.fence(attempt).encode())

    monkeypatch.setattr(ledger, "raise_fence", deleted)
    with pytest.raises(TargetUnreachableError, match="and is not there") as caught:
        sink.fence(NEWER)
    assert "find out who deletes records of the ledger; then start" in caught.value.remedy
    with closing(harness.opened(NEWER)) as again:
        writer = again.writers()(transaction_id(0, NEWER), Subtask(0, 0))
        writer.write(pa.RecordBatch.from_pylist(harness.rows([0]), schema=harness.schema))
        made = writer.pre_commit()
        assert made is not None
        assert committed(again, made) == Committed()
    assert ids_of(harness) == [0]


def test_a_ledger_that_is_not_there_once_it_was_created_may_be_created_by_hand(
    harness: KafkaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if somebody had deleted it in between."""
    monkeypatch.setattr(Brokers, "create", lambda *_: None)
    context = SinkContext(JOB, SINK, None, parallelism=0)
    with closing(harness.new_sink().open(context)) as sink:
        with pytest.raises(TargetUnreachableError, match="could not be created") as caught:
            sink.fence(NEWER)
        assert caught.value.remedy == "create it as a compacted topic of two partitions."
        harness.topics.create(2, harness.ledger, {"cleanup.policy": "compact"})
        sink.fence(NEWER)
        assert sink.history().generation == NEWER.generation


@pytest.mark.proof
def test_a_ledger_that_was_compacted_proves_the_same(topics: Topics, protocol: str) -> None:
    """To the sink that was open meanwhile, and to a new one."""
    ledger = topics.create(2, fresh_name("ledger"), FORGETFUL)
    harness = KafkaHarness(topics, ledger, protocol=protocol)
    with closing(harness.opened()) as sink:
        done = []
        for number in range(3):
            done.append(piece(harness, sink, number, checkpoint=number))
            before = after(number - 1) if number else None
            assert committed(sink, done[-1], before) == Committed()
            if number:
                sink.subsume(LINEAGE, number - 1)
        # an open transaction would hold up the compaction of its partition
        waiting = [piece(harness, sink, 3, checkpoint=3)] if protocol == "staged" else []
        sink.fence(NEWER)
        was = known(sink)
        assert was == (SinkHistory(1, {LINEAGE: 2}), ["1.1/0.2"], waiting)
        for partition, end in topics.offsets(ledger, LATEST).items():
            topics.compact(ledger, end, FILLER, partition)
        assert known(sink) == was
        context = SinkContext(JOB, SINK, harness.schema, parallelism=2)
        with closing(harness.new_sink().open(context)) as other:
            assert known(other) == was
            assert all(isinstance(committed(other, one), AlreadyCommitted) for one in done)
            for one in waiting:
                assert committed(other, one, after(2)) == Committed()
        with pytest.raises(FencedError):
            piece(harness, sink, 4, checkpoint=4)
    assert ids_of(harness) == [*range(3 + len(waiting))]


def known(sink: OpenKafkaSink) -> tuple[SinkHistory, list[str], list[Committable]]:
    """What a sink knows by its ledger."""
    return sink.history(), [*sink.committed_pieces(LINEAGE, 2)], [*sink.in_doubt()]
