"""The how-tos that are a file and a few commands, run in a shell as they stand: only addresses and
folders are put in.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from harness import delta_lake
from harness.job_command import CONF, TIMEOUT_S, plain_environment
from harness.spark_features import needs
from harness.workload import create_topic
from twophase.spark_versions import REPARTITIONED_STATE
from twophase.testing.harness import fresh_name
from twophase.testing.services import KafkaService, MySqlService
from twophase.testing.services.delta import delta_jars

_LINES = re.MULTILINE | re.DOTALL
PAGES = Path(__file__).parents[2] / "docs" / "howto"
pytestmark = [pytest.mark.spark, pytest.mark.part("cli")]


class HowTo:
    """A page, in a folder of its own.

    Args:
        page: its name.
        root: the folder; `/data`, `/chk` and the like are below it.
        **places: what else is put in.
    """

    def __init__(self, page: str, root: Path, **places: str) -> None:
        text = (PAGES / page).read_text()
        for folder in ("data", "chk", "savepoints"):
            text = re.sub(rf"(?<![\w.])/{folder}/", f"{root}/{folder}/", text)
            (root / folder).mkdir()
        for old, new in places.items():
            text = text.replace(old, new)
        self.root = root
        (root / "data" / "in").mkdir()
        (self.file,) = re.findall(r"`(\w+\.yaml)`", text)[:1]
        self.job = yaml.safe_load(self.blocks(text, "yaml")[0])
        self.sql = self.blocks(text, "sql")
        self.commands = self.blocks(text, "")
        self.write(self.job)

    @staticmethod
    def blocks(text: str, language: str) -> list[str]:
        found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", text, flags=_LINES)
        return [textwrap.dedent(block) for _, its, block in found if its == language]

    def write(self, job: dict[str, object]) -> None:
        """Write the job file; Spark gets what every test gives it."""
        conf = CONF | {"spark.jars.packages": "", "spark.jars": ",".join(map(str, delta_jars()))}
        spark = {"spark": {"master": "local[2]", "conf": conf}} if "delta" in str(job) else {}
        (self.root / self.file).write_text(yaml.safe_dump({**job, **spark}))

    def feed(self, number: int, *records: dict[str, object]) -> None:
        """Put a file of records where the job reads."""
        path = self.root / "data" / "in" / f"{number}.json"
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records))

    def shell(self, command: str, **environment: str) -> str:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", command],
            cwd=self.root,
            env={**plain_environment(), "PATH": path, **environment},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    def rows(self, folder: str) -> list[dict[str, object]]:
        """The rows of a file sink."""
        files = (self.root / "data" / folder).glob("[!_.]*.json")
        return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def ids(rows: list[dict[str, object]]) -> list[str]:
    return sorted(str(row["id"]) for row in rows)


@pytest.fixture
def orders(request: pytest.FixtureRequest, tmp_path: Path) -> HowTo:
    return HowTo(request.param, tmp_path)


@pytest.mark.proof
@pytest.mark.parametrize("orders", ["cron.md"], indirect=True)
def test_a_job_in_the_crontab_writes_each_record_once(orders: HowTo) -> None:
    (line,) = orders.commands
    command = re.sub(r"^(\S+ ){5}", "", line)
    assert command.startswith("flock -n ")
    for number in range(2):
        orders.feed(number, {"id": number, "amount": 1.5})
        orders.shell(command)
        assert ids(orders.rows("orders")) == [str(one) for one in range(number + 1)]
    log = (orders.root / "orders.log").read_text().splitlines()
    assert {"CheckpointCommitted", "JobStopped"} <= {json.loads(one).get("event") for one in log}


@pytest.mark.proof
@pytest.mark.parametrize("orders", ["stop-with-a-savepoint.md"], indirect=True)
def test_a_job_is_stopped_with_a_savepoint_from_another_shell(orders: HowTo) -> None:
    start, stop, restore = orders.commands
    orders.feed(0, {"id": 0, "amount": 1.5})
    committed = "until ls data/orders/*.json >/dev/null 2>&1; do sleep 0.2; done\n"
    orders.shell(start.replace(" &", " >job.log 2>&1 &") + committed + stop)
    orders.feed(1, {"id": 1, "amount": 2.5})
    orders.shell(restore)
    assert ids(orders.rows("orders")) == ["0", "1"]


@pytest.mark.proof
@needs(REPARTITIONED_STATE)
@pytest.mark.parametrize("orders", ["rescale.md"], indirect=True)
def test_a_job_with_state_is_rescaled_from_its_job_file(orders: HowTo) -> None:
    def event(hour: int, customer: str) -> dict[str, object]:
        return {"customer": customer, "amount": 1.0, "at": f"2024-05-01T{hour:02}:00:00Z"}

    start, rescale = orders.commands
    orders.feed(0, *[event(1, f"c{number}") for number in range(20)])
    orders.shell(start)
    orders.feed(1, event(1, "c3"), event(5, "late"))
    orders.shell(rescale)
    orders.feed(2, event(6, "later"))
    orders.shell(start)
    totals = {row["customer"]: row["total"] for row in orders.rows("totals")}
    assert len(orders.rows("totals")) == 20
    assert {totals[f"c{number}"] for number in range(20) if number != 3} == {1.0}
    assert totals["c3"] == 2.0


@pytest.fixture
def database(mysql: MySqlService) -> str:
    name = fresh_name("howto")
    mysql.create_database(name)
    return name


def in_mysql(mysql: MySqlService, database: str, statement: str) -> list[tuple[object, ...]]:
    with mysql.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


@pytest.mark.proof
def test_json_events_become_rows(
    kafka: KafkaService, mysql: MySqlService, database: str, tmp_path: Path
) -> None:
    topic = fresh_name("orders")
    create_topic(kafka.bootstrap_servers, topic)
    places = {
        "broker:9092": kafka.bootstrap_servers,
        "mysql://app@db/shop": mysql.url(database),
        "subscribe: orders": f"subscribe: {topic}",
        "-t orders": f"-t {topic}",
    }
    page = HowTo("json-to-a-table.md", tmp_path, **places)
    in_mysql(mysql, database, page.sql[0])
    (commands,) = page.commands
    for _ in range(2):
        page.shell(commands, BROKER=kafka.bootstrap_servers, SHOP_PASSWORD=mysql.password)
        commands = commands.replace('"id": 1', '"id": 2')
    history = page.shell("twophase checkpoints chk/orders --history")
    assert f"; at {topic}-" in history
    assert "lag 0" in history
    found = in_mysql(mysql, database, "SELECT id, customer, amount, YEAR(at) FROM orders")
    assert [(row[0], row[1], float(str(row[2])), row[3]) for row in sorted(found)] == [
        (1, "ann", 9.5, 2024),
        (2, "ann", 9.5, 2024),
    ]


@pytest.mark.proof
def test_a_column_is_added_to_a_pipeline(
    mysql: MySqlService, database: str, tmp_path: Path
) -> None:
    page = HowTo("add-a-column.md", tmp_path, **{"mysql://app@db/shop": mysql.url(database)})
    of_mysql, of_hive = page.sql
    (run,) = page.commands
    in_mysql(mysql, database, "CREATE TABLE orders (id BIGINT PRIMARY KEY, amount DOUBLE)")
    before = json.loads(json.dumps(page.job).replace(", note string", ""))
    page.write(before)
    page.feed(0, {"id": 0, "amount": 1.5})
    page.shell(run, SHOP_PASSWORD=mysql.password)

    in_mysql(mysql, database, of_mysql)
    hive = (
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[1]').enableHiveSupport().getOrCreate()\n"
        f"spark.sql({of_hive.strip().rstrip(';')!r})\n"
    )
    (page.root / "alter.py").write_text(hive)
    page.shell("python alter.py")
    page.write(page.job)
    page.feed(1, {"id": 1, "amount": 2.5, "note": "gift"})
    page.shell(run, SHOP_PASSWORD=mysql.password)

    wanted = [(0, None), (1, "gift")]
    assert sorted(in_mysql(mysql, database, "SELECT id, note FROM orders")) == wanted
    assert delta_lake.count(page.root / "data" / "lake") == 2
    files = (page.root / "spark-warehouse" / "orders").glob("[!_.]*.parquet")
    notes = [row.get("note") for path in files for row in pq.read_table(path).to_pylist()]
    assert sorted(map(str, notes)) == ["None", "gift"]
