"""The history that the records of a job's log fold into, and the type of each kind of record.

`History` is a pure function of the records: what a driver knows of a job, it knows from here. A
`SUBSUMED` record carries the history of all records before it, so that they can be deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from twophase.errors import NewerFormatError
from twophase.internals.json_values import from_json
from twophase.internals.record import NEWER_REMEDY
from twophase.state.journal.entries import (
    AbandonedRewind,
    AcceptedLoss,
    Adoption,
    CommittedRecord,
    Decision,
    FenceRecord,
    Lineage,
    Proof,
    Release,
    Repair,
    Rewinding,
    Rewrite,
    SinkDecision,
)
from twophase.state.journal.stats import CheckpointStats


@dataclass(frozen=True)
class History:
    """The state of a job according to its log.

    Attributes:
        generation: the newest fence; 0 before the first.
        lineages: all lineages, oldest first; the last is the current one.
        decisions: the decided checkpoints whose bodies are retained, oldest first.
        repairs: the repairs made by operators, oldest first; kept for ever.
        stats: of its decisions, as far as they are known.
        rewinding: the rewind that was begun, until its lineage begins or it is given up.
        sink_decisions: of the checkpoint after the newest decided one, those sinks that commit
            ahead of it; until it is decided, or a lineage begins.
    """

    generation: int = 0
    lineages: tuple[Lineage, ...] = ()
    decisions: tuple[Decision, ...] = ()
    repairs: tuple[Repair, ...] = ()
    stats: tuple[CheckpointStats, ...] = ()
    rewinding: Rewinding | None = None
    sink_decisions: tuple[SinkDecision, ...] = ()

    @property
    def lineage(self) -> Lineage | None:
        """The current lineage."""
        return self.lineages[-1] if self.lineages else None

    def newest(self, lineage: str) -> Decision | None:
        """Return the newest decided checkpoint of a lineage."""
        return next((found for found in reversed(self.decisions) if found.lineage == lineage), None)

    def newest_committed(self, lineage: str) -> Decision | None:
        """Return the newest committed checkpoint of a lineage."""
        return next(
            (
                found
                for found in reversed(self.decisions)
                if found.lineage == lineage and found.committed
            ),
            None,
        )

    def decided_proofs(self) -> tuple[Proof, ...]:
        """Return the newest decided checkpoint with pieces of each sink."""
        if self.lineage is None:
            return ()
        return (self.newest(self.lineage.id) or self.lineage).proofs

    def committed_proofs(self) -> tuple[Proof, ...]:
        """Return the newest committed checkpoint with pieces of each sink."""
        if self.lineage is None:
            return ()
        return (self.newest_committed(self.lineage.id) or self.lineage).proofs

    def stats_of(self, decision: Decision) -> CheckpointStats | None:
        """Return what was measured of a checkpoint; None if that is not known."""
        of = (decision.lineage, decision.checkpoint)
        return next((one for one in self.stats if (one.lineage, one.checkpoint) == of), None)

    def retaining(self, decisions: Sequence[Decision]) -> History:
        """Return the history with these of its decisions only, and what they need of lineages."""
        stats = tuple(one for one in map(self.stats_of, decisions) if one is not None)
        kept = replace(self, decisions=tuple(decisions), stats=stats)
        return replace(kept, lineages=tuple(kept._without_repetition()))

    def uncommitted(self) -> list[Decision]:
        """Return the decided checkpoints that are not known to be committed, oldest first."""
        return [decision for decision in self.decisions if not decision.committed]

    @property
    def ahead(self) -> list[SinkDecision]:
        """The decisions of sinks that are committed ahead of their checkpoint.

        A rewind commits them before it begins. From then on those that it takes back are not among
        these: their pieces may be gone.
        """
        gone = self.ahead_of(self.rewinding.keep) if self.rewinding else []
        return [one for one in self.sink_decisions if one not in gone]

    def ahead_of(self, keep: Mapping[str, int]) -> list[SinkDecision]:
        """Return the decisions of sinks after the last checkpoint of each lineage in `keep`."""
        return [one for one in self.sink_decisions if one.checkpoint > keep.get(one.lineage, -1)]

    def apply(self, record: Record) -> History:
        """Return the history after one more record.

        Raises:
            ValueError: the record contradicts the history.
        """
        match record:
            case FenceRecord(generation):
                _check(generation > self.generation, f"fence {generation} after {self.generation}")
                return replace(self, generation=generation)
            case Lineage():
                _check(
                    all(known.id != record.id for known in self.lineages),
                    f"lineage {record.id} begins twice",
                )
                return self._rewound(record.ancestors)._begun(record)
            case Decision():
                self._check_next(record)
                return replace(self, decisions=(*self.decisions, record), sink_decisions=())
            case SinkDecision():
                self._check_next(record)
                self._check_sink(record)
                return replace(self, sink_decisions=(*self.sink_decisions, record))
            case CommittedRecord(lineage, checkpoint, stats):
                decisions = tuple(self._committed(lineage, checkpoint))
                measured = (*self.stats, stats) if stats else self.stats
                return replace(self, decisions=decisions, stats=measured)
            case AcceptedLoss() | Adoption() | Rewrite() | AbandonedRewind() | Release():
                return self._repaired(record)
            case Rewinding():
                return replace(self, rewinding=record)
            case SubsumedRecord(history):
                return history

    def _begun(self, lineage: Lineage) -> History:
        """Return the history with a lineage that begins. Each sink that is ahead is behind it."""
        ahead = self.ahead_of(lineage.ancestors)
        _check(not ahead, f"a lineage begins before what sink {ahead[0].sink} has" if ahead else "")
        return replace(self, lineages=(*self.lineages, lineage), sink_decisions=())

    def _without_repetition(self) -> Iterator[Lineage]:
        """Yield the lineages without the ancestors that the current one has as well.

        So the history grows with the number of lineages, and not with its square. A lineage that
        has checkpoints to restore keeps all of its ancestors. So does every one those that only an
        adoption knows: where they stand tells when they were.
        """
        begun = {one.id for one in self.lineages}
        restorable = {one.lineage for one in self.decisions}
        repeated = begun & self.lineage.ancestors.keys() if self.lineage else begun
        for one in self.lineages:
            kept = {name: last for name, last in one.ancestors.items() if name not in repeated}
            is_whole = one is self.lineage or one.id in restorable
            yield one if is_whole else replace(one, ancestors=kept)

    def _rewound(self, keep: Mapping[str, int]) -> History:
        """Return the history without the decisions that a rewind has removed, if one was begun."""
        if self.rewinding is None:
            return self
        _check(self.rewinding.is_finished_by(keep), "a lineage begins before the rewind is done")
        kept = [one for one in self.decisions if one.checkpoint <= keep.get(one.lineage, -1)]
        ahead = tuple(self.ahead)
        return replace(self.retaining(kept), rewinding=None, sink_decisions=ahead)

    def _repaired(self, repair: Repair) -> History:
        repairs = (*self.repairs, repair)
        match repair:
            case AcceptedLoss():
                return replace(self._amended(repair), repairs=repairs)
            case Adoption(lineage=lineage):
                if lineage is None:
                    return replace(self, repairs=repairs)
                given_up = replace(self, decisions=(), stats=(), sink_decisions=())
                begun = given_up.apply(lineage)
                return replace(begun, repairs=repairs)
            case Rewrite():
                return replace(self._rewritten(repair), repairs=repairs)
            case AbandonedRewind():
                return self._abandoned(repair)
            case Release():
                return replace(self, repairs=repairs)

    def _abandoned(self, repair: AbandonedRewind) -> History:
        """Return the history without a rewind, and with the loss of what it has taken back."""
        begun = self.rewinding in (None, repair.rewinding)  # None: in another folder
        _check(begun, "another rewind is given up than the one that has begun")
        ahead = tuple(one for one in self.sink_decisions if one.sink not in repair.again)
        history = replace(self, rewinding=None, sink_decisions=ahead)
        for loss in repair.losses:
            history = history.apply(loss)
        return replace(history, repairs=(*history.repairs, replace(repair, losses=())))

    def _amended(self, loss: AcceptedLoss) -> History:
        """Return the history without the proofs that an accepted loss makes void.

        Its lineage may be one that the log does not know: that of a checkpoint or savepoint to be
        restored.
        """
        decisions = tuple(
            replace(one, proofs=loss.amend_checkpoint(one.lineage, one.checkpoint, one.proofs))
            for one in self.decisions
        )
        lineages = tuple(replace(one, proofs=loss.amend(one.proofs)) for one in self.lineages)
        ahead = tuple(one.without(loss) for one in self.sink_decisions)
        return replace(self, lineages=lineages, decisions=decisions, sink_decisions=ahead)

    def _rewritten(self, rewrite: Rewrite) -> History:
        """Return the history with the new decision in place of the replaced one."""
        new, old = rewrite.decision, replace(rewrite.decision, attempt=rewrite.replaced)
        # of the committed ones only the newest: Spark may repeat its micro-batch, which asks again
        asked = [one for one in self.decisions if not one.committed or one is self.decisions[-1]]
        replaced = [one for one in asked if one.folder == old.folder]
        known = len(replaced) == 1
        _check(known, f"checkpoint {new.checkpoint} written again without a decision")
        generation = new.attempt.generation
        _check(generation == self.generation, f"rewrite of generation {generation}")
        decisions = tuple(new if one in replaced else one for one in self.decisions)
        return replace(self, decisions=decisions)

    def _check_next(self, decision: Decision | SinkDecision) -> None:
        """Check a decision on the next checkpoint, of all its sinks or of one."""
        lineage, newest = self.lineage, self.newest(decision.lineage)
        _check(self.rewinding is None, f"checkpoint {decision.checkpoint} in a rewind")
        _check(
            lineage is not None and lineage.id == decision.lineage,
            f"decision in lineage {decision.lineage}",
        )
        _check(
            decision.attempt.generation == self.generation,
            f"decision of generation {decision.attempt.generation}",
        )
        if newest is not None:
            _check(
                decision.checkpoint == newest.checkpoint + 1,
                f"checkpoint {decision.checkpoint} out of order",
            )
        for ahead in self.sink_decisions:
            _check(
                ahead.is_of(decision.lineage, decision.checkpoint)
                and ahead.offsets_hash == decision.offsets_hash,
                f"checkpoint {decision.checkpoint} is not the one that sink {ahead.sink} has",
            )

    def _check_sink(self, decision: SinkDecision) -> None:
        _check(
            all(one.sink != decision.sink for one in self.sink_decisions),
            f"sink {decision.sink} decided twice",
        )

    def _committed(self, lineage: str, checkpoint: int) -> list[Decision]:
        found = [
            entry
            for entry in self.decisions
            if (entry.lineage, entry.checkpoint) == (lineage, checkpoint)
        ]
        _check(len(found) == 1, f"checkpoint {checkpoint} committed without a decision")
        return [
            replace(entry, committed=True) if entry is found[0] else entry
            for entry in self.decisions
        ]


@dataclass(frozen=True)
class SubsumedRecord:
    """The history of all records before this one, which may be deleted."""

    kind: ClassVar[str] = "SUBSUMED"
    history: History


Record = (
    FenceRecord
    | Lineage
    | Decision
    | SinkDecision
    | CommittedRecord
    | Repair
    | Rewinding
    | SubsumedRecord
)
_KINDS: Mapping[str, Any] = {
    AcceptedLoss.kind: Repair,
    **{
        one.kind: one
        for one in (
            *(FenceRecord, Lineage, Decision, SinkDecision, CommittedRecord),
            *(Rewinding, SubsumedRecord),
        )
    },
}
"""The type of each kind of record."""


def record_from_json(kind: str, value: Any, where: str) -> Record:
    """Build a record from JSON values, the inverse of `to_json`.

    Raises:
        NewerFormatError: this version does not know the kind, or the fields, of an intact record.
    """
    if kind not in _KINDS:
        raise NewerFormatError(
            f"The log record {where} is of the unknown kind {kind!r}: a newer twophase wrote it.",
            remedy=NEWER_REMEDY,
        )
    record: Record = from_json(_KINDS[kind], value, f"The log record {where} ({kind})")
    return record


def _check(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(what)
