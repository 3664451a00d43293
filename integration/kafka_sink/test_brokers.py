"""A broker is killed while rows are written, wait, are copied or are committed, and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from integration.kafka.topics import Topics
from integration.kafka_sink.sink_harness import KafkaHarness
from twophase.contract.outcome import AlreadyCommitted, Committed, RetryLater
from twophase.contract.sink import CommitRequest
from twophase.errors import DeclinedError, TargetUnreachableError
from twophase.ids import Attempt, Subtask
from twophase.testing.contract.base import ContractBase
from twophase.testing.harness import LINEAGE, transaction_id
from twophase.testing.services import KafkaService

pytestmark = [pytest.mark.part("kafka"), pytest.mark.server]

SECOND = Attempt(1, 2)
SHORT = {"request.timeout": "2 s"}


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaService]:
    with KafkaService(own=True) as service:
        yield service


def come_back(broker: KafkaService, harness: KafkaHarness) -> None:
    """With new clients for the test, which may have given up."""
    broker.restart()
    harness.topics.admin.close()
    harness.topics = Topics(broker.bootstrap_servers)


class TestABrokerThatIsKilled(ContractBase):
    @pytest.fixture(params=["transaction", "staged"])
    def harness(
        self, broker: KafkaService, request: pytest.FixtureRequest
    ) -> Iterator[KafkaHarness]:
        topics = Topics(broker.bootstrap_servers)
        made = KafkaHarness(topics, protocol=request.param, **SHORT)
        yield made
        made.topics.admin.close()

    def test_while_a_piece_waits_keeps_it(
        self, broker: KafkaService, harness: KafkaHarness
    ) -> None:
        sink = harness.opened()
        [piece] = self.prepare(sink, [1, 2], transaction_id(), Subtask(0, 0))
        broker.kill()
        come_back(broker, harness)
        assert self.commit(sink, [piece]) == [Committed()]
        assert self.ids_visible() == [1, 2]

    def test_when_a_piece_is_to_be_committed_is_waited_for(
        self, broker: KafkaService, harness: KafkaHarness
    ) -> None:
        sink = harness.opened()
        [piece] = self.prepare(sink, [1, 2], transaction_id(), Subtask(0, 0))
        broker.kill()
        with pytest.raises(TargetUnreachableError):
            sink.commit([CommitRequest(piece)])
        come_back(broker, harness)
        assert self.commit(sink, [piece]) == [Committed()]
        assert isinstance(self.commit(sink, [piece])[0], AlreadyCommitted)
        assert self.ids_visible() == [1, 2]

    def test_between_two_checkpoints_is_reached_again_by_the_clients_that_are_open(
        self, broker: KafkaService, harness: KafkaHarness
    ) -> None:
        sink = harness.opened()
        for number in range(2):
            transaction = transaction_id(number)
            [piece] = self.prepare(sink, [number], transaction, Subtask(0, number))
            if number:
                broker.kill()
                come_back(broker, harness)
            assert self.commit(sink, [piece]) == [Committed()]
            sink.subsume(LINEAGE, number)
        assert sink.history().committed == {LINEAGE: 1}
        assert self.ids_visible() == [0, 1]
        sink.close()

    def test_while_rows_are_written_declines_the_attempt_and_the_next_one_writes_them(
        self, broker: KafkaService, harness: KafkaHarness
    ) -> None:
        sink = harness.opened()
        writer = sink.writers()(transaction_id(), Subtask(0, 0))
        writer.write(self.batch([1, 2]))
        broker.kill()
        with pytest.raises(DeclinedError):
            writer.pre_commit()
        come_back(broker, harness)
        sink.abort(sink.in_doubt())
        sink.fence(SECOND)
        [piece] = self.prepare(sink, [1, 2], transaction_id(attempt=SECOND), Subtask(0, 0))
        assert self.commit(sink, [piece]) == [Committed()]
        assert self.ids_visible() == [1, 2]
        with closing(harness.opened(SECOND)) as again:
            assert not again.in_doubt()


def test_a_broker_that_is_killed_while_rows_are_copied_is_waited_for(
    broker: KafkaService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows are in the open transaction of the copy, and so is their proof."""
    harness = KafkaHarness(Topics(broker.bootstrap_servers), protocol="staged", **SHORT)
    calls = ContractBase()
    calls.use(harness)
    sink = harness.opened()
    [piece] = calls.prepare(sink, [1, 2], transaction_id(), Subtask(0, 0))

    def killed(point: str) -> None:
        if point == "K02":
            broker.kill()

    monkeypatch.setattr("twophase.sinks.kafka.staged.failpoint", killed)
    [found] = sink.commit([CommitRequest(piece)])
    assert isinstance(found, RetryLater)
    monkeypatch.undo()
    come_back(broker, harness)
    assert calls.commit(sink, [piece]) == [Committed()]
    assert calls.ids_visible() == [1, 2]
    sink.close()
    harness.topics.admin.close()
