"""The records of a job's log: fences, lineages, decisions, repairs and what they hold.

Each job has one log, each record one file, and the records are totally ordered. `kind` names the
record in its file. The record that stands for all before it is in `twophase.state.journal.history`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from twophase.contract.committable import Committable
from twophase.ids import Attempt
from twophase.state.journal.stats import CheckpointStats


@dataclass(frozen=True)
class FenceRecord:
    """A driver has taken over the job with `generation`."""

    kind: ClassVar[str] = "FENCE"
    generation: int


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
class Proof:
    """The newest checkpoint with pieces in a sink, of which the target must keep proof for ever.

    Attributes:
        sink: the sink's name.
        lineage: the lineage of the checkpoint: the current one, or one that it continues.
        checkpoint: its number there.
        target: the target that the pieces name (I10).
    """

    sink: str
    lineage: str
    checkpoint: int
    target: str


@dataclass(frozen=True)
class Rescale:
    """Spark's keyed state was given another number of partitions, in a savepoint.

    Attributes:
        batch: the number of Spark's that this used up: no checkpoint has it.
        partitions: of the state from there on.
    """

    batch: int
    partitions: int


@dataclass(frozen=True)
class Lineage:
    """One unbroken history of the job, which begins with this record.

    Attributes:
        id: a UUID, also the id of the Spark query.
        restored_from: the folder of the checkpoint or savepoint that it was restored from;
            empty on a fresh start.
        first_checkpoint: the number of its first checkpoint: 0, or 1 after a restore, which writes
            Spark's batch 0 itself, or n + 1 if Spark's folder is the copy in a savepoint of n; one
            more for each rescale.
        start: the offset line of each source that it begins with; empty on a fresh start, and where
            Spark's folder is such a copy.
        ancestors: the last checkpoint of each lineage that this one continues; nothing newer of
            them may be committed.
        proofs: the proofs of its ancestors in its sinks.
        rescaled: how the keyed state of that copy was rescaled since checkpoint n, oldest first.
        origin: what it was restored from, wherever that is by now: the hex SHA-256 of the
            checkpoint's body, or of the savepoint's manifest; empty on a fresh start.
        restore_id: the option `restore.id` of that restore.
    """

    kind: ClassVar[str] = "LINEAGE"
    id: str
    restored_from: str = ""
    first_checkpoint: int = 0
    start: tuple[str | None, ...] = ()
    ancestors: Mapping[str, int] = field(default_factory=dict)
    proofs: tuple[Proof, ...] = ()
    rescaled: tuple[Rescale, ...] = ()
    origin: str = ""
    restore_id: str = ""


@dataclass(frozen=True)
class Decision:
    """The decision: from here on the checkpoint is committed, never aborted.

    Attributes:
        lineage: the lineage id.
        checkpoint: n.
        attempt: the attempt that was decided.
        offsets_hash: hex SHA-256 of its start and end offsets.
        body_digest: hex SHA-256 of its body, the `_metadata` file.
        proofs: for each sink its newest checkpoint with pieces, as of this one: carried from
            decision to decision, so that no fold forgets a sink that has long had no rows.
        committed: whether every sink has proven it committed.
    """

    kind: ClassVar[str] = "DECIDED"
    lineage: str
    checkpoint: int
    attempt: Attempt
    offsets_hash: str
    body_digest: str
    committed: bool = False
    proofs: tuple[Proof, ...] = ()

    @property
    def folder(self) -> str:
        """The folder of its body, relative to the job's folder."""
        return f"chk/{self.lineage}-{self.checkpoint}-{self.attempt}"


@dataclass(frozen=True)
class SinkDecision:
    """The decision on a sink that commits its pieces of a checkpoint ahead of the others.

    The checkpoint is not decided as a whole yet; the pieces are, and are never aborted.

    Attributes:
        lineage: the lineage id.
        checkpoint: n: the one after the newest decided checkpoint of the lineage.
        sink: the sink's name.
        attempt: the attempt in which the sink has acknowledged.
        offsets_hash: hex SHA-256 of the checkpoint's start and end offsets.
        start: the offset line of each source where the checkpoint begins.
        end: where it ends, likewise.
        pieces: what the sink commits; at least one, unless an operator has given them up since.
    """

    kind: ClassVar[str] = "SINK_DECIDED"
    lineage: str
    checkpoint: int
    sink: str
    attempt: Attempt
    offsets_hash: str
    start: tuple[str | None, ...]
    end: tuple[str | None, ...]
    pieces: tuple[Committable, ...]

    def is_of(self, lineage: str, checkpoint: int) -> bool:
        """Return whether it is a decision on this checkpoint."""
        return (self.lineage, self.checkpoint) == (lineage, checkpoint)

    def without(self, loss: AcceptedLoss) -> SinkDecision:
        """Return the decision without the pieces that an accepted loss gives up."""
        kept = tuple(
            one
            for one in self.pieces
            if not loss.gave_up(self.sink, self.lineage, self.checkpoint, one.subtask.index)
        )
        return replace(self, pieces=kept)


@dataclass(frozen=True)
class Rewinding:
    """A restore has begun to rewind the sinks. Until its lineage begins, rows may be gone from one
    sink and not from the other, so no start continues before it is finished or given up.

    Attributes:
        restored_from: the folder of the restored checkpoint or savepoint.
        keep: the last checkpoint of each lineage that stays; all others are removed.
    """

    kind: ClassVar[str] = "REWINDING"
    restored_from: str
    keep: Mapping[str, int]

    def is_finished_by(self, keep: Mapping[str, int]) -> bool:
        """Return whether a rewind that keeps this removes all that this one does."""
        return all(last <= self.keep.get(lineage, -1) for lineage, last in keep.items())


@dataclass(frozen=True)
class Note:
    """A note on a repair: by whom, when and why. For people, never for decisions.

    Attributes:
        by: account and host.
        at_ms: Unix time.
        reason: in the operator's words.
    """

    by: str
    at_ms: int
    reason: str


@dataclass(frozen=True)
class AcceptedLoss:
    """An operator has given up rows that a sink proved lost, and the job goes on without them.

    They are pieces of a decided checkpoint, or everything up to a committed checkpoint that a
    restored target lacks.

    Attributes:
        note: who, when, why.
        lineage: the lineage of the checkpoint.
        checkpoint: its number.
        sink: the sink's name.
        pieces: the subtasks whose pieces are given up, as `Subtask` formats them.
        rows: the number of rows in them; for a target restored from a backup, in the
            newest checkpoint only.
        start: the offset line of each source where the lost rows begin; empty if no longer known.
        end: where they end, likewise. They are among the records in between.
        emptied: whether the sink has no piece of the checkpoint left. Then the target has no
            proof of it either.
        before: what must be proven instead in that case: the newest earlier checkpoint that the
            target has. Empty if it has none; several after an adoption that left several, of
            lineages whose order is unknown.
        lacks: if emptied, the newest checkpoint given up of each lineage: this one, then those of
            its ancestors.
    """

    kind: ClassVar[str] = "REPAIRED"
    note: Note
    lineage: str
    checkpoint: int
    sink: str
    pieces: tuple[str, ...]
    rows: int
    start: tuple[str | None, ...]
    end: tuple[str | None, ...]
    emptied: bool
    before: tuple[Proof, ...]
    lacks: tuple[Proof, ...] = ()
    action: Literal["accept-loss"] = "accept-loss"

    def gave_up(self, sink: str, lineage: str, checkpoint: int, task: int) -> bool:
        """Return whether the pieces of a task are given up, and so are never committed again."""
        if sink != self.sink:
            return False
        if (lineage, checkpoint) == (self.lineage, self.checkpoint):
            return self.emptied or task in _tasks(self.pieces)
        return self.covers(lineage, checkpoint)

    def tasks_of(self, sink: str, lineage: str, checkpoint: int) -> frozenset[int]:
        """Return the indexes of the tasks of a checkpoint whose pieces are given up one by one."""
        mine = (sink, lineage, checkpoint) == (self.sink, self.lineage, self.checkpoint)
        return _tasks(self.pieces) if mine else frozenset()

    def covers(self, lineage: str, checkpoint: int) -> bool:
        """Return whether the target also lacks all of an older checkpoint, for good."""
        proven = max((one.checkpoint for one in self.before if one.lineage == lineage), default=-1)
        if not self.emptied or checkpoint <= proven:
            return False
        return any(one.lineage == lineage and checkpoint <= one.checkpoint for one in self.lacks)

    def amend(self, proofs: tuple[Proof, ...]) -> tuple[Proof, ...]:
        """Return proofs without the ones that the target can no longer have."""
        return self._replaced(proofs, lambda one: self._empties(one.lineage, one.checkpoint))

    def amend_checkpoint(
        self, lineage: str, checkpoint: int, proofs: tuple[Proof, ...]
    ) -> tuple[Proof, ...]:
        """Amend the proofs of a checkpoint, or of its predecessors, in the same way.

        If the checkpoint is emptied, so is every checkpoint of the sink that it names,
        even in an ancestor.
        """
        if self._empties(lineage, checkpoint):
            return self._replaced(proofs, lambda _: True)
        return self.amend(proofs)

    def _replaced(
        self, proofs: tuple[Proof, ...], is_gone: Callable[[Proof], bool]
    ) -> tuple[Proof, ...]:
        """Replace the sink's proofs that are gone by all of `before`, without duplicates."""
        if not self.emptied:
            return proofs
        amended = (
            self.before if one.sink == self.sink and is_gone(one) else (one,) for one in proofs
        )
        return tuple(dict.fromkeys(proof for found in amended for proof in found))

    def _empties(self, lineage: str, checkpoint: int) -> bool:
        return (lineage, checkpoint) == (self.lineage, self.checkpoint) or self.covers(
            lineage, checkpoint
        )


@dataclass(frozen=True)
class StartingOffsets:
    """Where a source begins by its own options.

    Attributes:
        uid: of the source; empty if its format has none.
        offsets: as the options say; None if they leave it open.
    """

    uid: str
    offsets: str | None


@dataclass(frozen=True)
class Adoption:
    """An operator has let the log adopt what the targets have proof of, and begin a lineage.

    Attributes:
        note: who, when, why.
        lineage: the new lineage; its ancestors are the adopted ones. None if the log lacked nothing
            but a driver that a target had seen: it goes on as it is.
        gave_up: folders of the decided checkpoints whose bodies were no longer readable.
        starting: where the operator has confirmed that the sources begin, if the lineage has no
            start.
    """

    kind: ClassVar[str] = "REPAIRED"
    note: Note
    lineage: Lineage | None
    gave_up: tuple[str, ...] = ()
    starting: tuple[StartingOffsets, ...] = ()
    action: Literal["adopt-from-target"] = "adopt-from-target"


@dataclass(frozen=True)
class Rewrite:
    """Pieces that a sink proved lost are replaced by pieces of a new attempt, with the same rows.

    Attributes:
        note: who, when, why.
        decision: the checkpoint's decision from here on, under the new attempt; its body
            lists the new pieces.
        replaced: the attempt that was decided before. The pieces that were not lost belong to it,
            or to an older one.
        sink: the sink's name.
        pieces: the subtasks whose pieces were lost, as `Subtask` formats them.
        rows: the number of rows in them.
    """

    kind: ClassVar[str] = "REPAIRED"
    note: Note
    decision: Decision
    replaced: Attempt
    sink: str
    pieces: tuple[str, ...]
    rows: int
    action: Literal["rewrite"] = "rewrite"

    def is_of(self, lineage: str, checkpoint: int) -> bool:
        """Return whether it rewrites this checkpoint."""
        return (self.decision.lineage, self.decision.checkpoint) == (lineage, checkpoint)

    def tasks_of(self, sink: str, lineage: str, checkpoint: int) -> frozenset[int]:
        """Return the indexes of the tasks of a checkpoint whose pieces are replaced."""
        mine = sink == self.sink and self.is_of(lineage, checkpoint)
        return _tasks(self.pieces) if mine else frozenset()

    def replaces(self, task: int, attempt: Attempt) -> bool:
        """Return whether its new pieces replace those of a task under an attempt."""
        return attempt < self.decision.attempt and task in _tasks(self.pieces)


@dataclass(frozen=True)
class AbandonedRewind:
    """An operator has given up a rewind that had begun: the job goes on from where it was.

    Attributes:
        note: who, when, why.
        rewinding: the rewind, which may have begun in another folder. What it has not taken back
            stays.
        losses: what it has taken back, by sink. They stand on their own in `History.repairs`.
        again: the sinks that were ahead of the others, and have been rewound: they write their
            pieces of that checkpoint again.
    """

    kind: ClassVar[str] = "REPAIRED"
    note: Note
    rewinding: Rewinding
    losses: tuple[AcceptedLoss, ...]
    again: tuple[str, ...]
    action: Literal["abandon-rewind"] = "abandon-rewind"


@dataclass(frozen=True)
class Release:
    """An operator has let the job go on without topics that its sources cannot read any more.

    The micro-batch after a checkpoint leaves them behind, in this lineage and in each that is
    restored from that checkpoint. The offset lines from there on say so themselves.

    Attributes:
        note: who, when, why.
        lineage: the current lineage.
        checkpoint: its newest decided checkpoint; the one before its first if it has none.
        parts: for each source an offset line of what it leaves behind alone, where that stands.
    """

    kind: ClassVar[str] = "REPAIRED"
    note: Note
    lineage: str
    checkpoint: int
    parts: tuple[str, ...]
    action: Literal["release-topic"] = "release-topic"


def _tasks(pieces: tuple[str, ...]) -> frozenset[int]:
    return frozenset(int(piece.partition(".")[0]) for piece in pieces)


Repair = AcceptedLoss | Adoption | Rewrite | AbandonedRewind | Release
