"""Where plain jobs write: a table on a server or in a catalog, or a folder of files. Looked at
without the product's help.
"""

from __future__ import annotations

import json
import time
import uuid
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pymysql
from kafka.errors import KafkaError
from pyiceberg.exceptions import NoSuchTableError

from harness import checker, order_files, workload
from harness.iceberg_places import Place
from harness.rights import secret_file
from integration.kafka.topics import Topics
from integration.without_spark.source import PLACE
from twophase.testing.services.access import SqlAccess

CANARY = "another_application"
_KAFKA_TIMEOUT_S = 30
CANARY_ROWS = [(1, "untouched"), (2, "as it was")]


@dataclass(frozen=True)
class Pieces:
    """What a target holds of a job.

    Attributes:
        prepared: pre-committed pieces that are not committed.
        begun: pieces that are neither; of a server nothing of them can be seen.
        visible: rows.
    """

    prepared: int
    begun: int
    visible: int


class Target(Protocol):
    """One sink's target."""

    def sink(self) -> dict[str, Any]:
        """The sink's settings for the driver."""
        ...

    def pieces(self, lineage: str | None) -> Pieces:
        """What is there, of a job's lineage."""
        ...

    def rows(self) -> checker.Records:
        """Every visible row, for the checker."""
        ...

    def check_canary(self) -> None:
        """What another application has beside it is as it was."""
        ...

    def close(self) -> None:
        """It is not looked at any more."""
        ...


class SqlTarget:
    """A table in a database of its own.

    Args:
        server: where.
        scratch: a folder for the password.
    """

    def __init__(self, server: SqlAccess, scratch: Path) -> None:
        self.server = server
        self.database = f"plain_{uuid.uuid4().hex[:12]}"
        self._password = secret_file(scratch / f"{self.database}.password", server.password)
        server.create_database(self.database)
        # a handshake costs more than all else that is asked
        self._connection = server.connect(self.database)
        self.sql(f"CREATE TABLE orders ({workload.COLUMNS}) ENGINE=InnoDB")
        self.sql(f"CREATE TABLE {CANARY} (id INT PRIMARY KEY, word VARCHAR(20)) ENGINE=InnoDB")
        self.sql(f"INSERT INTO {CANARY} VALUES (1, 'untouched'), (2, 'as it was')")

    def sink(self) -> dict[str, Any]:
        url = self.server.url(self.database)
        options = {"table": "orders", "password_file": str(self._password), "fence_timeout": "20 s"}
        return {"type": "mysql", "url": url, **options}

    def connection(self) -> dict[str, Any]:
        """For a driver without the protocol."""
        server = self.server
        account = {
            "host": server.host,
            "port": server.port,
            "user": server.user,
            "password": server.password,
        }
        return account | {"database": self.database}

    def pieces(self, lineage: str | None) -> Pieces:
        branches = [str(row[3]) for row in self.sql("XA RECOVER")]
        prepared = [
            branch
            for branch in branches
            if lineage is not None and lineage.replace("-", "") in branch
        ]
        return Pieces(len(prepared), 0, int(self.sql("SELECT COUNT(*) FROM orders")[0][0]))

    def rows(self) -> checker.Records:
        return checker.read_table(self._connected(), "orders")

    def check_canary(self) -> None:
        assert [
            tuple(row) for row in self.sql(f"SELECT * FROM {CANARY} ORDER BY id")
        ] == CANARY_ROWS

    def close(self) -> None:
        self._connection.close()

    def sql(self, statement: str) -> list[Any]:
        """Run a statement."""
        with self._connected().cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def _connected(self) -> pymysql.Connection:
        """The connection, or a new one: the server may have been killed since."""
        try:
            self._connection.ping(reconnect=False)
        except pymysql.Error:
            self._connection = self.server.connect(self.database)
        return self._connection


class FolderTarget:
    """A folder of files, partitioned by `kafka_partition`, where another job has something staged.

    Args:
        scratch: where it is made.
        job: the job's name.
        file_format: of the files.
    """

    def __init__(self, scratch: Path, job: str, file_format: str = "json") -> None:
        self.path = scratch / "table"
        self._job = job
        self._format = file_format
        piece = f"{uuid.uuid4()}-0-1.1-0.1"
        self._canary = (
            self.path / f"_twophase~{CANARY}~lake" / "fence-1.0" / "staged" / piece / "manifest"
        )
        self._canary.parent.mkdir(parents=True)
        self._canary.write_text("untouched")

    def sink(self) -> dict[str, Any]:
        return {
            "type": "file",
            "path": str(self.path),
            "format": self._format,
            "partition_by": ["kafka_partition"],
        }

    def pieces(self, lineage: str | None) -> Pieces:
        staged = [Path(path) for path in order_files.staged(self.path) if f"~{self._job}~" in path]
        prepared = [path for path in staged if (path / "manifest").exists()]
        return Pieces(len(prepared), len(staged) - len(prepared), len(self.rows()))

    def rows(self) -> checker.Records:
        return order_files.orders(self.path)

    def check_canary(self) -> None:
        assert self._canary.read_text() == "untouched"

    def close(self) -> None:
        """Nothing is held open."""


class IcebergTarget:
    """An Iceberg table, partitioned by `kafka_partition`, beside a table of another application.

    Args:
        place: where it is.
        branch: that rows go to.
        version: of its format.
    """

    def __init__(self, place: Place, branch: str = "main", version: int = 2) -> None:
        self._place = place
        self._branch = branch
        self._version = version
        self._namespace, _, self._name = place.table.rpartition(".")
        rows = [{"id": number, "word": word} for number, word in CANARY_ROWS]
        with closing(place.catalog()) as catalog:
            catalog.create_namespace(self._namespace)
            found = pa.Table.from_pylist(rows)
            catalog.create_table(f"{self._namespace}.{CANARY}", found.schema).append(found)

    def sink(self) -> dict[str, Any]:
        return {
            "type": "iceberg",
            **self._place.options,
            "table": self._place.table,
            "branch": self._branch,
            "create": True,
            "partition_by": ["kafka_partition"],
            "format_version": self._version,
        }

    def pieces(self, lineage: str | None) -> Pieces:
        areas = self._place.tables.glob("**/_twophase/*")
        staged = [Path(path) for area in areas for path in order_files.staged(area)]
        prepared = [path for path in staged if (path / "manifest").exists()]
        return Pieces(len(prepared), len(staged) - len(prepared), len(self.rows()))

    def rows(self) -> checker.Records:
        try:
            return order_files.records(self._read(self._name, self._branch))
        except NoSuchTableError:
            return order_files.records([])

    def check_canary(self) -> None:
        found = [(row["id"], row["word"]) for row in self._read(CANARY)]
        assert sorted(found) == CANARY_ROWS
        with closing(self._place.catalog()) as catalog:
            assert catalog.load_table(self._place.table).format_version == self._version

    def close(self) -> None:
        """Nothing is held open."""

    def _read(self, table: str, branch: str = "main") -> list[dict[str, Any]]:
        with closing(self._place.catalog()) as catalog:
            found = catalog.load_table(f"{self._namespace}.{table}")
            head = found.metadata.snapshot_by_name(branch)
            if head is None:
                return []
            return list(found.scan(snapshot_id=head.snapshot_id).to_arrow().to_pylist())


class KafkaTarget:
    """A topic, and a ledger in which another application has a transaction open all the time: it
    holds back what readers of committed records see of the ledger.

    Args:
        brokers: `host:port`.
        job: the job's name.

    Attributes:
        written: the topics that rows go to, and how many partitions each has.
    """

    def __init__(self, brokers: str, job: str) -> None:
        self._brokers = brokers
        self._clients = Topics(brokers)
        name = uuid.uuid4().hex[:12]
        self.topic = self._clients.create(3, f"orders-{name}")
        self.written = {self.topic: 3}
        self.ledger = self._clients.create(2, f"ledger-{name}", {"cleanup.policy": "compact"})
        self._mine = f"/{self.topic}/{job}/"
        self._canary = f"{CANARY}-{name}"
        settings = {"transactional.id": self._canary, "transaction.timeout.ms": 900_000}
        self._other: Any = self._clients.producer(**settings)
        self._other.init_transactions(_KAFKA_TIMEOUT_S)
        self._other.begin_transaction()
        self._other.produce(self.ledger, b"untouched", b"theirs", 0)
        assert self._other.flush(_KAFKA_TIMEOUT_S) == 0

    def sink(self) -> dict[str, Any]:
        return {
            "type": "kafka",
            "kafka.bootstrap.servers": self._brokers,
            "topic": self.topic,
            "ledger": self.ledger,
            "key": "customer",
        }

    def pieces(self, lineage: str | None) -> Pieces:
        del lineage
        admin = self._topics.admin
        mine = admin.describe_transactions(self._open(["Ongoing", "PrepareCommit"]))
        whole = [one for one in mine.values() if (self.ledger, 0) in one.topic_partitions]
        return Pieces(len(whole), 0, self._visible())

    def rows(self) -> checker.Records:
        """As a reader of committed records gets them."""
        found = [one.value() for name in self.written for one in self._topics.records(name)]
        return order_files.records([json.loads(value) for value in found if value is not None])

    def check_canary(self) -> None:
        [found] = self._topics.admin.describe_transactions([self._canary]).values()
        assert found.state == "Ongoing"

    def close(self) -> None:
        self._other.abort_transaction(_KAFKA_TIMEOUT_S)
        del self._other
        self._topics.admin.close()

    @property
    def _topics(self) -> Topics:
        """The clients, or new ones: the broker may have been killed since, and has no coordinator
        at once.
        """
        deadline = time.monotonic() + _KAFKA_TIMEOUT_S
        while True:
            try:
                self._clients.admin.describe_transactions([self._canary])
            except KafkaError as error:
                if not error.retriable or time.monotonic() >= deadline:
                    raise
            else:
                return self._clients
            self._clients.admin.close()
            self._clients = Topics(self._brokers)

    def _visible(self) -> int:
        return sum(len(self._topics.marked(name)) for name in self.written)

    def _open(self, states: list[str]) -> list[str]:
        listed = self._topics.admin.list_transactions(state_filters=states)
        ids = [one.transactional_id for found in listed.values() for one in found]
        return [one for one in ids if one.startswith(f"twophase{self._mine}")]


class StagedKafkaTarget(KafkaTarget):
    """The same with a sink whose rows wait in a staging topic."""

    def sink(self) -> dict[str, Any]:
        return super().sink() | {"protocol": "staged"}

    def pieces(self, lineage: str | None) -> Pieces:
        del lineage
        announced: dict[str, bytes | None] = {}
        for message in self._topics.records(self.ledger, "read_uncommitted"):
            key = (message.key() or b"").decode()
            if message.partition() == 1 and key.startswith(f"staged{self._mine}"):
                announced[key] = message.value()
        waiting = {value for value in announced.values() if value is not None}
        copied = {*self._topics.marked(self.ledger)}
        return Pieces(len(waiting - copied), 0, self._visible())


class RoutedKafkaTarget(KafkaTarget):
    """The same with two more topics, which rows name in the column `source.PLACE`."""

    def __init__(self, brokers: str, job: str) -> None:
        super().__init__(brokers, job)
        others = {f"{self.topic}-{partitions}": partitions for partitions in (1, 2)}
        for name, partitions in others.items():
            self._clients.create(partitions, name)
        self.written |= others
        self.places = (None, *others)

    def sink(self) -> dict[str, Any]:
        routing = {"topic_column": PLACE.name, "other_topics": list(self.places[1:])}
        return super().sink() | routing


class RoutedStagedKafkaTarget(RoutedKafkaTarget, StagedKafkaTarget):
    """The same with a staging topic."""
