"""Commits the checkpoint of a savepoint that the job was stopped with.

A. recover   step 3 of every start: fence, commit decided checkpoints, close; if nothing is left to
             commit, only look whether the targets have what the log says
B. check     the log says that every checkpoint of the savepoint is committed
C. record    `_finished`, in the savepoint
"""

from __future__ import annotations

import shlex

from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.proofs import knows
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.coordinator.recovery.planner import StartPlanner
from twophase.errors import ConfigError, SavepointError, TargetUnreachableError
from twophase.internals.failpoints import failpoint
from twophase.operations.savepoint.format import Savepoint
from twophase.state.files.storage import Storage
from twophase.state.journal.history import History


def finish_savepoint(context: JobContext, savepoint: Savepoint, storage: Storage) -> None:
    """Commit what a savepoint holds as pending. Call it again after an interruption.

    Args:
        context: the job, in the folder that the savepoint was made of.
        savepoint: of this job, verified.
        storage: its folder, writable.

    Raises:
        ConfigError: the folder is another one; nothing was written.
        TargetUnreachableError: a sink could not commit it.
        StopJobError: the job must not go on: a target lacks what the log calls committed, say.
        SavepointError: it is committed, but that could not be recorded; or a sink has lost all of
            its rows.
    """
    manifest = savepoint.manifest
    history = context.log.read()
    if manifest.lineage not in {known.id for known in history.lineages}:
        raise ConfigError(
            f"Job {context.job!r}: its folder does not know lineage {manifest.lineage} of the "
            f"savepoint {savepoint.where}. Nothing was written.",
            remedy="name the folder that it was made of with --checkpoint-location; if that is "
            f"gone, restore it, which commits too: twophase run JOB.yaml --restore "
            f"{shlex.quote(savepoint.where)}",
        )
    if not _is_decided(history, savepoint):
        raise ConfigError(
            f"Job {context.job!r}: its folder is older than the savepoint {savepoint.where}: it "
            f"does not know checkpoint {manifest.checkpoint} of lineage {manifest.lineage}. "
            "Nothing was written.",
            remedy="name the folder that it was made of with --checkpoint-location; if that is "
            f"gone, restore it, which commits too: twophase run JOB.yaml --restore "
            f"{shlex.quote(savepoint.where)}",
        )
    if _is_committed(history, savepoint):
        _check_targets(context)
    else:
        CheckpointCoordinator(context, snapshot=lambda _, __: {}).recover()
        if not _is_committed(context.history, savepoint):
            raise TargetUnreachableError(
                f"Job {context.job!r}: checkpoint {manifest.checkpoint} of the savepoint "
                f"{savepoint.where} is still not committed in every sink.",
                remedy="try again when they can be reached.",
            )
    _check_kept(context, savepoint)
    failpoint("S08")
    savepoint.finish(storage)


def _check_targets(context: JobContext) -> None:
    """Check that the job could go on, as a recovery does: the targets have what its log says.

    Raises:
        TwoPhaseError: it could not.
    """
    planner = StartPlanner(context)
    remembered = planner.histories()
    planner.plan(context.log.refresh(), remembered)


def _check_kept(context: JobContext, savepoint: Savepoint) -> None:
    """Check that each sink has proof of what was saved, unless it writes to another target by now.

    A finished savepoint is restored only where the targets have all proofs of it.

    Raises:
        SavepointError: the loss of all its rows in a sink was accepted, or an adoption did not know
            of it, or a rewind has taken them back.
    """
    checkpoint = savepoint.checkpoint()
    proofs = checkpoint.amended(context.history.repairs).proofs
    for proof in checkpoint.proofs:
        sink = context.sinks.get(proof.sink)
        if proof not in proofs:
            why = "which was accepted"
        elif sink and sink.target() == proof.target and not knows(sink.history(), proof):
            why = "and nobody has accepted that: its folder was adopted, or a rewind took them back"
        else:
            continue
        raise SavepointError(
            f"Job {checkpoint.job!r}: checkpoint {checkpoint.checkpoint} of the savepoint "
            f"{savepoint.where} is committed, but sink {proof.sink!r} has lost its rows up to "
            f"checkpoint {proof.checkpoint}, {why}: it is not finished.",
            remedy="make a savepoint of the job as it is now: twophase savepoint create JOB.yaml "
            "PATH. This one can be restored, unless a rewind took them back; what it lacks is "
            "accepted once more then.",
        )


def _is_decided(history: History, savepoint: Savepoint) -> bool:
    """Return whether the log knows the decision on its checkpoint, or what followed that."""
    lineage, checkpoint = savepoint.manifest.lineage, savepoint.manifest.checkpoint
    newest = history.newest(lineage)
    known = [one.ancestors.get(lineage, -1) for one in history.lineages]
    return max(newest.checkpoint if newest else -1, *known, -1) >= checkpoint


def _is_committed(history: History, savepoint: Savepoint) -> bool:
    """Return whether the log has nothing of it left to commit; a checkpoint that it lacks is older
    than a committed one.
    """
    manifest = savepoint.manifest
    return not any(
        decision.lineage == manifest.lineage and decision.checkpoint <= manifest.checkpoint
        for decision in history.uncommitted()
    )
