"""Phase 1 of `protocol=staged` on the executor: rows in a staging topic, announced in the ledger.

    1. write        rows, in chunks, to one partition of the staging topic
    2. flush        all replicas have them: their offsets are known
    3. announce     a record in the ledger says where they are, in the partition of the fences
    4. the fence    the highest one before that record counts: missing, of another generation or
                    above the attempt, the record is deleted again

Fences and these records have one order: a fence is before the record, and ends it here, or behind
it, and its driver finds the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import pyarrow as pa
from confluent_kafka import Message

from twophase.contract.committable import Committable
from twophase.ids import Subtask, TransactionId
from twophase.internals.failpoints import failpoint
from twophase.sinks.kafka.chunks import MOST_BYTES, Chunk
from twophase.sinks.kafka.ledger import FENCES, KnownFence
from twophase.sinks.kafka.limits import TopicLimits
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.sinks.kafka.records import encoded
from twophase.sinks.kafka.sender import Sender, SendError
from twophase.sinks.kafka.staging import Place, StagingTopic
from twophase.sinks.kafka.writer import TaskWriter


class StagedWriter(TaskWriter):
    """Writes the records of one task attempt to a staging topic.

    Args:
        options: of the sink.
        target: `Sink.target`.
        staging: the staging topic.
        limits: of the topics that rows will be copied to, by name.
        fence: as the driver has seen it.
        transaction: what the piece belongs to.
        subtask: the task attempt.
    """

    def __init__(
        self,
        options: KafkaSinkOptions,
        target: str,
        staging: StagingTopic,
        limits: Mapping[str, TopicLimits],
        fence: KnownFence,
        transaction: TransactionId,
        subtask: Subtask,
    ) -> None:
        super().__init__(options, target, fence, transaction, subtask)
        self._staging = staging
        self._partition = subtask.index % staging.partitions
        self._limits = limits
        self._chunk = Chunk(0, [])
        self._taken = _Taken(staging.name)

    def write(self, batch: pa.RecordBatch) -> None:
        """See `SinkWriter.write`."""
        with self._declining():
            sender = self._sender or self._begin()
            for topic, record in self._routed(batch):
                self._limits[topic].check(record, self._rows)
                if not self._chunk.has_room(record):
                    self._send_chunk(sender)
                self._chunk.add(record)
            sender.check()
        failpoint("E01")

    def flush(self) -> None:
        """See `SinkWriter.flush`."""
        if self._sender is not None:
            with self._declining():
                self._send_chunk(self._sender)
                self._sender.flush()

    def pre_commit(self) -> Committable | None:
        """See `SinkWriter.pre_commit`."""
        if self._sender is None or not self._rows:
            return None
        failpoint("C04")
        self.flush()
        staging, offsets = self._staging, self._taken.offsets
        place = Place(
            staging.name,
            staging.id,
            self._partition,
            min(offsets),
            max(offsets) + 1,
            self._chunk.number,
        )
        piece = self._piece(place.handle())
        with self._declining():
            self._announce(encoded(piece))
        if error := self._closed(self._taken.announced_at):
            self._unannounce()
            raise error
        failpoint("C05")
        return piece

    def abort(self) -> None:
        """See `SinkWriter.abort`."""
        if self._sender is not None:
            self._sender.drop()
            self._unannounce()
            self._sender = None

    def _begin(self) -> Sender:
        settings = {"enable.idempotence": True, "message.max.bytes": MOST_BYTES}
        self._sender = Sender(self._options, settings, self._taken)
        return self._sender

    def _send_chunk(self, sender: Sender) -> None:
        chunk = self._chunk
        if chunk.records:
            sender.send(self._staging.name, chunk.encoded(), self._name.encode(), self._partition)
            self._chunk = Chunk(chunk.number + 1, [])

    def _announce(self, record: bytes | None) -> None:
        """Write to the ledger that the piece is staged; without a record, that it is not."""
        sender = self._sender
        if sender is not None:
            key = self._owner.staged(self._name).encode()
            sender.send(self._options.ledger, record, key, FENCES)
            sender.flush()

    def _unannounce(self) -> None:
        """Take the announcement back. If that fails, the piece is found in doubt."""
        with suppress(SendError):
            if self._is_announced:
                self._announce(None)

    @property
    def _is_announced(self) -> bool:
        return self._taken.announced_at >= 0


class _Taken:
    """What the brokers have taken; called with each record. Does not hold the writer (`Sender`).

    Args:
        staging: the name of the staging topic.

    Attributes:
        offsets: of chunks, in the staging topic.
        announced_at: the offset of the announcement in the ledger; -1 before it.
    """

    def __init__(self, staging: str) -> None:
        self.offsets: list[int] = []
        self.announced_at = -1
        self._staging = staging

    def __call__(self, message: Message) -> None:
        offset = message.offset()
        if offset is None:
            raise ValueError("a record that the brokers have taken has an offset")
        if message.topic() == self._staging:
            self.offsets.append(offset)
        else:
            self.announced_at = offset
