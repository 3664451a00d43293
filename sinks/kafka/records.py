"""The records of the ledger: durable bytes with version, kind, length and SHA-256 (I9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from twophase.contract.committable import Committable
from twophase.errors import StopJobError
from twophase.ids import Attempt
from twophase.internals.json_values import decode, encode
from twophase.internals.record import DamagedRecordError, kind_of

_MAGIC = "twophase-kafka/1"
FOREIGN_RECORD = (
    "find out who; write a record with the same key and without a value behind it if it is not of "
    "twophase, and let nobody else write to the ledger."
)
"""What to do about a record of somebody else."""


@dataclass(frozen=True)
class Mark:
    """Checkpoints of a lineage up to one are committed.

    Attributes:
        topic: the topic's name.
        job: the job's name.
        sink: the sink's name within the job.
        lineage: the lineage's id.
        checkpoint: the highest of them.
        target: where their rows went.
    """

    topic: str
    job: str
    sink: str
    lineage: str
    checkpoint: int
    target: str


@dataclass(frozen=True)
class Fence:
    """A fence: attempts below it are closed.

    Attributes:
        topic: the topic's name.
        job: the job's name.
        sink: the sink's name within the job.
        generation: of the attempt.
        counter: of the attempt.
    """

    topic: str
    job: str
    sink: str
    generation: int
    counter: int

    @property
    def attempt(self) -> Attempt:
        """The lowest attempt that is open."""
        return Attempt(self.generation, self.counter)


Record = Committable | Mark | Fence
_KINDS: Mapping[str, type[Record]] = {"piece": Committable, "mark": Mark, "fence": Fence}


def encoded(record: Record) -> bytes:
    """Return a record as the value of a Kafka record."""
    [kind] = [kind for kind, form in _KINDS.items() if isinstance(record, form)]
    return encode(_MAGIC, kind, record)


def decoded(data: bytes, where: str) -> Record:
    """Return the record in the value of a Kafka record.

    Args:
        data: the value.
        where: topic, partition and offset, for errors.

    Raises:
        StopJobError: it is damaged, or not one of twophase.
        NewerFormatError: a newer version of twophase has written it.
    """
    kind = kind_of(data)
    form: Any = _KINDS.get(kind, Mark)
    try:
        found: Record = decode(_MAGIC, kind, data, where, form)
    except DamagedRecordError as error:
        raise StopJobError(
            f"The record at {where} of the ledger is damaged ({error}): somebody else has written "
            "to it.",
            remedy=FOREIGN_RECORD,
        ) from error
    return found
