"""The history of a checkpoint: how long its parts took, how large it is, what failed before it.

For people, never for decisions. The log keeps it in its records.
"""

from __future__ import annotations

from dataclasses import dataclass

from twophase.ids import Attempt


@dataclass(frozen=True)
class DeclinedAttempt:
    """An attempt that failed before the checkpoint was decided.

    Attributes:
        attempt: its generation and counter.
        reason: the name of a `CheckpointFailureReason`.
        cause: the root cause, if the query failed with it; empty if it was retried in place.
    """

    attempt: Attempt
    reason: str
    cause: str = ""


@dataclass(frozen=True)
class CheckpointStats:
    """What a driver has measured of a checkpoint that it took from its trigger to its commit.

    Attributes:
        lineage: of the checkpoint.
        checkpoint: its number.
        pre_commit_ms: the synchronous part: from the trigger until every sink has acknowledged.
        decide_ms: from there until the decision is durable.
        commit_ms: from the decision until every sink has proven it.
        size_bytes: of its body.
        declined: the attempts before it since the last decided checkpoint, oldest first.
    """

    lineage: str
    checkpoint: int
    pre_commit_ms: int
    decide_ms: int
    commit_ms: int
    size_bytes: int
    declined: tuple[DeclinedAttempt, ...] = ()
