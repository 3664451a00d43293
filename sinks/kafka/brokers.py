"""Requests to the brokers: of transactions, and of the ledger.

Transactions are ended, described and listed here by their ids, whoever has begun them. All requests
have the form that librdkafka's have (EndTxn up to version 4): brokers tell the protocols of
transactions apart by it, and the two do not mix.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka import TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.protocol.admin.transactions import DescribeTransactionsRequest
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.metadata import CoordinatorType
from kafka.protocol.producer.transaction import EndTxnRequest, InitProducerIdRequest
from kafka.record import MemoryRecords

from twophase.errors import (
    PreflightError,
    SourceUnavailableError,
    TargetUnreachableError,
    TwoPhaseError,
)
from twophase.kafka_client.access import AccessError, tls_remedy
from twophase.kafka_client.client import BrokerClient
from twophase.kafka_client.credentials import SecretError
from twophase.kafka_client.options import ConnectionOptions
from twophase.kafka_client.partitions import Partition, Topic

T = TypeVar("T")
EMPTY, ONGOING = "Empty", "Ongoing"
PREPARE_COMMIT, COMPLETE_COMMIT = "PrepareCommit", "CompleteCommit"
PREPARE_ABORT, COMPLETE_ABORT = "PrepareAbort", "CompleteAbort"
_END_VERSION, _INIT_VERSION = 4, 4
_NO_PRODUCER = -1
DEFAULT_REPLICAS = -1
_FETCH_VERSION, _FETCH_BYTES, _FETCH_WAIT_MS = 11, 1 << 20, 10
_MOST_TIMEOUT = "transaction.max.timeout.ms"
_MOVED = (
    kafka_errors.NotCoordinatorError,
    kafka_errors.CoordinatorNotAvailableError,
    kafka_errors.CoordinatorLoadInProgressError,
)
UNDER_WAY = kafka_errors.ConcurrentTransactionsError
"""A transaction is about to end: ask again."""
_POLL_S = 0.005
_MOST_KNOWN = 1_000
RIGHTS = (
    "check user, password and ACLs: WRITE and DESCRIBE on the topic; READ, WRITE and DESCRIBE on "
    "the ledger, and CREATE unless it exists; WRITE and DESCRIBE on transactional ids that begin "
    "with `twophase/`; DESCRIBE on the cluster. With `protocol=staged` also "
    "DESCRIBE_CONFIGS on the topic, and on topics that begin with `twophase-staging-` READ, WRITE, "
    "DESCRIBE, DELETE, DESCRIBE_CONFIGS, and CREATE unless they exist."
)


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


class Brokers:
    """An open client of the brokers.

    Args:
        options: of the connection.

    Attributes:
        options: as given.
        begun: whether the sink is open: what worked once may work again (docs/decisions/0067).
    """

    def __init__(self, options: ConnectionOptions) -> None:
        self.options = options
        self.begun = False
        self._cluster = BrokerClient(options)

    def close(self) -> None:
        """Close the connection."""
        self._cluster.close()

    def cluster_id(self) -> str:
        """Return the id of the cluster."""
        found = self._call("the cluster's id", lambda admin: admin.describe_cluster())
        return str(found["cluster_id"])

    def topic(self, name: str) -> Topic | None:
        """Describe a topic; None if it does not exist."""
        return self._asked(lambda: self._cluster.topics([name])).get(name)

    def ids(self, *topics: str) -> tuple[str, ...]:
        """Return the id of this creation of each topic; `none` of one that does not exist."""
        found = self._asked(lambda: self._cluster.topics(topics))
        return tuple(found[name].topic_id if name in found else "none" for name in topics)

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        """Return the last stable offset of a partition and its high watermark, in this order.

        Raises:
            TargetUnreachableError: there is no such partition.
        """
        key = Partition(topic, partition)
        stable = self._asked(lambda: self._cluster.ends([key]))
        high = self._asked(lambda: self._cluster.high_watermarks([key]))
        if key not in stable or key not in high:
            raise TargetUnreachableError(
                f"Partition {partition} of topic {topic!r} does not exist.",
                remedy="find out who has deleted the topic.",
            )
        return stable[key].offset, high[key].offset

    def begin(self, topic: str, partition: int) -> int:
        """Return the first offset of a partition."""
        key = Partition(topic, partition)
        return self._asked(lambda: self._cluster.begins([key])).get(key, 0)

    def ranges(self, topic: str, partitions: int) -> Mapping[int, tuple[int, int]]:
        """Return the first offset of each partition and its high watermark; empty if one of them
        does not exist.
        """
        keys = [Partition(topic, number) for number in range(partitions)]
        begins = self._asked(lambda: self._cluster.begins(keys))
        highs = self._asked(lambda: self._cluster.high_watermarks(keys))
        both = begins.keys() & highs.keys()
        return {key.number: (begins[key], highs[key].offset) for key in both}

    def batches(self, topic: str, partition: int, start: int, end: int) -> Iterator[Any]:
        """Yield the batches of a range of a partition, as they lie in the log: those of open and
        aborted transactions too, and their markers.

        Raises:
            TargetUnreachableError: the range is not there.
        """
        deadline = self.deadline_s()
        while start < end:
            got = start
            for batch in self._fetched(topic, partition, start):
                if batch.base_offset >= end:
                    return
                yield batch
                got = batch.next_offset
            if got == start and time.monotonic() >= deadline:
                raise TargetUnreachableError(
                    f"Partition {topic}-{partition} cannot be read: nothing at offset {start}.",
                    remedy="check that its brokers run, and that the account may read it.",
                )
            start = got

    def _fetched(self, topic: str, partition: int, start: int) -> list[Any]:
        data = self._call(
            f"records of {topic}-{partition}",
            lambda admin: admin._manager.run(_raw, admin, TopicPartition(topic, partition), start),
        )
        records, found = MemoryRecords(data), []
        while (batch := records.next_batch()) is not None:
            found.append(batch)
        return found

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """Delete the records of partitions before an offset of each."""
        wanted = {TopicPartition(topic, number): offset for number, offset in before.items()}
        if wanted:
            self._call(
                f"deletion of records of {topic}", lambda admin: admin.delete_records(wanted)
            )

    def replicas(self, topic: str) -> int:
        """Return how many replicas a topic has that exists, at least."""
        [found] = self._call("replicas", lambda admin: admin.describe_topics([topic]))
        return min(len(one["replica_nodes"]) for one in found["partitions"])

    def create(
        self, topic: str, partitions: int, settings: Mapping[str, str], replicas: int
    ) -> None:
        """Create a topic, unless it exists, and wait for it.

        Args:
            topic: its name.
            partitions: how many it gets.
            settings: that it gets.
            replicas: how many it gets, or `DEFAULT_REPLICAS`.
        """
        wanted = {
            "num_partitions": partitions,
            "replication_factor": replicas,
            "configs": dict(settings),
        }

        def create(admin: Any) -> None:
            with suppress(kafka_errors.TopicAlreadyExistsError):
                admin.create_topics({topic: wanted})
            admin.wait_for_topics([topic])

        self._call(f"creation of topic {topic}", create)

    def settings(self, topic: str) -> Mapping[str, str]:
        """Return the settings of a topic; empty if we may not read them."""
        wanted = [ConfigResource(ConfigResourceType.TOPIC, topic)]
        found = self._call(
            f"settings of topic {topic}",
            lambda admin: admin.describe_configs(wanted, config_filter="all"),
        )
        settings = found.get("topic", {}).get(topic, {})
        return {name: str(one["value"]) for name, one in settings.items()}

    def check_rights(self, topics: Mapping[str, Collection[str]], name: str) -> None:
        """Check what the account may do, as far as the brokers tell. Writes nothing.

        Args:
            topics: what it will do to each topic, in Kafka's words.
            name: a transactional id that nobody uses.

        Raises:
            PreflightError: it may not.
        """
        described = self._call(
            "rights on topics", lambda admin: admin.describe_topics(sorted(topics))
        )
        for one in described:
            allowed = one.get("authorized_operations")
            missing = [right for right in topics[one["name"]] if right not in (allowed or [right])]
            if missing:
                raise PreflightError(
                    f"Kafka at {self.options.bootstrap_servers} gives the account no right to "
                    f"{' and '.join(missing)} topic {one['name']!r}.",
                    remedy=RIGHTS,
                )
        # nobody has begun it, so that this ends nothing: the answer to an account without the
        # right is another one
        nothing = Transaction(ONGOING, 0, 0, frozenset(), 0.0, 0.0)
        self.end(name, nothing, commit=False)

    def longest_timeout_s(self) -> float | None:
        """Return the longest transaction timeout that the brokers take; None if it is unknown."""

        def ask(admin: Any) -> float | None:
            broker = str(admin.describe_cluster()["brokers"][0]["broker_id"])
            wanted = [ConfigResource(ConfigResourceType.BROKER, broker, {_MOST_TIMEOUT: None})]
            try:
                found = admin.describe_configs(wanted, config_filter="all")
            except kafka_errors.ClusterAuthorizationFailedError:
                return None
            one = found.get("broker", {}).get(broker, {}).get(_MOST_TIMEOUT)
            return None if one is None else int(one["value"]) / 1000

        return self._call("settings of a broker", ask)

    def open_transactions(self, prefix: str) -> Sequence[str]:
        """Return the ids, of those that begin so, of transactions that may still be committed.

        A coordinator may move from a broker that has not been asked yet to one that has: where
        there are several, all are asked until two answers are the same.
        """

        def ask(admin: Any) -> tuple[list[str], int]:
            brokers = [one["broker_id"] for one in admin.describe_cluster()["brokers"]]
            found = admin.list_transactions(
                broker_ids=brokers, state_filters=[ONGOING, PREPARE_COMMIT]
            )
            ids = {one.transactional_id for listed in found.values() for one in listed}
            return sorted(one for one in ids if one.startswith(prefix)), len(brokers)

        before, brokers = self._call("open transactions", ask)
        while brokers > 1:
            found, brokers = self._call("open transactions", ask)
            if found == before:
                break
            before = found
        return before

    def describe(self, ids: Collection[str]) -> dict[str, Transaction]:
        """Describe transactions by id; those that nobody knows are left out."""
        if not ids:
            return {}
        return self._call(
            "states of transactions",
            lambda admin: admin._manager.run(_described, admin, sorted(ids)),
        )

    def end(self, name: str, transaction: Transaction, *, commit: bool) -> type[Exception] | None:
        """Ask the coordinator to commit or abort an open transaction of any process.

        Args:
            name: its id.
            transaction: as it was described.
            commit: otherwise abort.

        Returns:
            The error of Kafka; None if the coordinator has taken it over, and will end it.
        """
        request = {
            "transactional_id": name,
            "producer_id": transaction.producer,
            "producer_epoch": transaction.epoch,
            "committed": commit,
            "max_version": _END_VERSION,
        }
        return self._of_coordinator(name, lambda: EndTxnRequest(**request))

    def fence_producer(self, name: str) -> type[Exception] | None:
        """Close a transactional id to whoever has used it, and abort what is open.

        Returns:
            As `end`.
        """
        request = {
            "transactional_id": name,
            "transaction_timeout_ms": int(self.options.request_timeout_s * 1000),
            "producer_id": _NO_PRODUCER,
            "producer_epoch": _NO_PRODUCER,
            "max_version": _INIT_VERSION,
        }
        return self._of_coordinator(name, lambda: InitProducerIdRequest(**request))

    def wait(self) -> None:
        """Let a coordinator go on before it is asked again."""
        time.sleep(_POLL_S)

    def deadline_s(self) -> float:
        """Return until when to ask again, by the monotonic clock."""
        return time.monotonic() + self.options.request_timeout_s

    def _of_coordinator(self, name: str, request: Callable[[], Any]) -> type[Exception] | None:
        found: type[Exception] = self._call(
            f"transaction {name}", lambda admin: admin._manager.run(_sent, admin, name, request)
        )
        return None if found is kafka_errors.NoError else found

    def _call(self, what: str, call: Callable[[Any], T]) -> T:
        return self._asked(lambda: self._cluster.call(what, call))

    def _asked(self, ask: Callable[[], T]) -> T:
        failure: TwoPhaseError
        try:
            return ask()
        except AccessError as error:
            failure = self._refused(error.what, tls_remedy(error.what) or RIGHTS)
        except SecretError as error:
            failure = self._refused(error.what, error.remedy) if self.begun else error
        except SourceUnavailableError as error:
            failure = TargetUnreachableError(error.what, remedy=error.remedy)
        raise failure  # without its cause, whose frames keep kafka-python's sockets open

    def _refused(self, what: str, remedy: str) -> TwoPhaseError:
        if not self.begun:
            return PreflightError(what, remedy=remedy)
        again = "The job tries again, and reads passwords and PEM files again."
        return TargetUnreachableError(what, remedy=f"{remedy} {again}")


async def _described(admin: Any, ids: Sequence[str]) -> dict[str, Transaction]:
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
            _check(admin, one.transactional_id, error)
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


async def _raw(admin: Any, at: TopicPartition, offset: int) -> bytes:
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


async def _sent(admin: Any, name: str, request: Callable[[], Any]) -> type[Exception]:
    [node] = (await _coordinators(admin, [name])).values()
    response = await admin._manager.send(request(), node_id=node)
    error: type[Exception] = kafka_errors.for_code(response.error_code)
    if error in _MOVED or issubclass(error, kafka_errors.AuthorizationError):
        _check(admin, name, error)
    return error


async def _coordinators(admin: Any, ids: Sequence[str]) -> Mapping[str, int]:
    known = _known_coordinators(admin)
    if len(known) > _MOST_KNOWN:  # ids are new for each piece, and kafka-python keeps all
        known.clear()
    found: Mapping[str, int] = await admin._find_coordinator_ids(
        ids, key_type=CoordinatorType.TRANSACTION
    )
    return found


def _known_coordinators(admin: Any) -> dict[Any, int]:
    cluster = admin._manager.cluster
    found: dict[Any, int] = cluster._coordinators
    return found


def _check(admin: Any, name: str, error: Any) -> None:
    """Raise an error of a coordinator; ask again who it is if it is another one by now."""
    if error in _MOVED:
        _known_coordinators(admin).pop((CoordinatorType.TRANSACTION, name), None)
    if error is not kafka_errors.NoError:
        raise error(name)
