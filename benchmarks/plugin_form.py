"""The cost of the plugin form: `writeStream.format("twophase-mysql")` against `write_stream` with
the same source and sink.

The plugin form plans and commits each micro-batch in Python processes that Spark keeps for that
purpose, `write_stream` in the driver's own. Everything else is the same: records, table, tasks,
server. Small batches show the cost of a micro-batch rather than of its rows.

    python -m benchmarks plugin_form --records 2000000 --batch-records 50000 --rounds 2
"""

from __future__ import annotations

import statistics

import click

from benchmarks.contest import Pipeline, alternate, check_batches, compared, contest_options
from benchmarks.launch import Run, Services, new_kafka, new_mysql, run
from benchmarks.orders import count_and_drop, create_table, produce
from benchmarks.report import Ratio

_GOAL = 1.15


@click.command("plugin_form")
@contest_options(records=2_000_000, batch_records=50_000, warm_up=8)
def command(records: int, batch_records: int, partitions: int, rounds: int, warm_up: int) -> None:
    """The plugin form against write_stream, seconds a micro-batch."""
    check_batches(records, batch_records, warm_up)
    pipelines = (
        Pipeline("twophase-plugin", "plugin form", "exactly once"),
        Pipeline("twophase", "write_stream", "exactly once"),
    )
    with new_kafka() as kafka, new_mysql() as mysql:
        services = Services(kafka, mysql)
        topic = produce(kafka, records, partitions)
        alternate(
            pipelines, rounds, lambda name: _run(services, name, topic, records, batch_records)
        )
    title = f"{records:,} records, batches of {batch_records:,}, {partitions} tasks"
    result = compared("plugin_form", title, pipelines, warm_up, batch_records)
    plugin_s, main_s = (_median_s(pipeline, warm_up, batch_records) for pipeline in pipelines)
    took = Ratio(
        "plugin form",
        "write_stream",
        plugin_s / main_s,
        "s a micro-batch",
        goal=_GOAL,
        at_most=True,
    )
    result.ratios = [took]
    result.said.append(
        f"A micro-batch, p50: plugin form {1000 * plugin_s:.0f} ms, write_stream "
        f"{1000 * main_s:.0f} ms."
    )
    result.show()


def _median_s(pipeline: Pipeline, warm_up: int, batch_records: int) -> float:
    return statistics.median(
        batch.duration_s for done in pipeline.runs for batch in done.steady(warm_up, batch_records)
    )


def _run(services: Services, name: str, topic: str, records: int, batch_records: int) -> Run:
    database = create_table(services.mysql)
    done = run(services, name, topic, database, batch_records)
    stored = count_and_drop(services.mysql, database)
    if stored != records:
        raise RuntimeError(f"{name} wrote {stored} of {records} records")
    return done
