"""Phase 1 on the executor: the records of one task attempt in a transaction of its own.

    1. begin        at the first row, under a transactional id that is never used again
    2. write        rows; no reader of committed records sees them
    3. flush        all replicas have them, and the coordinator knows of the transaction
    4. the fence    is read: missing, of another generation or above the attempt, it ends here
    5. the proof    a record in the ledger, the last one of the transaction

The transaction stays open: whoever has its id can commit or abort it, and so the process may end.
The fence is read behind 3: one that is raised later belongs to a driver that finds the transaction
in the coordinator's list.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Producer

from twophase.contract.committable import Committable
from twophase.contract.fencing import attempt_is_closed
from twophase.contract.writer import SinkWriter
from twophase.errors import DeclinedError, RejectedRowsError
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.internals.failpoints import failpoint
from twophase.internals.redaction import shown
from twophase.kafka_client.connection import for_librdkafka
from twophase.sinks.kafka.downtime import UNTIL
from twophase.sinks.kafka.ledger import PROOFS, read_fence
from twophase.sinks.kafka.names import Owner
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.sinks.kafka.records import encoded
from twophase.sinks.kafka.rows import KafkaRecord, records_of

_QUEUE_FULL_POLL_S = 0.05
_REJECTED = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._INVALID_ARG,
)


class KafkaWriter(SinkWriter):
    """Writes the records of one task attempt.

    Args:
        options: of the sink.
        target: `Sink.target`.
        fence_at: an offset at or before the newest fence.
        transaction: what the piece belongs to.
        subtask: the task attempt.
    """

    def __init__(
        self,
        options: KafkaSinkOptions,
        target: str,
        fence_at: int,
        transaction: TransactionId,
        subtask: Subtask,
    ) -> None:
        self._options = options
        self._owner = Owner(transaction.job, transaction.sink, options.topic)
        self._fence_at = fence_at
        self._records = records_of(options)
        self._transaction = transaction
        self._subtask = subtask
        self._target = target
        self._name = self._owner.piece(transaction, subtask)
        self._rows = 0
        self._until_s = 0
        self._failures: list[KafkaError] = []
        self._producer: Any = None

    def write(self, batch: pa.RecordBatch) -> None:
        """See `SinkWriter.write`."""
        if self._producer is None:
            self._begin()
        for record in self._records.records(batch):
            self._rows += 1
            self._produce(record)
        self._check()
        failpoint("E01")

    def flush(self) -> None:
        """See `SinkWriter.flush`."""
        if self._producer is not None:
            self._flush()

    def pre_commit(self) -> Committable | None:
        """See `SinkWriter.pre_commit`."""
        if self._producer is None:
            return None
        failpoint("C04")
        self._flush()
        self._check_fence()
        handle = {"id": self._name, UNTIL: self._until_s}
        piece = Committable(self._transaction, self._subtask, self._target, self._rows, handle)
        self._send(self._options.ledger, encoded(piece), self._name.encode(), PROOFS)
        self._flush()
        failpoint("C05")
        return piece

    def abort(self) -> None:
        """See `SinkWriter.abort`. What cannot be aborted now is found in doubt."""
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.abort_transaction(self._options.request_timeout_s)
            except (KafkaException, SystemError):  # see `_served`
                return

    def _begin(self) -> None:
        patience_s = self._options.request_timeout_s
        producer: Any = None
        try:
            producer = Producer(self._settings())
            producer.init_transactions(patience_s)
            producer.begin_transaction()
            self._until_s = int(time.time() + self._options.transaction_timeout_s)
        except KafkaException as error:
            raise self._failed(error.args[0]) from error
        self._producer = producer

    def _settings(self) -> dict[str, Any]:
        options = self._options
        return for_librdkafka(options) | {
            "transactional.id": self._name,
            "transaction.timeout.ms": int(options.transaction_timeout_s * 1000),
            "message.timeout.ms": int(
                1000 * min(options.transaction_timeout_s, 4 * options.request_timeout_s)
            ),
            "linger.ms": 5,
            "compression.type": options.compression.value,
            "partitioner": "murmur2_random",  # as Java's clients, and so Spark's sink
            "delivery.report.only.error": True,
            "on_delivery": self._delivered,
            "log_level": 2,
        }

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._failures.append(error)

    def _produce(self, record: KafkaRecord) -> None:
        more: dict[str, Any] = {}
        if record.headers:
            more["headers"] = list(record.headers)
        if record.partition is not None:
            more["partition"] = record.partition
        if record.timestamp_ms is not None:
            more["timestamp"] = record.timestamp_ms
        self._send(self._options.topic, record.value, record.key, **more)

    def _send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int = -1,
        **more: Any,
    ) -> None:
        deadline = time.monotonic() + 4 * self._options.request_timeout_s
        while True:
            try:
                self._producer.produce(topic, value, key, partition, **more)
            except BufferError:
                if time.monotonic() >= deadline:
                    raise self._failed(KafkaError(KafkaError._TIMED_OUT)) from None
                self._served(self._producer.poll, _QUEUE_FULL_POLL_S)
            except KafkaException as error:
                self._check()
                raise self._failed(error.args[0]) from error
            else:
                return

    def _flush(self) -> None:
        if self._served(self._producer.flush, 4 * self._options.request_timeout_s):
            raise self._failed(KafkaError(KafkaError._TIMED_OUT))

    def _served(self, call: Callable[[float], int], patience_s: float) -> int:
        """Call what serves the answers of the brokers, and look at them.

        A fatal error, as after an abort by somebody else, is raised there; confluent-kafka may lose
        it, and what remains is a `SystemError`.
        """
        try:
            count = call(patience_s)
        except KafkaException as error:
            raise self._failed(error.args[0]) from error
        except SystemError as error:
            self._check()
            raise self._failed(KafkaError(KafkaError._FATAL)) from error
        self._check()
        return count

    def _check(self) -> None:
        if self._failures:
            raise self._failed(self._failures[0])

    def _check_fence(self) -> None:
        options, ours = self._options, self._transaction.attempt
        fence = read_fence(options, options.ledger, self._owner, self._fence_at)
        if ours.is_closed_by(fence):
            raise attempt_is_closed(
                self._owner.job,
                self._owner.sink,
                ours,
                f"the ledger {options.ledger!r}",
                fence or Attempt(0, 0),
            )

    def _failed(self, error: KafkaError) -> DeclinedError:
        what = f"{self._transaction}: rows of subtask {self._subtask} could not be written to "
        text = f"{what}{self._options.where}: {shown(error.str())}."
        if error.code() in _REJECTED:
            return RejectedRowsError(
                text,
                remedy="correct or filter these rows before the sink, or let the topic take them "
                "(max.message.bytes).",
                fingerprint=error.name(),
            )
        return DeclinedError(
            text,
            remedy="check that the brokers run, that enough replicas are in sync, and that the "
            "account may write to topic, ledger and transactional ids that begin with `twophase/`.",
            fingerprint="" if error.retriable() else error.name(),
        )
