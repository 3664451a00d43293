"""Brokers whose longest transaction is short: a commit after a downtime that none outlasts, and an
abort.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from integration.kafka.topics import Topics
from integration.kafka_sink.sink_harness import KafkaHarness
from twophase.contract.outcome import AlreadyCommitted, Committed, Lost
from twophase.ids import Attempt, Subtask
from twophase.testing.contract.base import ContractBase
from twophase.testing.harness import transaction_id
from twophase.testing.services import KafkaService

pytestmark = [pytest.mark.part("kafka"), pytest.mark.server, pytest.mark.proof]

LONGEST = {
    "transaction.max.timeout.ms": "10000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
OPTIONS = {"transaction_timeout": "10 s"}


@pytest.fixture(scope="module")
def topics() -> Iterator[Topics]:
    with (
        KafkaService(own=True, settings=LONGEST) as broker,
        Topics(broker.bootstrap_servers) as made,
    ):
        yield made


class TestAnAbort(ContractBase):
    @pytest.fixture
    def harness(self, topics: Topics) -> KafkaHarness:
        return KafkaHarness(topics, **OPTIONS, **{"request.timeout": "20 s"})

    def test_is_done_where_a_request_may_take_longer_than_any_transaction(
        self, harness: KafkaHarness
    ) -> None:
        with closing(harness.opened()) as sink:
            [waiting] = self.prepare(sink, [1], transaction_id(0), Subtask(0, 0))
            sink.abort([waiting])
            assert isinstance(self.commit(sink, [waiting])[0], Lost)
            [after] = self.prepare(sink, [2], transaction_id(1), Subtask(0, 0))
            assert self.commit(sink, [after]) == [Committed()]
        assert self.ids_visible() == [2]


class TestADowntime(ContractBase):
    @pytest.fixture
    def harness(self, topics: Topics) -> KafkaHarness:
        return KafkaHarness(topics, protocol="staged", **OPTIONS)

    def test_that_is_longer_than_any_transaction_loses_staged_rows_never(
        self, harness: KafkaHarness, topics: Topics
    ) -> None:
        """What waited in a transaction all that time is lost: so long it was."""
        with closing(harness.opened()) as sink:
            [staged] = self.prepare(sink, [1, 2], transaction_id(0), Subtask(0, 0))
        open_rows = KafkaHarness(topics, protocol="transaction", **OPTIONS)
        with closing(open_rows.opened()) as sink:
            self.use(open_rows)
            [waiting] = self.prepare(sink, [3], transaction_id(0), Subtask(0, 0))
            open_rows.wait_until_aborted(waiting)
            assert isinstance(self.commit(sink, [waiting])[0], Lost)
        assert self.ids_visible() == []
        self.use(harness)
        with closing(harness.opened(Attempt(2, 1))) as sink:
            assert [*sink.in_doubt()] == [staged]
            assert self.commit(sink, [staged]) == [Committed()]
            assert isinstance(self.commit(sink, [staged])[0], AlreadyCommitted)
        assert self.ids_visible() == [1, 2]
