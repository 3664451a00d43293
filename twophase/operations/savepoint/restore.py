"""An explicit restore: a new lineage that begins with the operator state of a completed checkpoint.

`restore.path` names the checkpoint's folder, `<job's folder>/chk/<lineage>-<n>-<attempt>`, in this
job's folder or in a copy of it. The log beside it shows that the checkpoint is decided: a body
alone decides nothing. It may also name a savepoint (operations/savepoint/savepoint_restore.py).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from twophase.coordinator.recovery.plan import Restore
from twophase.errors import (
    CheckpointMissingError,
    ConfigError,
    FencedError,
    RestoreRefusedError,
    TwoPhaseError,
)
from twophase.ids import new_lineage_id
from twophase.operations.savepoint.format import MANIFEST
from twophase.operations.savepoint.make import open_savepoint
from twophase.operations.savepoint.rewound_sources import check_sources
from twophase.operations.savepoint.savepoint_restore import is_savepoint, verified
from twophase.options.job_options import JobOptions, SinkAhead
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.checkpoints.releases import released
from twophase.state.checkpoints.store import CompletedCheckpointStore
from twophase.state.files.storage import LocalStorage, local_path
from twophase.state.journal.entries import Decision, Lineage, Repair
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog

RESTORE_PATH = "restore.path"
_log = logging.getLogger("twophase")


def load_restore(
    job: str, path: str, storage: LocalStorage, states: OperatorStates, options: JobOptions
) -> Restore:
    """Read the checkpoint that `restore.path` names.

    Args:
        job: the job's name; a checkpoint of another job is refused.
        path: `restore.path`.
        storage: the folder of the job that is starting.
        states: the job's operator states.
        options: the job's options.

    Raises:
        ConfigError: there is no such decided checkpoint, or its state does not fit the job.
        RestoreRefusedError: the log that it was decided in has a later checkpoint that is decided
            and not committed (I2).
        SourceLossError: a source cannot read again what a rewind would take back.
        CheckpointMissingError: its body, or the file of a state, is gone.
        CorruptRecordError: it is damaged.
    """
    folder, history = local_path(path, RESTORE_PATH), JobLog(storage, job).read()
    restore = restore_of_checkpoint(job, folder, options, storage.root, history.repairs)
    lines = states.start_offsets(restore.checkpoint, options)
    start = released(history, restore.keep, lines, lines)
    check_sources(job, path, storage, states, start, options)
    return replace(restore, lineage=replace(restore.lineage, id=new_lineage_id(), start=start))


def begun_with(job: str, path: str, history: History, options: JobOptions) -> Lineage | None:
    """Return the lineage of a job's folder that has begun with what `restore.path` names.

    That may be an older lineage: the option may stay set, whatever was restored since. What was
    restored is known by its content, and not by its path, where another savepoint may be by now. If
    nothing is there any more, its path is all that is left; and if what is there cannot be read,
    the job goes on where its current lineage has begun so: it needs no more of it.

    Args:
        job: the job's name.
        path: `restore.path`.
        history: of the log in the job's folder.
        options: the job's options; `restore.id` tells a repeated restore from the first.

    Returns:
        The newest such lineage; None if there is none.

    Raises:
        TwoPhaseError: what is there cannot be used, and need not be what was restored once.
        OSError: it cannot be read, likewise.
    """
    folder = local_path(path, RESTORE_PATH)
    restored = [
        one
        for one in reversed(history.lineages)
        if one.restored_from and one.restore_id == options.restore_id
    ]
    if not restored:
        return None
    same = next((one for one in restored if one.restored_from == str(folder)), None)
    needs_no_more = same is not None and (same is history.lineage or _is_gone(folder))
    try:
        origin = _origin_of(job, folder)
    except (TwoPhaseError, OSError) as error:
        if not needs_no_more:
            raise
        _log.warning("job %s: what it was restored from cannot be read any more: %s", job, error)
        return same
    if not origin:
        return same if needs_no_more else None
    return next((one for one in restored if one.origin == origin), None)


def _is_gone(folder: Path) -> bool:
    try:
        folder.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _origin_of(job: str, folder: Path) -> str:
    """Return the identity of the checkpoint or savepoint in a folder; empty if there is none.

    Raises:
        TwoPhaseError: there is a savepoint that cannot be used.
    """
    if (folder / MANIFEST).exists():
        return open_savepoint(str(folder)).identity
    found = _find(job, folder)
    return "" if isinstance(found, TwoPhaseError) else found.decision.body_digest


def restored_checkpoint(
    job: str, lineage: Lineage, options: JobOptions
) -> CompletedCheckpoint | None:
    """Return the checkpoint that a lineage without one of its own was restored from.

    The restore has already happened: checkpoints that the restored job has decided since are no
    reason to refuse it.

    Returns:
        None if the lineage was not restored, or if its state may be dropped and is gone.

    Raises:
        CheckpointMissingError: it is gone, or no longer kept.
        CorruptRecordError: it is damaged.
        ConfigError: the folder that it is in must not be trusted.
    """
    if not lineage.restored_from:
        return None
    found = _read_restored(job, lineage, options)
    if isinstance(found, CompletedCheckpoint):
        return found
    if options.allow_non_restored_state:
        _log.warning(
            "job %s: the functions of lineage %s begin without the state of %s, which is gone: %s",
            *(job, lineage.id, Path(lineage.restored_from), found.what),
        )
        return None
    raise _beginning_gone(job, lineage, found) from found


def copied_checkpoint(job: str, lineage: Lineage) -> CompletedCheckpoint | None:
    """Return the checkpoint of the savepoint whose copy of Spark's folder a lineage began with.

    The copy was verified before it was written, and is whole whatever has become of the savepoint.

    Returns:
        None if it began without one, or if the savepoint is gone, damaged or another one by now.
    """
    if lineage.start or not lineage.restored_from or not is_savepoint(lineage.restored_from):
        return None
    try:
        savepoint = open_savepoint(lineage.restored_from)
        return savepoint.checkpoint() if savepoint.identity == lineage.origin else None
    except TwoPhaseError as error:
        _log.warning(
            "job %s: what Spark's state is of cannot be compared with the plan: %s", job, error
        )
        return None


def _beginning_gone(job: str, lineage: Lineage, found: TwoPhaseError) -> CheckpointMissingError:
    return CheckpointMissingError(
        f"Job {job!r}: its lineage {lineage.id} has no checkpoint of its own yet, and the one that "
        f"it began with is gone from {Path(lineage.restored_from)}: {found.what} The job's "
        "functions would begin without their state. It has written no rows since.",
        remedy="restore that folder, or set `restore.allow_non_restored_state=true` to begin "
        "without it.",
    )


def _read_restored(
    job: str, lineage: Lineage, options: JobOptions
) -> CompletedCheckpoint | TwoPhaseError:
    """Return the checkpoint that a lineage began with, or the error that says why it is gone."""
    folder = Path(lineage.restored_from)
    if (origin := _origin_of(job, folder)) and origin != lineage.origin:
        return CheckpointMissingError("another savepoint is there now.")
    if is_savepoint(str(folder)):
        policy = SinkAhead.REFUSE if lineage.ancestors else SinkAhead.FORK
        return verified(job, str(folder), policy).checkpoint()
    found = _find(job, folder)
    if isinstance(found, TwoPhaseError):
        return found
    try:
        return found.store.read_with_states(
            found.decision, may_drop=options.allow_non_restored_state
        )
    except (CheckpointMissingError, FencedError) as error:
        # fenced: a driver of the restored job just deleted it
        return error


def restore_of_checkpoint(
    job: str, folder: Path, options: JobOptions, root: Path, repairs: Sequence[Repair] = ()
) -> Restore:
    """Return the restore of the checkpoint in a folder; its lineage has no id and no start yet.

    Args:
        job: the job's name.
        folder: the checkpoint's folder.
        options: the job's options.
        root: the folder of the job that is starting. Its recovery commits later checkpoints of its
            own log before a rewind takes them back.
        repairs: those of the log in `root`: what they gave up may be of the restored job.

    Raises:
        TwoPhaseError: as `load_restore`.
    """
    _check_no_fork(job, folder, options)
    found = _find(job, folder)
    if isinstance(found, TwoPhaseError):
        raise found
    decisions = found.history.decisions
    place = decisions.index(found.decision)
    if found.decision.committed and decisions[place + 1 :] and not (folder / "_metadata").exists():
        raise _not_kept(job, folder)  # subsumed, and the log is not folded yet
    is_own = folder.parent.parent == root
    if not (is_own and options.sink_ahead is SinkAhead.REWIND):
        _check_later(job, folder, decisions[place + 1 :])
        _check_none_ahead(job, folder, found.history, found.decision)
    uncommitted = [decision for decision in decisions[: place + 1] if not decision.committed]
    may_drop = options.allow_non_restored_state
    try:
        restored = found.store.read_with_states(found.decision, may_drop=may_drop)
        adopting = tuple(found.store.read(one).amended(repairs) for one in uncommitted)
    except CheckpointMissingError as error:
        raise error if is_own else _body_gone(job, folder, error) from error
    [continued] = [one for one in found.history.lineages if one.id == restored.lineage]
    checkpoint = restored.amended(repairs)
    lineage = Lineage(
        "",
        restored_from=str(folder),
        first_checkpoint=1,
        ancestors={**continued.ancestors, restored.lineage: restored.checkpoint},
        proofs=checkpoint.proofs,
        origin=found.decision.body_digest,
        restore_id=options.restore_id,
    )
    return Restore(checkpoint, lineage, adopting, options.sink_ahead)


def _body_gone(job: str, folder: Path, error: CheckpointMissingError) -> CheckpointMissingError:
    """Return the error of a body that another folder lacks: an adoption here would find nothing."""
    return CheckpointMissingError(
        f"Job {job!r}: cannot restore from {folder}: {error.what} Nothing was written.",
        remedy=f"restore the folder {folder.parent.parent} from a backup; or name another "
        "checkpoint or a savepoint; or start the job in its own folder without restore.path.",
    )


def _check_no_fork(job: str, folder: Path, options: JobOptions) -> None:
    if options.sink_ahead is SinkAhead.FORK:
        raise ConfigError(
            f"Job {job!r}: restore.sink_ahead=fork begins with a savepoint, and {folder} is none. "
            "Nothing was written.",
            remedy="make a savepoint of the other job: twophase savepoint create JOB.yaml PATH",
        )


def _check_later(job: str, folder: Path, later: Sequence[Decision]) -> None:
    """Check that no later checkpoint waits for its commit: it would be aborted (I2)."""
    waiting = [decision for decision in later if not decision.committed]
    if waiting:
        raise RestoreRefusedError(
            f"Job {job!r}: cannot restore from {folder}: checkpoint {waiting[-1].checkpoint} was "
            "decided after it and must still be committed; it would be aborted. "
            "Nothing was written.",
            remedy=f"restore from {folder.parent.parent / waiting[-1].folder}.",
        )


def _check_none_ahead(job: str, folder: Path, history: History, decision: Decision) -> None:
    """Check that no sink must still commit what its log has decided after a checkpoint."""
    for ahead in history.ahead_of({decision.lineage: decision.checkpoint}):
        raise RestoreRefusedError(
            f"Job {job!r}: cannot restore from {folder}: sink {ahead.sink!r} commits checkpoint "
            f"{ahead.checkpoint} after it, ahead of the others; it would be aborted, or its rows "
            "written twice. Nothing was written.",
            remedy="start the job in that folder without restore.path to go on from it; or take "
            "the rows back there, with `restore.sink_ahead=rewind`.",
        )


@dataclass(frozen=True)
class _Found:
    """A decided checkpoint, with the log beside its folder."""

    history: History
    store: CompletedCheckpointStore
    decision: Decision


def _find(job: str, folder: Path) -> _Found | TwoPhaseError:
    """Return the decision on the checkpoint in `folder`, or the error if it is none or not kept."""
    root = folder.parent.parent
    if folder.parent.name != "chk" or not (root / "log").is_dir():
        return ConfigError(
            f"restore.path {str(folder)!r} is not a checkpoint.",
            remedy="name a folder <checkpointLocation>/chk/<lineage>-<n>-<attempt>; "
            "`twophase checkpoints FOLDER` lists "
            "them.",
        )
    storage = LocalStorage(root)
    log = JobLog(storage, job)
    history = log.read()
    named = [
        decision for decision in history.decisions if Path(decision.folder).name == folder.name
    ]
    if not named:
        return _not_kept(job, folder)
    return _Found(history, CompletedCheckpointStore(storage, log, num_retained=1), named[0])


def _not_kept(job: str, folder: Path) -> ConfigError:
    return ConfigError(
        f"restore.path {str(folder)!r} is not decided, or no longer kept, in job {job!r}.",
        remedy="`twophase checkpoints FOLDER` lists the decided checkpoints.",
    )
