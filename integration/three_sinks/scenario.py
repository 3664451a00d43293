"""Jobs with three sinks under test: their input, their tables, and what must hold of them."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from harness import checker, order_files, workload
from harness.delta_settings import delta_settings
from harness.hive_settings import hive_settings
from harness.nemesis import DriverProcess, Ended, held_at
from harness.order_files import BATCH
from harness.rights import secret_file
from harness.three_targets import DELTA, SINKS, Targets
from twophase.testing.journal import Entry, JournalReader
from twophase.testing.services import KafkaService, MySqlService

_TIMEOUT_S = 1700
# So many jobs in one driver keep a small machine busy when they start.
_PATIENT = {"spark.python.authenticate.socketTimeout": "120s"}


class ThreeDriver(DriverProcess):
    """A process of `integration.three_sinks.driver`, killed like any other driver."""

    module = "integration.three_sinks.driver"


class ThreeSinksScenario:
    """A folder of orders, and jobs that each write all of it into MySQL, Delta and Hive.

    Args:
        mysql: where all jobs have their tables.
        scratch: a folder for the jobs' folders, the tables on disk and the logs.
        jobs: their names.
        controls: names of jobs without the protocol.
        kafka: where the orders are; without it, in files.

    Attributes:
        hit: the crash points where jobs were killed.
        starts_s: when drivers were started, on the clock `time.monotonic`.
        conf: of Spark, for the drivers to come.
    """

    def __init__(
        self,
        mysql: MySqlService,
        scratch: Path,
        jobs: Sequence[str],
        controls: Sequence[str] = (),
        kafka: KafkaService | None = None,
    ) -> None:
        self.jobs = jobs
        self.produced = 0
        self.hit: set[str] = set()
        self.starts_s: list[float] = []
        self._mysql = mysql
        self._scratch = scratch
        self._database = f"shop_{uuid.uuid4().hex[:8]}"
        self._runs = 0
        self.conf = {
            **(delta_settings() if DELTA in SINKS else {}),
            **hive_settings(scratch, str(scratch / "metastore")),
            **_PATIENT,
        }
        mysql.create_database(self._database)
        self._gates = scratch / "gates"
        self._orders = scratch / "orders"
        for folder in (scratch / "warehouse", self._gates, self._orders):
            folder.mkdir()
        password = secret_file(scratch / "password", mysql.password)
        self._connection = {
            "host": mysql.host,
            "port": mysql.port,
            "user": mysql.user,
            "password": mysql.password,
            "database": self._database,
        }
        self._topic: tuple[str, str] | None = None
        self._settings: dict[str, object] = {
            "orders": str(self._orders),
            "location": str(scratch / "jobs"),
            "connection": self._connection,
            "mysql": {"url": mysql.url(self._database), "password_file": str(password)},
            "lake": str(scratch / "lake"),
            "warehouse": str(scratch / "warehouse"),
            "counts": str(scratch / "counts"),
            "jobs": list(jobs),
            "controls": list(controls),
            "options": {"restart.delay": "100 ms"},
            "gates": str(self._gates),
            "drawn": False,
            "forever": False,
            "master": "local[4]",
        }
        if kafka is not None:
            servers, topic = self._topic = (kafka.bootstrap_servers, self._database)
            workload.create_topic(servers, topic, order_files.PARTITIONS)
            self._settings["kafka"] = {"servers": servers, "topic": topic}
        for name in (*jobs, *controls):
            self.targets(name).make_table()

    def produce(self, batches: int) -> None:
        """Write the orders of the next micro-batches."""
        for _ in range(batches):
            if self._topic:
                workload.produce(*self._topic, self.produced, BATCH)
            else:
                order_files.write_orders(self._orders, self.produced)
            self.produced += BATCH

    def change_options(self, **options: object) -> None:
        """Let later drivers have other options, beside those that all have."""
        given = self._settings["options"]
        assert isinstance(given, dict)
        self._settings["options"] = {**given, **options}

    def start(self, arm: str = "", **settings: object) -> ThreeDriver:
        """Start a driver."""
        self._runs += 1
        self._journals.mkdir()
        self.starts_s.append(time.monotonic())
        given = self._settings | {"journals": str(self._journals)} | settings
        return ThreeDriver(given, self._scratch, arm, self.conf)

    def finish(self, arm: str = "", **settings: object) -> Ended:
        """A driver ends cleanly, every job having written everything."""
        ended = self.start(arm, **settings).wait(_TIMEOUT_S)
        assert ended.code == 0, ended.output
        self.hit.update(ended.points)
        return ended

    def kill_at(
        self, points: Sequence[str], before: Callable[[], None], **settings: object
    ) -> None:
        """Wait until a job is held at each of the points, call `before`, then
        kill them all at once.
        """
        ended = self.start(held_at(points), **settings).kill_when_at(points, _TIMEOUT_S, before)
        assert ended.killed, ended.output
        assert {*ended.points} == {*points}
        self.hit.update(points)

    def hold_back(self, *sinks: str) -> None:
        """These sinks wait with their next pre-commit."""
        for sink in sinks:
            (self._gates / sink).touch()

    def let_go(self, *sinks: str) -> None:
        """These sinks wait no longer."""
        for sink in sinks:
            (self._gates / sink).unlink()

    def targets(self, job: str) -> Targets:
        """The tables of a job."""
        return Targets(job, self._connection, self._scratch / "lake", self._scratch / "warehouse")

    def location(self, job: str) -> str:
        """The folder of a job."""
        return f"{self._settings['location']}/{job}"

    def verdicts(self, job: str) -> dict[str, checker.Verdict]:
        """What the independent checker says of each table of a job."""
        produced = order_files.written(self.produced)
        return {sink: checker.compare(produced, self.targets(job).orders(sink)) for sink in SINKS}

    def recovered(self, job: str) -> list[dict[str, int]]:
        """The rows of each table each time that the newest driver had recovered the job."""
        path = self._journals / f"{job}.recovered"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def entries(self, job: str, *kinds: str) -> list[Entry]:
        """What the newest driver has reported of a job so far, of some kinds of events."""
        return [
            entry
            for entry in JournalReader(self._journals / f"{job}.events").new()
            if entry.kind in kinds
        ]

    def counts(self) -> dict[str, int]:
        """How many rows Spark SQL has seen in each table of the metastore, when the
        last driver ended.
        """
        return dict(json.loads((self._scratch / "counts").read_text()))

    def prepared(self) -> list[str]:
        """The transaction ids that are prepared on the server."""
        with self._mysql.connect(self._database) as connection, connection.cursor() as cursor:
            cursor.execute("XA RECOVER")
            return [str(row[3]) for row in cursor.fetchall()]

    def verify(self) -> None:
        """Every record once in every table of every job, and nothing left prepared or staged."""
        for job in self.jobs:
            for sink, verdict in self.verdicts(job).items():
                assert verdict.exact, f"{job}, {sink}: {verdict}"
                assert verdict.produced == self.produced
            assert self.targets(job).left() == []
        assert self.prepared() == []
        assert self.counts() == dict.fromkeys(self.jobs, self.produced)

    @property
    def _journals(self) -> Path:
        return self._scratch / f"journals-{self._runs}"
