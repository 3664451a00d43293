"""The records of the job's log.

Each job has one log, each record one file, and the records are totally ordered. A `SUBSUMED` record
carries the history of all records before it (`twophase.state.history`), so that they can be
deleted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from twophase.state.entries import Decision, Lineage, Released, Repair, Rewinding, SinkDecision
from twophase.state.stats import CheckpointStats

if TYPE_CHECKING:
    from twophase.state.history import History


@dataclass(frozen=True)
class FenceRecord:
    """A driver has taken over the job with `generation`."""

    kind: ClassVar[str] = "FENCE"
    generation: int


@dataclass(frozen=True)
class LineageRecord:
    """A new lineage begins."""

    kind: ClassVar[str] = "LINEAGE"
    lineage: Lineage


@dataclass(frozen=True)
class DecidedRecord:
    """The decision: from here on the checkpoint is committed, never aborted."""

    kind: ClassVar[str] = "DECIDED"
    decision: Decision


@dataclass(frozen=True)
class SinkDecidedRecord:
    """A sink commits its pieces of a checkpoint that is not decided yet; they are never aborted."""

    kind: ClassVar[str] = "SINK_DECIDED"
    decision: SinkDecision


@dataclass(frozen=True)
class CommittedRecord:
    """Every sink has proven the checkpoint committed.

    `stats` is there if one driver has taken it from its trigger to here.
    """

    kind: ClassVar[str] = "COMMITTED"
    lineage: str
    checkpoint: int
    stats: CheckpointStats | None = None


@dataclass(frozen=True)
class RepairedRecord:
    """An operator has repaired a job that refused to start."""

    kind: ClassVar[str] = "REPAIRED"
    repair: Repair


@dataclass(frozen=True)
class ReleasedRecord:
    """The job has ended, and its checkpoints may be deleted: no start goes on from them."""

    kind: ClassVar[str] = "RELEASED"
    released: Released


@dataclass(frozen=True)
class RewindingRecord:
    """A restore begins to take checkpoints back out of the sinks; LINEAGE says that it has."""

    kind: ClassVar[str] = "REWINDING"
    rewinding: Rewinding


@dataclass(frozen=True)
class SubsumedRecord:
    """The history of all records before this one, which may be deleted."""

    kind: ClassVar[str] = "SUBSUMED"
    history: History


@dataclass(frozen=True)
class SubsumedAheadRecord(SubsumedRecord):
    """A SUBSUMED record with sinks that commit ahead, which older versions would overlook."""

    kind: ClassVar[str] = "SUBSUMED_AHEAD"


Record = (
    FenceRecord
    | LineageRecord
    | DecidedRecord
    | SinkDecidedRecord
    | CommittedRecord
    | RepairedRecord
    | ReleasedRecord
    | RewindingRecord
    | SubsumedRecord
    | SubsumedAheadRecord
)
