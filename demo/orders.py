"""The input of the demo: a topic of orders, every one different."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

TOPIC = "orders"
PARTITIONS = 2
_CUSTOMERS = 10_000
_LARGEST_CENTS = 1_000_000
_FLUSH_TIMEOUT_S = 120
_POLL_EVERY = 10_000


def create_topic(servers: str) -> None:
    """Create the topic; it must not exist."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)])
    finally:
        admin.close()


def produce(servers: str, count: int) -> Iterator[int]:
    """Write `count` orders and yield, from time to time, how many are on their way.

    Raises:
        RuntimeError: the broker does not have all of them at the end.
    """
    settings = {"compression.type": "lz4", "linger.ms": 20, "batch.size": 500_000, "acks": "all"}
    producer = Producer(
        {"bootstrap.servers": servers, "queue.buffering.max.messages": 500_000, **settings}
    )
    for number in range(count):
        value = _order(number)
        while True:
            try:
                producer.produce(TOPIC, value, partition=number % PARTITIONS)
                break
            except BufferError:  # the queue is full: let the broker catch up
                producer.poll(0.1)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
            yield number
    left = producer.flush(_FLUSH_TIMEOUT_S)
    if left:
        raise RuntimeError(f"{left} of {count} orders did not reach Kafka")
    yield count


def _order(number: int) -> bytes:
    cents = number * 2_654_435_761 % _LARGEST_CENTS + 1
    return b'{"id": %d, "customer": "customer-%d", "amount": %d.%02d}' % (
        number,
        number * 7919 % _CUSTOMERS,
        cents // 100,
        cents % 100,
    )
