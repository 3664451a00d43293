"""`protocol=staged`: what may become of rows that wait in a staging topic, and of their copy."""

from __future__ import annotations

import shlex
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from integration.kafka.topics import EARLIEST, Topics
from integration.kafka_sink.sink_harness import KafkaHarness
from integration.kafka_sink.test_topics import RAW, committed, written
from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, Committed, Lost, RetryLater
from twophase.contract.sink import CommitRequest, Predecessor, SinkContext, Waits
from twophase.errors import (
    ConfigError,
    DeclinedError,
    FencedError,
    PreflightError,
    RejectedRowsError,
    StopJobError,
    TargetUnreachableError,
)
from twophase.ids import Attempt, Subtask
from twophase.internals import failpoints
from twophase.sinks.kafka.open_sink import OpenKafkaSink
from twophase.sinks.kafka.staged import StagedPieces
from twophase.sinks.kafka.staged_writer import StagedWriter
from twophase.sinks.kafka.staging import Place
from twophase.testing.contract.base import ContractBase
from twophase.testing.harness import FIRST, JOB, LINEAGE, SINK, fresh_name, transaction_id
from twophase.testing.services.kafka_install import java_command

pytestmark = [pytest.mark.part("kafka"), pytest.mark.server]

NEXT_DRIVER = Attempt(2, 1)


class Base(ContractBase):
    """One staged sink, and calls as the coordinator makes them."""

    @pytest.fixture
    def harness(self, topics: Topics) -> KafkaHarness:
        return KafkaHarness(topics, protocol="staged")

    @pytest.fixture
    def opened_sink(self, harness: KafkaHarness) -> Iterator[OpenKafkaSink]:
        with closing(harness.opened()) as sink:
            yield sink

    def piece(self, sink: OpenKafkaSink, number: int = 0, attempt: Attempt = FIRST) -> Committable:
        """A piece of one checkpoint, pre-committed."""
        transaction = transaction_id(number, attempt)
        [made] = self.prepare(sink, [number], transaction, Subtask(0, number))
        return made


def begins(harness: KafkaHarness) -> dict[int, int]:
    """The first offset of each partition of the staging topic."""
    return harness.topics.offsets(harness.staging, EARLIEST)


TAKES_ALL = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": str(2**63 - 1),
}


def _die(*_: object) -> None:
    raise KeyboardInterrupt


class TestStagedRows(Base):
    @pytest.mark.parametrize("how", ["deleted", "created again", "records deleted"])
    def test_rows_that_are_gone_are_lost_by_name(
        self, harness: KafkaHarness, opened_sink: OpenKafkaSink, how: str
    ) -> None:
        piece = self.piece(opened_sink)
        topics, staging = harness.topics, harness.staging
        if how == "records deleted":
            topics.cut(staging, Place.of(piece).end)
        elif how == "deleted":
            topics.delete(staging)
        else:
            topics.recreate(staging, 2)
        found = committed(opened_sink, piece)
        assert isinstance(found, Lost)
        says = {
            "deleted": f"{staging!r} does not exist",
            "created again": f"{staging!r} was created again: its id is",
            "records deleted": f"{staging}-0 begins with offset 1: somebody has deleted records",
        }
        assert says[how] in found.evidence
        assert self.ids_visible() == []

    def test_a_staging_topic_that_is_deleted_takes_undecided_pieces_and_the_next_start_makes_it(
        self, harness: KafkaHarness, opened_sink: OpenKafkaSink
    ) -> None:
        """As docs/by-hand.md tells for a job that never runs again, and then does."""
        piece = self.piece(opened_sink)
        harness.topics.delete(harness.staging)
        with pytest.raises(TargetUnreachableError, match="does not exist any more") as caught:
            opened_sink.writers()
        assert caught.value.remedy.startswith("start the job again: it is created at the start.")
        with closing(harness.opened(NEXT_DRIVER)) as sink:
            assert [*sink.in_doubt()] == [piece]
            sink.abort(sink.in_doubt())
            assert sink.in_doubt() == []
            assert committed(sink, self.piece(sink, 1, NEXT_DRIVER)) == Committed()
        assert self.ids_visible() == [1]

    def test_a_chunk_that_is_not_there_is_lost_and_nothing_is_copied(
        self, harness: KafkaHarness, opened_sink: OpenKafkaSink
    ) -> None:
        """As if a leader had been elected that lacks it: others have its offset."""
        piece = self.piece(opened_sink)
        place = Place.of(piece)
        harness.topics.send(harness.staging, [b"another"], 0)
        moved = Place(place.topic, place.id, 0, place.first + 1, place.end + 1, 1)
        wrong = Committable(
            piece.transaction, piece.subtask, piece.target, piece.rows, moved.handle()
        )
        found = committed(opened_sink, wrong)
        assert isinstance(found, Lost)
        assert "has 0 rows of piece" in found.evidence
        assert self.ids_visible() == []
        assert committed(opened_sink, piece) == Committed()

    def test_an_end_that_is_not_there_is_lost(
        self, harness: KafkaHarness, opened_sink: OpenKafkaSink
    ) -> None:
        piece = self.piece(opened_sink)
        place = Place.of(piece)
        cut = Place(place.topic, place.id, 0, place.first, place.end + 5, 6)
        wrong = Committable(
            piece.transaction, piece.subtask, piece.target, piece.rows, cut.handle()
        )
        found = committed(opened_sink, wrong)
        assert isinstance(found, Lost)
        assert "have lost acknowledged records" in found.evidence

    def test_rows_are_deleted_where_they_waited_once_they_are_copied(
        self, harness: KafkaHarness, opened_sink: OpenKafkaSink
    ) -> None:
        first, second, third = (self.piece(opened_sink, number) for number in range(3))
        assert begins(harness)[0] == 0
        assert committed(opened_sink, second) == Committed()
        assert begins(harness)[0] == 0, "the first piece is before it, and is still to be copied"
        assert committed(opened_sink, first) == Committed()
        assert begins(harness)[0] == Place.of(first).end
        assert [*opened_sink.in_doubt()] == [third]
        assert committed(opened_sink, third) == Committed()
        assert begins(harness)[0] == Place.of(third).end

    def test_rows_of_closed_attempts_are_deleted_behind_the_next_fence(
        self, harness: KafkaHarness, opened_sink: OpenKafkaSink
    ) -> None:
        aborted, waiting = self.piece(opened_sink, 0), self.piece(opened_sink, 1)
        late = opened_sink.writers()(transaction_id(2), Subtask(1, 2))
        late.write(self.batch([2]))
        late.flush()
        opened_sink.abort([aborted])
        opened_sink.fence(NEXT_DRIVER)
        assert begins(harness) == {0: Place.of(waiting).first, 1: 1}
        with pytest.raises(FencedError):
            late.pre_commit()
        late.abort()
        assert committed(opened_sink, waiting) == Committed()
        assert self.ids_visible() == [1]

    def test_the_parts_and_the_order_of_records_are_those_of_the_rows(
        self, harness: KafkaHarness
    ) -> None:
        sink = harness.new_sink(format="raw").open(SinkContext(JOB, SINK, RAW, parallelism=2))
        sink.fence(FIRST)
        parts: dict[str, Any] = {
            "key": "k",
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
            "timestamp": 1_700_000_000_123_000,
        }
        count = 3_000
        rows = [
            parts | {"value": b"%d" % number * 200, "partition": number % 3}
            for number in range(count)
        ]
        nothing = {"key": None, "value": None, "headers": None, "partition": 0, "timestamp": None}
        piece = written(sink, [*rows, nothing], RAW)
        assert Place.of(piece).chunks > 2
        assert committed(sink, piece) == Committed()
        found = harness.topics.records(harness.topic)
        for partition in range(3):
            values = [one.value() for one in found if one.partition() == partition]
            wanted: list[bytes | None] = [b"%d" % n * 200 for n in range(partition, count, 3)]
            assert values == [*wanted, *([None] if partition == 0 else [])]
        [last] = [one for one in found if one.value() is None]
        assert (last.key(), last.headers()) == (None, None)
        assert last.timestamp()[1] > 1_700_000_000_123
        one = found[0]
        assert (one.key(), one.timestamp()[1]) == (b"k", 1_700_000_000_123)
        assert one.headers() == [("h", b"1"), ("h", None)]
        sink.close()


class TestLimits(Base):
    @pytest.mark.parametrize(
        ("settings", "row", "reason"),
        [
            ({}, {"partition": 7}, "no partition 7"),
            ({"cleanup.policy": "compact"}, {"key": None}, "no key"),
            ({"max.message.bytes": "1000"}, {"value": b"x" * 1_000}, "too large: 872 at most"),
            ({}, {"value": b"x" * 1_000_000}, "too large: 999872 at most"),
            (
                {"message.timestamp.after.max.ms": "1000"},
                {"timestamp": 4_000_000_000_000_000},
                "ms ahead",
            ),
            ({}, {"headers": [{"key": None, "value": b"v"}]}, "header of a record has no key"),
        ],
    )
    def test_what_the_topic_would_not_take_is_rejected_before_the_decision(
        self, topics: Topics, settings: dict[str, str], row: dict[str, Any], reason: str
    ) -> None:
        harness = KafkaHarness(topics, protocol="staged", format="raw")
        topics.alter(harness.topic, settings)
        with closing(harness.new_sink().open(SinkContext(JOB, SINK, RAW, parallelism=1))) as sink:
            sink.fence(FIRST)
            good: dict[str, Any] = {
                "key": "k",
                "value": b"v",
                "headers": None,
                "partition": 0,
                "timestamp": 1_700_000_000_000_000,
            }
            with pytest.raises(RejectedRowsError, match=reason) as caught:
                written(sink, [good | row], RAW)
            assert caught.value.remedy.startswith("correct or filter these rows before the sink")
            assert sink.in_doubt() == []
            assert committed(sink, written(sink, [good], RAW)) == Committed()
            if settings:
                assert "or let the topic take them" in caught.value.remedy
                topics.alter(harness.topic, TAKES_ALL)
                more = written(sink, [good | row], RAW, 1)
                assert committed(sink, more, Predecessor(LINEAGE, 0)) == Committed()
        wanted = [b"v", *([row.get("value", b"v")] if settings else [])]
        assert [one.value() for one in topics.records(harness.topic)] == wanted

    def test_the_largest_row_is_copied_and_one_that_has_a_byte_more_is_rejected(
        self, topics: Topics
    ) -> None:
        harness = KafkaHarness(topics, protocol="staged", format="raw")
        topics.alter(harness.topic, {"max.message.bytes": "1000"})
        schema = pa.schema([("value", pa.binary())])
        with closing(
            harness.new_sink().open(SinkContext(JOB, SINK, schema, parallelism=1))
        ) as sink:
            sink.fence(FIRST)
            piece = written(sink, [{"value": b"x" * 872}], schema)
            assert committed(sink, piece) == Committed()
            with pytest.raises(RejectedRowsError, match="it has 873 bytes"):
                written(sink, [{"value": b"x" * 873}], schema, 1)

    @pytest.mark.parametrize("remedy", ["delete", "LogAppendTime", "transaction", "no column"])
    def test_a_topic_that_takes_no_old_timestamps_is_refused_and_each_remedy_helps(
        self, topics: Topics, remedy: str
    ) -> None:
        harness = KafkaHarness(topics, protocol="staged", format="raw")
        context = SinkContext(JOB, SINK, RAW, parallelism=1)
        topics.alter(harness.topic, {"message.timestamp.before.max.ms": "86400000"})
        with pytest.raises(PreflightError, match=r"86400000 ms old") as caught:
            harness.new_sink().open(context)
        assert "message.timestamp.type=LogAppendTime" in caught.value.remedy
        assert "`protocol=transaction`" in caught.value.remedy
        if remedy == "delete":
            topics.alter(harness.topic, {"message.timestamp.before.max.ms": ("DELETE", "")})
        elif remedy == "LogAppendTime":
            topics.alter(harness.topic, {"message.timestamp.type": "LogAppendTime"})
        elif remedy == "transaction":
            harness.options["protocol"] = "transaction"
        else:
            context = SinkContext(JOB, SINK, RAW.remove(4), parallelism=1)
        harness.new_sink().open(context).close()

    def test_settings_that_changed_meanwhile_are_waited_for_and_the_way_on_helps(
        self, harness: KafkaHarness, opened_sink: OpenKafkaSink
    ) -> None:
        rows = [harness.rows([0])[0] | {"name": "x" * 5_000}]
        piece = written(opened_sink, rows, harness.schema)
        harness.topics.alter(harness.topic, {"max.message.bytes": "1000"})
        found = committed(opened_sink, piece)
        assert isinstance(found, RetryLater)
        assert "undo what was changed of it since (partitions, max.message.bytes" in found.reason
        assert self.ids_visible() == []
        harness.topics.alter(harness.topic, {"max.message.bytes": "1000000"})
        assert committed(opened_sink, piece) == Committed()
        assert self.ids_visible() == [0]

    @pytest.mark.parametrize(
        ("settings", "says"),
        [
            ({"retention.ms": "3600000"}, "retention.ms is 3600000 and not -1"),
            ({"retention.bytes": "1000000"}, "retention.bytes is 1000000 and not -1"),
            ({"cleanup.policy": "compact"}, "cleanup.policy is compact and not delete"),
            ({"max.message.bytes": "100000"}, "max.message.bytes is 100000"),
        ],
    )
    def test_a_staging_topic_that_forgets_is_refused_and_the_remedy_helps(
        self, harness: KafkaHarness, settings: dict[str, str], says: str
    ) -> None:
        harness.opened().close()
        harness.topics.alter(harness.staging, settings)
        with pytest.raises(PreflightError, match=says) as caught:
            harness.opened()
        told = caught.value.remedy.partition("--add-config ")[2]
        harness.topics.alter(harness.staging, dict(one.split("=") for one in told.split(",")))
        harness.opened().close()

    def test_a_staging_topic_that_forgets_keeps_rows_behind_the_command_that_is_printed(
        self, harness: KafkaHarness
    ) -> None:
        """Run as it is printed: kafka-configs.sh begins this class."""
        harness.opened().close()
        forgets = {"retention.ms": "3600000", "cleanup.policy": "compact", "max.message.bytes": "9"}
        harness.topics.alter(harness.staging, forgets)
        with pytest.raises(PreflightError, match="cannot keep rows") as caught:
            harness.opened()
        text, command = caught.value.remedy.split(": ", 1)
        program, *words = shlex.split(command)
        assert (text, program) == ("alter it", "kafka-configs.sh")
        done = subprocess.run(
            java_command([], "kafka.admin.ConfigCommand", *words),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        with closing(harness.opened()) as sink:
            assert committed(sink, self.piece(sink)) == Committed()
        assert self.ids_visible() == [0]

    @pytest.mark.parametrize(
        ("pause", "timeout", "longer"), [(60.0, "60 s", "61 s"), (899.0, "899 s", "900 s")]
    )
    def test_a_wait_that_a_transaction_does_not_outlast_is_refused_and_a_longer_one_is_taken(
        self, harness: KafkaHarness, pause: float, timeout: str, longer: str
    ) -> None:
        """Up to what the brokers take."""
        harness.options["protocol"] = "transaction"
        waits = Waits(1.0, {"restart.delay_max": pause})
        context = SinkContext(JOB, SINK, harness.schema, parallelism=1, waits=waits)
        with pytest.raises(ConfigError) as caught:
            harness.new_sink(transaction_timeout=timeout).open(context)
        assert f"or transaction_timeout above {timeout}, which is at most" in caught.value.remedy
        harness.new_sink(transaction_timeout=longer).open(context).close()

    def test_a_wait_that_a_transaction_does_not_outlast_is_refused_and_staged_is_not(
        self, harness: KafkaHarness
    ) -> None:
        """The remedy that the message names."""
        waits = Waits(60.0, {"restart.delay_max": 86_400.0})
        context = SinkContext(JOB, SINK, harness.schema, parallelism=1, waits=waits)
        with pytest.raises(ConfigError) as caught:
            harness.new_sink(protocol="transaction").open(context)
        assert "set `protocol=staged`" in caught.value.remedy
        harness.new_sink().open(context).close()


class Held:
    """A commit in a thread, which stands still at a failpoint until it is let go."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, commit: Callable[[], Any], at: str = "K02"
    ) -> None:
        self._here, self._go_on = threading.Event(), threading.Event()
        self._found: list[Any] = []
        self._commit = commit
        self._thread = threading.Thread(target=self._run)

        def stand(point: str) -> None:
            if point == at and threading.current_thread() is self._thread:
                self._here.set()
                self._go_on.wait()

        for module in ("sinks.kafka.staged", "contract.sink"):
            monkeypatch.setattr(f"twophase.{module}.failpoint", stand)
        self._thread.start()
        self._here.wait()

    def _run(self) -> None:
        try:
            self._found.append(self._commit())
        finally:
            self._here.set()

    def end(self) -> Any:
        """Let it go; return its outcome."""
        self._go_on.set()
        self._thread.join()
        [found] = self._found
        return found


class TestCopies(Base):
    def test_of_two_copies_of_a_piece_the_later_one_goes_on(
        self, harness: KafkaHarness, opened_sink: OpenKafkaSink, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An old driver has copied a piece and is about to commit the copy."""
        piece = self.piece(opened_sink)
        held = Held(monkeypatch, lambda: committed(opened_sink, piece))
        with closing(harness.opened(NEXT_DRIVER)) as newer:
            assert committed(newer, piece) == Committed()
            found = held.end()
            assert isinstance(found, RetryLater)
            assert "Another driver copies it" in found.reason
            assert self.ids_visible() == [0]
            assert isinstance(committed(opened_sink, piece), AlreadyCommitted)

    def test_a_copy_that_begins_behind_another_finds_its_proof(
        self, harness: KafkaHarness, opened_sink: OpenKafkaSink, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It has looked before, when there was none."""
        piece = self.piece(opened_sink)
        held = Held(monkeypatch, lambda: committed(opened_sink, piece), at="C12")
        with closing(harness.opened()) as other:
            monkeypatch.setattr(StagedPieces, "clean_up", lambda *_: None)
            assert committed(other, piece) == Committed()
        assert isinstance(held.end(), AlreadyCommitted)
        assert self.ids_visible() == [0]

    def test_a_driver_that_is_fenced_begins_no_copy(
        self, harness: KafkaHarness, opened_sink: OpenKafkaSink
    ) -> None:
        piece = self.piece(opened_sink)
        with closing(harness.opened(NEXT_DRIVER)) as newer:
            with pytest.raises(FencedError):
                committed(opened_sink, piece)
            assert self.ids_visible() == []
            assert committed(newer, piece) == Committed()
        assert self.ids_visible() == [0]

    def test_a_copy_of_a_piece_that_is_aborted_meanwhile_is_not_committed(
        self, harness: KafkaHarness, opened_sink: OpenKafkaSink, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """By a driver over a copy of the job's folder, in which it is not decided."""
        piece = self.piece(opened_sink)
        held = Held(monkeypatch, lambda: committed(opened_sink, piece))
        with closing(harness.opened()) as other:
            other.abort([piece])
            assert isinstance(held.end(), RetryLater)
            assert isinstance(committed(opened_sink, piece), Lost)
            assert other.in_doubt() == []
        assert self.ids_visible() == []

    def test_an_abort_of_a_piece_that_is_copied_changes_nothing(
        self, harness: KafkaHarness, opened_sink: OpenKafkaSink
    ) -> None:
        piece = self.piece(opened_sink)
        with closing(harness.opened()) as other:
            assert committed(opened_sink, piece) == Committed()
            with pytest.raises(StopJobError, match="decided in another folder"):
                other.abort([piece])
        assert self.ids_visible() == [0]

    def test_a_copy_is_proven_behind_an_open_transaction_of_others_whatever_became_of_its_id(
        self, harness: KafkaHarness, opened_sink: OpenKafkaSink
    ) -> None:
        """Its coordinator knows no more of it: another driver has begun to copy it again. And the
        proof of a copy that was aborted is none.
        """
        other: Any = harness.topics.producer(**{"transactional.id": fresh_name("theirs")})
        other.init_transactions(30)
        other.begin_transaction()
        other.produce(harness.ledger, b"untouched", b"theirs", 0)  # without a key it is refused
        other.flush(30)
        piece = self.piece(opened_sink)
        failpoints.arm("K02=raise")
        try:
            with pytest.raises(failpoints.FailpointError):
                committed(opened_sink, piece)
        finally:
            failpoints.arm("")
        assert committed(opened_sink, piece) == Committed()
        again: Any = harness.topics.producer(**{"transactional.id": f"{name_in(harness)}/copy"})
        again.init_transactions(30)
        assert isinstance(committed(opened_sink, piece), AlreadyCommitted)
        with closing(harness.opened()) as fresh:
            assert fresh.history().committed == {LINEAGE: 0}
            assert isinstance(committed(fresh, piece), AlreadyCommitted)
        assert self.ids_visible() == [0]
        other.abort_transaction(30)

    def test_a_commit_that_failed_somewhere_is_done_by_the_next_one(
        self, opened_sink: OpenKafkaSink
    ) -> None:
        piece = self.piece(opened_sink)
        failpoints.arm("K01=raise")
        try:
            with pytest.raises(failpoints.FailpointError):
                committed(opened_sink, piece)
        finally:
            failpoints.arm("")
        assert committed(opened_sink, piece) == Committed()
        assert isinstance(committed(opened_sink, piece), AlreadyCommitted)
        assert self.ids_visible() == [0]


def name_in(harness: KafkaHarness) -> str:
    """The name of the only piece that is committed."""
    [key] = {
        message.key()
        for message in harness.topics.records(harness.ledger, "read_uncommitted")
        if message.partition() == 0 and (message.key() or b"").startswith(b"twophase/")
    }
    return (key or b"").decode()


class TestProtocolsChange(Base):
    @pytest.mark.parametrize(
        ("before", "after"), [("transaction", "staged"), ("staged", "transaction")]
    )
    def test_pieces_of_the_protocol_before_are_committed_and_aborted(
        self, harness: KafkaHarness, before: str, after: str
    ) -> None:
        harness.options["protocol"] = before
        with closing(harness.opened()) as sink:
            decided, orphan = self.piece(sink, 0), self.piece(sink, 1)
        harness.options["protocol"] = after
        with closing(harness.opened(NEXT_DRIVER)) as sink:
            assert committed(sink, decided) == Committed()
            assert [piece.transaction for piece in sink.in_doubt()] == [orphan.transaction]
            sink.abort(sink.in_doubt())
            assert sink.in_doubt() == []
            later = self.piece(sink, 1, NEXT_DRIVER)
            assert committed(sink, later, Predecessor(LINEAGE, 0)) == Committed()
            sink.subsume(LINEAGE, 1)
            assert sink.history().committed == {LINEAGE: 1}
        assert self.ids_visible() == [0, 1]


class TestTheFence(Base):
    def test_what_a_writer_announced_that_was_killed_before_its_look_is_the_next_start_s(
        self, harness: KafkaHarness, opened_sink: OpenKafkaSink, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Behind the last scan of a newer driver, as a task of a zombie is."""
        writer = opened_sink.writers()(transaction_id(), Subtask(0, 0))
        writer.write(self.batch([0]))
        with closing(harness.opened(NEXT_DRIVER)) as newer:
            assert newer.in_doubt() == []
            monkeypatch.setattr(StagedWriter, "_closed", _die)
            with pytest.raises(KeyboardInterrupt):
                writer.pre_commit()
            monkeypatch.undo()
            assert committed(newer, self.piece(newer, 1, NEXT_DRIVER)) == Committed()
        with closing(harness.opened(Attempt(3, 1))) as next_one:
            [left] = next_one.in_doubt()
            assert left.transaction.attempt == FIRST
            next_one.abort([left])
            assert next_one.in_doubt() == []
        assert self.ids_visible() == [1]

    def test_a_ledger_that_was_created_again_closes_writers(
        self, harness: KafkaHarness, opened_sink: OpenKafkaSink
    ) -> None:
        writer = opened_sink.writers()(transaction_id(), Subtask(0, 0))
        writer.write(self.batch([0]))
        harness.topics.recreate(harness.ledger, 2)
        with pytest.raises((FencedError, DeclinedError)):
            writer.pre_commit()
        writer.abort()

    def test_rows_of_one_task_may_be_many_megabytes(self, opened_sink: OpenKafkaSink) -> None:
        count = 40_000
        rows = [{"id": number, "name": "x" * 100, "amount": 0.0} for number in range(count)]
        schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())])
        writer = opened_sink.writers()(transaction_id(), Subtask(0, 0))
        for start in range(0, count, 10_000):
            writer.write(pa.RecordBatch.from_pylist(rows[start : start + 10_000], schema=schema))
        piece = writer.pre_commit()
        assert piece is not None
        assert piece.rows == count
        assert opened_sink.commit([CommitRequest(piece)]) == [Committed()]
        assert self.ids_visible() == [*range(count)]
