"""A sink that is opened on a cluster of three brokers: it needs none of them, and what it creates
outlives each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing

import pytest
from kafka import KafkaAdminClient, TopicPartition

from harness.kafka_cluster import BROKERS, MIN_IN_SYNC, KafkaCluster
from integration.kafka.cluster_topics import (
    MIN_IN_SYNC_OPTION,
    ClusterTopics,
    closed_port,
    replicas_of,
    settings_of,
)
from integration.kafka_sink.cluster_harness import (
    NEXT_DRIVER,
    PATIENCE,
    ClusterHarness,
    TransactionBase,
    check_each_row_is_read_once,
    committed,
    is_done,
)
from twophase.contract.committable import Committable
from twophase.contract.sink import SinkContext
from twophase.errors import TargetUnreachableError
from twophase.sinks.kafka.clients import UNCOMMITTED, RangeReader, RecordWriter
from twophase.sinks.kafka.ledger import FENCES
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.testing.harness import JOB, SINK

pytestmark = [
    pytest.mark.part("kafka"),
    pytest.mark.server,
    pytest.mark.proof,
    pytest.mark.timeout(3600),
]

ALL = [*range(1, BROKERS + 1)]
_TRANSACTIONS = "__transaction_state"


class TestAStart(TransactionBase):
    def test_goes_by_the_live_ones_of_the_bootstrap_servers(
        self, cluster: KafkaCluster, harness: ClusterHarness
    ) -> None:
        dead, alive = closed_port(), cluster.address(1)
        harness.options["kafka.bootstrap.servers"] = f"{dead},{alive}"
        with closing(harness.opened()) as sink:
            piece = self.piece(sink)
            found, reasons = committed(sink, piece)
            assert is_done(found), reasons
            check_each_row_is_read_once(harness, sink)

    def test_says_so_if_none_of_the_bootstrap_servers_answers(
        self, harness: ClusterHarness
    ) -> None:
        dead = f"{closed_port()},{closed_port()}"
        harness.options |= {"kafka.bootstrap.servers": dead, "request.timeout": "2 s"}
        with pytest.raises(TargetUnreachableError) as caught:
            harness.opened()
        assert str(caught.value).startswith(f"Kafka at {dead} did not answer: ")
        assert caught.value.remedy.startswith("check that the brokers run and can be reached")

    def test_says_which_brokers_are_missed_and_goes_on_once_they_are_back(
        self, cluster: KafkaCluster, harness: ClusterHarness
    ) -> None:
        """Two of three are down: the third can elect nobody, and takes no record."""
        with closing(harness.opened()) as sink:
            left = self.piece(sink)
        gone = cluster.live[1:]
        for node in gone:
            cluster.kill_broker(node)
        with pytest.raises(TargetUnreachableError) as caught:
            harness.opened(NEXT_DRIVER)
        for node in gone:
            assert f"{cluster.address(node)} takes no connections" in str(caught.value)
        assert cluster.address(cluster.live[0]) + " takes" not in str(caught.value)
        assert "brokers run" in caught.value.remedy
        cluster.restart_all_killed()
        with closing(harness.opened(NEXT_DRIVER)) as driver:
            assert [*driver.in_doubt()] == [left]
            found, reasons = committed(driver, left)
            assert is_done(found), reasons
            check_each_row_is_read_once(harness, driver)

    def test_the_ledger_s_reader_and_writer_say_which_brokers_are_missed(
        self, cluster: KafkaCluster, harness: ClusterHarness
    ) -> None:
        """They have been there when the clients were opened."""
        with closing(harness.opened()) as sink:
            self.piece(sink)
        given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": harness.topic}
        options = KafkaSinkOptions.parse(given | PATIENCE)
        gone = [node for node in ALL if node != 1]
        with (
            closing(RangeReader(options, UNCOMMITTED)) as reader,
            closing(RecordWriter(options, harness.ledger)) as writer,
        ):
            end = reader.end(harness.ledger, FENCES)
            writer.write({"before": b""}, FENCES)
            for node in gone:
                cluster.kill_broker(node)
            calls = (
                lambda: writer.write({"after": b""}, FENCES),
                lambda: reader.read(harness.ledger, FENCES, end + 1, end + 2),
            )
            for call in calls:
                with pytest.raises(TargetUnreachableError) as caught:
                    call()
                for node in gone:
                    assert f"{cluster.address(node)} takes no connections" in str(caught.value)

    def test_says_that_a_partition_has_no_leader_and_goes_on_once_it_has_one(
        self, cluster: KafkaCluster, harness: ClusterHarness
    ) -> None:
        """The ledger has one replica, whose broker is down."""
        with ClusterTopics(cluster, 1) as topics:
            topics.create(2, harness.ledger, {"cleanup.policy": "compact"})
        with closing(harness.opened()) as sink:
            left = self.piece(sink)
        down = cluster.leader_of(harness.ledger, FENCES)
        cluster.kill_broker(down)
        cluster.wait_until_fenced(down)
        with pytest.raises(TargetUnreachableError, match="a partition has no leader now") as caught:
            harness.opened(NEXT_DRIVER)
        assert caught.value.remedy.startswith("start the brokers that have its replicas")
        cluster.restart_all_killed()
        with closing(harness.opened(NEXT_DRIVER)) as driver:
            assert [*driver.in_doubt()] == [left]
            driver.abort([left])

    def test_says_that_transactions_have_no_coordinator_and_goes_on_once_they_have_one(
        self, cluster: KafkaCluster, harness: ClusterHarness
    ) -> None:
        """Kafka's log of them is on one broker, which is down. The others list none: nobody may
        believe that none is open.
        """
        alter(cluster, _TRANSACTIONS, {MIN_IN_SYNC_OPTION: "1"})
        spread(cluster, _TRANSACTIONS, [BROKERS])
        try:
            with closing(harness.opened()) as sink:
                left = self.piece(sink)
                cluster.kill_broker(BROKERS)
                cluster.wait_until_fenced(BROKERS)
                with pytest.raises(TargetUnreachableError, match="no broker coordinates"):
                    sink.in_doubt()
            with pytest.raises(TargetUnreachableError, match="no broker coordinates") as caught:
                harness.opened(NEXT_DRIVER)
            assert "`__transaction_state`" in caught.value.remedy
            cluster.restart_all_killed()
            with closing(harness.opened(NEXT_DRIVER)) as driver:
                assert [*driver.in_doubt()] == [left]
                driver.abort([left])
        finally:
            cluster.restart_all_killed()
            spread(cluster, _TRANSACTIONS)
            alter(cluster, _TRANSACTIONS, {MIN_IN_SYNC_OPTION: str(MIN_IN_SYNC)})

    def _left_behind(
        self, cluster: KafkaCluster, harness: ClusterHarness, down: int
    ) -> Committable:
        """The piece of an attempt before a broker went down."""
        with closing(harness.opened()) as sink:
            left = self.piece(sink)
        cluster.kill_broker(down)
        cluster.wait_until_fenced(down)
        return left

    @pytest.mark.parametrize("down", [1, BROKERS])
    def test_does_not_need_every_broker(
        self, cluster: KafkaCluster, harness: ClusterHarness, down: int
    ) -> None:
        """What the attempt before has left is found and aborted."""
        left = self._left_behind(cluster, harness, down)
        with closing(harness.opened(NEXT_DRIVER)) as driver:
            found = driver.in_doubt()
            assert [*found] == [left]
            driver.abort(found)
            assert [*driver.in_doubt()] == []

    @pytest.mark.parametrize("down", [1, BROKERS])
    def test_of_a_command_does_not_need_every_broker(
        self, cluster: KafkaCluster, harness: ClusterHarness, down: int
    ) -> None:
        """As by a dry run, a repair, or what looks at the target of a savepoint."""
        left = self._left_behind(cluster, harness, down)
        harness.new_sink().check_connection()
        context = SinkContext(JOB, SINK, None, parallelism=1)
        with closing(harness.new_sink().open(context)) as looking:
            assert [*looking.in_doubt()] == [left]
            assert looking.history().committed == {}
            assert looking.target() == left.target


class TestWhatTheSinkCreates(TransactionBase):
    @pytest.mark.parametrize("replicas", [1, BROKERS])
    def test_the_staging_topic_has_as_many_replicas_as_the_topic(
        self, cluster: KafkaCluster, harness: ClusterHarness, replicas: int
    ) -> None:
        with ClusterTopics(cluster, replicas) as topics:
            harness.topic = topics.create(1)
        harness.opened(protocol="staged").close()
        assert replicas_of(cluster.bootstrap_servers, harness.staging) == {replicas}
        least = settings_of(cluster.bootstrap_servers, harness.staging)[MIN_IN_SYNC_OPTION]
        assert least == str(min(MIN_IN_SYNC, replicas))

    def test_the_ledger_has_three_replicas_whatever_the_brokers_default_is(
        self, cluster: KafkaCluster, harness: ClusterHarness, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Kafka's default is one, and with its broker all proofs would go."""
        harness.opened().close()
        assert replicas_of(cluster.bootstrap_servers, harness.ledger) == {BROKERS}
        settings = settings_of(cluster.bootstrap_servers, harness.ledger)
        assert settings[MIN_IN_SYNC_OPTION] == str(MIN_IN_SYNC)
        assert settings["cleanup.policy"] == "compact"
        assert warnings(caplog) == []

    def test_a_ledger_with_one_replica_is_warned_of_at_each_start_until_it_has_more(
        self, cluster: KafkaCluster, harness: ClusterHarness, caplog: pytest.LogCaptureFixture
    ) -> None:
        with ClusterTopics(cluster, 1) as topics:
            topics.create(2, harness.ledger, {"cleanup.policy": "compact"})
        for _ in range(2):
            harness.opened().close()
            [few] = warnings(caplog)
            assert f"{harness.ledger!r} has fewer replicas (1) than it would" in few
            assert "kafka-reassign-partitions.sh" in few
            caplog.clear()
        spread(cluster, harness.ledger)
        harness.opened().close()
        [insync] = warnings(caplog)
        caplog.clear()
        [(name, _, value)] = [one.partition("=") for one in insync.split() if "replicas=2" in one]
        alter(cluster, harness.ledger, {name: value})
        harness.opened().close()
        assert warnings(caplog) == []


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the sink has warned of."""
    return [
        one.getMessage() for one in caplog.records if one.name.startswith("twophase.sinks.kafka")
    ]


def alter(cluster: KafkaCluster, topic: str, settings: Mapping[str, str]) -> None:
    with ClusterTopics(cluster) as topics:
        topics.alter(topic, settings)


def spread(cluster: KafkaCluster, topic: str, brokers: Sequence[int] = ALL) -> None:
    """Give each partition a replica on these brokers, as kafka-reassign-partitions.sh does."""
    with closing(KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))) as admin:
        [found] = admin.describe_topics([topic])
        admin.alter_partition_reassignments(
            {TopicPartition(topic, one["partition_index"]): brokers for one in found["partitions"]}
        )
    cluster.wait_until_on(topic, brokers)
