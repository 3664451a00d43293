"""A producer of librdkafka for many records: of a task, and of a copy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from twophase.internals.redaction import shown
from twophase.kafka_client.access import tls_remedy
from twophase.kafka_client.connection import for_librdkafka
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.sinks.kafka.rows import KafkaRecord

QUEUE_BYTES = 32 << 20
"""What is held of records that are on their way; librdkafka's own limit is a gigabyte."""
_QUEUE_FULL_POLL_S = 0.05
_FLUSH_LOOK_S = 0.5
_PATIENCE = 4
REJECTED = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._INVALID_ARG,
)
"""The errors of a record that the topic does not take."""
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_LATE = (KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT)
_REFUSED = (KafkaError._AUTHENTICATION, KafkaError._SSL)
"""What librdkafka only tells its callback, while it tries again until it is late."""


class SendError(Exception):
    """A record was not written, as far as is known, or a transaction is not where it should be.

    Attributes:
        error: librdkafka's.
        topic: that did not take a record; None if it is no error of one record.
        refusal: why the brokers refuse the client, if that may be the cause; empty otherwise.
    """

    def __init__(self, error: KafkaError, topic: str | None = None) -> None:
        super().__init__(error.str())
        self.error = error
        self.topic = topic
        self.refusal = ""

    @property
    def text(self) -> str:
        """What has happened, for messages."""
        refused = f"; the brokers refuse the client: {shown(self.refusal)}" * bool(self.refusal)
        return f"{shown(self.error.str())}{refused}"

    def where(self, options: KafkaSinkOptions) -> str:
        """Return where records could not be written, for messages."""
        if self.topic is None:
            return options.where
        return f"topic {self.topic!r} at {options.bootstrap_servers}"


class _Answers:
    """What a client has told its callbacks. It does not hold the client, which ends when nobody
    holds it: in a circle it would stay connected until Python looks for garbage.

    Args:
        each: is called with every record that the brokers have taken.

    Attributes:
        failures: of records.
        refusal: why the brokers refuse the client; empty if they do not.
    """

    def __init__(self, each: Callable[[Message], None] | None) -> None:
        self.failures: list[SendError] = []
        self.refusal = ""
        self._each = each

    def delivered(self, error: KafkaError | None, message: Message) -> None:
        """Take the fate of a record."""
        if error is not None:
            self.failures.append(SendError(error, message.topic()))
        elif self._each is not None:
            self._each(message)

    def heard(self, error: KafkaError) -> None:
        """Take an error that librdkafka itself tries to get over."""
        # the alert of TLS 1.3 comes behind the handshake, as a failure of the connection
        if error.code() in _REFUSED or tls_remedy(error.str()):
            self.refusal = error.str()


class Sender:
    """Writes records; the first failure of any is raised by one of the next calls.

    Args:
        options: of the sink.
        settings: more of librdkafka's.
        each: is called with every record that the brokers have taken. It does not hold the sender:
            see `_Answers`.

    Raises:
        SendError: the settings are not accepted.
    """

    def __init__(
        self,
        options: KafkaSinkOptions,
        settings: Mapping[str, Any],
        each: Callable[[Message], None] | None = None,
    ) -> None:
        self._request_s = options.request_timeout_s
        self._answers = _Answers(each)
        self._producer: Any = None
        self._is_transaction = "transactional.id" in settings
        longest_s = options.transaction_timeout_s
        base = for_librdkafka(options) | {
            # librdkafka takes no transactions that are shorter than these
            "socket.timeout.ms": int(1000 * min(longest_s, options.request_timeout_s)),
            # a record waits for those before it, however slowly they get through
            "message.timeout.ms": int(1000 * longest_s),
            "linger.ms": 5,
            "queue.buffering.max.kbytes": QUEUE_BYTES >> 10,
            "compression.type": options.compression.value,
            "partitioner": "murmur2_random",  # as Java's clients, and so Spark's sink
            "delivery.report.only.error": each is None,
            "on_delivery": self._answers.delivered,
            "error_cb": self._answers.heard,
            "log_level": 2,
        }
        with self._raised():
            self._producer = Producer(base | dict(settings))

    def begin(self) -> None:
        """Begin a transaction, behind the end of what its id was used for before."""
        with self._raised():
            self._producer.init_transactions(self._request_s)
            self._producer.begin_transaction()

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int = -1,
        **more: Any,
    ) -> None:
        """Take a record; wait while too many are on their way."""
        deadline = self._deadline()
        while True:
            try:
                self._producer.produce(topic, value, key, partition, **more)
            except BufferError:
                if time.monotonic() >= deadline:
                    raise self._late(topic) from None
                self._served(self._producer.poll, _QUEUE_FULL_POLL_S)
            except KafkaException as error:
                self.check()
                raise self._told(error.args[0], topic) from error
            else:
                return

    def send_record(self, topic: str, record: KafkaRecord) -> None:
        """Take a record of a row."""
        more: dict[str, Any] = {}
        if record.headers:
            more["headers"] = list(record.headers)
        if record.partition is not None:
            more["partition"] = record.partition
        if record.timestamp_ms is not None:
            more["timestamp"] = record.timestamp_ms
        self.send(topic, record.value, record.key, **more)

    def flush(self) -> None:
        """Return when all replicas have all records; fail when none gets through for long."""
        before, deadline = len(self._producer), self._deadline()
        while left := self._served(self._producer.flush, _FLUSH_LOOK_S):
            if left < before:
                before, deadline = left, self._deadline()
            elif time.monotonic() >= deadline:
                raise self._late()

    def commit(self) -> None:
        """Commit the transaction. After a failure it may be committed or not."""
        with self._raised():
            self._producer.commit_transaction(self._request_s)

    def abort(self) -> None:
        """Abort the transaction, if the brokers answer; who begins with its id again does it
        otherwise.
        """
        try:
            self._producer.abort_transaction(self._request_s)
        except (KafkaException, SystemError):  # see `_served`
            return

    def drop(self) -> None:
        """Forget what was not sent yet: it must not arrive later."""
        self._producer.purge()
        self._producer.flush(0)

    def check(self) -> None:
        """Raise the first failure, if there was one."""
        if failures := self._answers.failures:
            first = failures[0]
            raise self._told(self._cause(first.error), first.topic)

    def _cause(self, error: KafkaError) -> KafkaError:
        """Return why a transaction has failed: its records only tell that they were purged."""
        if self._is_transaction and error.code() in _PURGED:
            try:
                self._producer.begin_transaction()  # refused with the reason
            except KafkaException as refusal:
                return refusal.args[0]  # type: ignore[no-any-return]
        return error

    def _late(self, topic: str | None = None) -> SendError:
        """Return a failure of what is not sent any more: it must not arrive later."""
        failure = self._told(KafkaError(KafkaError._TIMED_OUT), topic)
        if self._is_transaction:
            with suppress(KafkaException, SystemError):  # begins, and goes on without us
                self._producer.abort_transaction(0)
        self._producer.purge()
        return failure

    def _deadline(self) -> float:
        return time.monotonic() + _PATIENCE * self._request_s

    def _told(self, error: KafkaError, topic: str | None = None) -> SendError:
        """Return a failure with what librdkafka has only told its callback."""
        failure = SendError(error, topic)
        if error.code() in _LATE and self._producer is not None:
            with suppress(KafkaException, SystemError):  # see `_served`
                self._producer.poll(0)
            failure.refusal = self._answers.refusal
        return failure

    @contextmanager
    def _raised(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise self._told(error.args[0]) from error

    def _served(self, call: Callable[[float], int], patience_s: float) -> int:
        """Call what serves the answers of the brokers, and look at them.

        A fatal error, as after an abort by somebody else, is raised there; confluent-kafka may lose
        it, and what remains is a `SystemError`.
        """
        try:
            count = call(patience_s)
        except KafkaException as error:
            raise SendError(error.args[0]) from error
        except SystemError as error:
            self.check()
            raise SendError(KafkaError(KafkaError._FATAL)) from error
        self.check()
        return count
