"""One run of a job's query, from the recovery of the job to the end of the query.

3. recover    fence, commit decided checkpoints, abort orphans (coordinator/recovery.py)
4. lineage    the current one, or a new one: a fresh start or a restore
5. folder     the host's folder of the lineage is written, or validated against the log
6. run        the host replays the newest micro-batch where needed, and begins new ones

The other steps of a start are the engine's (engine/engine.py).
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

from twophase.coordinator.context import JobContext
from twophase.coordinator.coordinator import CheckpointCoordinator, Replay
from twophase.coordinator.recovery_steps import Restore
from twophase.engine.batch_gate import BatchGate
from twophase.engine.host import Beginning, Host, LineageFolder, MicroBatch, Plan, Query
from twophase.errors import InDoubtError, TwoPhaseError

_POLL_S = 0.02


class Run:
    """One run of the query. `stop` is safe to call from any thread.

    Args:
        host: runs the micro-batches.
        context: the job, as the driver of this run sees it.
        stopping: set when the job is to stop.
        previous: the run before this one, if it is a restart.

    Attributes:
        context: as given.
        coordinator: of this run.
        query: the host's query; that of the previous run until this one has started its own.
        generation: the newest generation with which this driver took the job over; None if
            that is not known.
    """

    def __init__(
        self,
        host: Host[Any],
        context: JobContext,
        stopping: threading.Event,
        previous: Run | None = None,
    ) -> None:
        self.context = context
        self.query: Query | None = previous.query if previous else None
        self.generation: int | None = previous.generation if previous else None
        self.coordinator = CheckpointCoordinator(
            context,
            snapshot=host.snapshot,
            spawn=partial(host.thread, f"twophase-{context.job}-commit"),
            on_failure=self.stop,
        )
        self._host = host
        self._stopping = stopping
        self._has_started = False
        self._gate = BatchGate()
        self._lock = threading.Lock()
        self._plan: Plan
        self._folder: LineageFolder

    def start(self) -> None:
        """Steps 3 to 6. A job that is stopping starts no query.

        Raises:
            ConfigError: the job cannot go on with these options or settings; nothing was written.
            StopJobError: the job must not go on.
        """
        if self._stopping.is_set():
            self.context.stopping.set()
        if self.take_over():
            with self._lock:
                if not self._stopping.is_set():
                    self.query = self._host.start(self.coordinator, self._folder, self.handle)
                    self._has_started = True

    def take_over(self) -> bool:
        """Steps 3 to 5; return whether micro-batches may begin: not if the job is stopping.

        Raises:
            ConfigError: the job cannot go on with these options or settings; nothing was written.
            StopJobError: the job must not go on.
        """
        self._plan = self._host.plan()
        beginning = self._host.beginning(self.context, self._plan)
        try:
            self._recover(beginning.restore)
        finally:
            beginning.close()
        if self.context.stopping.is_set():
            return False
        self._begin(beginning)
        return True

    def handle(self, number: int, batch: MicroBatch) -> None:
        """Take the checkpoint of micro-batch n; see `Handle`.

        1. freeze     the host has frozen its offsets
        2. classify   decided already: commit again, and execute it without sinks if the plan keeps
                      state. Otherwise all sinks pre-commit, and it is decided

        Raises:
            GateClosedError: the job is stopping, and it must not begin.
            TwoPhaseError: it is not decided.
        """
        with self._gate.batch(number):
            try:
                offsets = self._folder.offsets(number)
                found = self.coordinator.classify(number, offsets)
            except OSError as error:
                raise self.coordinator.cannot_trigger(number, error) from error
            try:
                if isinstance(found, Replay):
                    batch.begin(found.decision)
                    execute = batch.execute if self._plan.stateful else None
                    self.coordinator.replay(found.decision, execute)
                else:
                    batch.begin(None)
                    self.coordinator.checkpoint(number, offsets, batch.pre_commit)
            finally:
                batch.close()

    def wait(self) -> None:
        """Wait for the end of the query and of its queued commits; raise what made either fail."""
        if self.query is None or not self._has_started:
            return
        try:
            self.query.wait()
        except Exception as error:
            self.coordinator.close()
            if self.coordinator.failure is not None:
                raise self.coordinator.failure from error
            raise
        self.coordinator.close(retry=True)
        if self.coordinator.failure is not None:
            raise self.coordinator.failure

    def stop(self) -> None:
        """Let no further micro-batch begin. A failed thread of the commit queue calls it too."""
        self.context.stopping.set()
        with self._lock:
            query = self.query
        if query is not None:
            query.stop()

    def stop_after_batch(self) -> None:
        """Let the micro-batch under way be decided and no further one begin, then stop.

        A decided checkpoint is committed first, or tried once more if a sink does not answer. The
        host has noted the micro-batch as finished by then, unless its query has failed.
        """
        if self.query is not None and self._has_started:
            self._gate.close()
            self._gate.wait_until(self._is_decided)
            self.context.stopping.set()
            self._gate.wait_until_free()
            newest, never = self.coordinator.newest(), threading.Event()
            while newest and self.still_runs() and self._folder.finished() < newest.checkpoint:
                self._host.clock.wait(never, _POLL_S)
        self.stop()

    def still_runs(self) -> bool:
        """Return whether the host may still note a micro-batch as finished."""
        return self.query is not None and self.query.is_active

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
            self._folder = self._host.folder(self.coordinator.lineage)
            self._folder.prepare(newest)
            if not self._plan.has_watermark:
                self._folder.finish(newest)
        except TwoPhaseError:
            self.context.log.check_fence()
            raise
        self._host.delete_folders(self.context.log.history)
        beginning.initialize_states(self.coordinator)

    def _is_decided(self, number: int) -> bool:
        newest = self.coordinator.newest()
        return newest is not None and newest.checkpoint >= number
