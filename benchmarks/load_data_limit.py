"""Kafka to MySQL or MariaDB, chained, against LOAD DATA alone of the same rows: how near to what
the server can do.

The peer reads nothing and proves nothing: its files are there before it begins, as text, in the
order of the ids, one for each statement. It loads those of a micro-batch with as many sessions as
there are tasks, each in one transaction.

    python -m benchmarks load_data_limit --records 8000000 --batch-records 500000 --rounds 2
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import click

from benchmarks.contest import Pipeline, alternate, check_batches, compared, contest_options
from benchmarks.kafka_to_mysql import CHAINED, SERVERS, run_to_mysql
from benchmarks.launch import Run, Services, new_kafka, run
from benchmarks.orders import count_and_drop, create_table, order, produce
from twophase.spark.startup.progress import show_progress

_STATEMENT_ROWS = 50_000

Files = list[list[list[str]]]
"""Of each micro-batch and task the paths of its files."""


@click.command("load_data_limit")
@contest_options(records=4_000_000, batch_records=500_000, warm_up=3)
@click.option("--server", type=click.Choice([*SERVERS]), default="mysql", show_default=True)
def command(
    records: int, batch_records: int, partitions: int, rounds: int, warm_up: int, server: str
) -> None:
    """Kafka to MySQL or MariaDB, chained, against LOAD DATA alone of the same rows."""
    check_batches(records, batch_records, warm_up)
    pipelines = (
        Pipeline(CHAINED, "twophase, chained", "exactly once"),
        Pipeline("load-data", "LOAD DATA alone", "none"),
    )
    title, new_server = SERVERS[server]
    with (
        new_kafka() as kafka,
        new_server() as target,
        tempfile.TemporaryDirectory(prefix="twophase-bench-") as folder,
    ):
        services = Services(kafka, target)
        topic = produce(kafka, records, partitions)
        files = _write(Path(folder), records, batch_records, partitions)

        def one(name: str) -> Run:
            if name == CHAINED:
                return run_to_mysql(services, name, topic, records, batch_records)
            return _load(services, topic, files, records, batch_records)

        alternate(pipelines, rounds, one)
    measured = f"{records:,} records, batches of {batch_records:,}, {partitions} tasks"
    name = "load_data_limit" if server == "mysql" else f"load_data_limit-{server}"
    title = f"Kafka to {title}: {measured}"
    compared(name, title, pipelines, warm_up, batch_records, {"load-data": 0.8}).show()


def _write(folder: Path, records: int, batch_records: int, tasks: int) -> Files:
    """Write the rows of each micro-batch as the tasks would send them."""
    files: Files = []
    with show_progress("Writing the files of LOAD DATA"):
        for first in range(0, records, batch_records):
            end = min(first + batch_records, records)
            files.append([_files(folder, first + task, end, tasks) for task in range(tasks)])
    return files


def _files(folder: Path, first: int, end: int, step: int) -> list[str]:
    found = []
    for begin in range(first, end, step * _STATEMENT_ROWS):
        numbers = range(begin, min(begin + step * _STATEMENT_ROWS, end), step)
        path = folder / f"{begin}"
        path.write_text("".join(_line(number) for number in numbers))
        found.append(str(path))
    return found


def _line(number: int) -> str:
    return "\t".join(str(value) for value in json.loads(order(number)).values()) + "\n"


def _load(services: Services, topic: str, files: Files, records: int, batch_records: int) -> Run:
    database = create_table(services.mysql)
    done = run(services, "load-data", topic, database, batch_records, files=files)
    stored = count_and_drop(services.mysql, database)
    if stored != records:
        raise RuntimeError(f"LOAD DATA wrote {stored} of {records} records")
    return done
