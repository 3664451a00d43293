"""What brokers report of topics, as kafka-python passes it on."""

from __future__ import annotations

from typing import Any

import pytest

from twophase.contract.source import SourceLeg
from twophase.errors import PreflightError
from twophase.kafka_client.client import _topics
from twophase.sources.spark_kafka import SparkKafkaSource

TOPIC: dict[str, Any] = {
    "name": "orders",
    "error_code": 0,
    "is_internal": False,
    "partitions": [{"partition_index": 0, "leader_epoch": 3}],
}


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
