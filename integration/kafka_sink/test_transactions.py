"""What may become of a transaction that waits: timeouts, zombies, rivals, others' transactions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from integration.kafka.topics import Topics
from integration.kafka_sink.sink_harness import KafkaHarness
from integration.kafka_sink.test_topics import written
from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, Committed, Lost
from twophase.contract.sink import CommitRequest, Predecessor
from twophase.errors import (
    FencedError,
    PreflightError,
    RejectedRowsError,
    StopJobError,
    TargetUnreachableError,
    TwoPhaseError,
)
from twophase.ids import Attempt, Subtask
from twophase.sinks.kafka.brokers import Brokers
from twophase.sinks.kafka.ledger import Ledger, Proofs
from twophase.sinks.kafka.names import Owner
from twophase.sinks.kafka.open_sink import OpenKafkaSink, OpenTransactionSink
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.sinks.kafka.requests import EMPTY, PREPARE_COMMIT
from twophase.sinks.kafka.writer import KafkaWriter
from twophase.testing.contract.base import ContractBase
from twophase.testing.harness import JOB, LINEAGE, SINK, Row, fresh_name, transaction_id

NEXT_DRIVER = Attempt(2, 1)


@pytest.fixture
def brokers(harness: KafkaHarness) -> Any:
    found = Brokers(
        KafkaSinkOptions.parse(
            {"kafka.bootstrap.servers": harness.topics.servers, "topic": harness.topic}, "test"
        )
    )
    yield found
    found.close()


class Base(ContractBase):
    """Calls as the coordinator makes them."""

    @pytest.fixture
    def harness(self, topics: Topics) -> KafkaHarness:
        return KafkaHarness(topics)

    def piece(self, sink: OpenKafkaSink, number: int = 0) -> Committable:
        """A piece of one checkpoint, pre-committed."""
        [made] = self.prepare(sink, [number], transaction_id(number), Subtask(0, number))
        return made

    def name(self, harness: KafkaHarness, piece: Committable) -> str:
        """Its transactional id."""
        owner = Owner(JOB, SINK, harness.topic)
        return owner.piece(piece.transaction, piece.subtask)


def outcome(sink: OpenKafkaSink, pieces: Sequence[Committable], before: Any = None) -> Any:
    """Of the first of some pieces."""
    return sink.commit([CommitRequest(one, 0, before) for one in pieces])[0]


class TestTransactions(Base):
    def test_what_kafka_has_aborted_is_lost_and_says_why(
        self, harness: KafkaHarness, brokers: Brokers
    ) -> None:
        """As after `transaction_timeout`: the coordinator aborts, and raises the epoch."""
        sink = harness.opened()
        piece = self.piece(sink)
        name = self.name(harness, piece)
        brokers.end(name, brokers.describe([name])[name], commit=False)
        while brokers.describe([name])[name].state == "PrepareAbort":
            brokers.wait()
        found = outcome(sink, [piece])
        assert isinstance(found, Lost)
        assert "CompleteAbort" in found.evidence
        assert "900 s (transaction_timeout)" in found.evidence
        assert self.ids_visible() == []
        sink.close()

    def test_a_zombie_that_is_aborted_cannot_begin_again(
        self, harness: KafkaHarness, brokers: Brokers
    ) -> None:
        sink = harness.opened()
        writer = sink.writers()(transaction_id(), Subtask(0, 0))
        assert isinstance(writer, KafkaWriter)
        writer.write(self.batch(range(3)))
        writer.flush()
        found = sink.in_doubt()
        assert isinstance(sink, OpenTransactionSink)
        assert [*sink.unfinished(found)] == [*found]
        sink.abort(found)
        assert [one.state for one in brokers.describe([self.name(harness, found[0])]).values()] == [
            EMPTY
        ]
        with pytest.raises(TwoPhaseError):
            writer.pre_commit()
        writer.abort()
        assert sink.in_doubt() == []
        assert self.ids_visible() == []
        sink.close()

    def test_a_commit_is_refused_after_an_abort_and_an_abort_after_a_commit(
        self, harness: KafkaHarness
    ) -> None:
        mine, copy = harness.opened(), harness.opened()
        first, second = self.piece(mine, 0), self.piece(mine, 1)
        assert outcome(copy, [first]) == Committed()
        with pytest.raises(StopJobError, match="decided in another folder") as caught:
            mine.abort([first])
        assert caught.value.remedy.startswith("start the job with the folder")
        copy.abort([second])
        assert isinstance(outcome(mine, [second]), Lost)
        assert self.ids_visible() == [0]
        mine.close()
        copy.close()
        with closing(harness.opened(NEXT_DRIVER)) as decider:  # over the folder of `copy`
            assert isinstance(outcome(decider, [first]), AlreadyCommitted)
            again = self.prepare(decider, [1], transaction_id(1, NEXT_DRIVER), Subtask(0, 1))
            assert outcome(decider, again, Predecessor(LINEAGE, 0)) == Committed()
        assert self.ids_visible() == [0, 1]

    def test_an_abort_that_is_not_done_in_time_is_done_by_the_next_start(
        self, harness: KafkaHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The coordinator has until now to tell all partitions."""
        sink = harness.opened()
        piece = self.piece(sink)
        monkeypatch.setattr(Brokers, "deadline_s", lambda _: 0.0)
        with pytest.raises(TargetUnreachableError, match="could not be aborted in time") as caught:
            sink.abort([piece])
        assert caught.value.remedy == "check that the brokers run; then start the job again."
        monkeypatch.undo()
        sink.close()
        with closing(harness.opened(NEXT_DRIVER)) as again:
            again.abort(again.in_doubt())
            assert again.in_doubt() == []
            assert isinstance(outcome(again, [piece]), Lost)
        assert self.ids_visible() == []

    def test_a_commit_that_died_in_the_middle_is_found_committed(
        self, harness: KafkaHarness, brokers: Brokers
    ) -> None:
        """The coordinator has its answer, the driver has not."""
        sink = harness.opened()
        piece = self.piece(sink)
        name = self.name(harness, piece)
        assert brokers.end(name, brokers.describe([name])[name], commit=True) is None
        found = self.commit(sink, [piece])[0]
        assert isinstance(found, AlreadyCommitted | Committed)
        assert self.ids_visible() == [0]
        sink.close()

    def test_a_commit_that_has_reached_the_ledger_while_it_was_asked_about_is_one(
        self, harness: KafkaHarness, brokers: Brokers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The ledger was read before its marker was written, and the brokers leave a partition out
        that has its marker, while others wait for theirs.
        """
        sink = harness.opened()
        piece = self.piece(sink)
        name = self.name(harness, piece)
        assert outcome(sink, [piece]) == Committed()
        read, found = Ledger.proofs_of, brokers.describe([name])[name]
        before, moving = (
            iter([Proofs()]),
            replace(found, state=PREPARE_COMMIT, partitions=frozenset()),
        )
        monkeypatch.setattr(
            Ledger, "proofs_of", lambda ledger, owner: next(before, None) or read(ledger, owner)
        )
        monkeypatch.setattr(Brokers, "describe", lambda _, __: {name: moving})
        assert outcome(sink, [piece]) == AlreadyCommitted("record of the ledger")
        sink.close()

    def test_proofs_behind_another_open_transaction_are_proofs(
        self, harness: KafkaHarness, brokers: Brokers
    ) -> None:
        """Readers of committed records see none of the ledger, neither pieces nor marks."""
        sink = harness.opened()
        other: Any = harness.topics.producer(**{"transactional.id": fresh_name("theirs")})
        other.init_transactions(30)
        other.begin_transaction()
        other.produce(harness.ledger, b"untouched", b"theirs", 0)  # without a key it is refused
        other.flush(30)
        assert brokers.ends(harness.ledger, 0) == (0, 1)
        first, second = self.piece(sink, 0), self.piece(sink, 1)
        assert outcome(sink, [first]) == Committed()
        again = harness.opened()
        assert again.history().committed == {LINEAGE: 0}
        assert again.committed_pieces(LINEAGE, 0) == ["1.1/0.0"]
        again.subsume(LINEAGE, 0)
        assert again.history().committed == {LINEAGE: 0}
        assert outcome(again, [second], Predecessor(LINEAGE, 0)) == Committed()
        assert again.history().committed == {LINEAGE: 1}
        other.abort_transaction(30)
        assert self.ids_visible() == [0, 1]
        assert harness.opened().history().committed == {LINEAGE: 1}
        for one in (sink, again):
            one.close()

    def test_of_two_drivers_that_fence_at_once_the_lower_one_stops(
        self, harness: KafkaHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The higher one's record comes between the lower one's look and its record."""
        lower, higher = harness.opened(), harness.opened()
        ledger: Any = lower._ledger
        write = ledger.raise_fence

        def late(owner: Owner, attempt: Attempt) -> None:
            higher.fence(Attempt(3, 1))
            write(owner, attempt)

        monkeypatch.setattr(ledger, "raise_fence", late)
        with pytest.raises(FencedError):
            lower.fence(Attempt(2, 1))
        assert higher.history().generation == 3
        with pytest.raises(FencedError):
            self.prepare(lower, [0], transaction_id(0, Attempt(2, 1)))
        for one in (lower, higher):
            one.close()

    def test_a_reader_of_the_high_watermark_sees_what_is_open(
        self, harness: KafkaHarness, brokers: Brokers
    ) -> None:
        other = harness.topics.transaction(harness.topic, [b"theirs"], "leave")
        assert brokers.ends(harness.topic, 0) == (0, 1)
        other.abort_transaction(30)


class TestOptions(Base):
    @pytest.mark.parametrize(
        ("protocol", "more"),
        [
            ("transaction", "A job that is down for longer than that loses what it has decided"),
            ("staged", "The copy of a task's records may not take longer."),
        ],
    )
    def test_a_timeout_that_brokers_do_not_take_is_refused_and_the_remedy_helps(
        self, harness: KafkaHarness, protocol: str, more: str
    ) -> None:
        """A job with `protocol=staged` is committed after any downtime: test_downtime.py."""
        harness.options["protocol"] = protocol
        with pytest.raises(PreflightError, match="at most 900 s") as caught:
            harness.opened(transaction_timeout="16 min")
        assert "`transaction_timeout=900 s`" in caught.value.remedy
        assert more in caught.value.remedy
        with closing(harness.opened(transaction_timeout="900 s")) as sink:
            assert outcome(sink, [self.piece(sink)]) == Committed()
        assert self.ids_visible() == [0]

    @pytest.mark.parametrize(
        ("partitions", "settings", "says"),
        [
            (2, {"cleanup.policy": "delete"}, "cleanup.policy is delete"),
            (1, {"cleanup.policy": "compact"}, "1 partitions and not 2"),
            (
                2,
                {"cleanup.policy": "compact", "unclean.leader.election.enable": "true"},
                "unclean.leader.election.enable is true",
            ),
        ],
    )
    def test_a_ledger_that_forgets_is_refused_and_both_remedies_help(
        self, harness: KafkaHarness, partitions: int, settings: dict[str, str], says: str
    ) -> None:
        wrong = harness.topics.create(partitions, fresh_name("wrong"), settings)
        with pytest.raises(PreflightError, match=says) as caught:
            harness.opened(ledger=wrong)
        assert "kafka-configs.sh; kafka-topics.sh adds partitions" in caught.value.remedy
        assert "or name another topic in the option ledger" in caught.value.remedy
        harness.opened(ledger=fresh_name("ledger")).close()
        if partitions != 2:
            harness.topics.grow(wrong, 2)
        right = {"cleanup.policy": "compact", "unclean.leader.election.enable": "false"}
        harness.topics.alter(wrong, right)
        harness.opened(ledger=wrong).close()

    def test_a_record_that_is_too_large_is_a_rejected_row_until_the_topic_takes_it(
        self, harness: KafkaHarness
    ) -> None:
        def rows(size: int) -> list[Row]:
            return [harness.rows([0])[0] | {"name": "x" * size}]

        with closing(harness.opened()) as sink:
            harness.topics.alter(harness.topic, {"max.message.bytes": "1000"})
            with pytest.raises(RejectedRowsError, match="too large") as caught:
                written(sink, rows(2_000), harness.schema, 0)
            assert "or let the topic take them (max.message.bytes;" in caught.value.remedy
            harness.topics.alter(harness.topic, {"max.message.bytes": "3000000"})
            for checkpoint, size in enumerate((2_000, 2_900_000), 1):
                piece = written(sink, rows(size), harness.schema, checkpoint)
                assert outcome(sink, [piece]) == Committed()
        assert self.ids_visible() == [0, 0]
