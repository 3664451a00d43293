"""The completed checkpoint: the content of its `_metadata` file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, TypedDict

from twophase.contract.committable import Committable
from twophase.contract.sink import Predecessor
from twophase.functions.operator_state import Redistribution
from twophase.ids import Attempt
from twophase.internals.json_values import canonical_json
from twophase.state.checkpoints.function_state import FunctionState, StateFile
from twophase.state.journal.entries import AcceptedLoss, Proof, Repair, SinkDecision

STATE_FOLDER = "state"
"""Has the files of large operator states, next to the bodies."""


@dataclass(frozen=True)
class FrozenOffsets:
    """The offset ranges of a micro-batch, frozen by Spark before it runs.

    Attributes:
        start: one line for each source in plan order, as in Spark's offset log; None at the
            beginning of a source.
        end: likewise.
    """

    start: tuple[str | None, ...]
    end: tuple[str | None, ...]

    @property
    def hash(self) -> str:
        """Hex SHA-256 of both ranges, the same on every replay."""
        return hashlib.sha256(canonical_json([list(self.start), list(self.end)])).hexdigest()


@dataclass(frozen=True)
class SourceState:
    """The state of a source, built from its line in the offset log.

    Attributes:
        format: the source's name.
        uid: its uid; empty for a format without uids, and for a source that has not begun.
        scheme: how the entries are redistributed.
        entries: as `Source.entries` returns them; empty for a source that has not begun.
    """

    format: str
    uid: str
    scheme: Redistribution
    entries: tuple[Any, ...]


class OperatorStateFields(TypedDict, total=False):
    """The fields of a checkpoint that hold operator state; what is left out is empty."""

    sources: tuple[SourceState, ...]
    functions: Mapping[str, Any]
    function_states: Mapping[str, tuple[FunctionState, ...]]
    state_plan: Mapping[str, Any]


@dataclass(frozen=True)
class CompletedCheckpoint:
    """A decided checkpoint.

    Attributes:
        job: the job's name.
        lineage: the lineage id.
        checkpoint: n.
        attempt: the attempt that completed.
        trigger_time_ms: Unix time of the trigger; for people, never for decisions (hazard H17).
        offsets: the offset ranges that it read.
        functions: what each function's `snapshot_state` returned, by its uid; JSON values.
        committables: the pieces of each sink, by name; a sink without rows has an empty list.
        duration_ms: from the trigger to the decision.
        predecessors: for each sink the newest checkpoint before this one that has pieces in it. It
            must be proven in the target before a piece of this one is committed there.
        sources: the state of every source, in plan order; empty in the plugin form.
        function_states: the named and raw states of each function, by its uid.
        state_plan: what Spark keeps state of; empty if it keeps none.
    """

    job: str
    lineage: str
    checkpoint: int
    attempt: Attempt
    trigger_time_ms: int
    offsets: FrozenOffsets
    functions: Mapping[str, Any] = field(default_factory=dict)
    committables: Mapping[str, Sequence[Committable]] = field(default_factory=dict)
    duration_ms: int = 0
    predecessors: tuple[Proof, ...] = ()
    sources: tuple[SourceState, ...] = ()
    function_states: Mapping[str, tuple[FunctionState, ...]] = field(default_factory=dict)
    state_plan: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of_sink(
        cls, job: str, decision: SinkDecision, predecessors: tuple[Proof, ...]
    ) -> CompletedCheckpoint:
        """Return the decided part of a checkpoint that one sink commits ahead of the others.

        Args:
            job: the job's name.
            decision: the sink's.
            predecessors: for each sink its newest checkpoint with pieces before this one.
        """
        return cls(
            job,
            decision.lineage,
            decision.checkpoint,
            decision.attempt,
            0,
            FrozenOffsets(decision.start, decision.end),
            committables={decision.sink: decision.pieces},
            predecessors=predecessors,
        )

    @property
    def state_folder(self) -> str:
        """The folder of its state files, relative to the job's folder."""
        return f"{STATE_FOLDER}/{self.lineage}-{self.checkpoint}-{self.attempt}"

    @property
    def state_files(self) -> dict[str, StateFile]:
        """The files that its body names, by path relative to the job's folder; none once the
        states are read.
        """
        return {
            f"{self.state_folder}/{state.file.name}": state.file
            for states in self.function_states.values()
            for state in states
            if state.file
        }

    @property
    def proofs(self) -> tuple[Proof, ...]:
        """For each sink, its newest checkpoint with pieces, including this one.

        An adoption may leave several for one sink: one for each lineage, where
        their order is unknown.
        """
        own = {
            sink: Proof(sink, self.lineage, self.checkpoint, pieces[0].target)
            for sink, pieces in self.committables.items()
            if pieces
        }
        kept = [own.get(proof.sink, proof) for proof in self.predecessors]
        return tuple(dict.fromkeys([*kept, *own.values()]))

    def elsewhere(self, sink: str, target: str) -> list[Committable]:
        """Return the pieces of a sink that were written to another target than it has now."""
        return [one for one in self.committables.get(sink, ()) if one.target != target]

    def predecessors_in(self, sink: str) -> list[Proof]:
        """Return the proofs that a target needs before it may commit a piece of this checkpoint."""
        return [proof for proof in self.predecessors if proof.sink == sink]

    def predecessor(self, sink: str) -> Predecessor | None:
        """Return the first of them, which the sink checks; `CommitLoop` checks the others."""
        found = self.predecessors_in(sink)
        return Predecessor(found[0].lineage, found[0].checkpoint) if found else None

    def without(self, loss: AcceptedLoss) -> CompletedCheckpoint:
        """Return the checkpoint as it is after an accepted loss, in it or in an earlier one."""
        pieces = self.committables.get(loss.sink, ())
        kept = tuple(
            one
            for one in pieces
            if not loss.gave_up(loss.sink, self.lineage, self.checkpoint, one.subtask.index)
        )
        committables = {**self.committables, loss.sink: kept} if pieces else self.committables
        predecessors = loss.amend_checkpoint(self.lineage, self.checkpoint, self.predecessors)
        return replace(self, committables=committables, predecessors=predecessors)

    def amended(self, repairs: Iterable[Repair]) -> CompletedCheckpoint:
        """Return the checkpoint as it is after all losses that operators have accepted."""
        losses = (one for one in repairs if isinstance(one, AcceptedLoss))
        return reduce(CompletedCheckpoint.without, losses, self)

    @property
    def rows(self) -> int:
        """Rows written, over all sinks."""
        return sum(self.rows_by_sink.values())

    @property
    def rows_by_sink(self) -> dict[str, int]:
        """Rows written into each sink, by its name; 0 for a sink without rows."""
        return {
            sink: sum(piece.rows for piece in pieces) for sink, pieces in self.committables.items()
        }
