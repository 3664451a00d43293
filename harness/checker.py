"""The independent checker: compares Kafka with a table, as multisets.

It shares no code with the product: it reads Kafka with a plain consumer and the table with plain
SQL, and compares (partition, offset, payload hash) with their multiplicities; distinct counts would
hide a loss behind a duplicate. Both sides are streamed; only 24 bytes a record stay in memory, so
that millions of records can be compared.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from numpy.typing import NDArray
from pymysql.cursors import SSCursor

RECORD = np.dtype([("partition", np.int64), ("offset", np.int64), ("payload", np.int64)])
"""`payload` is Python's own keyed 64-bit hash: equal within one process, which reads both sides."""

Records = NDArray[np.void]

_AT_A_TIME = 20_000
_TIMEOUT_S = 30.0
_POLL_S = 0.1
_EXAMPLES = 3


@dataclass(frozen=True)
class Verdict:
    """The result of a comparison.

    Attributes:
        produced: records in Kafka.
        stored: rows in the table.
        lost: records without a row.
        duplicated: rows beyond the first of their record.
        foreign: rows that match no record.
        examples: a few of each, for the reader.
    """

    produced: int
    stored: int
    lost: int
    duplicated: int
    foreign: int
    examples: str

    @property
    def exact(self) -> bool:
        """True if every record exists once, and nothing else."""
        return (self.lost, self.duplicated, self.foreign) == (0, 0, 0)


def compare(produced: Records, stored: Records) -> Verdict:
    """Compare two multisets, each in any order."""
    both = np.concatenate([produced, stored])
    from_table = np.repeat([0, 1], [len(produced), len(stored)])
    order = np.lexsort([both[name] for name in ("payload", "offset", "partition")])
    both, from_table = both[order], from_table[order]
    # The start of each run of equal records. reduceat needs at least one.
    first = np.flatnonzero(np.append(np.ones(min(len(both), 1), bool), both[1:] != both[:-1]))
    stored_times = np.add.reduceat(from_table, first) if len(first) else from_table
    produced_times = np.diff(np.append(first, len(both))) - stored_times
    lost = np.maximum(produced_times - stored_times, 0)
    surplus = np.maximum(stored_times - produced_times, 0)
    duplicated = np.where(produced_times > 0, surplus, 0)
    foreign = surplus - duplicated
    found = {"lost": lost, "duplicated": duplicated, "foreign": foreign}
    examples = "; ".join(
        f"{name}: {_shown(both[first[times > 0]])}" for name, times in found.items() if times.any()
    )
    return Verdict(
        len(produced),
        len(stored),
        int(lost.sum()),
        int(duplicated.sum()),
        int(foreign.sum()),
        examples,
    )


def check(servers: str, topic: str, connection: Any, table: str) -> Verdict:
    """Compare a whole topic with a whole table."""
    return compare(read_topic(servers, topic), read_table(connection, table))


def read_topic(servers: str, topic: str) -> Records:
    """Yield every record of the topic up to its end."""
    settings = {
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    settings |= {"auto.offset.reset": "earliest"}  # records may have expired
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": f"checker-{uuid.uuid4()}", **settings}
    )
    try:
        partitions = consumer.list_topics(topic, _TIMEOUT_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        return _concatenated(
            _records(messages) for messages in _until_all_ended(consumer, len(partitions))
        )
    finally:
        consumer.close()


def read_table(connection: Any, table: str) -> Records:
    """Yield every row of the table, streamed."""
    with connection.cursor(SSCursor) as cursor:
        cursor.execute(
            "SELECT IFNULL(kafka_partition, -1), IFNULL(kafka_offset, -1),"
            f" CONCAT_WS('|', id, customer, CAST(amount AS DECIMAL(20, 2))) FROM {table}"
        )
        return _concatenated(_array(rows) for rows in _blocks(cursor))


def _blocks(cursor: SSCursor) -> Iterator[Any]:
    while rows := cursor.fetchmany(_AT_A_TIME):
        yield rows


def _until_all_ended(consumer: Consumer, partitions: int) -> Iterator[list[Message]]:
    ended = 0
    deadline = time.monotonic() + _TIMEOUT_S
    while ended < partitions:
        messages = consumer.consume(_AT_A_TIME, _POLL_S)  # waits for all of them, or the whole time
        if messages:
            deadline = time.monotonic() + _TIMEOUT_S
        elif time.monotonic() > deadline:
            raise RuntimeError(
                f"Kafka gave nothing for {_TIMEOUT_S:g} s, "
                f"{partitions - ended} partitions are not at their end"
            )
        faults = [fault for message in messages if (fault := message.error()) is not None]
        others = [fault for fault in faults if fault.code() != KafkaError._PARTITION_EOF]
        if others:
            raise RuntimeError(f"Kafka: {others[0]}")
        ended += len(faults)
        yield [message for message in messages if message.error() is None]


def _records(messages: list[Message]) -> Records:
    orders = json.loads(b"[" + b",".join(message.value() or b"null" for message in messages) + b"]")
    return _array(
        (
            message.partition() or 0,
            message.offset() or 0,
            f"{int(order['id'])}|{order['customer']}|{float(order['amount']):.2f}",
        )
        for message, order in zip(messages, orders, strict=True)
    )


def _array(rows: Iterable[tuple[int, int, str]]) -> Records:
    return np.array(
        [(partition, offset, hash(payload)) for partition, offset, payload in rows], RECORD
    )


def _concatenated(arrays: Iterable[Records]) -> Records:
    return np.concatenate([np.empty(0, RECORD), *arrays])


def _shown(records: Records) -> list[tuple[int, int]]:
    return [(int(record["partition"]), int(record["offset"])) for record in records[:_EXAMPLES]]
