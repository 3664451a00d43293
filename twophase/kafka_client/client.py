"""Requests to the brokers, for metadata and ends of partitions, by one open admin client.

Requests are retried on transient failures until `request.timeout` is over. No group is ever joined.
"""

from __future__ import annotations

import functools
import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from kafka import KafkaAdminClient, TopicPartition
from kafka import errors as kafka_errors
from kafka.protocol.consumer import IsolationLevel as KafkaIsolation
from kafka.protocol.consumer import OffsetSpec

from twophase.errors import PreflightError, SourceUnavailableError, TwoPhaseError
from twophase.kafka_client import connection
from twophase.kafka_client.access import (
    RIGHTS_OF_READER,
    AccessError,
    has_no_leader,
    is_answer,
    meaning,
    remedy_of,
    tls_remedy,
)
from twophase.kafka_client.credentials import check_secrets
from twophase.kafka_client.oauth_tokens import token_refused
from twophase.kafka_client.options import ConnectionOptions, IsolationLevel
from twophase.kafka_client.partitions import UNKNOWN_EPOCH, LogEnd, Partition, Topic
from twophase.kafka_client.peers import look_at_peers

ResultT = TypeVar("ResultT")

_LOGGER = "kafka.net"
BACKOFF_S = 0.1
_SASL_HINT = ", and user and password: a broker may close the connection without a word"
_DISCONNECTED = "socket disconnected"
"""What kafka-python makes of a refusal, if the connection ends before it has read it."""
_UNKNOWN_TOPIC = kafka_errors.UnknownTopicOrPartitionError.errno
_LOGIN = kafka_errors.SaslAuthenticationFailedError, kafka_errors.UnsupportedSaslMechanismError
RIGHTS = kafka_errors.AuthorizationError, *_LOGIN
"""What kafka-python raises if a broker refuses the client."""


class BrokerClient:
    """A lazily opened connection to the brokers, for several threads, but not across a fork.

    Args:
        options: of the connection.
        isolation: what the end of a partition is.
        rights: the remedy of a refusal: which rights the account needs.
    """

    def __init__(
        self,
        options: ConnectionOptions,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
        rights: str = RIGHTS_OF_READER,
    ) -> None:
        self._options = options
        self._rights = rights
        self._admin: Any = None
        self._opening: threading.Thread | None = None
        self._lock = threading.Lock()
        self._isolation = KafkaIsolation.build_from(isolation.value)

    def open_ahead(self) -> None:
        """Open the connection in a thread, for a request to come, which takes 110 ms.

        If it cannot be opened, that request tries again, and reports it.
        """
        if self._admin is None:

            def opened() -> None:
                with suppress(Exception):
                    self._open()

            name = "twophase-kafka-opening"
            self._opening = threading.Thread(target=opened, name=name, daemon=True)
            self._opening.start()

    def close(self) -> None:
        """Close the connection; the next request opens it again."""
        if self._opening is not None:
            self._opening.join()
        with self._lock:
            admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Describe topics by name; those that do not exist are left out."""
        listed = sorted(names)
        return self.call(
            f"metadata of {', '.join(listed)}", lambda admin: _topics(admin.describe_topics(listed))
        )

    def matching(self, pattern: str) -> dict[str, Topic]:
        """Describe all topics, but Kafka's own, whose whole name matches a regular expression."""
        found = self.call(
            "metadata of all topics", lambda admin: _topics(admin.describe_topics(None), skip=True)
        )
        return {name: topic for name, topic in found.items() if re.fullmatch(pattern, name)}

    def ends(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        """Return each partition's end under the isolation level; empty if one does not exist."""
        found = self._offsets("end offsets", dict.fromkeys(partitions, OffsetSpec.LATEST))
        return {
            key: LogEnd(item.offset, known_epoch(item.leader_epoch)) for key, item in found.items()
        }

    def high_watermarks(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        """Return each partition's end with open transactions; empty if one does not exist."""
        wanted = dict.fromkeys(partitions, OffsetSpec.LATEST)
        found = self._offsets("high watermarks", wanted, KafkaIsolation.READ_UNCOMMITTED)
        return {
            key: LogEnd(item.offset, known_epoch(item.leader_epoch)) for key, item in found.items()
        }

    def begins(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the first offset of each partition; empty if any partition does not exist."""
        found = self._offsets("first offsets", dict.fromkeys(partitions, OffsetSpec.EARLIEST))
        return {key: item.offset for key, item in found.items()}

    def _offsets(
        self, what: str, wanted: Mapping[Partition, int], isolation: KafkaIsolation | None = None
    ) -> dict[Partition, Any]:
        if not wanted:
            return {}
        specs = {TopicPartition(*key): spec for key, spec in wanted.items()}

        def ask(admin: Any) -> dict[Partition, Any]:
            try:
                level = self._isolation if isolation is None else isolation  # one of them is 0
                found = admin.list_partition_offsets(specs, isolation_level=level)
            except kafka_errors.UnknownTopicOrPartitionError:
                return {}
            return {Partition(*key): item for key, item in found.items()}

        return self.call(what, ask)

    def call(self, what: str, call: Callable[[Any], ResultT]) -> ResultT:
        """Return what a function makes of the open client; it is called again while it may help.

        Raises:
            AccessError: the brokers refuse the client, or are none.
            SourceUnavailableError: they do not answer.
        """
        deadline, renewed = time.monotonic() + self._options.request_timeout_s, False
        clearest: kafka_errors.KafkaError | None = None
        admin: Any = None
        while True:
            try:
                admin = self._open()
                return call(admin)
            except RIGHTS as error:
                if isinstance(error, _LOGIN):
                    self.close()  # it keeps the refusal
                if not renewed and token_refused(self._options):
                    renewed = True
                    continue
                raise AccessError(
                    f"Kafka at {self._options.bootstrap_servers} denies access: {what}: {error}.",
                    remedy=remedy_of(str(error), self._rights),
                ) from error
            except kafka_errors.KafkaError as error:
                if not _may_pass(error):
                    raise self._without_answer(what, error) from error
                self._look_again(admin, error)
                clearest = _clearer(clearest, error)
                if time.monotonic() >= deadline:
                    raise self._given_up(what, clearest) from error
            except RuntimeError:  # of kafka-python: another thread has closed it
                if admin is self._admin:
                    raise
            time.sleep(BACKOFF_S)

    def _look_again(self, admin: Any, error: kafka_errors.KafkaError) -> None:
        """Let the next try find brokers that have changed: kafka-python keeps what it knows."""
        if admin is None or admin is not self._admin:
            return
        if isinstance(error, kafka_errors.UnknownBrokerIdError) and not has_no_leader(error):
            self.close()  # it knows only the brokers that were up when it was opened
        else:
            admin.coordinators.clear()

    def _given_up(self, what: str, error: kafka_errors.KafkaError) -> TwoPhaseError:
        """Return why nothing is asked any more.

        Raises:
            SecretError: a connection needs a secret that cannot be read.
        """
        self.close()  # the next request bootstraps again
        check_secrets(self._options)
        peers = look_at_peers(self._options)
        if peers.refusal is not None:
            return peers.refusal
        if peers.broker and self._options.sasl and _DISCONNECTED in str(error):
            return AccessError(
                f"Kafka at {self._options.bootstrap_servers} ends each connection that logs in: "
                f"{what}: {error}.",
                remedy=remedy_of(str(error), self._rights),
            )
        if not peers.broker and (remedy := tls_remedy(str(error))):
            return AccessError(
                f"TLS with Kafka at {self._options.bootstrap_servers} fails: {what}: {error}.",
                remedy=remedy,
            )
        return self._without_answer(what, error, peers.seen, is_there=peers.broker)

    def _without_answer(
        self, what: str, error: kafka_errors.KafkaError, seen: str = "", *, is_there: bool = True
    ) -> SourceUnavailableError:
        servers = self._options.bootstrap_servers
        if is_there and is_answer(error):
            means, remedy = meaning(error)
            return SourceUnavailableError(
                f"Kafka at {servers} answers {what} with an error: {means}"
                f"{f'; {seen}' if seen else ''}.",
                remedy=remedy,
            )
        return SourceUnavailableError(
            f"Kafka at {servers} did not answer: {what}: {error}{f'; {seen}' if seen else ''}.",
            remedy=tls_remedy(str(error))
            or "check that the brokers run and can be "
            f"reached{_SASL_HINT if self._options.sasl else ''}; then start the job again.",
        )

    def _open(self) -> Any:
        with self._lock:
            if self._admin is None:
                self._admin = Admin(**connection.for_kafka_python(self._options))
            return self._admin


def _may_pass(error: kafka_errors.KafkaError) -> bool:
    """Return whether an error is transient. An unknown broker, -1, is: there is no leader yet."""
    return bool(error.retriable) or isinstance(error, kafka_errors.UnknownBrokerIdError)


def _clearer(
    before: kafka_errors.KafkaError | None, now: kafka_errors.KafkaError
) -> kafka_errors.KafkaError:
    """Return which of two failures says more about its cause; the later one if both say as much."""
    return now if before is None or _clarity(now) >= _clarity(before) else before


def _clarity(error: kafka_errors.KafkaError) -> int:
    if isinstance(error, kafka_errors.NodeNotReadyError):  # it waits before it connects again
        return 0
    if tls_remedy(str(error)):
        return 3
    return 2 if is_answer(error) else 1


def _topics(described: Iterable[Mapping[str, Any]], *, skip: bool = False) -> dict[str, Topic]:
    found = {}
    for topic in described:
        code = topic["error_code"]
        if code == _UNKNOWN_TOPIC or (skip and (topic["is_internal"] or code)):
            continue
        if code:
            raise kafka_errors.for_code(code)(topic["name"])
        if not topic.get("topic_id"):
            raise PreflightError(
                f"The brokers report no topic id for {topic['name']!r}: "
                "a recreated topic could not be distinguished from the old one.",
                remedy="use brokers that have topic ids (KIP-516): Apache Kafka 2.8 or newer, or a "
                "service built on it. Some that only speak Kafka's protocol have none, Redpanda "
                "before 25.2 among them: read from those with Spark's own source, format: kafka, "
                "without group.id; it does not notice a recreated topic (docs/kafka.md).",
            )
        epochs = {
            item["partition_index"]: known_epoch(item.get("leader_epoch"))
            for item in topic["partitions"]
        }
        found[topic["name"]] = Topic(str(topic["topic_id"]), epochs)
    return found


def known_epoch(value: int | None) -> int:
    """Return the epoch of a leader as Kafka's requests have it: -1 if it is unknown."""
    return UNKNOWN_EPOCH if value is None else value


class Admin(KafkaAdminClient):  # type: ignore[misc]
    """Reports why no broker accepts the connection, and ends its thread, unlike kafka-python.

    Raises:
        SaslAuthenticationFailedError: the user or password is wrong.
        KafkaTimeoutError: no broker accepts the connection; the message has the last failure.
    """

    def __init__(self, **settings: Any) -> None:
        failures = _Failures()
        logging.getLogger(_LOGGER).addHandler(failures)
        try:
            super().__init__(**settings)
        except BaseException as error:
            if hasattr(self, "_net"):
                self._client.close()
                self._end()
            if failures.found and isinstance(error, kafka_errors.KafkaTimeoutError):
                raise failures.worst() from None
            raise
        finally:
            logging.getLogger(_LOGGER).removeHandler(failures)

    @property
    def coordinators(self) -> dict[Any, int]:
        """The brokers that coordinate groups and transactions, as far as they are known, by key.
        kafka-python asks them for ever, whether or not they do so still.
        """
        found: dict[Any, int] = self._manager.cluster._coordinators
        return found

    def close(self) -> None:
        """Close the connections, and what waits for them."""
        super().close()
        self._end()

    def _end(self) -> None:
        self._net.stop()
        self._net._selector.close()  # kafka-python leaves these to the garbage collector
        for end in (self._net._wakeup_r, self._net._wakeup_w):
            end.close()


class _Failures(logging.Handler):
    """Collects exceptions that kafka-python only logs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        arguments = record.args if isinstance(record.args, tuple) else ()
        failures = (item for item in arguments if isinstance(item, kafka_errors.KafkaError))
        self.found += [
            item for item in failures if not isinstance(item, kafka_errors.KafkaTimeoutError)
        ]

    def worst(self) -> Any:
        """Return the clearest failure: a wrong password, a refusal of TLS, the last failed
        handshake, or the last.
        """
        for failure in self.found:
            if isinstance(failure, kafka_errors.SaslAuthenticationFailedError):
                return failure
        handshakes = [failure for failure in self.found if "Handshake failed" in str(failure)]
        failure = functools.reduce(_clearer, handshakes or self.found)
        return kafka_errors.KafkaTimeoutError(
            f"no broker accepted the connection; last failure: {failure}"
        )
