"""The data of the benchmarks: orders of about 100 bytes of JSON, from the partitions of
a topic to a table.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from twophase.spark.startup.progress import show_progress
from twophase.testing.services import KafkaService, SqlService

SCHEMA = "id long, customer string, product string, quantity int, amount double"
TABLE = "orders"
_REST = "customer VARCHAR(32), product VARCHAR(32), quantity INT, amount DOUBLE"
_PRODUCER = {
    "compression.type": "lz4",
    "linger.ms": 20,
    "acks": "all",
    "queue.buffering.max.messages": 500_000,
}
_POLL_EVERY = 10_000


@dataclass(frozen=True)
class Keys:
    """What the orders and their table are keyed by.

    Attributes:
        schema: of the records, as Spark has it.
        columns: of the table.
        key: the id of an order, as JSON.
    """

    schema: str
    columns: str
    key: Callable[[int], bytes]


def _random(number: int) -> bytes:
    return b'"%s"' % hashlib.md5(b"%d" % number, usedforsecurity=False).hexdigest().encode()


ASCENDING = "ascending"
KEYS = {
    ASCENDING: Keys(SCHEMA, f"id BIGINT PRIMARY KEY, {_REST}", lambda number: b"%d" % number),
    "random": Keys(
        SCHEMA.replace("id long", "id string"), f"id CHAR(32) PRIMARY KEY, {_REST}", _random
    ),
    "indexed": Keys(
        SCHEMA,
        f"id BIGINT PRIMARY KEY, {_REST}, KEY (customer)",
        lambda number: b"%d" % number,
    ),
}
"""Ids that rise, ids in no order, and ids that rise beside an index of another column."""


def order(number: int, keys: str = ASCENDING) -> bytes:
    """Return order `number`; the same number always gives the same order."""
    noise = number * 2_654_435_761 % 4_294_967_296
    amount = b"%d.%02d" % (noise % 10_000, noise % 100)
    fields = (KEYS[keys].key(number), noise % 100_000, noise % 997, 1 + noise % 9, amount)
    return (
        b'{"id": %b, "customer": "customer-%d", "product": "product-%d", "quantity": '
        b'%d, "amount": %b}'
    ) % fields


def partition_of(number: int, partitions: int, in_a_row: int = 1) -> int:
    """Return the partition of order `number`: they take turns, each with so many in a row."""
    return number // in_a_row % partitions


def produce(
    kafka: KafkaService,
    records: int,
    partitions: int,
    keys: str = ASCENDING,
    in_a_row: int = 1,
) -> str:
    """Write orders 0 to `records` - 1 into a new topic, `in_a_row` to each of its partitions in
    turn; return the topic's name.
    """
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    try:
        admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
    finally:
        admin.close()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, **_PRODUCER})
    with show_progress(f"Writing {records:,} orders to Kafka") as progress:
        for number in range(records):
            partition = partition_of(number, partitions, in_a_row)
            while True:
                try:
                    producer.produce(topic, order(number, keys), partition=partition)
                    break
                except BufferError:
                    producer.poll(0.05)
            if number % _POLL_EVERY == 0:
                producer.poll(0)
                progress.update(f"{number:,}")
        left = producer.flush(120)
    if left:
        raise RuntimeError(f"{left} of {records} records did not reach {topic}")
    return topic


def create_table(server: SqlService, keys: str = ASCENDING) -> str:
    """Create an empty table in a new database; return the database's name."""
    database = f"bench_{uuid.uuid4().hex[:8]}"
    server.create_database(database)
    with server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {TABLE} ({KEYS[keys].columns}) ENGINE=InnoDB")
    return database


def count_and_drop(server: SqlService, database: str) -> int:
    """Return how many rows the table has, and drop the database."""
    with server.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) FROM {TABLE}")
        [(rows,)] = cursor.fetchall()
        cursor.execute(f"DROP DATABASE {database}")
    return int(rows)
