"""A broker of a cluster is replaced by a new one, for good."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from harness.kafka_cluster import BROKERS, KafkaCluster
from integration.kafka_sink.cluster_harness import (
    NEXT_DRIVER,
    ClusterHarness,
    TransactionBase,
    check_each_row_is_read_once,
    committed,
)
from twophase.contract.outcome import Committed

pytestmark = [
    pytest.mark.part("kafka"),
    pytest.mark.server,
    pytest.mark.proof,
    pytest.mark.timeout(3600),
]


class TestABrokerThatIsReplacedByANewOne(TransactionBase):
    @pytest.fixture
    def cluster(self) -> Iterator[KafkaCluster]:
        with KafkaCluster() as made:
            yield made

    @pytest.mark.parametrize("gone", [1, BROKERS])
    def test_is_not_missed_by_an_open_sink_and_by_the_next_start(
        self, cluster: KafkaCluster, harness: ClusterHarness, gone: int
    ) -> None:
        """Its address is in `kafka.bootstrap.servers` still, and that of the new one is not."""
        with closing(harness.opened()) as sink:
            piece = self.piece(sink)
            cluster.replace(gone)
            assert [*sink.in_doubt()] == [piece]
            assert committed(sink, piece) == (Committed(), [])
        with closing(harness.opened(NEXT_DRIVER)) as driver:
            check_each_row_is_read_once(harness, driver)
