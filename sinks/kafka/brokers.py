"""Requests to the brokers: of transactions, and of the ledger.

Transactions are ended, described and listed here by their ids, whoever has begun them. All requests
have the form that librdkafka's have (EndTxn up to version 4): brokers tell the protocols of
transactions apart by it, and the two do not mix.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from kafka import TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.protocol.producer.transaction import EndTxnRequest, InitProducerIdRequest
from kafka.record import MemoryRecords

from twophase.errors import (
    PreflightError,
    SourceUnavailableError,
    TargetUnreachableError,
    TwoPhaseError,
)
from twophase.kafka_client.access import AccessError
from twophase.kafka_client.client import BrokerClient
from twophase.kafka_client.credentials import SecretError
from twophase.kafka_client.partitions import Partition, Topic
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.sinks.kafka.requests import (
    ONGOING,
    PREPARE_COMMIT,
    Transaction,
    described,
    loaded_coordinators,
    one_in_each_partition,
    raw_records,
    sent,
)

T = TypeVar("T")
_END_VERSION, _INIT_VERSION = 4, 4
_NO_PRODUCER = -1
_MOST_TIMEOUT = "transaction.max.timeout.ms"
_POLL_S = 0.005
RIGHTS = (
    "check user, password and ACLs: WRITE and DESCRIBE on each topic; READ, WRITE and DESCRIBE on "
    "the ledger, and CREATE unless it exists; WRITE and DESCRIBE on transactional ids that begin "
    "with `twophase/`; DESCRIBE on the cluster. With `protocol=staged` also DESCRIBE_CONFIGS on "
    "each topic, and on topics that begin with `twophase-staging-` READ, WRITE, DESCRIBE, DELETE, "
    "DESCRIBE_CONFIGS, and CREATE unless they exist."
)


class Brokers:
    """An open client of the brokers.

    Args:
        options: of the sink.

    Attributes:
        options: as given.
        begun: whether the sink is open: what worked once may work again (docs/decisions/0067).
    """

    def __init__(self, options: KafkaSinkOptions) -> None:
        self.options = options
        self.begun = False
        self._cluster = BrokerClient(options, rights=RIGHTS)

    def close(self) -> None:
        """Close the connection."""
        self._cluster.close()

    def cluster_id(self) -> str:
        """Return the id of the cluster."""
        found = self._call("the cluster's id", lambda admin: admin.describe_cluster())
        return str(found["cluster_id"])

    def count(self) -> int:
        """Return how many brokers the cluster has; from Kafka 4.0 on with those that are down."""
        return self._call("the brokers", lambda admin: len(admin.describe_cluster()["brokers"]))

    def topic(self, name: str) -> Topic | None:
        """Describe a topic; None if it does not exist."""
        return self.topics(name).get(name)

    def topics(self, *names: str) -> dict[str, Topic]:
        """Describe topics by name; those that do not exist are left out."""
        return self._asked(lambda: self._cluster.topics(names))

    def ids(self, *topics: str) -> tuple[str, ...]:
        """Return the id of this creation of each topic; `none` of one that does not exist."""
        found = self.topics(*topics)
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
                remedy="find out who has deleted it; then start the job again, which says what has "
                "no proof any more, and how to go on.",
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
            lambda admin: admin._manager.run(
                raw_records, admin, TopicPartition(topic, partition), start
            ),
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

    def replicas(self, *topics: str) -> Mapping[str, int]:
        """Return how many replicas each partition of topics has at least, by name. A topic that was
        just created is waited for: each broker has metadata of its own, which may be behind.
        """

        def ask(admin: Any) -> dict[str, int]:
            described = admin.describe_topics([*topics])
            for topic in described:
                if topic["error_code"]:
                    raise kafka_errors.for_code(topic["error_code"])(topic["name"])
            return {
                topic["name"]: min(len(one["replica_nodes"]) for one in topic["partitions"])
                for topic in described
            }

        return self._call(f"replicas of {', '.join(topics)}", ask)

    def create(
        self, topic: str, partitions: int, settings: Mapping[str, str], replicas: int
    ) -> None:
        """Create a topic, unless it exists, and wait for it.

        Args:
            topic: its name.
            partitions: how many it gets.
            settings: that it gets.
            replicas: how many it gets.
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

    def settings(self, *topics: str) -> Mapping[str, Mapping[str, str]]:
        """Return the settings of topics, by name; empty ones if we may not read them."""
        wanted = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in topics]
        found = self._call(
            f"settings of {', '.join(topics)}",
            lambda admin: admin.describe_configs(wanted, config_filter="all"),
        ).get("topic", {})
        return {
            topic: {name: str(one["value"]) for name, one in found.get(topic, {}).items()}
            for topic in topics
        }

    def check_rights(self, topics: Mapping[str, Collection[str]], name: str = "") -> None:
        """Check what the account may do, as far as the brokers tell. Writes nothing.

        Args:
            topics: what it will do to each topic, in Kafka's words.
            name: a transactional id that nobody uses; empty to check no rights on such ids.

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
        if name:
            # nobody has begun it, so that this ends nothing: the answer to an account without the
            # right is another one
            nothing = Transaction(ONGOING, 0, 0, frozenset(), 0.0, 0.0)
            self.end(name, nothing, commit=False)

    def longest_timeout_s(self) -> float | None:
        """Return the longest transaction timeout that the brokers take; None if it is unknown."""

        def ask(admin: Any) -> float | None:
            broker = str(_in_service(admin)[0])
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

        A broker lists those that it coordinates. While a partition of Kafka's log of transactions
        moves, no broker lists what is in it, and none says so. So its coordinators are asked before
        and after for ids that nobody uses, one in each partition: until all answer, and are the
        same brokers both times.

        Args:
            prefix: how they begin.
        """
        nobody = one_in_each_partition(prefix)

        def ask(admin: Any) -> list[str]:
            before = _coordinators_of(admin, nobody)
            found = admin.list_transactions(
                broker_ids=sorted({*_in_service(admin), *before.values()}),
                state_filters=[ONGOING, PREPARE_COMMIT],
            )
            if _coordinators_of(admin, nobody) != before:
                raise kafka_errors.NotCoordinatorError("transactions have moved to other brokers")
            ids = {one.transactional_id for listed in found.values() for one in listed}
            return sorted(one for one in ids if one.startswith(prefix))

        return self._call("open transactions", ask)

    def describe(self, ids: Collection[str]) -> dict[str, Transaction]:
        """Describe transactions by id; those that nobody knows are left out."""
        if not ids:
            return {}
        return self._call(
            "states of transactions",
            lambda admin: admin._manager.run(described, admin, sorted(ids)),
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
        options = self.options
        # the start has checked that the brokers take the latter: they refuse what is longer
        timeout_s = min(options.request_timeout_s, options.transaction_timeout_s)
        request = {
            "transactional_id": name,
            "transaction_timeout_ms": int(timeout_s * 1000),
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
            f"transaction {name}", lambda admin: admin._manager.run(sent, admin, name, request)
        )
        return None if found is kafka_errors.NoError else found

    def _call(self, what: str, call: Callable[[Any], T]) -> T:
        return self._asked(lambda: self._cluster.call(what, call))

    def _asked(self, ask: Callable[[], T]) -> T:
        failure: TwoPhaseError
        try:
            return ask()
        except AccessError as error:
            failure = self._refused(error.what, error.remedy)
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


def _in_service(admin: Any) -> list[int]:
    """Return the ids of the brokers that are up. From Kafka 4.0 on those that are down are listed
    too, as fenced (KIP-1073), and answer nothing.
    """
    found = admin.describe_cluster()["brokers"]
    up = [one["broker_id"] for one in found if not one.get("is_fenced")]
    if not up:
        raise kafka_errors.MetadataEmptyBrokerList("no broker is in service")
    return up


def _coordinators_of(admin: Any, nobody: Sequence[str]) -> Mapping[str, int]:
    """Return the coordinators of ids that nobody uses, which have loaded their transactions."""
    found: Mapping[str, int] = admin._manager.run(loaded_coordinators, admin, nobody)
    return found
