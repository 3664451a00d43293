"""The history that the records of a job's log fold into.

`History` is a pure function of the records: what a driver knows of a job, it knows from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from twophase.state.entries import (
    AcceptedLoss,
    Adoption,
    Decision,
    Lineage,
    Proof,
    Released,
    Repair,
    Rewinding,
    Rewrite,
    SinkDecision,
)
from twophase.state.entry_codec import (
    decision_from_json,
    lineage_from_json,
    repair_from_json,
    without_rescaled,
)
from twophase.state.records import (
    CommittedRecord,
    DecidedRecord,
    FenceRecord,
    LineageRecord,
    Record,
    ReleasedRecord,
    RepairedRecord,
    RewindingRecord,
    SinkDecidedRecord,
    SubsumedAheadRecord,
    SubsumedRecord,
)
from twophase.state.stats import CheckpointStats


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
        value: dict[str, Any] = without_rescaled(asdict(self))
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
            lineages=tuple(lineage_from_json(lineage) for lineage in value["lineages"]),
            decisions=tuple(decision_from_json(decision) for decision in value["decisions"]),
            repairs=tuple(repair_from_json(repair) for repair in value.get("repairs", ())),
            stats=tuple(CheckpointStats.from_json(one) for one in value.get("stats", ())),
            released=Released(**value["released"]) if value.get("released") else None,
            rewinding=Rewinding(**value["rewinding"]) if value.get("rewinding") else None,
            sink_decisions=tuple(map(SinkDecision.from_json, value.get("sink_decisions", ()))),
        )


def folded(history: History) -> SubsumedRecord:
    """Return the record that stands for all records of a history."""
    return SubsumedAheadRecord(history) if history.sink_decisions else SubsumedRecord(history)


def _check(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(what)
