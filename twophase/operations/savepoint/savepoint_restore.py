"""The restore of a savepoint: a new lineage that continues with its copy of Spark's folder.

The steps of a start, in which it happens:

before 3.   the whole savepoint is read and compared with its manifest, before anything is written
3. recover  the job is taken over, and checkpoints that the savepoint holds as pending are committed
4. lineage  Spark's files are written below `spark/<lineage>`, without `metadata`; then the record
            LINEAGE. A folder that was written for a lineage that never began is deleted by a start
            of a newer generation (operations/savepoint/abandoned_folders.py)
5. folder   `metadata`, by `SparkFolder.prepare`

With `restore.sink_ahead=fork` the savepoint is one of another job (operations/savepoint/fork.py).

A plan without state may also read other sources than the savepoint's. Then its lineage begins with
the sources' own states, as after the restore of a checkpoint.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from twophase.coordinator.recovery.plan import Restore
from twophase.engine.host import Plan
from twophase.errors import ConfigError, SavepointError
from twophase.ids import new_lineage_id
from twophase.internals.failpoints import failpoint
from twophase.operations.savepoint.format import BEGUN, MANIFEST, Savepoint
from twophase.operations.savepoint.make import OPTION, open_savepoint
from twophase.operations.savepoint.rewound_sources import check_sources
from twophase.options.job_options import JobOptions, SinkAhead
from twophase.spark.folder.spark_cut import is_rewritten, unmovable_text
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.checkpoints.releases import released
from twophase.state.checkpoints.store import CompletedCheckpointStore
from twophase.state.files.folder_rights import check_rights
from twophase.state.files.storage import LocalStorage, local_path, sync_file_system
from twophase.state.journal.entries import Lineage, Rewrite
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog

LAID_BY = "_laid_by"
"""In Spark's folder of a restored lineage: the generation of the driver that wrote its files."""

_SPARK = "spark"


@dataclass(frozen=True)
class SavepointRestore:
    """The restore of a savepoint.

    Attributes:
        restore: for the coordinator.
        savepoint: verified.
        copies_folder: whether its copy of Spark's folder is used.
    """

    restore: Restore
    savepoint: Savepoint
    copies_folder: bool

    def noted_header(self) -> str:
        """What Spark noted with the newest offsets in it; empty if its copy is not used."""
        return noted_header(self.savepoint) if self.copies_folder else ""

    def write_folder(self, root: Path, generation: int) -> None:
        """Write Spark's files, in step 4. If it fails, nothing of it is left.

        Args:
            root: the job's folder.
            generation: of the driver. A driver of a newer one deletes what a death leaves.

        Raises:
            SavepointError: the files could not be written.
            CorruptRecordError: the savepoint has changed since it was verified.
        """
        if not self.copies_folder:
            return
        folder = root / "spark" / self.restore.lineage.id
        try:
            folder.mkdir(mode=0o700, parents=True)
            (folder / LAID_BY).write_text(str(generation))
            write_spark_folder(self.savepoint, folder)
            failpoint("S06")
        except BaseException as error:
            with suppress(OSError):  # the next start deletes what is left
                delete_folder(folder)
            if isinstance(error, OSError):
                raise _not_written(self.savepoint, folder, error) from error
            raise


def delete_folder(folder: Path) -> None:
    """Delete Spark's folder of a lineage; `LAID_BY` last, which tells the next start that it may.

    Raises:
        OSError: it is not deleted, or not all of it.
    """
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != LAID_BY:
            path.unlink(missing_ok=True)
    shutil.rmtree(folder)


def is_savepoint(path: str) -> bool:
    """Return whether a path leads to a savepoint, whole or not, and not to a checkpoint."""
    folder = local_path(path, OPTION)
    return any((folder / name).exists() for name in (MANIFEST, BEGUN))


def load_savepoint(
    job: str,
    path: str,
    storage: LocalStorage,
    states: OperatorStates,
    options: JobOptions,
    plan: Plan,
) -> SavepointRestore:
    """Read and check the savepoint that `restore.path` names, before step 3.

    Raises:
        ConfigError: it is not whole, of another job, or its state does not fit the job.
        CorruptRecordError: it is damaged.
        NewerFormatError: a newer version of twophase has written it.
        SavepointError: there is no room for it.
        SourceLossError: a source cannot read again what a rewind would take back.
    """
    savepoint = verified(job, path, options.sink_ahead)
    log = JobLog(storage, job)
    log.read()
    store = CompletedCheckpointStore(storage, log, num_retained=1)
    restore = restore_of_savepoint(savepoint, options, log, store)
    checkpoint, manifest = restore.checkpoint, savepoint.manifest
    copies = _copies_folder(job, savepoint, checkpoint, states, options, plan)
    if copies:
        _check_room(savepoint, storage.root)
    lines = checkpoint.offsets.end if copies else states.start_offsets(checkpoint, options)
    begins = released(log.history, restore.keep, lines, lines)
    check_sources(job, path, storage, states, begins, options)
    lineage = replace(
        restore.lineage,
        id=new_lineage_id(),
        first_checkpoint=manifest.last_batch + 1 if copies else 1,
        start=() if copies else begins,
        rescaled=manifest.rescaled if copies else (),
    )
    return SavepointRestore(replace(restore, lineage=lineage, begins=begins), savepoint, copies)


def restore_of_savepoint(
    savepoint: Savepoint, options: JobOptions, log: JobLog, store: CompletedCheckpointStore
) -> Restore:
    """Return the restore of a savepoint; its lineage has no id and no start yet.

    Args:
        savepoint: verified.
        options: the job's options.
        log: the job's, read: what operators have repaired since.
        store: of the same folder.
    """
    checkpoint = savepoint.checkpoint().amended(log.history.repairs)
    forks = options.sink_ahead is SinkAhead.FORK
    lineage = Lineage(
        "",
        restored_from=savepoint.where,
        ancestors={} if forks else savepoint.ancestors(),
        proofs=() if forks else checkpoint.proofs,
        origin=savepoint.identity,
        restore_id=options.restore_id,
    )
    pending = tuple(_pending_of(savepoint, log.history, store))
    return Restore(checkpoint, lineage, pending, options.sink_ahead)


def _pending_of(
    savepoint: Savepoint, history: History, store: CompletedCheckpointStore
) -> Iterator[CompletedCheckpoint]:
    """Yield what a restore has to commit, after the repairs that the job's log has by now.

    Of a checkpoint with pieces that were written again the savepoint lists those that were lost:
    the log commits it, or has.
    """
    for one in savepoint.pending():
        of = (one.lineage, one.checkpoint)
        if any(isinstance(repair, Rewrite) and repair.is_of(*of) for repair in history.repairs):
            waiting = history.uncommitted()
            yield from (store.read(new) for new in waiting if (new.lineage, new.checkpoint) == of)
        else:
            yield one.amended(history.repairs)


def verified(job: str, path: str, policy: SinkAhead = SinkAhead.REFUSE) -> Savepoint:
    """Return the savepoint at a path when all of it has been read and found whole.

    Args:
        job: the job's name.
        path: the savepoint's folder.
        policy: with `fork`, the savepoint has to be one of another job.

    Raises:
        ConfigError, CorruptRecordError, NewerFormatError: as `load_savepoint`.
    """
    savepoint = open_savepoint(path)
    check_rights(local_path(path, OPTION), OPTION)
    whose = savepoint.manifest.job
    if policy is SinkAhead.FORK and whose == job:
        raise ConfigError(
            f"The savepoint {savepoint.where} is one of job {job!r} itself: a fork is a job of "
            "another name. Nothing was started or written.",
            remedy="give the job another name, checkpointLocation and group.id; "
            "or restore it with another restore.sink_ahead.",
        )
    if policy is not SinkAhead.FORK and whose != job:
        raise ConfigError(
            f"The savepoint {savepoint.where} is one of job {whose!r}, not of "
            f"{job!r}. Nothing was started or written.",
            remedy="name a savepoint of this job, or give the job that name; "
            "to begin another job with it, set `restore.sink_ahead=fork`.",
        )
    savepoint.verify()
    return savepoint


def noted_header(savepoint: Savepoint) -> str:
    """Return what Spark noted with the newest offsets in a savepoint; empty if it does not say."""
    folder = f"{_SPARK}/offsets"
    offsets = savepoint.manifest.below(folder)
    newest = max(offsets, key=lambda file: int(file.path.rpartition("/")[2]), default=None)
    lines = b"".join(savepoint.content(newest)).decode().split("\n") if newest else []
    return lines[1] if len(lines) > 1 else ""


def _copies_folder(
    job: str,
    savepoint: Savepoint,
    checkpoint: CompletedCheckpoint,
    states: OperatorStates,
    options: JobOptions,
    plan: Plan,
) -> bool:
    """Return whether the new lineage continues with the copy of Spark's folder."""
    has_state = bool(savepoint.manifest.below(f"{_SPARK}/state"))
    if plan.keeps_state and not has_state:
        raise _misfit(job, savepoint, "the plan keeps state in Spark, and the savepoint holds none")
    if states.reads_same_sources(checkpoint) and (plan.stateful or not has_state):
        states.check_functions(checkpoint, options)
        states.check_plan(checkpoint, options)
        return True
    if plan.stateful:
        raise _misfit(job, savepoint, "its state belongs to other sources than those of the plan")
    if has_state and not options.allow_non_restored_state:
        raise ConfigError(
            f"Job {job!r}: the savepoint {savepoint.where} holds state of Spark, and the plan "
            "keeps none. Nothing was started or written.",
            remedy="restore it with the plan that it was made of, or set "
            "`restore.allow_non_restored_state=true` to drop that state.",
        )
    return False


def _misfit(job: str, savepoint: Savepoint, why: str) -> ConfigError:
    return ConfigError(
        f"Job {job!r}: the savepoint {savepoint.where} cannot be restored with this plan: {why}. "
        "Nothing was started or written.",
        remedy="restore it with the plan that it was made of.",
    )


def _check_room(savepoint: Savepoint, root: Path) -> None:
    needed = sum(file.length for file in savepoint.manifest.below(_SPARK))
    free = shutil.disk_usage(root).free
    if needed > free:
        raise SavepointError(
            f"The savepoint {savepoint.where} holds {needed:,} bytes of Spark's state, and the "
            f"disk of {root} has {free:,} left. Nothing was started or written.",
            remedy="make room, or name a checkpointLocation on another disk.",
        )


def write_spark_folder(savepoint: Savepoint, folder: Path) -> None:
    """Write the savepoint's copy of Spark's folder to a new folder, durably, without `metadata`.

    Raises:
        OSError: it could not be written.
        CorruptRecordError: the savepoint has changed since it was verified.
    """
    for file in savepoint.manifest.below(_SPARK):
        path = file.path.removeprefix(f"{_SPARK}/")
        target = folder / path
        _make_folders(folder, target.parent)
        with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as made:
            if is_rewritten(path):
                made.write(unmovable_text(path, b"".join(savepoint.content(file)), folder))
            else:
                for data in savepoint.content(file):
                    made.write(data)
        failpoint("S05")
    sync_file_system(folder)


def _make_folders(folder: Path, inner: Path) -> None:
    """Make the folders down to `inner`, but not `folder`: a newer driver may have deleted it."""
    if inner != folder:
        _make_folders(folder, inner.parent)
        inner.mkdir(mode=0o700, exist_ok=True)


def _not_written(savepoint: Savepoint, folder: Path, error: OSError) -> SavepointError:
    return SavepointError(
        f"Spark's files of the savepoint {savepoint.where} could not be written to {folder}: "
        f"{error}. Nothing of it is left, and no lineage has begun.",
        remedy="make room, then start the job again.",
    )
