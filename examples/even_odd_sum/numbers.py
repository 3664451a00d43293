"""The input: a topic of two partitions, each of which carries 1, 2, 3, ..."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from examples.even_odd_sum.query import PARITIES

TOPIC = "numbers"
PARTITIONS = 2
_FLUSH_TIMEOUT_S = 60


def produce(servers: str, count: int) -> None:
    """Create the topic and write 1 to `count` into each partition.

    Raises:
        RuntimeError: the broker does not have all of them at the end.
    """
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])
    finally:
        admin.close()
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "enable.idempotence": True})
    for partition, number in _records(count):
        producer.produce(TOPIC, b'{"number": %d}' % number, partition=partition)
        producer.poll(0)
    left = producer.flush(_FLUSH_TIMEOUT_S)
    if left:
        raise RuntimeError(f"{left} numbers did not reach Kafka")


def expected(count: int) -> dict[str, int]:
    """Return the sum of each parity."""
    return {
        parity: sum(number for _, number in _records(count) if number % 2 == remainder)
        for remainder, parity in enumerate(PARITIES)
    }


def _records(count: int) -> Iterator[tuple[int, int]]:
    return (
        (partition, number) for number in range(1, count + 1) for partition in range(PARTITIONS)
    )
