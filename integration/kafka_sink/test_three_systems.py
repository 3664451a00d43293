"""MySQL, an Iceberg table and a topic in one checkpoint: a driver that is killed before the
decision, behind it, and between the commits of any two leaves all three with each order once.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from pymysql.connections import Connection

from harness import checker, order_files, workload
from harness.iceberg_harness import IcebergHarness
from harness.order_files import BATCH
from harness.rights import secret_file
from harness.selection import representatives
from integration.kafka.topics import Topics
from integration.kafka_sink.sink_harness import KafkaHarness
from integration.lake_job import COUNT, Sinks, kill_and_run_again
from twophase.testing.services import MySqlService

pytestmark = [pytest.mark.part("kafka"), pytest.mark.spark]

MYSQL, LAKE, LOG = "mysql", "lake", "log"
# How many orders readers of each see when the driver has died in the second checkpoint, by where.
VISIBLE = {
    "C09": (BATCH, BATCH, BATCH),
    "C11": (BATCH, BATCH, BATCH),
    "D01": (2 * BATCH, BATCH, BATCH),
    "D02": (2 * BATCH, 2 * BATCH, BATCH),
    "C16": (2 * BATCH, 2 * BATCH, 2 * BATCH),
}


class Systems:
    """The three targets of a job; they commit in this order."""

    def __init__(self, mysql: MySqlService, topics: Topics, folder: Path, protocol: str) -> None:
        self._mysql, self._database = mysql, f"shop_{uuid.uuid4().hex[:8]}"
        mysql.create_database(self._database)
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE orders ({workload.COLUMNS}) ENGINE = InnoDB")
        password = secret_file(folder / "password", mysql.password)
        self._lake, self._log = IcebergHarness(folder / "lake"), KafkaHarness(topics)
        self.sinks: Sinks = {
            MYSQL: (
                "mysql",
                {
                    "url": mysql.url(self._database),
                    "table": "orders",
                    "password_file": str(password),
                },
            ),
            LAKE: (
                "iceberg",
                {"table": self._lake.place.table, "create": True, **self._lake.place.options},
            ),
            LOG: (
                "kafka",
                {
                    "kafka.bootstrap.servers": topics.servers,
                    "topic": self._log.topic,
                    "ledger": self._log.ledger,
                    "protocol": protocol,
                },
            ),
        }

    def _connect(self) -> Connection:
        return self._mysql.connect(self._database)

    def records(self) -> tuple[checker.Records, ...]:
        """The orders that readers see."""
        with self._connect() as connection:
            rows = checker.read_table(connection, "orders")
        values = [one.value() or b"" for one in self._log.topics.records(self._log.topic)]
        return (
            rows,
            order_files.records(self._lake.table().scan().to_arrow().to_pylist()),
            order_files.records(map(json.loads, values)),
        )

    def visible(self) -> tuple[int, ...]:
        """How many orders readers see."""
        return tuple(map(len, self.records()))


@pytest.mark.parametrize("protocol", representatives(["transaction", "staged"], {"transaction"}))
@pytest.mark.parametrize("point", representatives(VISIBLE, {"D02"}))
def test_a_job_that_is_killed_in_its_second_checkpoint_has_every_order_once_in_all_three(
    tmp_path: Path, mysql: MySqlService, topics: Topics, point: str, protocol: str
) -> None:
    systems, seen = Systems(mysql, topics, tmp_path, protocol), list[tuple[int, ...]]()
    kill_and_run_again(
        tmp_path,
        "write_stream",
        systems.sinks,
        point,
        between=lambda: seen.append(systems.visible()),
    )
    assert seen == [VISIBLE[point]]
    for found in systems.records():
        verdict = checker.compare(order_files.written(COUNT), found)
        assert verdict.exact, verdict
