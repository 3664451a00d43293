"""A plain driver: the life of a job by the product's engine, in a process without Spark.

Real: the engine and its coordinator, log, store and recovery, the sinks and their servers and
folders, the writers in processes of their own, Spark's folder and the product's checks of it, the
restart strategy, the exit codes. Not there: Spark's planning, scheduling and shuffles, the JVM and
py4j, Kafka. Its host is `twophase.testing.plain_host`, with workers of its own.

With `control` the protocol is switched off, here in the harness only: `duplicates` writes a batch
row by row and visibly before anything is noted; `losses` notes a batch as done before it is
written. The checker must see what they do.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pymysql

from harness.query_folder import QueryFolder
from harness.without_protocol import insert, write_in_halves
from integration.without_spark import source
from integration.without_spark.workers import Workers
from twophase.contract.sink import ArrowSink
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.engine.engine import Engine
from twophase.engine.host import Handle, MicroBatch, Plan
from twophase.errors import TwoPhaseError
from twophase.events import Event, Observers
from twophase.internals import failpoints
from twophase.internals.sink_entry_points import load_sink
from twophase.options.job_options import JobOptions
from twophase.sinks.file.sink import FileSink
from twophase.sinks.iceberg.sink import IcebergSink
from twophase.sinks.kafka.sink import KafkaSink
from twophase.sinks.mysql.sink import MySqlSink
from twophase.state.journal.entries import Lineage
from twophase.testing.plain_host import PlainFolder, PlainHost, PlainQuery

CONTROL = "CONTROL"
_SINKS: dict[str, type[ArrowSink]] = {
    "mysql": MySqlSink,
    "file": FileSink,
    "iceberg": IcebergSink,
    "kafka": KafkaSink,
}


def run_job(settings: Mapping[str, Any], workers: Workers) -> tuple[int, str]:
    """Run the job to its end.

    Args:
        settings: job, location, produced, batch, places, sinks, options, tasks, chained, first,
            forever, arm, arm_from, control.
        workers: run its tasks.

    Returns:
        The exit code of a process that runs it, and what it prints at its end.
    """
    try:
        job, location = str(settings["job"]), settings["location"]
        options = JobOptions.parse(settings["options"] | {"checkpointLocation": location}, "job")
        host = Host(settings, options, workers)
        sinks = {name: _declared(**given) for name, given in settings["sinks"].items()}
        engine = Engine(host, job, sinks, options, Observers(_tell))
        engine.start()
        engine.await_termination()
    except TwoPhaseError as error:
        return error.exit_code, f"{type(error).__name__}: {error}\n"
    return 0, ""


def _declared(type: str, **options: Any) -> ArrowSink:
    kind: Callable[..., ArrowSink] = _SINKS.get(type) or load_sink("job", type)
    return kind(**options)


class Host(PlainHost):
    """The plain host over Spark's folder, with failpoints from a given micro-batch on.

    Args:
        settings: as `run_job` takes them.
        options: of the job.
        workers: run the tasks.
    """

    def __init__(self, settings: Mapping[str, Any], options: JobOptions, workers: Workers) -> None:
        tasks = settings.get("tasks", source.PARTITIONS)
        places = settings.get("places", ())
        rows = source.Orders(Path(settings["produced"]), settings["batch"], tasks, places)
        forever = bool(settings.get("forever"))
        super().__init__(settings["job"], options, rows, workers, forever=forever)
        self._settings = settings
        self._of_processes = workers
        workers.chained = bool(settings.get("chained"))
        workers.first = settings.get("first", "")
        self._arm_from = settings.get("arm_from")
        if self._arm_from is None:
            self._arm()

    def folder(self, lineage: Lineage) -> QueryFolder:
        """See `Host.folder`."""
        return QueryFolder(Path(self._settings["location"], "spark", lineage.id), lineage)

    def start(
        self,
        coordinator: CheckpointCoordinator,
        folder: PlainFolder,
        plan: Plan,
        handle: Handle,
    ) -> PlainQuery:
        """See `QueryHost.start`."""

        def armed(number: int, batch: MicroBatch) -> None:
            if self._arm_from is not None and number >= self._arm_from:
                self._arm_from = None
                self._arm()
            if "control" in self._settings:
                self._control(folder, number)
            else:
                handle(number, batch)

        return super().start(coordinator, folder, plan, armed)

    def _arm(self) -> None:
        self._of_processes.armed = self._settings.get("arm", "")
        failpoints.arm(self._of_processes.armed)

    def _control(self, folder: PlainFolder, number: int) -> None:
        """The same pipeline without the protocol."""
        settings, offsets = self._settings, folder.offsets(number)
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
