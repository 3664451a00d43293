"""What brokers report of topics, as kafka-python passes it on."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from kafka.errors import KafkaConnectionError

from twophase.contract.source import SourceLeg
from twophase.errors import PreflightError
from twophase.kafka_client import client
from twophase.kafka_client.client import BrokerClient, _topics
from twophase.sources.kafka.options import KafkaOptions
from twophase.sources.spark_kafka import SparkKafkaSource

TOPIC: dict[str, Any] = {
    "name": "orders",
    "error_code": 0,
    "is_internal": False,
    "partitions": [{"partition_index": 0, "leader_epoch": 3}],
}
OPTIONS = KafkaOptions.parse({"kafka.bootstrap.servers": "a:1", "subscribe": "t"})


@pytest.mark.parametrize("given", [{}, {"topic_id": None}, {"topic_id": ""}])
def test_brokers_without_topic_ids_are_refused_with_a_way_to_read_from_them(
    given: dict[str, Any],
) -> None:
    with pytest.raises(PreflightError, match="no topic id for 'orders'") as caught:
        _topics([TOPIC | given])
    for way in ("KIP-516", "Apache Kafka 2.8", "Redpanda before 25.2"):
        assert way in caught.value.remedy
    assert "with Spark's own source, format: kafka, without group.id" in caught.value.remedy
    options = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders"}
    leg = SourceLeg("kafka", options)
    SparkKafkaSource().check_options(leg)
    SparkKafkaSource().notify_committed(leg, '{"orders":{"0":5}}')  # asks the brokers for nothing
    assert _topics([TOPIC | {"topic_id": "4f2a"}])


def test_a_topic_with_an_id_is_known_by_it() -> None:
    (topic,) = _topics([TOPIC | {"topic_id": "4f2a"}]).values()
    assert (topic.topic_id, topic.epochs) == ("4f2a", {0: 3})


class Opener:
    """Opens connections, but for the first few, which are refused.

    Args:
        refused: how many.

    Attributes:
        threads: in which each was asked for.
    """

    def __init__(self, refused: int = 0) -> None:
        self.threads: list[threading.Thread] = []
        self._refused = refused

    def __call__(self, **_: Any) -> Any:
        self.threads.append(threading.current_thread())
        if len(self.threads) <= self._refused:
            raise KafkaConnectionError("refused")
        return self

    def close(self) -> None:
        """Do nothing."""


def opened_ahead(patch: pytest.MonkeyPatch, opener: Opener) -> BrokerClient:
    patch.setattr(client, "Admin", opener)
    made = BrokerClient(OPTIONS)
    made.open_ahead()
    assert made._opening is not None
    made._opening.join()
    return made


def test_a_connection_that_was_opened_ahead_is_that_of_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opener = Opener()
    made = opened_ahead(monkeypatch, opener)
    assert made.call("x", lambda admin: admin) is opener
    made.open_ahead()
    assert [one.name for one in opener.threads] == ["twophase-kafka-opening"]
    made.close()


def test_a_connection_that_could_not_be_opened_ahead_is_opened_by_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opener = Opener(refused=1)
    made = opened_ahead(monkeypatch, opener)
    assert made.call("x", lambda admin: admin) is opener
    assert [one is threading.current_thread() for one in opener.threads] == [False, True]
    made.close()


def test_a_connection_that_is_being_opened_is_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    may, opener, now = threading.Event(), Opener(), BrokerClient._open

    def late(made: BrokerClient) -> Any:
        may.wait()
        return now(made)

    monkeypatch.setattr(client, "Admin", opener)
    monkeypatch.setattr(BrokerClient, "_open", late)
    made = BrokerClient(OPTIONS)
    made.open_ahead()
    closing = threading.Thread(target=made.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    may.set()
    closing.join()
    assert len(opener.threads) == 1
    assert made._admin is None
