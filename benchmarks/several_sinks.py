"""MySQL, Delta and Hive in one checkpoint, against the same three alone, from the same topic.

Three pipelines with one sink, one with MySQL and Hive, and one with all, each in a separate process
and into new tables, take turns of a few micro-batches. A micro-batch with several sinks reads and
parses its records once and writes side by side, so it should take less than each alone together.
The ratios are those of the median batch with several sinks to the sum of the median batches of each
alone.

    python -m benchmarks several_sinks --records 4000000 --batch-records 200000 --chaining off
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path

import click

from benchmarks.contest import check_batches
from benchmarks.driver import DELTA, HIVE, MYSQL
from benchmarks.launch import Run, Services, account, new_kafka, new_mysql, run_in_turns
from benchmarks.orders import TABLE, count_and_drop, create_table, produce
from benchmarks.report import Ratio, Result, table
from harness import delta_lake
from harness.hive_settings import hive_settings
from harness.order_files import parquet_rows
from twophase.sinks.delta.sink import DeltaSink
from twophase.sinks.hive.sink import HiveSink
from twophase.spark.startup.progress import show_progress
from twophase.testing.services.delta import fetch_delta

_TITLES = {MYSQL: "MySQL", DELTA: "Delta", HIVE: "Hive"}
_SEVERAL = ((MYSQL, HIVE), (MYSQL, DELTA, HIVE))
_PIPELINES = ((MYSQL,), (DELTA,), (HIVE,), *_SEVERAL)
# Spark's default of 1 GB is small for the rows of a large micro-batch, which are kept while
# several sinks write them.
_MEMORY = {"spark.driver.memory": "4g"}
_GOALS = {(MYSQL, HIVE): 0.6, (MYSQL, DELTA, HIVE): 0.65}


@click.command("several_sinks")
@click.option("--records", default=4_000_000, show_default=True, help="Records in the topic.")
@click.option(
    "--batch-records", default=200_000, show_default=True, help="Records in a micro-batch."
)
@click.option(
    "--partitions", default=2, show_default=True, help="Partitions of the topic; as many tasks."
)
@click.option(
    "--warm-up",
    default=10,
    show_default=True,
    help="Full batches at the start of a run that do not count.",
)
@click.option(
    "--turn",
    default=2,
    show_default=True,
    help="Batches of a pipeline before the next one has its turn.",
)
@click.option(
    "--chaining",
    type=click.Choice(["auto", "off"]),
    default="auto",
    show_default=True,
    help="Of all pipelines; Delta chains in none.",
)
def command(
    records: int, batch_records: int, partitions: int, warm_up: int, turn: int, chaining: str
) -> None:
    """MySQL, Delta and Hive in one checkpoint, against the sum of each alone."""
    check_batches(records, batch_records, warm_up)
    with new_kafka() as kafka, new_mysql() as mysql:
        topic = produce(kafka, records, partitions)
        runs = _run(Services(kafka, mysql), topic, records, batch_records, turn, chaining)
    measured = f"{records:,} records, batches of {batch_records:,}, {partitions} tasks"
    _show(runs, measured, chaining, warm_up, batch_records)


def _run(
    services: Services, topic: str, records: int, batch_records: int, turn: int, chaining: str
) -> dict[tuple[str, ...], Run]:
    databases = [create_table(services.mysql) for _ in _PIPELINES]
    with tempfile.TemporaryDirectory(prefix="twophase-bench-") as name:
        folders = [Path(name, "-".join(sinks)) for sinks in _PIPELINES]
        for folder in folders:
            (folder / "warehouse").mkdir(parents=True)
        pipelines = [
            {
                "pipeline": "several",
                "sinks": sinks,
                "mysql": account(services.mysql, database),
                "path": str(folder / "lake"),
                "options": {"chaining": chaining},
                "spark": {**spark_settings(folder), **_MEMORY},
            }
            for sinks, database, folder in zip(_PIPELINES, databases, folders, strict=True)
        ]
        with show_progress("Running all pipelines, in turns"):
            runs = run_in_turns(services, topic, batch_records, turn, pipelines)
        for sinks, database, folder in zip(_PIPELINES, databases, folders, strict=True):
            _check(services, sinks, database, folder, records)
    return dict(zip(_PIPELINES, runs, strict=True))


def _check(
    services: Services, sinks: tuple[str, ...], database: str, folder: Path, records: int
) -> None:
    stored = {
        MYSQL: count_and_drop(services.mysql, database),
        DELTA: delta_lake.count(folder / "lake"),
        HIVE: parquet_rows(folder / "warehouse" / TABLE),
    }
    for sink in sinks:
        if stored[sink] != records:
            raise RuntimeError(f"{stored[sink]} of {records} records are in {sink}")


def spark_settings(folder: Path) -> dict[str, str]:
    """Return the settings that Spark needs to write to Delta and Hive, with its
    warehouse in a folder.
    """
    return {
        **DeltaSink.spark_conf(),
        **HiveSink.spark_conf(),
        **fetch_delta(),
        **hive_settings(folder),
    }


def _show(
    runs: Mapping[tuple[str, ...], Run],
    measured: str,
    chaining: str,
    warm_up: int,
    batch_records: int,
) -> None:
    shown = table(
        f"Several sinks in one checkpoint: {measured}, chaining {chaining}",
        "sinks",
        "s, median batch",
        "fastest",
        "slowest",
        "batches",
    )
    medians = {}
    for sinks, done in runs.items():
        durations = [batch.duration_s for batch in done.steady(warm_up, batch_records)]
        medians[sinks] = statistics.median(durations)
        figures = (medians[sinks], min(durations), max(durations))
        shown.add_row(_title(sinks), *(f"{figure:.2f}" for figure in figures), str(len(durations)))
    ratios = []
    for sinks in _SEVERAL:
        alone = sum(medians[(sink,)] for sink in sinks)
        ratios.append(
            Ratio(
                f"{_title(sinks)} in one checkpoint",
                f"the sum of each alone, {alone:.2f} s",
                medians[sinks] / alone,
                "s a micro-batch",
                goal=_GOALS[sinks],
                at_most=True,
            )
        )
    name = "several_sinks" if chaining == "auto" else "several_sinks-unchained"
    others_cores = runs[_PIPELINES[0]].meter.others_cores()
    Result(name, [shown], ratios, others_cores=others_cores).show()


def _title(sinks: tuple[str, ...]) -> str:
    return " + ".join(_TITLES[sink] for sink in sinks)
