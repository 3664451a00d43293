"""Identifiers of jobs, lineages, checkpoints, attempts, sinks and pieces.

Nothing is ever reused (invariant I5): the generation is new for every driver, the counter for every
attempt of that driver, the task attempt for every task Spark starts.
"""

from __future__ import annotations

import hashlib
import re
import uuid
from dataclasses import dataclass

from twophase.errors import ConfigError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def check_name(kind: str, name: str) -> str:
    """Return `name` if it can stand in file names, transaction ids and SQL comments.

    Raises:
        ConfigError: it cannot.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"The {kind} name {name!r} is not allowed.",
            remedy="use 1 to 64 letters, digits, '.', '_' or '-', "
            "beginning with a letter or digit.",
        )
    return name


def short_hash(text: str, length: int = 12) -> str:
    """Return the first `length` hex digits of the SHA-256 of `text` in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def new_lineage_id() -> str:
    """Return a fresh lineage id: a random UUID (122 bits), the form of Spark's query ids."""
    return str(uuid.uuid4())


@dataclass(frozen=True, order=True)
class Attempt:
    """One try at pre-committing a checkpoint. Ordered: a later attempt supersedes all before it.

    Attributes:
        generation: counts the drivers of the job, from 1.
        counter: counts the attempts of one driver, from 1, over all its checkpoints.
    """

    generation: int
    counter: int

    def __str__(self) -> str:
        return f"{self.generation}.{self.counter}"

    def is_closed_by(self, fence: Attempt | None) -> bool:
        """Return whether a fence at `fence` refuses what this attempt pre-commits (I7).

        A later attempt closes this one. So do a fence of any other generation and a missing fence:
        the target is not the one that this driver has fenced.
        """
        return fence is None or fence.generation != self.generation or fence > self


class AttemptSequence:
    """Numbers the attempts of a driver; no number is used twice (I5).

    Attributes:
        generation: the generation with which this driver took the job over; 0 before.
        counter: the counter of its last attempt.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.counter = 0

    def next(self) -> Attempt:
        """Return a new attempt."""
        self.counter += 1
        return Attempt(self.generation, self.counter)


@dataclass(frozen=True)
class TransactionId:
    """Identifier of what one sink pre-commits in one attempt at one checkpoint.

    Attributes:
        job: the job's name.
        lineage: the lineage id, a UUID.
        checkpoint: the checkpoint's number n within the lineage, from 0; Spark's batch id.
        attempt: generation and counter.
        sink: the sink's name within the job.
        offsets_hash: hex SHA-256 of the start and end offsets of the micro-batch; for a piece in
            doubt, the prefix that its name holds.
    """

    job: str
    lineage: str
    checkpoint: int
    attempt: Attempt
    sink: str
    offsets_hash: str

    def __str__(self) -> str:
        return f"{self.job}/{self.lineage[:8]}/{self.checkpoint}/{self.attempt}/{self.sink}"


@dataclass(frozen=True, order=True)
class Subtask:
    """One task attempt of a writer.

    Attributes:
        index: Spark's partition id.
        task_attempt: Spark's task attempt id, unique within one driver.
    """

    index: int
    task_attempt: int

    def __str__(self) -> str:
        return f"{self.index}.{self.task_attempt}"
