"""The driver's side of a plugin query, in whatever process Spark calls it.

Spark has no driver process for a Python sink. For each micro-batch it calls, one after the other
and mostly in different Python processes on the driver's machine (docs/decisions/0016):

    plan      before any task: n is classified, and gets its attempt (step 1 of a checkpoint); a
              run's first one takes the job over before that (steps 2 to 5 of a start)
    write     in the tasks (step 3): `spark.plugin.writer`
    commit    the acknowledged pieces are decided and committed (steps 4 to 9)
    abort     or the run has failed: it is fenced out, and its pieces are aborted

What the processes have in common is the job's log, and a note on the micro-batch under way. What a
process keeps in memory (the open sink, the log as last read) only saves time.

The note is a small file in the folder that Spark creates on the driver for this application. It
exists while the run goes on, and can neither outlive the application nor be seen by another. No
decision depends on it: a run whose note is lost takes the job over again, and a commit without its
note is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from twophase.contract.committable import Committable
from twophase.contract.sink import WriterFactory
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.coordinator import Replay, Write
from twophase.coordinator.resumable import ResumableCoordinator
from twophase.engine.driver import Driver
from twophase.errors import FencedError, PreflightError, SourceLossError, StopJobError
from twophase.events import Observers
from twophase.ids import Attempt, TransactionId, short_hash
from twophase.internals.logging_observer import log_event
from twophase.spark.folder.planned_reads import check_present, check_undecided
from twophase.spark.folder.spark_folder import SparkFolder
from twophase.spark.plugin.description import PluginDescription
from twophase.spark.plugin.host import PluginHost, open_sink
from twophase.state.checkpoints import replay_guard
from twophase.state.files.event_file import EventFile
from twophase.state.files.folder_rights import check_owner
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Lineage

_LOCAL_DIRS = "SPARK_LOCAL_DIRS"
_jobs: dict[Path, PluginJob] = {}


@dataclass(frozen=True)
class Plan:
    """The work of a micro-batch's tasks.

    Attributes:
        checkpoint: the number of the micro-batch.
        attempt: what they write for.
        transaction: whose pieces they pre-commit; None if the micro-batch is decided already, and
            they write nothing.
        writers: creates the writers of the tasks.
    """

    checkpoint: int
    attempt: Attempt
    transaction: TransactionId | None
    writers: WriterFactory


@dataclass(frozen=True)
class Acknowledged:
    """The report of one task.

    Attributes:
        attempt: what it wrote for.
        committable: its piece; None if it had no rows.
    """

    attempt: Attempt
    committable: Committable | None


def job_of(description: PluginDescription) -> PluginJob:
    """The job, opened; the one of the last call in this process if it was described the same.

    Raises:
        ConfigError: an option of the sink is not right, or the sink cannot be written in this form.
        PreflightError: the target cannot keep the protocol's promises.
    """
    folder = description.spark_folder
    known = _jobs.pop(folder, None)
    if known is None or known.description != description:
        if known is not None:
            known.close()
        known = PluginJob(description)
    _jobs[folder] = known
    return known


class PluginJob:
    """One job in one process.

    Args:
        description: of the query.
    """

    def __init__(self, description: PluginDescription) -> None:
        self.description = description
        path = description.spark_folder
        if not (path / "metadata").exists():
            raise PreflightError(
                f"Job {description.job!r}: Spark's folder of the query is not at {path}.",
                remedy="give checkpointLocation as the absolute path of a folder on "
                "the driver's file system.",
            )
        self._host = host = PluginHost(description)
        self._sink = open_sink(description, host.sink_context(description.sink))
        self._notes = RunNotes(path, description.fingerprint)
        storage = LocalStorage(description.options.checkpoint_location)
        check_owner(storage.root)
        context = JobContext(
            description.job,
            storage,
            {description.sink: self._sink},
            description.options,
            Observers(log_event, EventFile(storage, host.clock)),
            host.clock,
        )
        self._driver = Driver(host, context)
        self._coordinator = self._driver.coordinator
        self._resumable = ResumableCoordinator(self._coordinator)

    def close(self) -> None:
        """Release the sink's connections."""
        self._sink.close()

    def plan(self) -> Plan:
        """Take the job over if this is a new run; give the planned micro-batch its attempt.

        Raises:
            DeclinedError: its offsets, or its predecessor, cannot be read.
            StopJobError: the job must not go on.
        """
        number = self._host.folder(Lineage("")).planned()
        note = self._notes.read()
        # From here to the new note, whatever happens ends the run: nothing else may take one of our
        # fences for a rival's.
        self._notes.delete()
        coordinator = self._coordinator
        if note is None or note.checkpoint == number:
            self._driver.generation = note.generation if note else None
            self._driver.take_over()
            last = Attempt(coordinator.generation, 0)
        else:
            last = note.attempt
            self._resumable.join(last)
        attempt = Attempt(last.generation, last.counter + 1)
        folder = self._host.folder(coordinator.lineage)
        offsets, found = self._driver.classified(number, folder)
        replay = isinstance(found, Replay)
        self._plan_reads(folder, number, attempt, found)
        planned_ms = self._host.clock.unix_ms()
        self._notes.write(RunNote(number, attempt.generation, attempt.counter, replay, planned_ms))
        job, sink, lineage = self.description.job, self.description.sink, coordinator.lineage.id
        transaction = TransactionId(job, lineage, number, attempt, sink, offsets.hash)
        return Plan(number, attempt, None if replay else transaction, self._sink.writers())

    def _plan_reads(
        self, folder: SparkFolder, number: int, attempt: Attempt, found: Write | Replay
    ) -> None:
        decided = found.decision if isinstance(found, Replay) else None
        if decided is None:
            check_undecided(folder, number)
        if not replay_guard.are_planned(folder.path):
            return
        guard = replay_guard.begin(folder.path, number, attempt.generation, decided)
        guard.plan(number)
        if decided is not None:
            try:
                check_present(folder, number)
            except SourceLossError as loss:
                replace(guard, planned=True).lost(loss)
                raise

    def commit(self, number: int, acknowledged: Sequence[Acknowledged]) -> None:
        """Steps 4 to 9: decide and commit. Returns only when the checkpoint is committed.

        Args:
            number: the micro-batch, as Spark names it.
            acknowledged: from every task.

        Raises:
            DeclinedError: it was not decided; nothing of it is visible.
            StopJobError: the job must stop.
        """
        note = self._notes.read()
        attempts = {task.attempt for task in acknowledged}
        if note is None or note.checkpoint != number or attempts - {note.attempt}:
            raise FencedError(
                f"Job {self.description.job!r}: micro-batch {number} was not planned by the run "
                f"that is going on here ({note}).",
                remedy="leave this run stopped.",
            )
        pieces = [task.committable for task in acknowledged if task.committable is not None]
        try:
            if note.replay:
                self._replay(number, note)
            else:
                self._acknowledge(number, note, pieces)
        except FencedError:
            self._notes.delete()
            raise

    def abort(self) -> None:
        """The other case: the run has failed, what it has not decided is aborted.

        Raises:
            FencedError: another driver has taken the job over.
            Exception: of the sink; the next run aborts what is left.
        """
        note = self._notes.read()
        if note is None:
            return
        self._notes.delete()
        self._resumable.abandon(note.generation)

    # -- parts -------------------------------------------------------------------------------------

    def _acknowledge(self, number: int, note: RunNote, pieces: Sequence[Committable]) -> None:
        attempt = note.attempt
        self._resumable.join(Attempt(attempt.generation, attempt.counter - 1))
        folder = self._host.folder(self._coordinator.lineage)
        offsets, found = self._driver.classified(number, folder)
        if isinstance(found, Replay):
            self._resumable.commit_again(found.decision, attempt)
            return
        check_undecided(folder, number)
        folder.sync(number)
        sink, planned_ms = self.description.sink, note.planned_ms
        self._resumable.acknowledged(number, offsets, sink, pieces, planned_ms)

    def _replay(self, number: int, note: RunNote) -> None:
        """Its tasks wrote nothing: it must be decided."""
        coordinator = self._coordinator
        self._resumable.join(note.attempt)
        _, found = self._driver.classified(number, self._host.folder(coordinator.lineage))
        if not isinstance(found, Replay):
            raise StopJobError(
                f"Job {self.description.job!r}: micro-batch {number} was decided when it was "
                "planned, and no longer is.",
                remedy="find out who changed the job's folder, and restore it from a backup.",
            )
        coordinator.replay(found.decision, None)


@dataclass(frozen=True)
class RunNote:
    """The micro-batch in progress.

    Attributes:
        checkpoint: its number.
        generation: the generation of the run.
        counter: the counter of its attempt.
        replay: whether it is decided already, so that its tasks write nothing.
        planned_ms: Unix time when it was planned.
    """

    checkpoint: int
    generation: int
    counter: int
    replay: bool
    planned_ms: int

    @property
    def attempt(self) -> Attempt:
        """The attempt that its tasks write for."""
        return Attempt(self.generation, self.counter)


class RunNotes:
    """Reads and writes the note of one job.

    Args:
        folder: the job's folder.
        query: `PluginDescription.fingerprint`. A note of another query does not count: its run has
            ended, and it fenced and checked its own target.

    Raises:
        PreflightError: this process was not started by Spark on the driver.
    """

    def __init__(self, folder: Path, query: str) -> None:
        local = os.environ.get(_LOCAL_DIRS, "").split(",")[0]
        if not Path(local).is_dir() or not local:
            raise PreflightError(
                f"{_LOCAL_DIRS} does not name a folder ({local!r}): "
                "a Spark driver did not start this process.",
                remedy="use this format only with writeStream.",
            )
        self._query = query
        self._path = Path(local) / f"twophase-{short_hash(str(folder), 32)}"

    def read(self) -> RunNote | None:
        """Return the note of this query's current run in this application, if there is one."""
        try:
            fields = json.loads(self._path.read_text())
        except FileNotFoundError:
            return None
        return RunNote(**fields) if fields.pop("query", None) == self._query else None

    def write(self, note: RunNote) -> None:
        """Replace the note."""
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        temporary.write_text(json.dumps({"query": self._query, **asdict(note)}))
        temporary.replace(self._path)

    def delete(self) -> None:
        """Delete the note, as the run has ended. Always called before the next run's fence."""
        self._path.unlink(missing_ok=True)
