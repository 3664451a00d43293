"""One job under test: its topic, its tables, its folder, and what must hold of them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession

import twophase
from harness import checker, workload
from harness.branches import roll_back_branches
from harness.nemesis import DriverProcess, Ended
from harness.rights import secret_file
from integration.mysql.driver import run_job
from twophase.cli.checkpoint_list import read_checkpoints
from twophase.state.journal.history import History
from twophase.testing.services.access import SqlAccess

CANARY = "another_application"


@dataclass(frozen=True)
class State:
    """What there is of a job at a moment, in its log and on the server of one sink.

    Attributes:
        decided: the newest decided checkpoint.
        committed: the newest checkpoint that the log calls committed.
        prepared: branches of the job.
        visible: rows of its table.
    """

    decided: int
    committed: int
    prepared: int
    visible: int


class MySqlDriver(DriverProcess):
    """A process of `integration.mysql.driver`."""

    module = "integration.mysql.driver"


class Broker(Protocol):
    """A Kafka, whoever runs it."""

    @property
    def bootstrap_servers(self) -> str: ...


class Scenario:
    """A topic of orders and a job that writes them into one database a server.

    Args:
        kafka: where the orders come from.
        servers: the sinks by name, and the server of each.
        scratch: a folder for the job's folder and the logs.
        columns: of the table `orders`; without a unique key, so that duplicates show
            instead of failing.
        options: of the job.
        protocol: options of every sink.
        spark: runs the drivers that nothing is going to befall; without it each has a
            process of its own.

    Attributes:
        conf: of Spark, for the drivers to come.
    """

    def __init__(
        self,
        kafka: Broker,
        servers: Mapping[str, SqlAccess],
        scratch: Path,
        columns: str = workload.COLUMNS,
        options: dict[str, Any] | None = None,
        protocol: dict[str, Any] | None = None,
        spark: SparkSession | None = None,
    ) -> None:
        name = uuid.uuid4().hex[:8]
        self.topic = f"orders-{name}"
        self.databases = {sink: f"shop_{name}_{sink}" for sink in servers}
        self.servers: Mapping[str, SqlAccess] = servers
        self.scratch = scratch
        self.produced = 0
        self.conf: dict[str, str] = {}
        self._kafka = kafka
        self._spark = spark
        workload.create_topic(kafka.bootstrap_servers, self.topic)
        for sink, server in servers.items():
            server.create_database(self.databases[sink])
            self.sql(sink, f"CREATE TABLE orders ({columns}) ENGINE=InnoDB")
            self.sql(
                sink, f"CREATE TABLE {CANARY} (id INT PRIMARY KEY, word VARCHAR(20)) ENGINE=InnoDB"
            )
            self.sql(sink, f"INSERT INTO {CANARY} VALUES (1, 'untouched'), (2, 'as it was')")
        self.settings: dict[str, Any] = {
            "servers": kafka.bootstrap_servers,
            "topic": self.topic,
            "location": str(scratch / "job"),
            "options": {"restart.delay": "100 ms"} | (options or {}),
            "sinks": {sink: self._sink(sink) | (protocol or {}) for sink in servers},
        }

    def _sink(self, sink: str) -> dict[str, Any]:
        server = self.servers[sink]
        password = secret_file(self.scratch / f"{sink}.password", server.password)
        return {
            "url": server.url(self.databases[sink]),
            "table": "orders",
            "password_file": str(password),
        }

    def produce(self, count: int) -> None:
        """Write the next `count` orders."""
        workload.produce(self._kafka.bootstrap_servers, self.topic, self.produced, count)
        self.produced += count

    def run(self, arm: str = "", **settings: Any) -> Ended:
        """Run a driver to its end."""
        if self._spark is None or arm:
            return MySqlDriver(self.settings | settings, self.scratch, arm, self.conf).wait()
        twophase.register(self._spark)
        code, message = run_job(self._spark, self.settings | settings)
        return Ended(code, message, [])

    def start(self, arm: str = "", **settings: Any) -> DriverProcess:
        """Start a driver that reads for ever."""
        return MySqlDriver(
            self.settings | {"forever": True} | settings, self.scratch, arm, self.conf
        )

    def finish(self) -> None:
        """A driver without failpoints ends cleanly, having written everything."""
        ended = self.run()
        assert ended.code == 0, ended.output

    def sql(self, sink: str, statement: str) -> list[Any]:
        """Run a statement in the database of a sink."""
        connection = self.servers[sink].connect(self.databases[sink])
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def count(self, sink: str) -> int:
        """Rows of `orders`."""
        return int(self.sql(sink, "SELECT COUNT(*) FROM orders")[0][0])

    def prepared(self, sink: str) -> list[str]:
        """The transaction ids that are prepared on the server of a sink."""
        return [_text(row[3]) for row in self.sql(sink, "XA RECOVER")]

    def history(self) -> History:
        """What the job's log says, also while a driver runs."""
        return read_checkpoints(self.settings["location"]).history

    def state(self, sink: str) -> State:
        """What there is of the job now, whatever other jobs have left on the same server."""
        history = self.history()
        lineages = [lineage.id.replace("-", "") for lineage in history.lineages]
        return State(
            decided=max((decision.checkpoint for decision in history.decisions), default=-1),
            committed=max(
                (decision.checkpoint for decision in history.decisions if decision.committed),
                default=-1,
            ),
            prepared=sum(
                any(lineage in xid for lineage in lineages) for xid in self.prepared(sink)
            ),
            visible=self.count(sink),
        )

    def abandon(self) -> None:
        """Leave nothing prepared. A job that a failed test leaves behind would disturb those
        that come after it.
        """
        for server in self.servers.values():
            roll_back_branches(server)

    def verdict(self, sink: str) -> checker.Verdict:
        """What the independent checker says of one sink."""
        connection = self.servers[sink].connect(self.databases[sink])
        with connection:
            return checker.check(self._kafka.bootstrap_servers, self.topic, connection, "orders")

    def verify(self) -> None:
        """Every record once in every sink, nothing prepared left, the other
        application untouched.
        """
        for sink in self.servers:
            verdict = self.verdict(sink)
            assert verdict.exact, f"{sink}: {verdict}"
            assert verdict.produced == self.produced
            left = self.prepared(sink)
            assert left == [], f"{sink}: {left} are prepared"
            canary = self.sql(sink, f"SELECT * FROM {CANARY} ORDER BY id")
            assert [tuple(row) for row in canary] == [(1, "untouched"), (2, "as it was")]


def _text(data: str | bytes) -> str:
    """MySQL gives the ids as text, MariaDB as bytes."""
    return data.decode() if isinstance(data, bytes) else data
