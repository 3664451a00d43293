"""Queries of the plugin form under test: one topic, and queries that each write all of it into a
table of their own.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import checker, workload
from harness.nemesis import DriverProcess, Ended, held_at
from harness.order_files import orders, staged
from integration.mysql.scenario import Broker
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog
from twophase.testing.services.access import SqlAccess

TIMEOUT_S = 540


class PluginDriver(DriverProcess):
    """A process of `integration.plugin.driver`."""

    module = "integration.plugin.driver"


class PluginScenario:
    """A topic of orders, and queries that each write it into a table in MySQL or into a folder.

    Args:
        kafka: where the orders come from.
        mysql: the server of the tables; None: the queries write files.
        scratch: a folder for the jobs' folders, the tables and the logs.
        jobs: how many queries.
        records_per_batch: orders in a micro-batch.

    Attributes:
        hit: the crash points at which a driver was killed.
        settings: of the drivers to come.
    """

    def __init__(
        self,
        kafka: Broker,
        mysql: SqlAccess | None,
        scratch: Path,
        jobs: int = 1,
        records_per_batch: int = 400,
    ) -> None:
        name = uuid.uuid4().hex[:8]
        self.topic = f"plugin-{name}"
        self.jobs = [f"orders_{number:02d}" for number in range(jobs)]
        self.hit: set[str] = set()
        self.produced = 0
        self.scratch = scratch
        self.mysql = mysql
        self._kafka = kafka
        self._database = f"plugin_{name}"
        workload.create_topic(kafka.bootstrap_servers, self.topic)
        if mysql is not None:
            mysql.create_database(self._database)
            for job in self.jobs:
                self.sql(f"CREATE TABLE {job} ({workload.COLUMNS}) ENGINE=InnoDB")
        self.settings: dict[str, Any] = {
            "servers": kafka.bootstrap_servers,
            "topic": self.topic,
            "location": str(scratch / "jobs"),
            "records_per_batch": records_per_batch,
            "master": "local[2]",
            "jobs": {
                job: self._mysql_job(mysql, job) if mysql else self._file_job(job)
                for job in self.jobs
            },
        }

    def _mysql_job(self, server: SqlAccess, job: str) -> dict[str, Any]:
        password = self.scratch / "password"
        password.touch(mode=0o600)
        password.write_text(server.password)
        url = server.url(self._database)
        return {
            "format": "twophase-mysql",
            "url": url,
            "table": job,
            "password_file": str(password),
        }

    def _file_job(self, job: str) -> dict[str, Any]:
        return {
            "format": "twophase-file",
            "path": str(self.scratch / job),
            "partition_by": "kafka_partition",
        }

    def control(self) -> None:
        """Write with the sink that has no protocol instead."""
        assert self.mysql is not None
        connection = self.mysql.connect(self._database)
        assert isinstance(connection.user, bytes)
        with connection:
            account = {
                "host": connection.host,
                "port": connection.port,
                "user": connection.user.decode(),
            }
        account |= {"password": self.mysql.password, "database": self._database}
        for job in self.jobs:
            self.settings["jobs"][job] = {
                "format": "control",
                "table": job,
                "connection": json.dumps(account),
            }

    def produce(self, count: int) -> None:
        """Write the next `count` orders."""
        workload.produce(self._kafka.bootstrap_servers, self.topic, self.produced, count)
        self.produced += count

    def driver(self, arm: str = "", **settings: Any) -> PluginDriver:
        """Start a driver."""
        return PluginDriver(self.settings | settings, self.scratch, arm)

    def finish(self, arm: str = "", **settings: Any) -> Ended:
        """A driver ends cleanly, every query having written everything."""
        ended = self.driver(arm, **settings).wait(TIMEOUT_S)
        assert ended.code == 0, ended.output
        return ended

    def kill_at(self, points: Sequence[str], **settings: Any) -> None:
        """Wait until a query is held at each of the points, then kill the driver and
        everything it has started.
        """
        ended = self.driver(held_at(points), **settings).kill_when_at(points, TIMEOUT_S)
        assert ended.killed, ended.output
        assert {*ended.points} == {*points}
        self.hit.update(points)

    def sql(self, statement: str) -> list[Any]:
        """Run a statement in the database."""
        assert self.mysql is not None
        connection = self.mysql.connect(self._database)
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def history(self, job: str) -> History:
        """What the log of a job says."""
        return JobLog(LocalStorage(self.scratch / "jobs" / job / "twophase"), job).read()

    def newest_decided(self) -> list[int]:
        """The newest decided checkpoint of each job, in order; -1 if it has none."""
        return sorted(
            max((one.checkpoint for one in self.history(job).decisions), default=-1)
            for job in self.jobs
        )

    def verdict(self, job: str) -> checker.Verdict:
        """What the independent checker says of one table."""
        servers = self._kafka.bootstrap_servers
        if self.mysql is None:
            return checker.compare(
                checker.read_topic(servers, self.topic), orders(self.scratch / job)
            )
        with self.mysql.connect(self._database) as connection:
            return checker.check(servers, self.topic, connection, job)

    def left(self, job: str) -> list[str]:
        """What is pre-committed and neither committed nor aborted."""
        if self.mysql is None:
            return staged(self.scratch / job)
        return [str(row[3]) for row in self.sql("XA RECOVER")]

    def verify(self) -> None:
        """Every record once in every table, nothing pre-committed left."""
        for job in self.jobs:
            verdict = self.verdict(job)
            assert verdict.exact, f"{job}: {verdict}"
            assert verdict.produced == self.produced
            assert self.left(job) == []

    def no_row_is_duplicated(self) -> None:
        """No record twice in any table, and nothing that is no record."""
        for job in self.jobs:
            verdict = self.verdict(job)
            assert (verdict.duplicated, verdict.foreign) == (0, 0), f"{job}: {verdict}"
