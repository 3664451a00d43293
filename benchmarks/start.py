"""From the command to the first committed row: `twophase run` on a large topic, against Spark alone
with the same session.

Each run is a separate process, into new tables and a new job's folder; Hive's embedded metastore
stays. The variants take turns, so that a slow minute of the machine affects all. The times are from
the start of the command to the lines that it prints; the processor seconds are those of the driver,
its JVM and its workers until the first committed row. Where all sinks can chain, they do. `cold` is
the same without the quick start of Spark. `Spark alone` reads the same topic with our source and
counts the rows of each micro-batch.

    python -m benchmarks start --records 2000000 --batch-records 200000 --rounds 5
    python -m benchmarks start --release /path/to/venv/of/the/last/release/bin/python
    python -m benchmarks start --against ../before --only MySQL --only "MySQL, before"
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import yaml

from benchmarks.driver import DELTA, HIVE, MYSQL
from benchmarks.launch import Services, account, new_kafka, new_mysql
from benchmarks.machine import OTHERS, Meter
from benchmarks.orders import SCHEMA, TABLE, create_table, produce
from benchmarks.report import Ratio, Result, table
from harness.figures import percentile
from harness.hive_settings import hive_settings
from twophase.spark.startup.progress import show_progress
from twophase.spark.startup.quick_start import SWITCH_VARIABLE
from twophase.testing.harness import fresh_name

_ROOT = Path(__file__).parent.parent
_TIMEOUT_S = 600
_GENERATION = re.compile(r" generation \d+ (?:began|recovered)")
_COMMITTED = re.compile(
    r" committed: ([\d,]+) rows?(?: into each of \d+ sinks)? in (?:(\d+) min )?([\d.]+) (m?s)"
)
_WARM_AFTER = 2
_FEWEST_BATCHES = 5  # the first ones are not full
_GOALS_S = {"MySQL": 6.0, "MySQL, Delta, Hive": 10.0}

_SPARK_ALONE = """
import os, sys, time, yaml
from pyspark.sql import SparkSession
import twophase
job = yaml.safe_load(open(sys.argv[1]))
builder = SparkSession.builder.master(job["spark"]["master"])
spark = builder.config(map={key: str(value) for key, value in job["spark"]["conf"].items()}).getOrCreate()
twophase.register(spark)
source = job["source"]
rows = spark.readStream.format(source["format"]).options(**source["options"]).schema(source["schema"]).load()
def count(batch, number):
    began_s = time.monotonic()
    rows = batch.count()
    print(f"x: checkpoint {number} committed: {rows:,} rows in {time.monotonic() - began_s:.2f} s", flush=True)
query = rows.writeStream.foreachBatch(count).option("checkpointLocation", job["options"]["checkpointLocation"])
query.trigger(availableNow=True).start().awaitTermination()
"""  # noqa: E501


@dataclass(frozen=True)
class Variant:
    """One way to start.

    Attributes:
        name: for the table.
        sinks: of the job; none: Spark alone.
        environment: added to ours.
        python: the Python that runs the command.
        product: the folder whose product runs, if this same Python runs it.
    """

    name: str
    sinks: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    python: str = sys.executable
    product: Path = _ROOT


@dataclass(frozen=True)
class Source:
    """The common settings of all runs.

    Attributes:
        topic: the topic that they read.
        batch_records: records in a batch, once it has its full size.
        hive: the folder of metastore and warehouse.
    """

    topic: str
    batch_records: int
    hive: str


@dataclass(frozen=True)
class Started:
    """One run, up to the end of its topic.

    Attributes:
        generation_s: from the command to the end of recovery; None for Spark alone.
        row_s: from the command to the first committed row.
        cpu_s: until then.
        batches_s: durations of the batches of full size, in order.
        others_cores: how many cores others kept busy.
    """

    generation_s: float | None
    row_s: float
    cpu_s: float
    batches_s: Sequence[float]
    others_cores: float


@click.command("start")
@click.option("--records", default=2_000_000, show_default=True, help="Records in the topic.")
@click.option(
    "--batch-records", default=200_000, show_default=True, help="Records in a micro-batch."
)
@click.option(
    "--partitions", default=2, show_default=True, help="Partitions of the topic; as many tasks."
)
@click.option("--rounds", default=5, show_default=True, help="Runs of each variant.")
@click.option("--release", help="A Python with the last release installed, to run as well.")
@click.option(
    "--against",
    type=click.Path(exists=True, path_type=Path),
    help="A folder with another commit of twophase.",
)
@click.option(
    "--only", multiple=True, help="A variant by its name in the table; all unless some are named."
)
def command(
    records: int,
    batch_records: int,
    partitions: int,
    rounds: int,
    release: str | None,
    against: Path | None,
    only: Sequence[str],
) -> None:
    """From the command to the first committed row, against Spark alone."""
    if records < _FEWEST_BATCHES * batch_records:
        raise click.UsageError(
            f"--records: {_FEWEST_BATCHES} batches of {batch_records:,} at least, "
            "for one that is warm"
        )
    variants = [one for one in _variants(release, against) if not only or one.name in only]
    done: dict[str, list[Started]] = {variant.name: [] for variant in variants}
    with new_kafka() as kafka, new_mysql() as mysql:
        services = Services(kafka, mysql)
        topic = produce(kafka, records, partitions)
        with (
            show_progress("Starting jobs, in turns") as progress,
            tempfile.TemporaryDirectory() as hive,
        ):
            source = Source(topic, batch_records, hive)
            # the turn before the first fills caches, and does not count
            for turn in range(-1, rounds):
                for variant in variants:
                    progress.update(f"round {turn + 1} of {rounds}, {variant.name}")
                    run = _run(variant, services, source)
                    if turn >= 0:
                        done[variant.name].append(run)
    _show(done, f"{records:,} records, batches of {batch_records:,}")


def _variants(release: str | None, against: Path | None) -> Sequence[Variant]:
    variants = [
        Variant("Spark alone", ()),
        *(Variant(name, sinks) for name, sinks in _JOBS.items()),
        *(
            Variant(f"{name}, cold", sinks, {SWITCH_VARIABLE: "off"})
            for name, sinks in _JOBS.items()
        ),
    ]
    if release:
        variants += [
            Variant(f"{name}, last release", sinks, python=release) for name, sinks in _JOBS.items()
        ]
    if against:
        variants += [
            Variant(f"{name}, before", sinks, product=against) for name, sinks in _JOBS.items()
        ]
    return variants


_JOBS = {"MySQL": (MYSQL,), "MySQL, Delta, Hive": (MYSQL, DELTA, HIVE)}


def _run(variant: Variant, services: Services, source: Source) -> Started:
    with tempfile.TemporaryDirectory(prefix="twophase-bench-", ignore_cleanup_errors=True) as name:
        folder, database = Path(name), create_table(services.mysql)
        at = account(services.mysql, database)
        (folder / "job.yaml").write_text(
            yaml.safe_dump(_job(variant, services, folder, source, at))
        )
        arguments = [
            "-m",
            "twophase.cli",
            "run",
            "job.yaml",
            "--available-now",
            "--progress",
            "plain",
        ]
        if not variant.sinks:
            arguments = ["-c", _SPARK_ALONE, "job.yaml"]
        environment = {
            **os.environ,
            at["password_env"]: services.mysql.password,
            **variant.environment,
        }
        if variant.python == sys.executable:
            environment["PYTHONPATH"] = str(variant.product)
        began_s = time.time()
        process = subprocess.Popen(
            [variant.python, *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=(folder / "log").open("wb"),
            text=True,
        )
        with Meter({"driver": process.pid}, 0.2) as meter:
            lines = list(_timed(process))
            code = process.wait(_TIMEOUT_S)
        if code != 0:
            raise RuntimeError(
                f"{variant.name} ended with {code}:\n{(folder / 'log').read_text()[-4000:]}"
            )
        with services.mysql.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE {database}")
    return _started(began_s, lines, meter, source.batch_records)


def _timed(process: subprocess.Popen[str]) -> Iterator[tuple[float, str]]:
    for line in process.stdout or ():
        yield time.time(), line


def _started(
    began_s: float, lines: Sequence[tuple[float, str]], meter: Meter, full: int
) -> Started:
    generations = [at_s for at_s, line in lines if _GENERATION.search(line)]
    committed = [
        (at_s, found)
        for at_s, line in lines
        if (found := _COMMITTED.search(line)) and found[1] != "0"
    ]
    row_s = committed[0][0]
    used = meter.used(began_s, row_s)
    return Started(
        generation_s=generations[0] - began_s if generations else None,
        row_s=row_s - began_s,
        cpu_s=sum(seconds for part, seconds in used.items() if part != OTHERS),
        batches_s=[_duration_s(found) for _, found in committed if found[1] == f"{full:,}"],
        others_cores=meter.others_cores(),
    )


def _duration_s(found: re.Match[str]) -> float:
    return 60 * int(found[2] or 0) + float(found[3]) / (1000 if found[4] == "ms" else 1)


def _job(
    variant: Variant, services: Services, folder: Path, source: Source, at: Mapping[str, Any]
) -> dict[str, Any]:
    url = f"mysql://{at['user']}@{at['host']}:{at['port']}/{at['database']}"
    sinks = {
        MYSQL: {
            "type": "mysql",
            "options": {"url": url, "table": TABLE, "password_env": at["password_env"]},
        },
        DELTA: {"type": "delta", "options": {"path": str(folder / "lake"), "create": True}},
        HIVE: {"type": "hive", "options": {"table": fresh_name("orders"), "create": True}},
    }
    conf = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "2g",
    }
    if HIVE in variant.sinks:
        conf |= hive_settings(Path(source.hive), metastore=f"{source.hive}/metastore")
    options = {
        "kafka.bootstrap.servers": services.kafka.bootstrap_servers,
        "subscribe": source.topic,
        "value.format": "json",
        "maxRecordsPerTrigger": str(source.batch_records),
    }
    # a sink that does not chain would have the records read twice
    chaining = "off" if DELTA in variant.sinks else "auto"
    return {
        "name": "orders",
        "spark": {"master": "local[2]", "conf": conf},
        "source": {"format": "twophase-kafka", "schema": SCHEMA, "options": options},
        "sinks": {name: sinks[name] for name in variant.sinks},
        "options": {"checkpointLocation": str(folder / "job"), "chaining": chaining},
    }


def _show(done: Mapping[str, Sequence[Started]], measured: str) -> None:
    columns = ("generation p50 s", "first row p50 s", "p95 s", "CPU s", "first full / warm batch")
    shown = table(f"From the command to the first committed row: {measured}", "start", *columns)
    for name, runs in done.items():
        rows_s = [run.row_s for run in runs]
        generations = [run.generation_s for run in runs if run.generation_s is not None]
        first = [run.batches_s[0] / statistics.median(run.batches_s[_WARM_AFTER:]) for run in runs]
        shown.add_row(
            name,
            f"{statistics.median(generations):.1f}" if generations else "-",
            f"{statistics.median(rows_s):.1f}",
            f"{percentile(rows_s, 0.95):.1f}",
            f"{statistics.median(run.cpu_s for run in runs):.1f}",
            f"{statistics.median(first):.2f}",
        )
    reached_s = {name: statistics.median(run.row_s for run in runs) for name, runs in done.items()}
    goals = [
        f"{name}: the goal of {goal_s:.0f} s is "
        f"[bold]{'kept' if reached_s[name] <= goal_s else 'missed'}[/bold]."
        for name, goal_s in _GOALS_S.items()
        if name in done
    ]
    ratios = [
        Ratio(name, other, reached_s[name] / reached_s[other], "s until the first row")
        for name in done
        for other in (f"{name}, before", f"{name}, last release")
        if other in done
    ]
    others_cores = statistics.mean(run.others_cores for runs in done.values() for run in runs)
    Result("start", [shown], ratios, said=goals, others_cores=others_cores).show()
