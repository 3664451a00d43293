"""Requests that kafka-python's admin client has no call for: of transactions by their ids, and of
the log as it is, with what became of its transactions. They run in its thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka import TopicPartition
from kafka import errors as kafka_errors
from kafka.protocol.admin.transactions import DescribeTransactionsRequest
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.metadata import CoordinatorType

from twophase.sinks.kafka.clients import Entry

EMPTY, ONGOING = "Empty", "Ongoing"
PREPARE_COMMIT, COMPLETE_COMMIT = "PrepareCommit", "CompleteCommit"
PREPARE_ABORT, COMPLETE_ABORT = "PrepareAbort", "CompleteAbort"
_MOVED = (
    kafka_errors.NotCoordinatorError,
    kafka_errors.CoordinatorNotAvailableError,
    kafka_errors.CoordinatorLoadInProgressError,
)
_MOST_KNOWN = 1_000
_STEP, _STEPS = 31, 4
"""`String.hashCode` weighs the last character but one 31 times as much as the last: four of that
one, 31 of this, are 124 hashes in a row.
"""
_FETCH_VERSION, _FETCH_BYTES, _FETCH_WAIT_MS = 11, 1 << 20, 10


@dataclass(frozen=True)
class Transaction:
    """A transaction as its coordinator has it.

    Attributes:
        state: one of Kafka's.
        producer: the id of the producer.
        epoch: its epoch.
        partitions: topics and partitions that it has written to.
        timeout_s: after which the coordinator aborts it, from its first record on.
        started_s: seconds since 1970; negative if it has not begun.
    """

    state: str
    producer: int
    epoch: int
    partitions: frozenset[tuple[str, int]]
    timeout_s: float
    started_s: float


async def described(admin: Any, ids: Sequence[str]) -> dict[str, Transaction]:
    """Return transactions by id; those that nobody knows are left out."""
    found: dict[str, Transaction] = {}
    asked: dict[int, list[str]] = {}
    for name, node in (await _coordinators(admin, ids)).items():
        asked.setdefault(node, []).append(name)
    for node, names in asked.items():
        request = DescribeTransactionsRequest(transactional_ids=names)
        response = await admin._manager.send(request, node_id=node)
        for one in response.transaction_states:
            error = kafka_errors.for_code(one.error_code)
            if error is kafka_errors.TransactionalIdNotFoundError:
                continue
            if error is not kafka_errors.NoError:
                raise error(one.transactional_id)
            partitions = {(of.topic, number) for of in one.topics for number in of.partitions}
            found[one.transactional_id] = Transaction(
                one.transaction_state,
                one.producer_id,
                one.producer_epoch,
                frozenset(partitions),
                one.transaction_timeout_ms / 1000,
                one.transaction_start_time_ms / 1000,
            )
    return found


def one_in_each_partition(prefix: str) -> list[str]:
    """Return transactional ids of nobody that are in all partitions of Kafka's log of transactions,
    of which there are 50 by default, and 124 at most.

    The hash of an id tells its partition, and that of these are numbers that follow one another.
    """
    return [
        f"{prefix}nobody{chr(ord('A') + high)}{chr(ord('A') + low)}"
        for high in range(_STEPS)
        for low in range(_STEP)
    ]


async def loaded_coordinators(admin: Any, nobody: Sequence[str]) -> Mapping[str, int]:
    """Return who coordinates ids that nobody uses. One that has not loaded the transactions of its
    partition yet raises an error, and so does one that has given them up.
    """
    await described(admin, nobody)
    return dict(await _coordinators(admin, nobody))


async def raw_records(admin: Any, at: TopicPartition, offset: int) -> bytes:
    """Return the bytes of the log of a partition from an offset on, some at a time."""
    [leader] = await admin._async_get_leader_for_partitions([at])
    wanted = FetchRequest.FetchTopic
    part = wanted.FetchPartition(
        partition=at.partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES
    )
    request = FetchRequest(
        max_wait_ms=_FETCH_WAIT_MS,
        min_bytes=0,
        max_bytes=_FETCH_BYTES,
        topics=[wanted(topic=at.topic, partitions=[part])],
        max_version=_FETCH_VERSION,
    )
    response = await admin._manager.send(request, node_id=leader)
    [[answer]] = [one.partitions for one in response.responses]
    error = kafka_errors.for_code(answer.error_code)
    if error is not kafka_errors.NoError:
        raise error(f"{at.topic}-{at.partition}, offset {offset}")
    return bytes(answer.records or b"")


async def sent(admin: Any, name: str, request: Callable[[], Any]) -> type[Exception]:
    """Send a request to the coordinator of a transactional id; return the error of its answer."""
    [node] = (await _coordinators(admin, [name])).values()
    response = await admin._manager.send(request(), node_id=node)
    error: type[Exception] = kafka_errors.for_code(response.error_code)
    if error in _MOVED or issubclass(error, kafka_errors.AuthorizationError):
        raise error(name)
    return error


async def _coordinators(admin: Any, ids: Sequence[str]) -> Mapping[str, int]:
    if len(admin.coordinators) > _MOST_KNOWN:  # ids are new for each piece
        admin.coordinators.clear()
    found: Mapping[str, int] = await admin._find_coordinator_ids(
        ids, key_type=CoordinatorType.TRANSACTION
    )
    return found


@dataclass
class Settled:
    """The records of a range, in order.

    Attributes:
        committed: those of no transaction, and of committed ones.
        open: those whose transaction has not ended within the range.
    """

    committed: list[Entry] = field(default_factory=list)
    open: list[Entry] = field(default_factory=list)


def settled(batches: Iterable[Any], start: int) -> Settled:
    """Tell which records of a range are committed, by the markers in the log.

    A transaction writes a marker to each of its partitions when it ends, with the id of its
    producer. Consumers do not show them, and those of committed records stop at the first record of
    any open transaction. The markers tell the outcome of those behind it, whatever has become of
    their ids.

    Args:
        batches: those of the range.
        start: the first offset; no transaction that was begun before it is open there.
    """
    found = Settled()
    waiting: dict[int, list[Entry]] = {}
    for batch in batches:
        if batch.is_control_batch:
            ended = waiting.pop(batch.producer_id, [])
            found.committed += ended if _commits(batch) else []
        elif batch.is_transactional:
            waiting.setdefault(batch.producer_id, []).extend(_entries(batch, start))
        else:
            found.committed += _entries(batch, start)
    found.committed.sort(key=_offset)
    found.open = sorted((one for open in waiting.values() for one in open), key=_offset)
    return found


def _commits(batch: Iterable[Any]) -> bool:
    [marker] = batch
    return bool(marker.commit)


def _entries(batch: Iterable[Any], start: int) -> list[Entry]:
    return [
        Entry(record.offset, record.key or b"", record.value)
        for record in batch
        if record.offset >= start
    ]


def _offset(entry: Entry) -> int:
    return entry.offset
