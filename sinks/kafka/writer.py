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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from twophase.contract.committable import Committable
from twophase.contract.fencing import attempt_is_closed
from twophase.contract.writer import SinkWriter
from twophase.errors import (
    DeclinedError,
    FencedError,
    FenceLostError,
    RejectedRowsError,
    SourceUnavailableError,
)
from twophase.ids import Subtask, TransactionId
from twophase.internals.failpoints import failpoint
from twophase.internals.redaction import shown
from twophase.kafka_client.access import AccessError, tls_remedy
from twophase.kafka_client.credentials import SecretError
from twophase.sinks.kafka.downtime import UNTIL
from twophase.sinks.kafka.ledger import PROOFS, KnownFence, read_fence
from twophase.sinks.kafka.names import Owner
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.sinks.kafka.records import encoded
from twophase.sinks.kafka.rows import KafkaRecord, records_of
from twophase.sinks.kafka.sender import REJECTED, Sender, SendError
from twophase.sinks.kafka.topics import TopicIds, topics_in_handle


class TaskWriter(SinkWriter):
    """What the writers of both protocols share: whose rows they are, and why they fail.

    Args:
        options: of the sink.
        target: `Sink.target`.
        fence: as the driver has seen it.
        transaction: what the piece belongs to.
        subtask: the task attempt.
    """

    def __init__(
        self,
        options: KafkaSinkOptions,
        target: str,
        fence: KnownFence,
        transaction: TransactionId,
        subtask: Subtask,
    ) -> None:
        self._options = options
        self._owner = Owner(transaction.job, transaction.sink, options.topic)
        self._named_topics = {options.topic}
        self._fence = fence
        self._records = records_of(options)
        self._transaction = transaction
        self._subtask = subtask
        self._target = target
        self._name = self._owner.piece(transaction, subtask)
        self._rows = 0
        self._sender: Sender | None = None

    def _routed(self, batch: pa.RecordBatch) -> Iterator[tuple[str, KafkaRecord]]:
        """Yield the topic and the record of each row.

        Raises:
            RejectedRowsError: a row has no record, or names a topic that is none of the sink's.
        """
        for record in self._records.records(batch):
            self._rows += 1
            topic = self._options.topic if record.topic is None else record.topic
            if topic not in self._named_topics:
                self._check_declared(topic)
                self._named_topics.add(topic)
            yield topic, record

    def _check_declared(self, topic: str) -> None:
        if topic not in self._options.topics:
            raise RejectedRowsError(
                f"Row {self._rows} of a task names the topic {shown(topic)}, and rows go to "
                f"{self._options.where}.",
                remedy="correct or filter these rows before the sink, or name the topic in "
                "other_topics.",
            )

    def _piece(self, handle: Mapping[str, Any]) -> Committable:
        return Committable(self._transaction, self._subtask, self._target, self._rows, handle)

    def _closed(self, end: int | None) -> FencedError | FenceLostError | None:
        """Return the error of a closed attempt; None if it is open.

        Args:
            end: as `read_fence` takes it.
        """
        options, ours = self._options, self._transaction.attempt
        with self._declining():
            found = read_fence(options, options.ledger, self._owner, self._fence, end)
        if not ours.is_closed_by(found):
            return None
        where = f"the ledger {options.ledger!r}"
        return attempt_is_closed(self._owner.job, self._owner.sink, ours, where, found)

    @contextmanager
    def _declining(self) -> Iterator[None]:
        try:
            yield
        except SendError as error:
            raise self._failed(error) from error
        except (AccessError, SecretError, SourceUnavailableError) as error:
            # the driver was let in: a secret is being replaced (docs/decisions/0067)
            raise DeclinedError(
                f"{self._what}{self._options.where}: {error.what}",
                remedy=f"{error.remedy} The job tries again, and reads passwords and PEM files "
                "again.",
            ) from error

    def _failed(self, failure: SendError) -> DeclinedError:
        error = failure.error
        text = f"{self._what}{failure.where(self._options)}: {failure.text}."
        if error.code() in REJECTED:
            return RejectedRowsError(
                text,
                remedy="correct or filter these rows before the sink, or let the topic take them "
                "(max.message.bytes; up to 16 MiB, if the account has the right to "
                "DESCRIBE_CONFIGS of it).",
                fingerprint=error.name(),
            )
        return DeclinedError(
            text,
            remedy=tls_remedy(failure.refusal)
            or "check that the brokers run, that enough replicas are in sync, and that the "
            "account may write to topic, ledger and transactional ids that begin with `twophase/`.",
            fingerprint="" if error.retriable() else error.name(),
        )

    @property
    def _what(self) -> str:
        return f"{self._transaction}: rows of subtask {self._subtask} could not be written to "


class KafkaWriter(TaskWriter):
    """Writes the records of one task attempt, in a transaction that stays open.

    Args:
        options: of the sink.
        target: `Sink.target`.
        others: the ids of the topics beside the sink's, as the driver has seen them before.
        sizes: as `sizes_of` returns them.
        fence: as the driver has seen it.
        transaction: what the piece belongs to.
        subtask: the task attempt.
    """

    def __init__(
        self,
        options: KafkaSinkOptions,
        target: str,
        others: TopicIds,
        sizes: Mapping[str, int],
        fence: KnownFence,
        transaction: TransactionId,
        subtask: Subtask,
    ) -> None:
        super().__init__(options, target, fence, transaction, subtask)
        self._others = others
        self._sizes = sizes
        self._until_s = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """See `SinkWriter.write`."""
        with self._declining():
            sender = self._sender or self._begin()
            for topic, record in self._routed(batch):
                sender.send_record(topic, record)
            sender.check()
        failpoint("E01")

    def flush(self) -> None:
        """See `SinkWriter.flush`."""
        if self._sender is not None:
            with self._declining():
                self._sender.flush()

    def pre_commit(self) -> Committable | None:
        """See `SinkWriter.pre_commit`."""
        sender = self._sender
        if sender is None:
            return None
        failpoint("C04")
        self.flush()
        if error := self._closed(None):
            raise error
        others = {name: id for name, id in self._others.items() if name in self._named_topics}
        handle = {"id": self._name, UNTIL: self._until_s, **topics_in_handle(others)}
        piece = self._piece(handle)
        with self._declining():
            sender.send(self._options.ledger, encoded(piece), self._name.encode(), PROOFS)
            sender.flush()
        failpoint("C05")
        return piece

    def abort(self) -> None:
        """See `SinkWriter.abort`. What cannot be aborted now is found in doubt."""
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.abort()

    def _begin(self) -> Sender:
        options = self._options
        timeout_ms = int(options.transaction_timeout_s * 1000)
        settings = {"transactional.id": self._name, "transaction.timeout.ms": timeout_ms}
        sender = Sender(options, {**settings, **self._sizes})
        sender.begin()
        self._until_s = int(time.time() + options.transaction_timeout_s)
        self._sender = sender
        return sender
