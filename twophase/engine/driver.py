"""A driver: takes a job over, and handles its micro-batches.

3. recover    fence, commit decided checkpoints, abort orphans (coordinator/recovery/recovery.py)
4. lineage    the current one, or a new one: a fresh start or a restore
5. folder     the host's folder of the lineage is written, or validated against the log

The other steps of a start: `twophase.engine.run` and `twophase.engine.engine`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.coordinator import CheckpointCoordinator, Replay, Write
from twophase.coordinator.recovery.plan import Restore
from twophase.engine.batch_gate import BatchGate
from twophase.engine.host import Beginning, Host, LineageFolder, MicroBatch, Plan
from twophase.errors import DeclinedError, InDoubtError, TwoPhaseError, fingerprint_of
from twophase.events import calling_back
from twophase.internals.redaction import shown
from twophase.internals.user_code import described
from twophase.state.checkpoints.checkpoint import FrozenOffsets
from twophase.state.journal.history import History


class Driver:
    """One driver of a job.

    Args:
        host: runs the micro-batches.
        context: the job, as this driver sees it.
        generation: the newest generation with which this very driver has taken the job over
            before, if it restarts.
        on_failure: called by the thread of the commit queue when the job must end.

    Attributes:
        context: as given.
        coordinator: of this driver.
        generation: the newest generation with which it has taken the job over; None if that is
            not known.
        plan: what the host knows of it; after `take_over`.
        folder: of the lineage; after `take_over`.
        gate: before each micro-batch.
    """

    def __init__(
        self,
        host: Host[Any],
        context: JobContext,
        generation: int | None = None,
        on_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self.context = context
        self.generation = generation
        self.coordinator = CheckpointCoordinator(
            context,
            snapshot=host.snapshot,
            spawn=partial(host.thread, f"twophase-{context.job}-commit"),
            on_failure=on_failure,
        )
        self.gate = BatchGate()
        self.folder: LineageFolder
        self._host = host
        self.plan: Plan

    @property
    def history(self) -> History:
        """What the job's log says, as of its last read or append."""
        return self.context.history

    def take_over(self) -> bool:
        """Steps 3 to 5; return whether micro-batches may begin: not if the job is stopping.

        Raises:
            ConfigError: the job cannot go on with these options or settings; nothing was written.
            StopJobError: the job must not go on.
        """
        self.plan = self._host.plan()
        self.context.skips_existing = self.plan.skips_existing
        beginning = self._host.beginning(self.context, self.plan)
        try:
            self._recover(beginning.restore)
        finally:
            beginning.close()
        if self.context.stopping.is_set():
            return False
        self._begin(beginning)
        return True

    def handle(self, number: int, batch: MicroBatch) -> None:
        """Take the checkpoint of micro-batch n, whose offsets the host has frozen; see `Handle`.

        One that is decided already is committed again, and executed without sinks if the plan
        keeps state. Otherwise all sinks pre-commit, and it is decided.

        Raises:
            GateClosedError: the job is stopping, and it must not begin.
            TwoPhaseError: it is not decided.
        """
        with self.gate.batch(number):
            offsets, found = self.classified(number, self.folder)
            if isinstance(found, Replay):
                batch.begin(found.decision)
                execute = batch.execute if self.plan.stateful else None
                self.coordinator.replay(found.decision, execute)
            else:
                batch.begin(None)
                self.coordinator.checkpoint(number, offsets, batch.pre_commit)

    def classified(
        self, number: int, folder: LineageFolder
    ) -> tuple[FrozenOffsets, Write | Replay]:
        """Return the frozen offsets of micro-batch n, and whether it is new or decided.

        Args:
            number: n.
            folder: of the current lineage.

        Raises:
            DeclinedError: the folder or the store cannot be read.
            OffsetMismatchError: they do not belong together.
        """
        try:
            offsets = folder.offsets(number)
            return offsets, self.coordinator.classify(number, offsets)
        except OSError as error:
            raise self.coordinator.cannot_trigger(number, error) from error

    def _recover(self, restore: Restore | None) -> None:
        """Step 3. A restart must not take the fence of its own failed recovery for a rival's."""
        try:
            self.coordinator.recover(self.generation, restore)
        except InDoubtError:
            self.generation = None
            raise
        except Exception:
            self.generation = self.coordinator.generation or self.generation
            raise
        self.generation = self.coordinator.generation

    def _begin(self, beginning: Beginning) -> None:
        """Steps 4 and 5. A rival's progress may look like a folder that does not belong to us."""
        try:
            beginning.begin(self.coordinator)
            newest = self.coordinator.newest()
            self.folder = self._host.folder(self.coordinator.lineage)
            self.folder.prepare(newest)
            if not self.plan.has_watermark:
                self.folder.finish(newest)
        except TwoPhaseError:
            with suppress(OSError):  # a log that cannot be read says nothing of a rival
                self.context.log.check_fence()
            raise
        self._host.delete_folders(self.history)
        try:
            with calling_back(self.context.job):
                beginning.initialize_states(self.coordinator)
        except (TwoPhaseError, OSError):
            raise
        except Exception as error:
            raise DeclinedError(
                f"Job {self.context.job!r}: a function could not take its state: "
                f"{shown(described(error))}.",
                fingerprint=fingerprint_of(error),
            ) from error
