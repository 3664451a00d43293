"""The proofs that the targets must have according to the log: the other direction of I6.

A target that was restored from a backup, swapped for another one, or left behind by a failover
lacks checkpoints that the log calls committed. Each decision therefore carries, for each sink, its
newest checkpoint with pieces, ancestors included:

    A. a start checks each target for the proof of what is committed          `plan_start`
    B. a commit requires the proof of its predecessor, in the target itself
       `CommitRequest.predecessor`
       if an adoption left several predecessors, the others just before it    `CommitLoop`

B detects a target that changes under a running job: the next start would find the newer proof
there, and no longer notice that older rows are missing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from twophase.contract.sink import OpenSink, Predecessor, SinkHistory
from twophase.errors import (
    CheckpointMissingError,
    CorruptRecordError,
    FencedError,
    InDoubtError,
    TargetChangedError,
)
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.checkpoints.store import CompletedCheckpointStore
from twophase.state.journal.entries import Proof, SinkDecision
from twophase.state.journal.log import JobLog

_log = logging.getLogger("twophase")


@dataclass(frozen=True)
class RefusedCommit:
    """A commit that a sink has refused, since its target is another one or lacks something.

    Attributes:
        checkpoint: a decided one.
        sink: the sink.
        name: its name.
        error: of the sink.
        accept: the command that accepts the loss of the checkpoint there.
    """

    checkpoint: CompletedCheckpoint
    sink: OpenSink
    name: str
    error: TargetChangedError
    accept: str

    @property
    def is_elsewhere(self) -> bool:
        """Whether pieces of it wait in a target that the sink has left."""
        return bool(self.checkpoint.elsewhere(self.name, self.sink.target()))


class Proofs:
    """The proofs that a job's targets must have, according to its log.

    Args:
        job: the job's name.
        log: its log.
        store: its checkpoints.
    """

    def __init__(self, job: str, log: JobLog, store: CompletedCheckpointStore) -> None:
        self._job = job
        self._log = log
        self._store = store

    def decided(self) -> tuple[Proof, ...]:
        """Return each sink's newest decided checkpoint: the predecessors of the next one."""
        return self._log.history.decided_proofs()

    def committed(self) -> tuple[Proof, ...]:
        """Return each sink's newest committed checkpoint, which every target must have now."""
        return self._log.history.committed_proofs()

    def check(self, name: str, sink: OpenSink) -> None:
        """Check that a target has the proof of what its sink has committed.

        Raises:
            TargetChangedError: it lacks it.
            FencedError: a newer driver has taken the job over, whose rewind looks like a loss.
        """
        memory = sink.history()
        self._log.check_fence()
        for proof in self.committed():
            if proof.sink == name and not knows(memory, proof):
                raise self.changed(proof, sink, memory)

    def check_fence(self, checkpoint: CompletedCheckpoint, sink: OpenSink) -> None:
        """Check that what a target says of the pieces of a checkpoint is of this driver's doing, or
        of an older one's. A newer one, over this folder or a copy of it, may have taken them back,
        or written others under the same number.

        Raises:
            FencedError: a newer driver has raised its fence there.
        """
        seen, own = sink.history().generation, self._log.history.generation
        if seen > own:
            raise FencedError(
                f"Job {checkpoint.job!r}: a driver of generation {seen} has raised the fence in "
                f"{sink.target()} above {own}, and what the target says of checkpoint "
                f"{checkpoint.checkpoint} may be of that driver's. "
                "No data is lost: it writes what is missing.",
                remedy="leave this driver stopped; find out why two were started, "
                "over this folder or over a copy of it.",
            )

    def body_of(self, proof: Proof) -> CompletedCheckpoint | None:
        """Return the checkpoint of a proof; None if no decision of it is left, or no whole body."""
        for decision in self._log.history.decisions:
            if (decision.lineage, decision.checkpoint) == (proof.lineage, proof.checkpoint):
                # damaged, or subsumed, perhaps by another driver
                with suppress(
                    CheckpointMissingError, CorruptRecordError, FencedError, InDoubtError
                ):
                    return self._store.read(decision)
        return None

    def missing(self, proof: Proof, memory: SinkHistory) -> tuple[list[Proof], list[Proof]]:
        """Return the checkpoints that a target without a proof lacks, and where its own end.

        Args:
            proof: the proof that it lacks.
            memory: the history of the target.

        Returns:
            The newest missing checkpoint of each lineage, beginning with `proof`; and the newest
            earlier ones that it
            has: of one lineage, or of each that may be the newest.
        """
        lacks, before, asked = list[Proof](), list[Proof](), [proof]
        # grows: a lineage that the target does not know leads on to those that it continued
        for one in asked:
            newest = memory.committed.get(one.lineage)
            if newest is None or newest < one.checkpoint:
                lacks.append(one)
            if newest is None:
                asked += [older for older in self._continued(one) if older not in asked]
            else:
                before.append(replace(one, checkpoint=min(newest, one.checkpoint)))
        return lacks, before

    def _continued(self, proof: Proof) -> list[Proof]:
        """Return the sink's proofs at the beginning of the lineage of `proof`.

        A lineage that began in another folder is known as what the first one here continues, as all
        that it continued is. An adoption does not tell which of those a sink had.
        """
        lineages = self._log.history.lineages
        if begun := [one.proofs for one in lineages if one.id == proof.lineage]:
            return [one for proofs in begun for one in proofs if one.sink == proof.sink]
        known = {proof.lineage, *(one.id for one in lineages)}
        first = next((one for one in lineages if proof.lineage in one.ancestors), None)
        if first is None or not first.restored_from:
            return []
        return [
            replace(proof, lineage=lineage, checkpoint=last)
            for lineage, last in first.ancestors.items()
            if lineage not in known
        ]

    def changed(self, proof: Proof, sink: OpenSink, history: SinkHistory) -> TargetChangedError:
        """Return the error for a target without a proof.

        Args:
            proof: the proof that it lacks.
            sink: the sink.
            history: the history of its target.
        """
        newest = history.committed.get(proof.lineage)
        accept = (
            " If it is the same target, or a copy of it, and what it lacks is gone for good, go on "
            "without it: twophase repair accept-loss JOB.yaml "
            f"--checkpoint {proof.checkpoint} --sink {proof.sink}"
        )
        return TargetChangedError(
            f"Job {self._job!r}: checkpoint {proof.checkpoint} of lineage "
            f"{proof.lineage} is committed, and sink {proof.sink!r} ({sink.target()}) knows "
            f"{'none' if newest is None else f'up to {newest}'} of that lineage: its target was "
            f"restored from a backup, or is not {proof.target}. {self.gap(proof, history)}",
            remedy="restore the target to its previous state. "
            "To use a different target from here on, begin there with restore.path; in the plugin "
            "form, with another name and checkpointLocation."
            f"{accept if may_be_the_same(proof, sink, history) else ''}",
        )

    def gap(self, proof: Proof, history: SinkHistory) -> str:
        """Describe what a target without a proof lacks, and the offsets that it is from."""
        (first, *older), before = self.missing(proof, history)
        others = "".join(
            f", as are checkpoints {_span(one, history)} of the older lineage {one.lineage}"
            for one in older
        )
        return (
            f"Checkpoints {_span(first, history)} are missing in it{others}. "
            f"{self._offsets(proof, before)}"
        )

    def replaced(self, name: str, sink: OpenSink, history: SinkHistory) -> TargetChangedError:
        """Return the error for a target that has proofs, but not the rows that they are for.

        Args:
            name: the sink's name.
            sink: the sink.
            history: the history of its target.
        """
        newest = " and ".join(
            f"checkpoint {checkpoint} of lineage {lineage}"
            for lineage, checkpoint in history.committed.items()
        )
        return TargetChangedError(
            f"Job {self._job!r}: the target of sink {name!r} ({sink.target()}) is "
            f"not the one that {newest} was committed to: {history.replaced}. Nothing was written.",
            remedy="restore the table, or name the old one. "
            "If the change is intended, begin there with restore.path; in the plugin form, with "
            "another name and checkpointLocation.",
        )

    def explain(self, refused: RefusedCommit) -> TargetChangedError:
        """Return the error of a refused commit, with what the target lacks, if it does."""
        checkpoint, sink = refused.checkpoint, refused.sink
        try:
            history = sink.history()
        except Exception:  # noqa: BLE001 the sink's own error stands; there is nothing to add
            return refused.error
        required = checkpoint.predecessors_in(refused.name)
        if not (lacked := [proof for proof in required if not knows(history, proof)]):
            return moved(refused)
        gap = self.changed(lacked[0], sink, history)
        return TargetChangedError(
            f"{gap.what} Checkpoint {checkpoint.checkpoint} is decided and "
            "was not committed there.",
            remedy=gap.remedy,
        )

    def _offsets(self, proof: Proof, before: Sequence[Proof]) -> str:
        """Describe the offsets from which its rows can be rewritten: from the end of `before`."""
        body = self.body_of(proof)
        ends = f"{list(body.offsets.end)}" if body else f"those in offsets/{proof.checkpoint}"
        begins = " or ".join(self._ended(one, proof) for one in before) or "where the job began"
        newer = ", whichever is newer," if len(before) > 1 else ""
        return f"Their rows can be written again from {begins}{newer} to {ends}."

    def _ended(self, before: Proof, proof: Proof) -> str:
        if last := self.body_of(before):
            return f"{list(last.offsets.end)}"
        if following := self.body_of(replace(before, checkpoint=before.checkpoint + 1)):
            return f"{list(following.offsets.start)}"
        whose = "that lineage" if before.lineage == proof.lineage else f"lineage {before.lineage}"
        return (
            f"the offsets in line 3 and after of offsets/{before.checkpoint} in "
            f"Spark's folder of {whose}"
        )


def moved(refused: RefusedCommit) -> TargetChangedError:
    """Return the error with the way on from pieces that wait in a target that the sink has left."""
    error = refused.error
    if refused.is_elsewhere:
        way = (
            "If this one has taken its place for good, go on without what waits there to be "
            f"committed: {refused.accept}"
        )
        error.remedy = f"{error.remedy} {way}" if error.remedy else way
    return error


def _span(proof: Proof, memory: SinkHistory) -> str:
    """Describe the checkpoints of its lineage that a target without this proof lacks."""
    newest = memory.committed.get(proof.lineage)
    if newest is None:
        return f"up to {proof.checkpoint}"
    return f"from {newest + 1} to {proof.checkpoint}"


def knows(history: SinkHistory, of: Proof | SinkDecision | Predecessor) -> bool:
    """Return whether a target with this history has proof of the checkpoint, or of a later one."""
    return history.committed.get(of.lineage, -1) >= of.checkpoint


def may_be_the_same(proof: Proof, sink: OpenSink, history: SinkHistory) -> bool:
    """Return whether a target that lacks a proof may be the one that had it, from a backup.

    One of another name that knows the job is the same on another server; one that does not is a
    new one, and lacks nothing.
    """
    return proof.target == sink.target() or bool(history.committed)
