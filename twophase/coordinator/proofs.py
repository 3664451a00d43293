"""The proofs that the targets must have according to the log: the other direction of I6.

A target that was restored from a backup, swapped for another one, or left behind by a failover
lacks checkpoints that the log calls committed. Each decision therefore carries, for each sink, its
newest checkpoint with pieces, ancestors included:

    1. a start checks each target for the proof of what is committed          `check_targets`
    2. a commit requires the proof of its predecessor, in the target itself
       `CommitRequest.predecessor`
       if an adoption left several predecessors, the others just before it    `CommitLoop`

Step 2 detects a target that changes under a running job: the next start would find the newer proof
there, and no longer notice that older rows are missing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from twophase.errors import CheckpointMissingError, ConfigError, FencedError, TargetChangedError
from twophase.protocol.sink import OpenSink, SinkHistory
from twophase.state.checkpoint import CompletedCheckpoint
from twophase.state.entries import Proof
from twophase.state.log import JobLog
from twophase.state.store import CompletedCheckpointStore

_log = logging.getLogger("twophase")


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

    def body_of(self, proof: Proof) -> CompletedCheckpoint | None:
        """Return the checkpoint of a proof; None if no decision or no body of it is left."""
        for decision in self._log.history.decisions:
            if (decision.lineage, decision.checkpoint) == (proof.lineage, proof.checkpoint):
                with suppress(CheckpointMissingError, FencedError):  # subsumed, perhaps by another
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
        """Return the sink's proofs at the beginning of the lineage of `proof`."""
        begun = [one.proofs for one in self._log.history.lineages if one.id == proof.lineage]
        return [one for proofs in begun for one in proofs if one.sink == proof.sink]

    def changed(self, proof: Proof, sink: OpenSink, history: SinkHistory) -> TargetChangedError:
        """Return the error for a target without a proof.

        Args:
            proof: the proof that it lacks.
            sink: the sink.
            history: the history of its target.
        """
        newest = history.committed.get(proof.lineage)
        (first, *older), before = self.missing(proof, history)
        others = "".join(
            f", as are checkpoints {_span(one, history)} of the older lineage {one.lineage}"
            for one in older
        )
        return TargetChangedError(
            f"Job {self._job!r}: checkpoint {proof.checkpoint} of lineage "
            f"{proof.lineage} is committed, and sink {proof.sink!r} ({sink.target()}) knows "
            f"{'none' if newest is None else f'up to {newest}'} of that lineage: its target was "
            f"restored from a backup, or is not {proof.target}. Checkpoints "
            f"{_span(first, history)} are missing in it{others}. {self._offsets(proof, before)}",
            remedy="restore the target to its previous state. "
            "To use a different target from here on, begin there with restore.path; in the plugin "
            "form, with another name and checkpointLocation. If it is the same target and what it "
            "lacks is gone for good, go on without it: "
            "twophase repair accept-loss JOB.yaml --checkpoint "
            f"{proof.checkpoint} --sink {proof.sink}",
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

    def explain(
        self, checkpoint: CompletedCheckpoint, sink: OpenSink, name: str, error: TargetChangedError
    ) -> TargetChangedError:
        """Return the error of a refused commit, with what the target lacks, if it does."""
        if not (required := checkpoint.predecessors_in(name)):
            return error
        try:
            history = sink.history()
        except Exception:  # noqa: BLE001 the sink's own error stands; there is nothing to add
            return error
        if not (lacked := [proof for proof in required if not knows(history, proof)]):
            return error
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


def _span(proof: Proof, memory: SinkHistory) -> str:
    """Describe the checkpoints of its lineage that a target without this proof lacks."""
    newest = memory.committed.get(proof.lineage)
    if newest is None:
        return f"up to {proof.checkpoint}"
    return f"from {newest + 1} to {proof.checkpoint}"


def check_targets(
    proofs: Proofs,
    expected: Iterable[Proof],
    sinks: Mapping[str, OpenSink],
    remembered: Mapping[str, SinkHistory],
    *,
    may_move: bool,
) -> None:
    """Reject a target that no longer has proof of a committed checkpoint.

    Args:
        proofs: the job's proofs.
        expected: the committed checkpoints.
        sinks: by name; a sink that has left the job is not asked.
        remembered: the history of each sink from before the log was read; one that lacks a
            proof is asked again.
        may_move: whether a sink may have another target from now on; it begins there without the
            rows of the old one.

    Raises:
        TargetChangedError: going on would leave a gap.
    """
    # Even if the log does not call them committed yet: a repeated commit would find their proof.
    for name, history in remembered.items():
        if history.replaced and history.committed and not may_move:
            raise proofs.replaced(name, sinks[name], history)
    for proof in expected:
        sink = sinks.get(proof.sink)
        if sink is None or (may_move and proof.target != sink.target()):
            continue
        if not knows(remembered[proof.sink], proof) and not knows(history := sink.history(), proof):
            raise proofs.changed(proof, sink, history)


def check_names(
    job: str, expected: Sequence[Proof], sinks: Mapping[str, OpenSink], *, may_rename: bool
) -> None:
    """Reject a sink that has another name now; warn of one that has left the job.

    A target knows a sink by its name. Under another one it has neither fence nor proofs: writers of
    older drivers are not fenced, and nobody notices that it was restored from a backup.

    Args:
        job: the job's name.
        expected: the committed checkpoints.
        sinks: by name.
        may_rename: whether a warning is enough.

    Raises:
        ConfigError: a new sink has the target of one that has left.
    """
    known = {proof.sink for proof in expected}
    added = {sink.target(): name for name, sink in sinks.items() if name not in known}
    for proof in expected:
        if proof.sink in sinks:
            continue
        name = added.get(proof.target)
        if name is not None and not may_rename:
            raise ConfigError(
                f"Job {job!r}: sink {name!r} writes to {proof.target}, as sink {proof.sink!r} did. "
                "The target knows the job's rows by that name. Nothing was written.",
                remedy=f"name the sink {proof.sink!r} again; or, after a clean stop, set "
                "restore.allow_non_restored_state once.",
            )
        _log.warning(
            "job %s: sink %r, whose last rows in %s are those of checkpoint %d, %s",
            *(job, proof.sink, proof.target, proof.checkpoint),
            "has left the job" if name is None else f"is sink {name!r} from now on",
        )


def has_moved(proof: Proof, sink: OpenSink | None) -> bool:
    """Return whether a sink has moved to a target without the proof; a replica has the proof."""
    return sink is not None and sink.target() != proof.target and not knows(sink.history(), proof)


def knows(history: SinkHistory, proof: Proof) -> bool:
    """Return whether a target with this history has the proof."""
    return history.committed.get(proof.lineage, -1) >= proof.checkpoint
