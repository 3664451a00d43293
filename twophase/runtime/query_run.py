"""One run of a job's query, from the recovery of the job to the end of the query.

3. recover    fence, commit decided checkpoints, abort orphans (coordinator/recovery.py)
4. lineage    the current one, or a new one: a fresh start or a restore
5. folder     Spark's folder of the lineage is written, or validated against the store
6. query      Spark replays the newest micro-batch where needed

Steps 1, 2 and 7 are the job's (runtime/job.py).
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from pyspark import InheritableThread

from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.coordinator.recovery_steps import Restore
from twophase.errors import InDoubtError, StopJobError, TwoPhaseError
from twophase.runtime import logical_plan, retention, shuffles, state_backend
from twophase.runtime.abandoned_folders import delete_abandoned
from twophase.runtime.batch import BatchHandler
from twophase.runtime.job_parts import JobParts
from twophase.runtime.lineage_start import LineageStart
from twophase.runtime.noted_settings import noted_conf
from twophase.runtime.savepoint_restore import Plan
from twophase.runtime.spark_errors import declined
from twophase.runtime.spark_folder import SparkFolder

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_S = 0.02


class QueryRun:
    """One run of the query. `stop` is safe to call from any thread.

    Args:
        parts: of the job.
        stopping: set when the job is to stop.
        previous: the run before this one, if it is a restart.

    Attributes:
        query: Spark's query; that of the previous run until this one has started its own.
        generation: the newest generation with which this driver took the job over; None if
            that is not known.
    """

    def __init__(
        self, parts: JobParts, stopping: threading.Event, previous: QueryRun | None = None
    ) -> None:
        self.query: StreamingQuery | None = previous.query if previous else None
        self.generation: int | None = previous.generation if previous else None
        self._parts = parts
        self._stopping = stopping
        self._handler: BatchHandler | None = None
        self._lock = threading.Lock()
        self._coordinator = CheckpointCoordinator(
            parts.new_context(),
            snapshot=parts.snapshot,
            spawn=lambda run: InheritableThread(
                target=run, name=f"twophase-{parts.name}-commit", daemon=True
            ),
            on_failure=self.stop,
        )

    def start(self) -> None:
        """Steps 3 to 6, if Spark's settings allow. A job that is stopping starts no query.

        Raises:
            ConfigError: the job cannot go on with these options or settings; nothing was written.
            StopJobError: the job must not go on.
        """
        description = self._parts.description
        frame, session = description.frame, self._parts.spark
        rows = (entry.rows(frame) for entry in description.sinks.values())
        shuffles.check(self._parts.name, session, rows)
        stateful = logical_plan.is_stateful(frame)
        keeps_state = logical_plan.keeps_state(logical_plan.analyzed(frame))
        settings = state_backend.wanted_settings(self._parts.name, description.options, session)
        lineage = LineageStart(self._parts, Plan(stateful, keeps_state))
        if stateful and settings:
            state_backend.check_noted(self._parts.name, description.options, lineage.noted_header())
        if self._stopping.is_set():
            self._coordinator.context.stopping.set()
        try:
            self._recover(lineage.restore)
        finally:
            lineage.close()
        if self._stopping.is_set():
            return
        if keeps_state:
            self._parts.shared.check()
        lineage.begin(self._coordinator)
        folder = self._prepare_folder()
        lineage.initialize_states(self._coordinator)
        handler = self._make_handler(folder, stateful=stateful, keeps_state=keeps_state)
        with state_backend.applied(session, settings):
            self._start_query(folder, handler)

    def _make_handler(
        self, folder: SparkFolder, *, stateful: bool, keeps_state: bool
    ) -> BatchHandler:
        return BatchHandler(
            self._coordinator,
            self._parts.description.sinks,
            folder,
            self._parts.shared,
            self._parts.description.options,
            stateful=stateful,
            keeps_state=keeps_state,
            observers=self._parts.observers,
        )

    def wait(self) -> None:
        """Wait for the end of the query and of its queued commits; raise what made either fail."""
        query, handler, coordinator = self.query, self._handler, self._coordinator
        if query is None or handler is None:
            return
        try:
            query.awaitTermination()
        except Exception as error:
            coordinator.close()
            what = f"The query of job {self._parts.name!r}"
            raise coordinator.failure or handler.error or declined(error, what) from error
        coordinator.close(retry=True)
        if coordinator.failure is not None:
            raise coordinator.failure
        if isinstance(handler.error, StopJobError):
            raise handler.error  # found while the query was being stopped, which then ended cleanly

    def stop(self) -> None:
        """Let no further micro-batch begin. A failed thread of the commit queue calls it too."""
        self._coordinator.context.stopping.set()
        with self._lock:
            query = self.query
        if query is not None:
            query.stop()

    def stop_after_batch(self) -> None:
        """Let the micro-batch under way be decided and no further one begin, then stop.

        A decided checkpoint is committed first, or tried once more if a sink does not answer. Spark
        has noted the micro-batch as finished by then, unless its query has failed.
        """
        query, handler = self.query, self._handler
        if query is None or handler is None:
            return self.stop()
        coordinator = self._coordinator
        handler.gate.close()
        handler.gate.wait_until(lambda number: _is_decided(coordinator, number))
        coordinator.context.stopping.set()
        handler.gate.wait_until_free()
        newest = coordinator.newest()
        while newest and query.isActive and not handler.has_finished(newest.checkpoint):
            time.sleep(_POLL_S)
        return self.stop()

    def still_runs(self) -> bool:
        """Return whether Spark's query may still note a micro-batch as finished."""
        return self.query is not None and self.query.isActive

    def release(self) -> None:
        """Delete the job's checkpoints, once the query and its commits have ended."""
        retention.release(self._parts, self._coordinator)

    def _recover(self, restore: Restore | None) -> None:
        """Step 3. A restart must not take the fence of its own failed recovery for a rival's."""
        coordinator = self._coordinator
        try:
            coordinator.recover(self.generation, restore)
        except InDoubtError:
            self.generation = None
            raise
        except Exception:
            self.generation = coordinator.generation or self.generation
            raise
        self.generation = coordinator.generation

    def _prepare_folder(self) -> SparkFolder:
        """Step 5."""
        coordinator, parts = self._coordinator, self._parts
        path = parts.storage.root / "spark" / coordinator.lineage.id
        folder = SparkFolder(path, coordinator.lineage, conf=noted_conf(parts.spark))
        newest = coordinator.newest()
        try:
            folder.prepare(newest)
            if not logical_plan.has_watermark(logical_plan.analyzed(parts.description.frame)):
                folder.finish(newest)
        except TwoPhaseError:
            coordinator.context.log.check_fence()
            raise
        delete_abandoned(
            folder.path.parent,
            coordinator.context.log.history,
            parts.description.options.num_retained,
        )
        parts.shared.delete_abandoned()
        return folder

    def _start_query(self, folder: SparkFolder, handler: BatchHandler) -> None:
        """Step 6."""
        description = self._parts.description
        writer = description.frame.writeStream.queryName(description.name).foreachBatch(handler)
        writer = writer.option("checkpointLocation", folder.uri)
        if description.trigger:
            writer = writer.trigger(**description.trigger)
        with self._lock:
            if not self._stopping.is_set():
                self._handler = handler
                self.query = writer.start()


def _is_decided(coordinator: CheckpointCoordinator, number: int) -> bool:
    newest = coordinator.newest()
    return newest is not None and newest.checkpoint >= number
