"""Queries of the plugin form under test: one topic, and queries that each write all of it into a
target of their own.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from harness import checker, workload
from harness.iceberg_places import SqlitePlace
from harness.nemesis import DriverProcess, Ended, held_at
from integration.mysql.scenario import Broker
from integration.without_spark.targets import (
    FolderTarget,
    IcebergTarget,
    KafkaTarget,
    SqlTarget,
    Target,
)
from twophase.spark_versions import LIMITED_READS
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog
from twophase.testing.services.access import SqlAccess

TIMEOUT_S = 540
_IN_REPORT_ON_LAG = "scala.collection.IterableOps.map"

TargetT = TypeVar("TargetT", bound=Target)
Made = Callable[[str, Path], TargetT]
"""Makes the target of a job, which gets a folder of its own."""


def in_mysql(server: SqlAccess) -> Made[SqlTarget]:
    """Return what makes tables on a server."""
    return lambda _, folder: SqlTarget(server, folder)


def in_files(job: str, folder: Path) -> FolderTarget:
    """Return a folder of files in the format that is the default."""
    return FolderTarget(folder, job, "parquet")


def in_iceberg(_: str, folder: Path) -> IcebergTarget:
    """Return a table of a catalog of its own."""
    return IcebergTarget(SqlitePlace(folder / "lake"))


def in_topics(broker: Broker) -> Made[KafkaTarget]:
    """Return what makes topics on a broker."""
    return lambda job, _: KafkaTarget(broker.bootstrap_servers, job)


class PluginDriver(DriverProcess):
    """A process of `integration.plugin.driver`."""

    module = "integration.plugin.driver"


class PluginScenario:
    """A topic of orders, and queries that each write it into a target.

    Args:
        kafka: where the orders come from.
        made: makes the targets.
        scratch: a folder for the jobs' folders, the targets and the logs.
        jobs: how many queries.
        records_per_batch: orders in a micro-batch.

    Attributes:
        hit: the crash points at which a driver was killed.
        settings: of the drivers to come.
        targets: of the jobs, by name.
    """

    def __init__(
        self,
        kafka: Broker,
        made: Made[Target],
        scratch: Path,
        jobs: int = 1,
        records_per_batch: int = 400,
    ) -> None:
        self.topic = f"plugin-{uuid.uuid4().hex[:8]}"
        self.jobs = [f"orders_{number:02d}" for number in range(jobs)]
        self.hit: set[str] = set()
        self.produced = 0
        self.scratch = scratch
        self._kafka = kafka
        workload.create_topic(kafka.bootstrap_servers, self.topic)
        self.targets: dict[str, Target] = {}
        for job in self.jobs:
            folder = scratch / "targets" / job
            folder.mkdir(parents=True)
            self.targets[job] = made(job, folder)
        self.settings: dict[str, Any] = {
            "servers": kafka.bootstrap_servers,
            "topic": self.topic,
            "location": str(scratch / "jobs"),
            "records_per_batch": records_per_batch,
            "master": "local[2]",
            "jobs": {job: _described(target.sink()) for job, target in self.targets.items()},
        }

    def close(self) -> None:
        """The targets are not looked at any more."""
        for target in self.targets.values():
            target.close()

    def control(self) -> None:
        """Write with the sink that has no protocol instead."""
        for job in self.jobs:
            connection = json.dumps(self.table(job).connection())
            options = {"table": "orders", "connection": connection}
            self.settings["jobs"][job] = {"format": "control", "options": options}

    def table(self, job: str) -> SqlTarget:
        """Return the target of a job that writes to a table on a server."""
        target = self.targets[job]
        assert isinstance(target, SqlTarget)
        return target

    def produce(self, count: int) -> None:
        """Write the next `count` orders."""
        workload.produce(self._kafka.bootstrap_servers, self.topic, self.produced, count)
        self.produced += count

    def driver(self, arm: str = "", **settings: Any) -> DriverProcess:
        """Start a driver."""
        return PluginDriver(self.settings | settings, self.scratch, arm)

    def finish(self, arm: str = "", **settings: Any) -> Ended:
        """A driver ends cleanly, every query having written everything."""
        return self.finished(lambda: self.driver(arm, **settings).wait(TIMEOUT_S))

    def finished(self, run: Callable[[], Ended]) -> Ended:
        """Return the end of a run that has written everything."""
        return finished(run, len(self.jobs))

    def kill_at(self, points: Sequence[str], **settings: Any) -> None:
        """Wait until a query is held at each of the points, then kill the driver and
        everything it has started.
        """
        ended = self.driver(held_at(points), **settings).kill_when_at(points, TIMEOUT_S)
        assert ended.killed, ended.output
        assert {*ended.points} == {*points}
        self.hit.update(points)

    def history(self, job: str) -> History:
        """What the log of a job says."""
        return JobLog(LocalStorage(self.folder(job) / "twophase"), job).read()

    def folder(self, job: str) -> Path:
        """Return Spark's folder of a query."""
        return self.scratch / "jobs" / job

    def newest_decided(self) -> list[int]:
        """The newest decided checkpoint of each job, in order; -1 if it has none."""
        return sorted(
            max((one.checkpoint for one in self.history(job).decisions), default=-1)
            for job in self.jobs
        )

    def verdict(self, job: str) -> checker.Verdict:
        """What the independent checker says of one target."""
        produced = checker.read_topic(self._kafka.bootstrap_servers, self.topic)
        return checker.compare(produced, self.targets[job].rows())

    def verify(self) -> None:
        """Every record once in every target, nothing pre-committed left."""
        for job in self.jobs:
            verdict = self.verdict(job)
            assert verdict.exact, f"{job}: {verdict}"
            assert verdict.produced == self.produced
            lineage = self.history(job).lineage
            pieces = self.targets[job].pieces(lineage.id if lineage else None)
            assert (pieces.prepared, pieces.begun) == (0, 0), f"{job}: {pieces}"
            self.targets[job].check_canary()

    def no_row_is_duplicated(self) -> None:
        """No record twice in any target, and nothing that is no record."""
        for job in self.jobs:
            verdict = self.verdict(job)
            assert (verdict.duplicated, verdict.foreign) == (0, 0), f"{job}: {verdict}"


def finished(run: Callable[[], Ended], queries: int = 1) -> Ended:
    """Return the end of a run that has written everything.

    With Spark's Kafka source in 4.1 a query ends behind a micro-batch that an earlier run has
    planned (decision 0078). It is started again, as often as there are queries.
    """
    ended = run()
    for _ in range(queries):
        if LIMITED_READS.is_here or _IN_REPORT_ON_LAG not in ended.output:
            break
        again = run()
        ended = replace(again, points=[*ended.points, *again.points])
    assert ended.code == 0, ended.output
    return ended


def _described(sink: dict[str, Any]) -> dict[str, Any]:
    """Return the format and the options of a query that writes to a sink."""
    options = {key: as_option(value) for key, value in sink.items() if key != "type"}
    return {"format": f"twophase-{sink['type']}", "options": options}


def as_option(value: Any) -> str:
    """Return the value of an option as Spark's users write it."""
    return ",".join(value) if isinstance(value, list) else str(value)
