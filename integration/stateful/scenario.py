"""Four stateful jobs under test in one driver process: their tables, their folder, and what
they leave behind.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import workload
from harness.nemesis import DriverProcess, held_at
from harness.rights import secret_file
from integration.stateful import workload as stateful_workload
from integration.stateful.queries import QUERIES
from integration.stateful.workload import Row
from twophase.internals.clock import SystemClock
from twophase.operations.savepoint.make import SavepointMaker
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.log import JobLog
from twophase.testing.services import KafkaService, MySqlService

TIMEOUT_S = 600
"""Of one driver."""


class StatefulDriver(DriverProcess):
    """A process of `integration.stateful.driver`, killed like any other driver."""

    module = "integration.stateful.driver"


def produce(kafka: KafkaService) -> dict[str, str]:
    """Make and fill the topics; return their names in Kafka by their names in the queries."""
    topics = {}
    for name, records in (
        ("events", stateful_workload.events()),
        ("payments", stateful_workload.payments()),
    ):
        topics[name] = f"{name}-{uuid.uuid4().hex[:8]}"
        workload.create_topic(kafka.bootstrap_servers, topics[name])
        stateful_workload.produce(kafka.bootstrap_servers, topics[name], records)
    return topics


@dataclass(frozen=True)
class Outcome:
    """What a job has left behind.

    Attributes:
        rows: of its table, as a multiset.
        batches: what Spark has noted of each micro-batch, the time of day aside: offsets,
            watermark, watermark after it.
        state: what Spark's state data source shows.
    """

    rows: Counter[Row]
    batches: dict[int, list[Any]]
    state: list[list[str]]


class StatefulScenario:
    """Some jobs, a database for their tables, a folder.

    Args:
        kafka: where the topics are.
        mysql: where the tables are made.
        topics: as `produce` returns them.
        scratch: a folder for the jobs' folders and the logs.
        names: of their queries.
        **options: of the jobs.

    Attributes:
        location: has the folder of each job.
    """

    def __init__(
        self,
        kafka: KafkaService,
        mysql: MySqlService,
        topics: dict[str, str],
        scratch: Path,
        names: Iterable[str] = QUERIES,
        **options: Any,
    ) -> None:
        self._names = list(names)
        self._mysql = mysql
        self._database = f"stateful_{uuid.uuid4().hex[:8]}"
        self._scratch = scratch
        self.location = scratch / "jobs"
        password = secret_file(scratch / "password", mysql.password)
        self._settings: dict[str, Any] = {
            "servers": kafka.bootstrap_servers,
            "topics": topics,
            "queries": self._names,
            "location": str(self.location),
            "state": str(scratch / "state"),
            "replays": str(scratch / "replays"),
            "options": options,
        }
        mysql.create_database(self._database)
        self._settings["sink"] = {"url": mysql.url(self._database), "password_file": str(password)}
        for name in self._names:
            self._sql(f"CREATE TABLE {name} ({QUERIES[name].columns}) ENGINE=InnoDB")

    def finish(self) -> None:
        """A driver without failpoints ends cleanly, having read everything."""
        ended = StatefulDriver(self._settings, self._scratch, "").wait(TIMEOUT_S)
        assert ended.code == 0, ended.output

    def kill_at(self, point: str, hit: int | str = "*") -> list[str]:
        """SIGKILL a driver once each of its jobs has come to `point`, which lets none of them pass.

        Args:
            point: the crash point.
            hit: of a single job, the time that it comes there.

        Returns:
            The crash points that acted: one entry for each job.
        """
        driver = StatefulDriver(self._settings, self._scratch, held_at([point], hit))
        try:
            driver.wait_for(
                lambda: len(driver.points()) >= len(self._names),
                f"all jobs to come to {point}",
                TIMEOUT_S,
            )
        finally:
            ended = driver.kill()
        return ended.points

    def save_with_pending(self, path: Path, batch: int) -> None:
        """Make a savepoint of the single job, whose driver was killed with a commit under way.

        Args:
            path: of the savepoint.
            batch: the micro-batch for which there is no room until that commit is done
                (`checkpoint.max_concurrent`); all before it are decided, and finished for Spark.
        """
        [name] = self._names
        driver = StatefulDriver(self._settings, self._scratch, held_at(["C12"], 1))
        try:
            driver.wait_for(
                lambda: bool(driver.points()) and self.unfinished(name) == {batch},
                f"micro-batch {batch} to wait for a commit",
                TIMEOUT_S,
            )
        finally:
            driver.kill()
        maker = SavepointMaker(name, self.location / name, SystemClock())
        maker.make(str(path), still_waiting=lambda: False)

    def restore(self, savepoint: Path, folder: str) -> None:
        """From now on drivers restore the jobs from a savepoint, in other folders."""
        self.location = self._scratch / folder
        self._settings["location"] = str(self.location)
        self._settings["options"] = {"restore.path": str(savepoint)}

    def rows(self, name: str) -> Counter[Row]:
        """The rows of a job's table."""
        return Counter(tuple(row) for row in self._sql(f"SELECT * FROM {name}"))

    def lineages(self, name: str) -> list[str]:
        """The lineages that have begun in a job's folder, oldest first."""
        log = JobLog(LocalStorage(self.location / name), name)
        return [lineage.id for lineage in log.read().lineages]

    def prepared(self) -> list[Any]:
        """The transactions that are prepared on the server."""
        return self._sql("XA RECOVER")

    def unfinished(self, name: str) -> set[int]:
        """The micro-batches of a job that Spark has begun and not noted as done."""
        return _batches(self._spark(name) / "offsets") - _batches(self._spark(name) / "commits")

    def digests(self, name: str, batch: int) -> int:
        """How many ranges of a micro-batch of a job have a digest of their records."""
        return len([*(self._spark(name) / "ranges").glob(f"{batch}-*/*")])

    def replays(self, name: str) -> dict[int, bool]:
        """The micro-batches of a job that were replayed after their decision, and whether their
        plan was executed.
        """
        replays = [
            json.loads(line) for line in Path(self._settings["replays"]).read_text().splitlines()
        ]
        return {checkpoint: executed for job, checkpoint, executed in replays if job == name}

    def outcome(self, name: str) -> Outcome:
        """What a job has left behind, after `finish`."""
        state = json.loads(Path(self._settings["state"]).read_text())[name]
        spark = self._spark(name)
        batches = {n: _noted(spark, n) for n in sorted(_batches(spark / "commits"))}
        return Outcome(self.rows(name), batches, state)

    def _spark(self, name: str) -> Path:
        [lineage] = (self.location / name / "spark").iterdir()
        return lineage

    def _sql(self, statement: str) -> list[Any]:
        with self._mysql.connect(self._database) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())


def _batches(log: Path) -> set[int]:
    return {int(path.name) for path in log.iterdir() if path.name.isdecimal()}


def _noted(spark: Path, n: int) -> list[Any]:
    _, header, *offsets = (spark / "offsets" / str(n)).read_text().split("\n")
    _, done = (spark / "commits" / str(n)).read_text().split("\n")
    begun = json.loads(header)
    del begun["batchTimestampMs"]
    return [begun, *offsets, json.loads(done)]
