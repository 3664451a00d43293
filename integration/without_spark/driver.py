"""A plain driver, which is a driver process without Spark: what `twophase.runtime.job` and
`twophase.runtime.batch` do around the coordinator.

Real: the coordinator, its log, store and recovery, the sinks and their servers and folders, the
writers in processes of their own, Spark's folder and the product's checks of it, the restart
strategy, the exit codes. Not there: Spark's planning, scheduling and shuffles, the
JVM and py4j, Kafka.

The driver of `twophase.testing.contract.kill_driver` judges one sink, is killed at each of its
lines, and knows nothing of Spark. This one judges the coordinator, under all that `Job` does with
it. What both do is in `twophase.testing.plain_driver`.

With `control` the protocol is switched off, here in the harness only: `duplicates` writes a batch
row by row and visibly before anything is noted; `losses` notes a batch as done before it is
written. The checker must see what they do.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pymysql

from harness.without_protocol import insert, write_in_halves
from integration.without_spark import source
from integration.without_spark.source import QueryLog
from integration.without_spark.workers import Task, Workers
from twophase import failpoints
from twophase.config import JobOptions
from twophase.coordinator.clock import SystemClock
from twophase.coordinator.context import JobContext
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.coordinator.pending import PendingCheckpoint
from twophase.engine.restart import restart_policy
from twophase.errors import InDoubtError, TwoPhaseError
from twophase.events import Event, JobRestarting, Observers, SinkAcknowledged
from twophase.ids import Subtask
from twophase.protocol.committable import Committable
from twophase.protocol.sink import (
    ArrowSink,
    OpenArrowSink,
    SinkContext,
)
from twophase.runtime.spark_errors import declined
from twophase.runtime.spark_folder import SparkFolder
from twophase.runtime.writer_task import WriterTask
from twophase.sinks.file.sink import FileSink
from twophase.sinks.mysql.sink import MySqlSink
from twophase.state.storage import LocalStorage
from twophase.testing.plain_driver import begin_lineage, run_batch

CONTROL = "CONTROL"
_SINKS: dict[str, type[ArrowSink]] = {"mysql": MySqlSink, "file": FileSink}
_POLL_S = 0.02


def run_job(settings: Mapping[str, Any], workers: Workers) -> tuple[int, str]:
    """Run the job to its end.

    Returns:
        The exit code of a process that runs it, and what it prints at its end.
    """
    try:
        Driver(settings, workers).run()
    except TwoPhaseError as error:
        return error.exit_code, f"{type(error).__name__}: {error}\n"
    return 0, ""


class Driver:
    """One driver, from its start to its end. The step numbers are those of `twophase.runtime.job`.

    Args:
        settings: job, location, produced, batch, sinks, options, forever, arm, arm_from.
        workers: run its tasks.
    """

    def __init__(self, settings: Mapping[str, Any], workers: Workers) -> None:
        self._settings = settings
        self._workers = workers
        self._job = str(settings["job"])
        self._options = JobOptions.parse(
            settings["options"] | {"checkpointLocation": settings["location"]}, "job"
        )
        self._storage = LocalStorage(settings["location"])
        self._observers = Observers(_tell)
        self._declared: dict[str, ArrowSink] = {
            name: _SINKS[options["type"]](
                **{key: value for key, value in options.items() if key != "type"}
            )
            for name, options in settings["sinks"].items()
        }
        self._sinks: dict[str, OpenArrowSink] = {}
        self._generation: int | None = None
        self._arm_from = settings.get("arm_from")
        if self._arm_from is None:
            self._arm()

    def run(self) -> None:
        """Steps 2 to 7; a failure of the first start ends the process, as in the real job."""
        for name, sink in self._declared.items():
            self._sinks[name] = sink.open(
                SinkContext(
                    self._job,
                    name,
                    source.SCHEMA,
                    source.PARTITIONS,
                    max_concurrent=self._options.max_concurrent,
                )
            )
        query: Query | None = self._start()
        policy, restarts = restart_policy(self._options), 0
        while (error := self._error_of(query)) is not None:
            delay_s = (
                policy(time.monotonic())
                if not isinstance(error, TwoPhaseError) or error.restartable
                else None
            )
            if delay_s is None:
                raise error
            restarts += 1
            self._observers(JobRestarting(self._job, str(error), restarts, delay_s))
            time.sleep(delay_s)
            query = None
        for opened in self._sinks.values():
            opened.close()

    def _error_of(self, query: Query | None) -> Exception | None:
        try:
            (query or self._start()).run()
        except Exception as error:  # noqa: BLE001 handed to the restart strategy
            return error
        return None

    def _start(self) -> Query:
        """Steps 3 to 6."""
        context = JobContext(
            self._job, self._storage, self._sinks, self._options, self._observers, SystemClock()
        )
        coordinator = CheckpointCoordinator(
            context, snapshot=lambda number, offsets: {}, on_failure=context.stopping.set
        )
        try:
            coordinator.recover(self._generation)
        except InDoubtError:
            self._generation = None
            raise
        except Exception:
            self._generation = coordinator.generation or self._generation
            raise
        self._generation = coordinator.generation
        begin_lineage(coordinator)
        folder = SparkFolder(
            self._storage.root / "spark" / coordinator.lineage.id, coordinator.lineage
        )
        newest = coordinator.newest()
        try:
            folder.prepare(newest)
        except TwoPhaseError:
            coordinator.context.log.check_fence()
            raise
        if newest is not None:
            coordinator.context.store.read(newest)
        return Query(self, coordinator, folder)

    def batch_begins(self, number: int) -> None:
        """Arm the failpoints if they are for this micro-batch."""
        if self._arm_from is not None and number >= self._arm_from:
            self._arm_from = None
            self._arm()

    def _arm(self) -> None:
        self._workers.armed = self._settings.get("arm", "")
        failpoints.arm(self._workers.armed)

    @property
    def settings(self) -> Mapping[str, Any]:
        """As given."""
        return self._settings

    @property
    def options(self) -> JobOptions:
        """Of the job."""
        return self._options

    @property
    def sinks(self) -> Mapping[str, OpenArrowSink]:
        """By name."""
        return self._sinks

    @property
    def workers(self) -> Workers:
        """Run the tasks."""
        return self._workers

    @property
    def observers(self) -> Observers:
        """Hear of everything."""
        return self._observers


class Query:
    """What Spark and `BatchHandler` do: plan, run, note as finished; the newest micro-batch again
    if it had not returned.
    """

    def __init__(
        self, driver: Driver, coordinator: CheckpointCoordinator, folder: SparkFolder
    ) -> None:
        self._driver = driver
        self._coordinator = coordinator
        self._folder = folder
        self._log = QueryLog(folder)
        self._input = Path(driver.settings["produced"])

    def run(self) -> None:
        """Run micro-batches until the input of now is used up, or for ever; then wait for
        the commits behind.
        """
        try:
            self._run_batches()
        except Exception as error:
            self._coordinator.close()
            raise self._coordinator.failure or error from error
        self._coordinator.close(retry=True)
        if self._coordinator.failure is not None:
            raise self._coordinator.failure

    def _run_batches(self) -> None:
        available, stopping = source.produced(self._input), self._coordinator.context.stopping
        if self._log.planned() > self._log.finished():
            self._run_batch(self._log.planned())
        while not stopping.is_set():
            read = self._log.read_up_to()
            available = (
                source.produced(self._input) if self._driver.settings.get("forever") else available
            )
            if read < available:
                batch = self._log.planned() + 1
                self._log.plan(batch, min(read + self._driver.settings["batch"], available))
                self._run_batch(batch)
            elif not self._driver.settings.get("forever"):
                return
            else:
                stopping.wait(_POLL_S)

    def _run_batch(self, number: int) -> None:
        self._driver.batch_begins(number)
        if "control" in self._driver.settings:
            self._control(number)
        else:
            run_batch(self._coordinator, number, self._folder.offsets(number), self._pre_commit)
        self._log.finish(number)

    def _pre_commit(self, pending: PendingCheckpoint) -> None:
        """All tasks of all sinks that are asked side by side; a sink is acknowledged when its
        last task is back.
        """
        starts, ends = (
            source.offsets_of(lines[0]) for lines in (pending.offsets.start, pending.offsets.end)
        )
        parts = source.split(starts, ends, self._driver.settings.get("tasks", source.PARTITIONS))
        tasks = [
            Task(name, index, ranges, WriterTask(sink.writers(), pending.transaction(name)))
            for name, sink in self._driver.sinks.items()
            if name not in pending.decided
            for index, ranges in enumerate(parts)
        ]
        results: dict[str, dict[int, Committable | None]] = defaultdict(dict)
        began_s = time.monotonic()

        def done(task: Task, subtask: Subtask, committable: Committable | None) -> None:
            results[task.sink][subtask.index] = committable
            if len(results[task.sink]) == len(parts):
                pieces = [
                    piece for _, piece in sorted(results[task.sink].items()) if piece is not None
                ]
                pending.acknowledge(task.sink, pieces)
                identity = (pending.job, pending.checkpoint, pending.attempt, task.sink)
                rows = sum(piece.rows for piece in pieces)
                self._driver.observers(
                    SinkAcknowledged(*identity, len(pieces), rows, time.monotonic() - began_s)
                )

        try:
            self._driver.workers.run(tasks, self._driver.options.timeout_s, done)
            self._folder.sync(pending.checkpoint)
        except TwoPhaseError:
            raise
        except Exception as error:
            raise declined(error, f"Checkpoint {pending.checkpoint} ({pending.attempt})") from error

    def _control(self, number: int) -> None:
        """The same pipeline without the protocol."""
        settings = self._driver.settings
        offsets = self._folder.offsets(number)
        starts, ends = (source.offsets_of(lines[0]) for lines in (offsets.start, offsets.end))
        rows = [
            tuple(row.values())
            for partition in range(source.PARTITIONS)
            for batch in source.read(partition, starts[partition], ends[partition])
            for row in batch.to_pylist()
        ]
        halves = (rows[: len(rows) // 2], rows[len(rows) // 2 :])
        with (
            pymysql.connect(**settings["connection"], autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            write_in_halves(
                Path(settings["location"]),
                number,
                settings["control"],
                CONTROL,
                lambda half: insert(cursor, halves[half]),
            )


def _tell(event: Event) -> None:
    sys.stdout.write(f"{threading.current_thread().name}: {event}\n")
    sys.stdout.flush()
