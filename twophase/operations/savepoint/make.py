"""Makes savepoints: a copy of one cut of a job, while the job runs or when it has stopped.

1. choose   the newest checkpoint of the current lineage in the job's log, and read its body
2. wait     until Spark has noted its micro-batch as finished: the note has the watermark
3. copy     the bodies, then Spark's files of that cut; all of them are written once and kept
4. seal     the manifest, written last

Nothing is written to the job's folder, so a driver that is running is not disturbed.
"""

from __future__ import annotations

import json
import secrets
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from twophase.coordinator.recovery.refusal import finishing
from twophase.engine.engine import Engine
from twophase.errors import (
    CheckpointMissingError,
    ConfigError,
    FencedError,
    SavepointError,
    SavepointUnfinishedError,
    TwoPhaseError,
)
from twophase.events import SavepointMade, is_called_back
from twophase.failure_reason import CheckpointFailureReason
from twophase.internals.clock import Clock
from twophase.operations.savepoint.format import (
    BEGUN,
    MANIFEST,
    Savepoint,
    SavepointWriter,
)
from twophase.operations.savepoint.manifest import Manifest
from twophase.options.job_options import JobOptions
from twophase.spark.folder.spark_cut import files_of_cut
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.checkpoints.store import CompletedCheckpointStore, encode_body
from twophase.state.files.folder_rights import owner_named
from twophase.state.files.listing import listed
from twophase.state.files.storage import LocalStorage, ReadOnlyStorage, local_path
from twophase.state.journal.entries import Decision
from twophase.state.journal.history import History
from twophase.state.journal.log import FOLDER as LOG_FOLDER
from twophase.state.journal.log import JobLog

OPTION = "savepoint path"
_TRIES = 10
_POLL_S = 0.02

StillWaiting = Callable[[], bool]
"""Asked while Spark has not noted the micro-batch as finished; False ends the wait."""


@dataclass(frozen=True)
class Cut:
    """What a savepoint is made of.

    Attributes:
        checkpoint: the newest checkpoint.
        pending: the bodies up to it that are decided and not committed, oldest first.
        history: of the log in which it is decided.
    """

    checkpoint: CompletedCheckpoint
    pending: tuple[CompletedCheckpoint, ...]
    history: History


class SavepointMaker:
    """Makes savepoints of one job.

    Args:
        job: the job's name.
        root: the job's folder.
        clock: the time.
    """

    def __init__(self, job: str, root: Path, clock: Clock) -> None:
        self._job = job
        self._root = root
        self._clock = clock

    def make(
        self, path: str, *, committed_only: bool = False, still_waiting: StillWaiting
    ) -> Manifest:
        """Make a savepoint.

        Args:
            path: its folder, new or empty, outside the job's.
            committed_only: take the newest committed checkpoint, not one that is only decided.
            still_waiting: says how long to wait for Spark.

        Raises:
            ConfigError: the path is not right.
            SavepointError: there is nothing to save, or it could not be written.
            CorruptRecordError: the job's folder is damaged.
        """
        self._wait_for_sinks(still_waiting)
        cut = self._choose(committed_only=committed_only)
        note = self._note(cut, still_waiting)
        writer = self.claim(path)
        with writer.writing():
            return self._write(writer, cut, note)

    def make_stopped(self, writer: SavepointWriter) -> Manifest:
        """Make a savepoint of a job that has stopped for it, in a folder that is claimed.

        Raises:
            SavepointError: it could not be written; the job has stopped all the same.
            CorruptRecordError: the job's folder is damaged.
        """
        with writer.writing("The job has stopped."):
            cut = self._choose(committed_only=False)
            return self._write(writer, cut, self._note(cut, lambda: False))

    def claim(self, path: str) -> SavepointWriter:
        """Claim a folder for a savepoint.

        Raises:
            ConfigError: the path is not right.
            SavepointError: something is there already, or it cannot be written.
        """
        where = self._where(path)
        writer = SavepointWriter(LocalStorage(where, OPTION), where)
        writer.claim(self._job)
        return writer

    def check_begun(self) -> None:
        """Check that there is something to save, before the job is stopped for it.

        Raises:
            SavepointError: the job has no checkpoint yet.
        """
        history = JobLog(ReadOnlyStorage(self._root), self._job).read()
        if history.lineage is None or history.newest(history.lineage.id) is None:
            self._restored(history)

    def _write(self, writer: SavepointWriter, cut: Cut | Savepoint, note: str | None) -> Manifest:
        """Steps 3 and 4."""
        if isinstance(cut, Savepoint):
            return _copy(writer, cut, self._clock.unix_ms())
        number, lineage = cut.checkpoint.checkpoint, cut.checkpoint.lineage
        folder = self._root / "spark" / lineage
        for checkpoint in (*cut.pending[:-1], cut.checkpoint):
            writer.add(_path_of(checkpoint), [encode_body(checkpoint)])
        for file in files_of_cut(folder, number, note):
            writer.add(f"spark/{file.path}", file.content())
        [continued] = [known for known in cut.history.lineages if known.id == lineage]
        return writer.complete(
            cut.checkpoint,
            body=_path_of(cut.checkpoint),
            pending=tuple(map(_path_of, cut.pending)),
            ancestors=continued.ancestors,
            created_ms=self._clock.unix_ms(),
        )

    def _where(self, path: str) -> str:
        where, root = local_path(path, OPTION), self._root.resolve()
        if where.resolve().is_relative_to(root) or root.is_relative_to(where.resolve()):
            raise ConfigError(
                f"Job {self._job!r}: savepoint {where} would be inside the job's own folder "
                f"{self._root}, or contain it. Nothing was written.",
                remedy="name a folder elsewhere: a savepoint outlives the job's folder.",
            )
        return str(where)

    def _choose(self, *, committed_only: bool) -> Cut | Savepoint:
        """Step 1; again if the driver replaces the body by a newer one meanwhile."""
        storage = ReadOnlyStorage(self._root)
        for _ in range(_TRIES - 1):
            before = storage.names(LOG_FOLDER)
            try:
                return self._read_cut(storage, committed_only=committed_only)
            except (FencedError, CheckpointMissingError, FileNotFoundError):
                if storage.names(LOG_FOLDER) == before:
                    raise
        return self._read_cut(storage, committed_only=committed_only)

    def _read_cut(self, storage: ReadOnlyStorage, *, committed_only: bool) -> Cut | Savepoint:
        log = JobLog(storage, self._job)
        history = log.read()
        lineage = history.lineage.id if history.lineage else ""
        self._check_whole(history)
        newest = history.newest_committed(lineage) if committed_only else history.newest(lineage)
        if newest is None:
            return self._restored(history)
        store = CompletedCheckpointStore(storage, log, num_retained=1)
        left: list[Decision] = [] if newest.committed else history.uncommitted()
        pending = tuple(store.read(decision) for decision in left)
        return Cut(store.read_with_states(newest), pending, history)

    def _wait_for_sinks(self, still_waiting: StillWaiting) -> None:
        """Wait until no sink is ahead of the others."""
        log = JobLog(ReadOnlyStorage(self._root), self._job)
        while log.refresh().ahead and still_waiting():
            time.sleep(_POLL_S)

    def _check_whole(self, history: History) -> None:
        """Check that no sink has, or lacks, rows that the other sinks do not."""
        if history.rewinding is not None:
            raise SavepointError(
                f"Job {self._job!r}: a rewind to {history.rewinding.restored_from} was started and "
                "not finished: rows after it may be gone from one sink and still be in another. "
                "Nothing was written.",
                remedy=f"finish it: {finishing(history.rewinding, history)}; or give it up: "
                "twophase repair abandon-rewind JOB.yaml",
            )
        for ahead in history.ahead:
            raise SavepointError(
                f"Job {self._job!r}: sink {ahead.sink!r} has or gets checkpoint "
                f"{ahead.checkpoint}, and the others do not have it yet: no savepoint of what is "
                "before it could be restored beside its rows. Nothing was written.",
                remedy="let the job decide that checkpoint, then try again.",
            )

    def _restored(self, history: History) -> Savepoint:
        """Return the savepoint that a lineage without a checkpoint of its own has begun with.

        Not if a loss was accepted in it since: it would be found once more.
        """
        lineage = history.lineage
        if lineage is not None and (Path(lineage.restored_from) / MANIFEST).exists():
            found = open_savepoint(lineage.restored_from)
            is_same = found.identity == lineage.origin and found.manifest.job == self._job
            bodies = (found.checkpoint(), *found.pending())
            if is_same and all(one.amended(history.repairs) == one for one in bodies):
                return found
        raise SavepointError(
            f"Job {self._job!r}: there is no checkpoint of the current lineage in {self._root} "
            "yet. Nothing was written.",
            remedy="let the job complete its first checkpoint, then try again.",
        )

    def _note(self, cut: Cut | Savepoint, still_waiting: StillWaiting) -> str | None:
        """Step 2. Return the note that is ours to write; None if Spark has written it.

        Only a plan without state can do without Spark's own: nothing depends on its watermark.
        """
        if isinstance(cut, Savepoint):
            return None
        number, folder = cut.checkpoint.checkpoint, self._root / "spark" / cut.checkpoint.lineage
        commit = folder / "commits" / str(number)
        has_state = bool(listed(folder / "state"))
        while has_state and not commit.exists() and still_waiting():
            time.sleep(_POLL_S)
        if commit.exists():
            return None
        if has_state:
            raise SavepointError(
                f"Job {self._job!r}: Spark has not finished micro-batch {number}, whose checkpoint "
                "is decided, so the state of the plan may be incomplete. Nothing was written.",
                remedy="if the job is running, wait longer: twophase savepoint create JOB.yaml "
                "PATH --wait 1min. If it has stopped, start it, so that it finishes the "
                "micro-batch, then stop it with a savepoint.",
            )
        try:
            header = (folder / "offsets" / str(number)).read_text().split("\n")[1]
            watermark_ms = int(json.loads(header)["batchWatermarkMs"])
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            watermark_ms = 0
        return "v1\n" + json.dumps({"nextBatchWatermarkMs": watermark_ms})


def savepoint_path(job: str, path: str | None, options: JobOptions) -> str:
    """Return where a savepoint is made: the given path, or a new name in `savepoint.dir`.

    Raises:
        ConfigError: neither is given.
    """
    if path is not None:
        return path
    if options.savepoint_dir is None:
        raise ConfigError(
            f"Job {job!r}: the savepoint has no path. Nothing was written.",
            remedy="give a path, or set `savepoint.dir=FOLDER`.",
        )
    return str(local_path(options.savepoint_dir, "savepoint.dir") / f"{job}-{secrets.token_hex(6)}")


def open_savepoint(path: str) -> Savepoint:
    """Open the savepoint at a path, read-only.

    Raises:
        ConfigError: there is none, or it is not whole.
        CorruptRecordError: its manifest is damaged.
        NewerFormatError: a newer version of twophase has written it.
    """
    where = local_path(path, OPTION)
    if not where.exists() and not where.is_symlink():
        raise ConfigError(f"There is no savepoint at {where}.", remedy="correct the path.")
    return Savepoint(ReadOnlyStorage(where, OPTION), str(where))


def list_savepoints(path: str) -> Iterator[tuple[str, Savepoint | TwoPhaseError]]:
    """Yield the savepoints in a folder, by name, with the error of each that is not usable.

    A folder that cannot be looked into may be one, too.

    Raises:
        OSError: the folder cannot be listed.
    """
    for found in sorted(ReadOnlyStorage(path, OPTION).root.iterdir()):
        try:
            with owner_named():
                savepoint = _opened(found)
        except TwoPhaseError as error:
            yield str(found), error
        except OSError as error:
            yield str(found), _unreadable(found, error)
        else:
            if savepoint is not None:
                yield str(found), savepoint


def _opened(folder: Path) -> Savepoint | None:
    """Return the savepoint in a folder, of which is known whether it is finished; None if there is
    none.
    """
    if not folder.is_dir() or not any((folder / mark).exists() for mark in (MANIFEST, BEGUN)):
        return None
    savepoint = open_savepoint(str(folder))
    savepoint.pending_paths()
    return savepoint


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"{path} cannot be read: {error.strerror or error}. Nothing was started or written.",
        remedy=f"look at its rights (ls -ld {shlex.quote(str(path))}), and check the disk.",
    )


def _copy(writer: SavepointWriter, savepoint: Savepoint, created_ms: int) -> Manifest:
    """Write the savepoint that a lineage has begun with, all of whose checkpoints are committed."""
    manifest = savepoint.manifest
    for file in manifest.files:
        writer.add(file.path, savepoint.content(file))
    return writer.complete(
        savepoint.checkpoint(),
        body=manifest.body,
        pending=(),
        ancestors=manifest.ancestors,
        created_ms=created_ms,
        rescaled=manifest.rescaled,
    )


def _path_of(checkpoint: CompletedCheckpoint) -> str:
    folder = f"{checkpoint.lineage}-{checkpoint.checkpoint}-{checkpoint.attempt}"
    return f"checkpoints/{folder}/_metadata"


class JobSavepoints:
    """Makes the savepoints of a job: one at a time, while it runs or when it stops.

    Args:
        engine: of the job.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._name = engine.job
        self._options = engine.options
        self._maker = SavepointMaker(engine.job, engine.storage.root, engine.clock)
        self._lock = threading.Lock()

    def make(self, path: str | None) -> str:
        """Make a savepoint of the newest committed checkpoint; return its path.

        Args:
            path: the savepoint's folder; None for a new one in `savepoint.dir`.

        Raises:
            ConfigError: the path is not right.
            SavepointError: another one is under way, or this one could not be made.
        """
        path = savepoint_path(self._name, path, self._options)
        with self._alone():
            made = self._maker.make(path, committed_only=True, still_waiting=self._still_waiting)
        self._engine.observers(SavepointMade(self._name, made.checkpoint, path))
        return path

    def stop(self, path: str | None) -> str:
        """Stop the job after its micro-batch, then make a savepoint of its newest checkpoint.

        Args:
            path: as for `make`.

        Raises:
            ConfigError: the path is not right; the job runs on.
            SavepointUnfinishedError: it is saved, and its checkpoint is not committed yet.
            SavepointError: another one is under way, or this one could not be made.
        """
        if is_called_back(self._name):
            raise SavepointError(
                f"Job {self._name!r}: an observer, listener or function of the job cannot stop it "
                "with a savepoint: the micro-batch that comes first waits for it. The job runs on.",
                remedy="do it in a thread of its own.",
            )
        path = savepoint_path(self._name, path, self._options)
        with self._alone():
            self._maker.check_begun()
            writer = self._maker.claim(path)
            try:
                with self._engine.stopped_after_batch():
                    manifest = self._maker.make_stopped(writer)
            except BaseException:
                writer.discard()
                raise
        self._engine.observers(SavepointMade(self._name, manifest.checkpoint, path))
        if manifest.pending:
            raise SavepointUnfinishedError(
                f"Job {self._name!r} has stopped and savepoint {path} is complete, but "
                f"checkpoint {manifest.checkpoint} is not committed in every sink yet.",
                remedy=f"once the sinks are reachable: twophase savepoint finish JOB.yaml "
                f"{shlex.quote(path)}",
            )
        return path

    def _still_waiting(self) -> bool:
        """Return whether the micro-batch may still be finished: not while it waits for this."""
        return self._engine.still_runs() and not is_called_back(self._name)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._lock.acquire(blocking=False):
            reason = CheckpointFailureReason.TOO_MANY_CHECKPOINT_REQUESTS.name
            raise SavepointError(
                f"Job {self._name!r}: another savepoint is in progress ({reason}). "
                "Nothing was written.",
                remedy="wait until it is complete, then try again.",
            )
        try:
            yield
        finally:
            self._lock.release()
