"""Brokers of a cluster that take over what others had: an open sink finds them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing

import pytest

from harness.kafka_cluster import BROKERS, KafkaCluster
from integration.kafka_sink.cluster_harness import (
    ClusterHarness,
    TransactionBase,
    check_each_row_is_read_once,
    committed,
    coordinator,
)
from twophase.contract.outcome import Committed
from twophase.contract.writer import SinkWriter
from twophase.errors import TargetUnreachableError
from twophase.ids import Subtask
from twophase.sinks.kafka.names import name_of
from twophase.sinks.kafka.open_sink import OpenKafkaSink
from twophase.testing.harness import transaction_id

pytestmark = [
    pytest.mark.part("kafka"),
    pytest.mark.server,
    pytest.mark.proof,
    pytest.mark.timeout(3600),
]

WRITERS = 12
"""Twice as many as the cluster has partitions for transactions: most of them have some."""


def killed(cluster: KafkaCluster, node: int) -> None:
    cluster.kill_broker(node)
    cluster.wait_until_fenced(node)
    cluster.restart_all_killed()


def restarted(cluster: KafkaCluster, node: int) -> None:
    """As an administrator does it: the broker gives up what it leads before it ends."""
    cluster.restart(node)
    cluster.wait_until_whole()


Move = Callable[[KafkaCluster, int], None]


class TestACoordinatorThatMoves(TransactionBase):
    @pytest.mark.parametrize("move", [killed, restarted])
    def test_keeps_no_open_transaction_from_those_that_may_be_committed(
        self, cluster: KafkaCluster, harness: ClusterHarness, move: Move
    ) -> None:
        """None would be aborted by a start then, and readers would wait for `transaction_timeout`.
        Here are those without a record in the ledger, which nothing else tells of.
        """
        with closing(harness.opened()) as sink:
            writers = [self.writer(sink, number) for number in range(WRITERS)]
            seen, prefix = list[int](), sink._owner.prefix
            over = threading.Event()

            def look() -> None:
                while not over.is_set():
                    try:
                        seen.append(len(sink._brokers.open_transactions(prefix)))
                    except TargetUnreachableError:
                        continue

            looking = threading.Thread(target=look)
            looking.start()
            try:
                for node in cluster.live:
                    move(cluster, node)
            finally:
                over.set()
                looking.join()
            assert seen
            assert {*seen} == {WRITERS}
            for one in writers:
                one.abort()

    @pytest.mark.parametrize("move", [killed, restarted])
    def test_is_found_by_the_next_request(
        self, cluster: KafkaCluster, harness: ClusterHarness, move: Move
    ) -> None:
        """The client knows the one before, which is gone, or tells that it is none any more."""
        harness.options["request.timeout"] = "2 min"
        with closing(harness.opened()) as sink:
            piece = self.piece(sink)
            assert [*sink.in_doubt()] == [piece]
            assert sink._brokers.describe([name_of(harness.topic, piece)])
            move(cluster, coordinator(cluster, harness, piece))
            assert [*sink.in_doubt()] == [piece]
            assert committed(sink, piece) == (Committed(), [])
            check_each_row_is_read_once(harness, sink)

    def writer(self, sink: OpenKafkaSink, number: int) -> SinkWriter:
        """One whose rows are in the topic, and which goes on."""
        made = sink.writers()(transaction_id(), Subtask(number, number))
        made.write(self.batch([number]))
        made.flush()
        return made


class TestABrokerThatTheClientDoesNotKnow(TransactionBase):
    def test_is_asked_if_it_was_down_when_the_sink_was_opened(
        self, cluster: KafkaCluster, harness: ClusterHarness
    ) -> None:
        cluster.kill_broker(BROKERS)
        cluster.wait_until_fenced(BROKERS)
        with closing(harness.opened()) as sink:
            piece = self.piece(sink)
            cluster.restart_all_killed()
            assert [*sink.in_doubt()] == [piece]
            assert committed(sink, piece) == (Committed(), [])
            check_each_row_is_read_once(harness, sink)
