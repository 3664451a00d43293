"""The integration tests' records in Kafka: orders, each with its own payload, over
several partitions.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

SCHEMA = "id long, customer string, amount double, kafka_partition int, kafka_offset long"
COLUMNS = "id BIGINT, customer VARCHAR(64), amount DOUBLE, kafka_partition INT, kafka_offset BIGINT"


def create_topic(servers: str, topic: str, partitions: int = 2) -> None:
    """Create `topic`; it must not exist."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    try:
        admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
    finally:
        admin.close()


def orders(first: int, count: int) -> Iterator[dict[str, object]]:
    """Return orders `first` to `first + count - 1`; the same ids always give the same orders."""
    for number in range(first, first + count):
        noise = random.Random(number)
        yield {
            "id": number,
            "customer": f"customer-{noise.randrange(10_000)}",
            "amount": noise.randrange(1, 10**6) / 100,
        }


def send(servers: str, topic: str, value: bytes, partition: int) -> None:
    """Write one record of any content."""
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, value, partition=partition)
    if producer.flush(60):
        raise RuntimeError(f"the record did not reach {topic}")


def produce(servers: str, topic: str, first: int, count: int, partitions: int = 2) -> None:
    """Write orders round robin over the partitions, and wait until the broker has them all."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "enable.idempotence": True})
    for order in orders(first, count):
        producer.poll(0)
        producer.produce(
            topic, json.dumps(order).encode(), partition=int(str(order["id"])) % partitions
        )
    left = producer.flush(60)
    if left:
        raise RuntimeError(f"{left} of {count} records did not reach {topic}")
