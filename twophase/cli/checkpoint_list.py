"""Reads the checkpoints in a job's folder without changing it, even while the job runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from twophase.contract.offset_text import offset_entries, parsed_entry
from twophase.errors import CheckpointMissingError, ConfigError, NewerFormatError, StopJobError
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.checkpoints.state_files import read_states
from twophase.state.checkpoints.store import FOLDER as BODY_FOLDER
from twophase.state.checkpoints.store import CompletedCheckpointStore
from twophase.state.files.storage import ReadOnlyStorage
from twophase.state.journal.entries import Decision
from twophase.state.journal.history import History
from twophase.state.journal.log import FOLDER as LOG_FOLDER
from twophase.state.journal.log import JobLog, job_of
from twophase.state.journal.stats import CheckpointStats

_TRIES = 10
T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """One checkpoint.

    Attributes:
        decision: its decision in the log.
        state: committed; decided, that is still to be committed; subsumed, its body is deleted;
            damaged; or newer, its body is one of a newer version of twophase.
        path: the folder of its body, as `restore.path` takes it.
        body: its content, with the data of its states; None if it cannot be read.
        size: the size of the body and the files of its states in bytes; None likewise.
        problem: the error of a damaged or newer one.
        stats: what was measured of it; None if that is not known.
    """

    decision: Decision
    state: str
    path: Path
    body: CompletedCheckpoint | None = None
    size: int | None = None
    problem: StopJobError | None = None
    stats: CheckpointStats | None = None

    @property
    def pending(self) -> Mapping[str, int]:
        """The number of pieces by sink, for a decided checkpoint that is not committed."""
        if self.body is None or self.decision.committed:
            return {}
        return {sink: len(pieces) for sink, pieces in self.body.committables.items() if pieces}


@dataclass(frozen=True)
class CheckpointList:
    """The checkpoints in a job's folder.

    Attributes:
        job: the job's name.
        history: the job's history from its log.
        entries: the decided checkpoints in the log, oldest first.
        undecided: folders of bodies that no decision names: from attempts in progress,
            declined or cut short.
    """

    job: str
    history: History
    entries: Sequence[Entry]
    undecided: Sequence[str]

    @property
    def is_of_plugin_form(self) -> bool:
        """Whether a query of the plugin form wrote them: it has no operator states."""
        bodies = [entry.body for entry in self.entries if entry.body is not None]
        return bool(bodies) and not any(one.sources for one in bodies)

    @property
    def problem(self) -> StopJobError | None:
        """The first error of an entry, if any."""
        return next((entry.problem for entry in self.entries if entry.problem), None)


def read_checkpoints(folder: str) -> CheckpointList:
    """Read a job's folder.

    Args:
        folder: the job's `checkpointLocation`.

    Raises:
        ConfigError: it is not the folder of a job.
        CorruptRecordError: the log is damaged. Damaged bodies are reported by their entries.
        NewerFormatError: a newer version of twophase has written the log. Its bodies are
            reported by their entries.
    """
    storage = ReadOnlyStorage(folder)
    return _steadily(storage, lambda: _read(storage))


def _steadily(storage: ReadOnlyStorage, read: Callable[[], CheckpointList]) -> CheckpointList:
    """Read again if the driver has written meanwhile: what looks damaged may just be deleted."""
    for _ in range(_TRIES - 1):
        before = storage.names(LOG_FOLDER)
        try:
            found = read()
        except (FileNotFoundError, StopJobError):
            if storage.names(LOG_FOLDER) == before:
                raise
            continue
        if found.problem is None or storage.names(LOG_FOLDER) == before:
            return found
    return read()


def _read(storage: ReadOnlyStorage) -> CheckpointList:
    job = job_in(storage)
    log = JobLog(storage, job)
    history = log.read()
    store = CompletedCheckpointStore(storage, log, num_retained=1)
    bodies = set(storage.names(BODY_FOLDER))
    newest = next(
        (decision for decision in reversed(history.decisions) if decision.committed), None
    )
    entries = []
    for decision in history.decisions:
        entry = _entry(storage, store, decision, decision.committed and decision != newest)
        entries.append(replace(entry, stats=history.stats_of(decision)))
        bodies.discard(Path(decision.folder).name)
    return CheckpointList(job, history, entries, sorted(bodies))


def job_in(storage: ReadOnlyStorage) -> str:
    """Return the name of the job in a folder.

    Raises:
        ConfigError: it is not the folder of a job.
    """
    job = job_of(storage)
    if job is None:
        raise ConfigError(
            f"{storage.root} is not the folder of a job.",
            remedy="name the job's checkpointLocation.",
        )
    return job


def _entry(
    storage: ReadOnlyStorage, store: CompletedCheckpointStore, decision: Decision, replaced: bool
) -> Entry:
    """Read one entry; the body of one `replaced` by a newer committed one may be gone."""
    path = storage.root / decision.folder
    try:
        named = store.read(decision)
        body = read_states(storage, named)
        size = sum(file.stat().st_size for file in path.iterdir())
        size += sum(file.length for file in named.state_files.values())
    except (FileNotFoundError, StopJobError) as error:
        if replaced and isinstance(error, FileNotFoundError | CheckpointMissingError):
            return Entry(decision, "subsumed", path)
        if isinstance(error, FileNotFoundError):
            raise
        state = "newer" if isinstance(error, NewerFormatError) else "damaged"
        return Entry(decision, state, path, problem=error)
    return Entry(decision, "committed" if decision.committed else "decided", path, body, size)


def offsets_of(body: CompletedCheckpoint) -> list[tuple[str, list[Any]]]:
    """Return where each source stands after a checkpoint: its format and its entries.

    An entry of `twophase-kafka` is a partition; Spark's own sources have one entry, their offset.
    Without operator states (the plugin form) the frozen offsets tell it, and the format of a source
    only if an installed one knows them.
    """
    if not body.sources:
        return [("", []) if line is None else offset_entries(line) for line in body.offsets.end]
    return [
        (state.format, [parsed_entry(entry) for entry in state.entries]) for state in body.sources
    ]
