"""A reader's view of a checkpoint while it is being committed: all of it or nothing, or
for a moment a part.

A job runs into each target separately, and meanwhile the rows of the target are counted again and
again. A count that is not a multiple of the micro-batch shows a part of a checkpoint. Delta has one
commit per checkpoint; MySQL by XA one branch per task, Hive one rename per file,
one after the other.

    python -m benchmarks visibility --records 600000 --batch-records 10000
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click
import pyarrow.parquet

from benchmarks.driver import DELTA, HIVE, MYSQL
from benchmarks.launch import Run, Services, new_kafka, new_mysql, run
from benchmarks.orders import TABLE, create_table, produce
from benchmarks.report import Result, console, table
from benchmarks.several_sinks import spark_settings
from harness import delta_lake
from twophase.testing.services import SqlService

# So that the reader does not take processor time from the job.
_PAUSE_S = 0.001
_TITLES = {MYSQL: "MySQL, xa", DELTA: "Delta", HIVE: "Hive"}


@dataclass
class Looks:
    """The counts of one target.

    Attributes:
        all: the number of counts since there were rows.
        parts: the number of counts that showed a part of a checkpoint.
        longest_s: the longest time from a count that showed a part to the next that did not.
        rows: the last count.
    """

    all: int = 0
    parts: int = 0
    longest_s: float = 0.0
    rows: int = 0


@click.command("visibility")
@click.option("--records", default=600_000, show_default=True, help="Records in the topic.")
@click.option(
    "--batch-records", default=10_000, show_default=True, help="Records in a micro-batch."
)
@click.option(
    "--partitions", default=4, show_default=True, help="Partitions of the topic; as many tasks."
)
def command(records: int, batch_records: int, partitions: int) -> None:
    """How often a reader sees a part of a checkpoint, and for how long."""
    seen: dict[str, Looks] = {}
    with new_kafka() as kafka, new_mysql() as mysql:
        topic = produce(kafka, records, partitions)
        for sink in (MYSQL, DELTA, HIVE):
            console.print(f"Running {_TITLES[sink]}", style="dim")
            seen[sink] = _run(Services(kafka, mysql), sink, topic, batch_records)
            if seen[sink].rows != records:
                raise RuntimeError(f"{seen[sink].rows} of {records} records are in {sink}")
    measured = (
        f"{records // batch_records:,} checkpoints of {batch_records:,} rows, {partitions} tasks"
    )
    shown = table(
        f"What a reader sees: {measured}", "target", "looks", "saw a part", "of all", "longest, ms"
    )
    for sink, looks in seen.items():
        share = f"{looks.parts / looks.all:.2%}"
        shown.add_row(
            _TITLES[sink],
            f"{looks.all:,}",
            f"{looks.parts:,}",
            share,
            f"{1000 * looks.longest_s:.1f}",
        )
    Result("visibility", [shown]).show()


def _run(services: Services, sink: str, topic: str, batch_records: int) -> Looks:
    database = create_table(services.mysql)
    with (
        tempfile.TemporaryDirectory(prefix="twophase-bench-") as name,
        ThreadPoolExecutor(1) as pool,
    ):
        folder = Path(name)
        (folder / "warehouse").mkdir()
        job = pool.submit(
            run,
            services,
            "several",
            topic,
            database,
            batch_records,
            sinks=[sink],
            path=str(folder / "lake"),
            spark=spark_settings(folder),
        )
        counts: Mapping[str, Callable[[], int]] = {
            MYSQL: _mysql_count(services.mysql, database),
            DELTA: lambda: delta_lake.count(folder / "lake"),
            HIVE: _parquet_count(folder / "warehouse" / TABLE),
        }
        return _look(job, counts[sink], batch_records)


def _look(job: Future[Run], count: Callable[[], int], batch_records: int) -> Looks:
    """Count until the job has ended, and once more."""
    looks, part_since_s = Looks(), 0.0
    ended = False
    while not ended:
        ended = job.done()
        now_s = time.perf_counter()
        looks.rows = count()
        looks.all += looks.rows > 0
        time.sleep(_PAUSE_S)
        if looks.rows % batch_records:
            looks.parts += 1
            part_since_s = part_since_s or now_s
        elif part_since_s:
            looks.longest_s = max(looks.longest_s, time.perf_counter() - part_since_s)
            part_since_s = 0.0
    job.result()
    return looks


def _mysql_count(mysql: SqlService, database: str) -> Callable[[], int]:
    connection = mysql.connect(database)
    connection.autocommit(True)

    def count() -> int:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT COUNT(*) FROM {TABLE}")
            [(rows,)] = cursor.fetchall()
        return int(rows)

    return count


def _parquet_count(folder: Path) -> Callable[[], int]:
    """Rows of the visible files; each file is read once, because none is ever replaced."""
    known: dict[Path, int] = {}

    def count() -> int:
        for path in folder.glob("*.parquet"):
            if path not in known:
                known[path] = pyarrow.parquet.read_metadata(path).num_rows
        return sum(known.values())

    return count
