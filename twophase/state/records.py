"""The records of the job's log, and the history that they fold into.

Each job has one log, each record one file, and the records are totally ordered. `History` is the
fold of the log: a pure function of its records. A `SUBSUMED` record carries the history of all
records before it, so that they can be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from twophase.errors import NewerFormatError
from twophase.ids import Attempt
from twophase.protocol.record import NEWER_REMEDY
from twophase.state.entries import (
    AcceptedLoss,
    Adoption,
    Decision,
    Lineage,
    Note,
    Proof,
    Released,
    Repair,
    Rewinding,
    Rewrite,
    SinkDecision,
    proofs_from_json,
    rescaled_from_json,
)
from twophase.state.stats import CheckpointStats


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


@dataclass(frozen=True)
class History:
    """The state of a job according to its log.

    Attributes:
        generation: the newest fence; 0 before the first.
        lineages: all lineages, oldest first; the last is the current one.
        decisions: the decided checkpoints whose bodies are retained, oldest first.
        repairs: the repairs made by operators, oldest first; kept for ever.
        stats: of its decisions, as far as they are known.
        released: what was given up, if the current lineage has ended like that. Then there are no
            decisions, and only a new lineage goes on.
        rewinding: the rewind that was begun, until its lineage begins.
        sink_decisions: of the checkpoint after the newest decided one, those sinks that commit
            ahead of it; until it is decided, or a lineage begins.
    """

    generation: int = 0
    lineages: tuple[Lineage, ...] = ()
    decisions: tuple[Decision, ...] = ()
    repairs: tuple[Repair, ...] = ()
    stats: tuple[CheckpointStats, ...] = ()
    released: Released | None = None
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

    def committed_proofs(self) -> tuple[Proof, ...]:
        """Return the newest committed checkpoint with pieces of each sink, as far as it is known.

        A version that kept none may have decided the newest checkpoint.
        """
        if self.lineage is None:
            return ()
        newest = self.newest_committed(self.lineage.id)
        return (newest or self.lineage).proofs or ()

    def stats_of(self, decision: Decision) -> CheckpointStats | None:
        """Return what was measured of a checkpoint; None if that is not known."""
        of = (decision.lineage, decision.checkpoint)
        return next((one for one in self.stats if (one.lineage, one.checkpoint) == of), None)

    def retaining(self, decisions: Sequence[Decision]) -> History:
        """Return the history with these of its decisions only."""
        stats = tuple(one for one in map(self.stats_of, decisions) if one is not None)
        return replace(self, decisions=tuple(decisions), stats=stats)

    def uncommitted(self) -> list[Decision]:
        """Return the decided checkpoints that are not known to be committed, oldest first."""
        return [decision for decision in self.decisions if not decision.committed]

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
            case LineageRecord(lineage):
                _check(
                    all(known.id != lineage.id for known in self.lineages),
                    f"lineage {lineage.id} begins twice",
                )
                return self._rewound(lineage.ancestors)._begun(lineage)
            case DecidedRecord(decision):
                self._check_next(decision)
                return replace(self, decisions=(*self.decisions, decision), sink_decisions=())
            case SinkDecidedRecord(one):
                self._check_next(one)
                self._check_sink(one)
                return replace(self, sink_decisions=(*self.sink_decisions, one))
            case CommittedRecord(lineage_id, checkpoint, stats):
                decisions = tuple(self._committed(lineage_id, checkpoint))
                measured = (*self.stats, stats) if stats else self.stats
                return replace(self, decisions=decisions, stats=measured)
            case RepairedRecord(repair):
                return self._repaired(repair)
            case ReleasedRecord(released):
                self._check_released(released)
                return replace(self, decisions=(), stats=(), released=released)
            case RewindingRecord(rewinding):
                return replace(self, rewinding=rewinding, sink_decisions=self._kept(rewinding))
            case SubsumedRecord(history):
                return history

    def _kept(self, rewinding: Rewinding) -> tuple[SinkDecision, ...]:
        """Return the decisions of sinks that a rewind does not take back. The others are committed
        by now, and their pieces may be gone from here on.
        """
        gone = self.ahead_of(rewinding.keep)
        return tuple(one for one in self.sink_decisions if one not in gone)

    def _begun(self, lineage: Lineage) -> History:
        """Return the history with a lineage that begins. Each sink that is ahead is behind it."""
        ahead = self.ahead_of(lineage.ancestors)
        _check(not ahead, f"a lineage begins before what sink {ahead[0].sink} has" if ahead else "")
        lineages = (*self.lineages, lineage)
        return replace(self, lineages=lineages, released=None, sink_decisions=())

    def _rewound(self, keep: Mapping[str, int]) -> History:
        """Return the history without the decisions that were taken back, if a rewind was begun."""
        if self.rewinding is None:
            return self
        _check(self.rewinding.is_finished_by(keep), "a lineage begins before the rewind is done")
        kept = [one for one in self.decisions if one.checkpoint <= keep.get(one.lineage, -1)]
        return replace(self.retaining(kept), rewinding=None)

    def _check_released(self, released: Released) -> None:
        newest = self.newest(released.lineage)
        known = newest is not None and newest.checkpoint == released.checkpoint
        left = self.uncommitted() or self.sink_decisions
        _check(known and not left, f"release of checkpoint {released.checkpoint}")

    def _repaired(self, repair: Repair) -> History:
        repairs = (*self.repairs, repair)
        match repair:
            case AcceptedLoss():
                return replace(self._amended(repair), repairs=repairs)
            case Adoption(lineage=lineage):
                given_up = replace(self, decisions=(), stats=(), sink_decisions=())
                begun = given_up.apply(LineageRecord(lineage))
                return replace(begun, repairs=repairs)
            case Rewrite():
                return replace(self._rewritten(repair), repairs=repairs)

    def _amended(self, loss: AcceptedLoss) -> History:
        """Return the history without the proofs that an accepted loss makes void."""
        known = {one.id for one in self.lineages}
        known |= {name for one in self.lineages for name in one.ancestors}
        _check(loss.lineage in known, f"loss in lineage {loss.lineage}")
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
        replaced = [one for one in self.decisions if one.folder == old.folder and not one.committed]
        known = len(replaced) == 1
        _check(known, f"checkpoint {new.checkpoint} written again without a decision")
        generation = new.attempt.generation
        _check(generation == self.generation, f"rewrite of generation {generation}")
        decisions = tuple(new if one in replaced else one for one in self.decisions)
        return replace(self, decisions=decisions)

    def _check_next(self, decision: Decision | SinkDecision) -> None:
        """Check a decision on the next checkpoint, of all its sinks or of one."""
        lineage, newest = self.lineage, self.newest(decision.lineage)
        _check(self.released is None, f"checkpoint {decision.checkpoint} after a release")
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

    def to_json(self) -> dict[str, Any]:
        """Return JSON values, without what older versions do not know if there is none of it."""
        value: dict[str, Any] = _without_rescaled(asdict(self))
        value["sink_decisions"] = [asdict(one) for one in self.sink_decisions]
        for name in ("stats", "released", "rewinding", "sink_decisions"):
            if not value[name]:
                del value[name]
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> History:
        """Build from JSON values, the inverse of `to_json`."""
        return cls(
            generation=value["generation"],
            lineages=tuple(_lineage(lineage) for lineage in value["lineages"]),
            decisions=tuple(_decision(decision) for decision in value["decisions"]),
            repairs=tuple(_repair(repair) for repair in value.get("repairs", ())),
            stats=tuple(CheckpointStats.from_json(one) for one in value.get("stats", ())),
            released=Released(**value["released"]) if value.get("released") else None,
            rewinding=Rewinding(**value["rewinding"]) if value.get("rewinding") else None,
            sink_decisions=tuple(map(SinkDecision.from_json, value.get("sink_decisions", ()))),
        )


def folded(history: History) -> SubsumedRecord:
    """Return the record that stands for all records of a history."""
    return SubsumedAheadRecord(history) if history.sink_decisions else SubsumedRecord(history)


def record_to_json(record: Record) -> dict[str, Any]:
    """Return the fields of a record as JSON values; its kind is stored separately."""
    if isinstance(record, SubsumedRecord):
        return {"history": record.history.to_json()}
    if isinstance(record, SinkDecidedRecord):
        return asdict(record)
    value: dict[str, Any] = _without_rescaled(asdict(record))
    if isinstance(record, CommittedRecord) and record.stats is None:
        del value["stats"]
    return value


def _without_rescaled(value: Any) -> Any:
    """Return JSON values in which no lineage has an empty `rescaled`: older versions lack it."""
    if isinstance(value, dict):
        kept = {name: one for name, one in value.items() if name != "rescaled" or one}
        return {name: _without_rescaled(one) for name, one in kept.items()}
    if isinstance(value, list | tuple):
        return [_without_rescaled(one) for one in value]
    return value


def record_from_json(kind: str, value: Any, where: str) -> Record:
    """Build a record from JSON values, the inverse of `record_to_json`.

    Raises:
        NewerFormatError: this version does not know the kind or the fields of a whole record.
    """
    try:
        match kind:
            case FenceRecord.kind:
                return FenceRecord(generation=value["generation"])
            case LineageRecord.kind:
                return LineageRecord(_lineage(value["lineage"]))
            case DecidedRecord.kind:
                return DecidedRecord(_decision(value["decision"]))
            case SinkDecidedRecord.kind:
                return SinkDecidedRecord(SinkDecision.from_json(value["decision"]))
            case CommittedRecord.kind:
                found = value.get("stats")
                stats = CheckpointStats.from_json(found) if found else None
                return CommittedRecord(value["lineage"], value["checkpoint"], stats)
            case RepairedRecord.kind:
                return RepairedRecord(_repair(value["repair"]))
            case ReleasedRecord.kind:
                return ReleasedRecord(Released(**value["released"]))
            case RewindingRecord.kind:
                return RewindingRecord(Rewinding(**value["rewinding"]))
            case SubsumedRecord.kind | SubsumedAheadRecord.kind:
                return folded(History.from_json(value["history"]))
            case _:
                raise _unknown_kind(kind, where)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NewerFormatError(
            f"The log record {where} ({kind}) is whole and lacks or has unknown fields, as of "
            f"another version of twophase: {error}.",
            remedy=NEWER_REMEDY,
        ) from None


def _unknown_kind(kind: str, where: str) -> NewerFormatError:
    return NewerFormatError(
        f"The log record {where} is of the unknown kind {kind!r}: a newer twophase wrote it.",
        remedy=NEWER_REMEDY,
    )


def _lineage(value: Mapping[str, Any]) -> Lineage:
    fields = dict(value)
    return Lineage(
        start=tuple(fields.pop("start")),
        proofs=proofs_from_json(fields.pop("proofs", None)),
        rescaled=rescaled_from_json(fields.pop("rescaled", ())),
        **fields,
    )


def _decision(value: Mapping[str, Any]) -> Decision:
    fields = dict(value)
    attempt, proofs = Attempt(**fields.pop("attempt")), proofs_from_json(fields.pop("proofs", None))
    return Decision(attempt=attempt, proofs=proofs, **fields)


def _repair(value: Mapping[str, Any]) -> Repair:
    fields = dict(value)
    note = Note(**fields.pop("note"))
    match fields["action"]:
        case "accept-loss":
            pieces, start, end = (tuple(fields.pop(name)) for name in ("pieces", "start", "end"))
            before, lacks = (
                _before(fields.pop("before")),
                proofs_from_json(fields.pop("lacks", None)),
            )
            return AcceptedLoss(
                note=note, pieces=pieces, start=start, end=end, before=before, lacks=lacks, **fields
            )
        case "adopt-from-target":
            lineage, gave_up = _lineage(fields.pop("lineage")), tuple(fields.pop("gave_up"))
            return Adoption(note=note, lineage=lineage, gave_up=gave_up, **fields)
        case "rewrite":
            decision, replaced = (
                _decision(fields.pop("decision")),
                Attempt(**fields.pop("replaced")),
            )
            return Rewrite(
                note=note,
                decision=decision,
                replaced=replaced,
                pieces=tuple(fields.pop("pieces")),
                **fields,
            )
        case other:
            raise ValueError(f"the unknown action {other!r}")


def _before(value: Any) -> tuple[Proof, ...]:
    """Return `AcceptedLoss.before`; a record of an older version has one proof or none."""
    one = [value] if isinstance(value, Mapping) else value
    return proofs_from_json(one) or ()


def _check(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(what)
