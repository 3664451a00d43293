"""What a restore would do, found out without writing: `twophase run --restore PATH --dry-run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from twophase.contract.committable import Committable
from twophase.contract.sink import OpenSink
from twophase.coordinator.commit.orphans import key_of, pieces_of
from twophase.coordinator.recovery.recovery_steps import Restore
from twophase.coordinator.recovery.rewind import ahead_of
from twophase.coordinator.recovery.validation import check_sinks
from twophase.operations.savepoint.fork import check_original
from twophase.operations.savepoint.format import Savepoint
from twophase.operations.savepoint.restore import read_checkpoint
from twophase.operations.savepoint.savepoint_restore import is_savepoint, verified
from twophase.options.job_options import JobOptions, SinkAhead
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.checkpoints.store import CompletedCheckpointStore
from twophase.state.files.storage import ReadOnlyStorage, local_path
from twophase.state.journal.entries import Decision, Lineage
from twophase.state.journal.history import History
from twophase.state.journal.log import FOLDER, JobLog


@dataclass(frozen=True)
class RestorePreview:
    """What a restore would do.

    Attributes:
        checkpoint: the restored one.
        position: where the job's folder says that each source is now; empty if it has no
            checkpoint.
        commits: by sink, the pieces that wait there and would be committed.
        aborts: by sink, the pieces that wait there and would be aborted; their rows are read again.
        rewinds: sink, lineage, newest checkpoint that would be taken back, and the last that stays,
            -1 if none does.
    """

    checkpoint: CompletedCheckpoint
    position: tuple[str | None, ...]
    commits: Mapping[str, Sequence[Committable]]
    aborts: Mapping[str, Sequence[Committable]]
    rewinds: Sequence[tuple[str, str, int, int]] = ()


def preview_restore(
    job: str, path: str, sinks: Mapping[str, OpenSink], options: JobOptions
) -> RestorePreview:
    """Find out what a restore would do. The plan of the job is not looked at.

    Args:
        job: the job's name.
        path: `restore.path`.
        sinks: by name.
        options: the job's options.

    Raises:
        RestoreRefusedError: a sink or the job's folder is ahead of it, or cannot be rewound.
        ConfigError, CorruptRecordError, NewerFormatError: it cannot be restored.
    """
    restore, savepoint = _restore(job, path, options)
    remembered = {name: sink.history() for name, sink in sinks.items()}
    history, own = _own_checkpoints(job, options)
    uncommitted = [one for one, decision in own if not decision.committed]
    uncommitted += [CompletedCheckpoint.of_sink(job, one, ()) for one in history.sink_decisions]
    check_sinks(job, history, remembered, restore, sinks, uncommitted)
    kept = pieces_of((*restore.adopting, *uncommitted))
    waiting = [(name, sink.in_doubt()) for name, sink in sinks.items()]
    commits = {name: [one for one in pieces if key_of(one) in kept] for name, pieces in waiting}
    if savepoint is not None and restore.sink_ahead is SinkAhead.FORK:
        check_original(job, savepoint, sinks)
        commits |= _pending(restore)
    rewinds = restore.sink_ahead is SinkAhead.REWIND
    return RestorePreview(
        restore.checkpoint,
        own[-1][0].offsets.end if own else (),
        commits,
        {name: [one for one in pieces if key_of(one) not in kept] for name, pieces in waiting},
        [
            (name, lineage, newest, restore.keep.get(lineage, -1))
            for name, lineage, newest in (ahead_of(restore.keep, remembered) if rewinds else ())
        ],
    )


def _restore(job: str, path: str, options: JobOptions) -> tuple[Restore, Savepoint | None]:
    """Return the restore without a lineage id, and the savepoint if it is of one."""
    policy, savepoint = options.sink_ahead, None
    ancestors: Mapping[str, int]
    if is_savepoint(path):
        savepoint = verified(job, path, policy)
        checkpoint, adopting = savepoint.checkpoint(), savepoint.pending()
        ancestors = {} if policy is SinkAhead.FORK else savepoint.ancestors()
    else:
        folder, root = local_path(path, "restore.path"), local_path(options.checkpoint_location)
        checkpoint, adopting, ancestors = read_checkpoint(job, folder, options, root)
    lineage = Lineage("", path, ancestors=ancestors)
    return Restore(checkpoint, lineage, adopting, policy), savepoint


def _pending(restore: Restore) -> dict[str, list[Committable]]:
    """Return the pieces of another job that a fork commits, unless that job does before it."""
    found: dict[str, list[Committable]] = {}
    for checkpoint in restore.adopting:
        for name, pieces in checkpoint.committables.items():
            found.setdefault(name, []).extend(pieces)
    return found


def _own_checkpoints(
    job: str, options: JobOptions
) -> tuple[History, list[tuple[CompletedCheckpoint, Decision]]]:
    """Return the log of the job's own folder, its uncommitted checkpoints, and the newest one."""
    root = local_path(options.checkpoint_location)
    if not (root / FOLDER).is_dir():
        return History(), []
    storage = ReadOnlyStorage(root)
    log = JobLog(storage, job)
    history = log.read()
    store = CompletedCheckpointStore(storage, log, num_retained=1)
    newest = history.decisions[-1:]
    found = [one for one in history.decisions if not one.committed or one in newest]
    return history, [(store.read(one), one) for one in found]
