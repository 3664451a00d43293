"""A cluster of three brokers, of which one or two are killed: the others go on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.kafka_cluster import BROKERS, KafkaCluster
from integration.kafka.cluster_topics import MIN_IN_SYNC_OPTION, ClusterTopics
from integration.kafka_sink.cluster_harness import (
    IDS,
    NEXT_DRIVER,
    SECOND,
    Base,
    ClusterHarness,
    abort_all,
    asked,
    check_each_row_is_read_once,
    committed,
    coordinator,
    is_done,
    unfinished,
)
from integration.kafka_sink.test_spark import Driver, Given
from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, RetryLater
from twophase.contract.sink import CommitRequest
from twophase.errors import DeclinedError, TargetUnreachableError, TwoPhaseError
from twophase.ids import Subtask
from twophase.sinks.kafka.ledger import FENCES, PROOFS
from twophase.sinks.kafka.names import name_of
from twophase.sinks.kafka.open_sink import OpenKafkaSink
from twophase.sinks.kafka.requests import EMPTY
from twophase.sinks.kafka.staging import Place, is_staged
from twophase.testing.harness import fresh_name, transaction_id

pytestmark = [
    pytest.mark.part("kafka"),
    pytest.mark.server,
    pytest.mark.proof,
    pytest.mark.timeout(3600),
]

_JOB_TIMEOUT_S = 1_800.0
_PARTITION = 0


Victim = Callable[[KafkaCluster, ClusterHarness, Committable], int]


def leader_of_rows(cluster: KafkaCluster, harness: ClusterHarness, _: Committable) -> int:
    return cluster.leader_of(harness.topic, _PARTITION)


def leader_of_proofs(cluster: KafkaCluster, harness: ClusterHarness, _: Committable) -> int:
    return cluster.leader_of(harness.ledger, PROOFS)


def leader_of_fences(cluster: KafkaCluster, harness: ClusterHarness, _: Committable) -> int:
    return cluster.leader_of(harness.ledger, FENCES)


def leader_of_staged_rows(cluster: KafkaCluster, _: ClusterHarness, piece: Committable) -> int:
    place = Place.of(piece)
    return cluster.leader_of(place.topic, place.partition)


VICTIMS = [
    *(
        (protocol, victim)
        for protocol in ("transaction", "staged")
        for victim in (leader_of_rows, leader_of_proofs, leader_of_fences, coordinator)
    ),
    ("staged", leader_of_staged_rows),
]


class TestABrokerThatIsKilled(Base):
    @pytest.mark.parametrize(("harness", "victim"), VICTIMS, indirect=["harness"])
    def test_while_a_piece_waits_is_not_missed_by_its_commit(
        self,
        cluster: KafkaCluster,
        harness: ClusterHarness,
        opened_sink: OpenKafkaSink,
        victim: Victim,
    ) -> None:
        """The commit begins at once, before there is another leader or coordinator."""
        piece = self.piece(opened_sink)
        killed = victim(cluster, harness, piece)
        cluster.kill_broker(killed)
        found, reasons = committed(opened_sink, piece)
        assert is_done(found), reasons
        again, _ = committed(opened_sink, piece)
        assert isinstance(again, AlreadyCommitted)
        assert cluster.live == [node for node in range(1, BROKERS + 1) if node != killed]
        harness.look_again()
        assert harness.ids_read() == IDS
        cluster.restart_all_killed()
        check_each_row_is_read_once(harness, opened_sink)

    def test_while_rows_are_written_declines_the_attempt_at_most_and_the_next_one_writes_them(
        self, cluster: KafkaCluster, harness: ClusterHarness, opened_sink: OpenKafkaSink
    ) -> None:
        """Rows are on their way to the leader that dies; another one may get them in time."""
        writer = opened_sink.writers()(transaction_id(), Subtask(0, 0))
        writer.write(self.batch(IDS))
        topic = harness.topic if harness.options["protocol"] == "transaction" else harness.staging
        cluster.kill_broker(cluster.leader_of(topic, _PARTITION))
        try:
            writer.write(self.batch(IDS))
            piece = writer.pre_commit()
        except DeclinedError:
            writer.abort()
            cluster.restart_all_killed()
            abort_all(opened_sink)
            asked(lambda: opened_sink.fence(SECOND))
            piece = self.piece(opened_sink, SECOND)
            expected = IDS
        else:
            expected = sorted([*IDS, *IDS])
        assert piece is not None
        found, reasons = committed(opened_sink, piece)
        assert is_done(found), reasons
        cluster.restart_all_killed()
        harness.look_again()
        assert harness.ids_read() == expected
        assert harness.open_transactions() == []
        assert [*asked(opened_sink.in_doubt)] == []

    def test_in_the_middle_of_a_commit_is_not_missed_by_the_next_try(
        self,
        cluster: KafkaCluster,
        harness: ClusterHarness,
        opened_sink: OpenKafkaSink,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Of a staged piece all rows are in the open transaction of the copy; of the other one the
        coordinator has just been asked to commit.
        """
        piece = self.piece(opened_sink)
        killed: list[int] = []

        def kill(point: str) -> None:
            if point == "K02" and not killed:
                killed.append(coordinator(cluster, harness, piece))
                cluster.kill_broker(killed[0])

        if is_staged(piece):
            monkeypatch.setattr("twophase.sinks.kafka.staged.failpoint", kill)
        else:
            end = opened_sink._brokers.end

            def ended(*given: Any, **named: Any) -> Any:
                answer = end(*given, **named)
                kill("K02")
                return answer

            monkeypatch.setattr(opened_sink._brokers, "end", ended)
        found, reasons = committed(opened_sink, piece)
        assert killed
        assert is_done(found), reasons
        cluster.restart_all_killed()
        check_each_row_is_read_once(harness, opened_sink)

    def test_does_not_let_a_writer_go_on_whose_attempt_was_aborted(
        self, cluster: KafkaCluster, harness: ClusterHarness, opened_sink: OpenKafkaSink
    ) -> None:
        """The new coordinator knows the epochs of the old one."""
        late = opened_sink.writers()(transaction_id(), Subtask(0, 0))
        late.write(self.batch(IDS))
        late.flush()
        piece = self.piece(opened_sink, number=1)
        with closing(harness.opened(NEXT_DRIVER)) as driver:
            cluster.kill_broker(coordinator(cluster, harness, piece))
            for one in (piece, unfinished(late, driver)):
                asked(lambda: driver.abort([one]))  # noqa: B023 - called at once
            if harness.options["protocol"] == "transaction":
                name = name_of(harness.topic, piece)
                assert driver._brokers.describe([name])[name].state == EMPTY
            with pytest.raises(TwoPhaseError):
                late.pre_commit()
            late.abort()
            again = self.piece(driver, NEXT_DRIVER, 2)
            found, reasons = committed(driver, again)
            assert is_done(found), reasons
            cluster.restart_all_killed()
            check_each_row_is_read_once(harness, driver)


class TestTooFewReplicasInSync(Base):
    def test_a_commit_waits_until_two_of_three_killed_brokers_are_back(
        self, cluster: KafkaCluster, harness: ClusterHarness, opened_sink: OpenKafkaSink
    ) -> None:
        """The one that is left can neither take records nor elect leaders."""
        piece = self.piece(opened_sink)
        for node in cluster.live[1:]:
            cluster.kill_broker(node)
        reasons: list[str] = []
        for retries in range(2):
            try:
                [found] = opened_sink.commit([CommitRequest(piece, retries)])
            except TargetUnreachableError as error:
                reasons.append(str(error))
            else:
                assert isinstance(found, RetryLater), found
                reasons.append(found.reason)
        assert all(harness.topic in one or "Kafka at " in one for one in reasons), reasons
        if harness.options["protocol"] == "transaction":
            assert all("Kafka aborts it in " in one for one in reasons), reasons
        cluster.restart_all_killed()
        done, more = committed(opened_sink, piece)
        assert is_done(done), more
        check_each_row_is_read_once(harness, opened_sink)

    def test_rows_that_too_few_replicas_take_decline_the_attempt_by_name(
        self, cluster: KafkaCluster, harness: ClusterHarness
    ) -> None:
        """The brokers are there, one replica is not: the topic asks for three."""
        all_of_them = {MIN_IN_SYNC_OPTION: str(BROKERS)}
        harness.topic = harness.topics.create(1, fresh_name("strict"), all_of_them)
        with closing(harness.opened()) as sink:
            waiting = self.piece(sink)
            cluster.kill_broker(cluster.live[-1])
            harness.look_again()
            if harness.options["protocol"] == "transaction":
                with pytest.raises(DeclinedError) as caught:
                    self.piece(sink, number=1)
                assert harness.topic in str(caught.value)
                assert "enough replicas are in sync" in caught.value.remedy
            else:
                [found] = sink.commit([CommitRequest(waiting)])
                assert isinstance(found, RetryLater)
                assert harness.topic in found.reason
            cluster.restart_all_killed()
            done, reasons = committed(sink, waiting)
            assert is_done(done), reasons
            abort_all(sink)
            check_each_row_is_read_once(harness, sink)


@pytest.mark.spark
@pytest.mark.parametrize("protocol", ["transaction", "staged"])
def test_a_job_whose_brokers_are_killed_in_turn_has_every_order_once(
    cluster: KafkaCluster, tmp_path: Path, protocol: str
) -> None:
    """It reads from the cluster, and writes to it."""
    with ClusterTopics(cluster) as topics:
        given = Given(topics, tmp_path, protocol, plugin=False, records_per_batch=10)
    driver = Driver(given.settings, given.runs)
    for node in cluster.live:
        before = orders_read(cluster, given)

        def has_more(before: int = before) -> bool:
            return orders_read(cluster, given) > before

        driver.wait_for(has_more, f"orders behind the first {before}", _JOB_TIMEOUT_S)
        cluster.kill_broker(node)
        cluster.wait_until_fenced(node)
        cluster.restart_all_killed()
    assert driver.running, "it was done before the last broker was back"
    ended = driver.wait(_JOB_TIMEOUT_S)
    assert ended.code == 0, ended.output
    with ClusterTopics(cluster) as given.topics:
        given.verify()


def orders_read(cluster: KafkaCluster, given: Given) -> int:
    """How many orders a reader of committed records gets."""
    with ClusterTopics(cluster) as topics:
        return len(topics.records(given.harness.topic))
