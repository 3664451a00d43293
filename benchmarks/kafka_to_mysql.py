"""Kafka to MySQL 8.0.12: twophase, exactly once, against Spark's own connectors, at least once.

The same records, table, batch size, number of tasks, servers and settings. Each pipeline runs in a process of its own,
alternating (A B B A ...), every time into an empty table; the first batches of a run, in which the JVM warms up, are left
out. The ratio is that of the median batch's rows a second.

    python -m benchmarks kafka_to_mysql --records 4000000 --batch-records 500000 --rounds 2
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import click

from benchmarks.jars import peer_jars
from benchmarks.launch import Run, Services, began_s, new_kafka, new_mysql, run
from benchmarks.orders import count_and_drop, create_table, produce
from benchmarks.report import console, foot, table

_PARTS = ("JVM", "Python workers", "MySQL", "Kafka")


@dataclass
class Pipeline:
    """One contestant and its runs."""

    name: str
    title: str
    guarantee: str
    runs: list[Run] = field(default_factory=list)

    def rates(self, warm_up: int, batch_records: int) -> list[float]:
        """Rows a second of each steady batch of all runs."""
        return [batch.rows / batch.duration_s for done in self.runs for batch in done.steady(warm_up, batch_records)]

    def end_to_end(self) -> float:
        """Rows a second from the first trigger to the end of the last batch, warm-up included."""
        return statistics.median(_end_to_end(done) for done in self.runs)

    def cpu(self, warm_up: int, batch_records: int) -> dict[str, float]:
        """Median processor seconds for a million rows, by part, in steady batches."""
        found = [done.cpu_per_million(done.steady(warm_up, batch_records)) for done in self.runs]
        return {part: statistics.median(one.get(part, 0.0) for one in found) for part in _PARTS}


@click.command("kafka_to_mysql")
@click.option("--records", default=4_000_000, show_default=True, help="Records in the topic.")
@click.option("--batch-records", default=500_000, show_default=True, help="Records in a micro-batch.")
@click.option("--partitions", default=2, show_default=True, help="Partitions of the topic; as many tasks.")
@click.option("--rounds", default=2, show_default=True, help="Runs of each pipeline.")
@click.option("--warm-up", default=3, show_default=True, help="Batches at the start of a run that do not count.")
def command(records: int, batch_records: int, partitions: int, rounds: int, warm_up: int) -> None:
    """Kafka to MySQL, exactly once, against Spark's own connectors."""
    if records // batch_records <= warm_up:
        raise click.UsageError(f"{records} records are {records // batch_records} batches, {warm_up} of them warm-up.")
    pipelines = (
        Pipeline("twophase", "twophase", "exactly once"),
        Pipeline("spark", "Spark Kafka + JDBC", "at least once"),
    )
    jars = peer_jars()
    with new_kafka() as kafka, new_mysql() as mysql:
        services = Services(kafka, mysql)
        topic = produce(kafka, records, partitions)
        for number in range(rounds):
            for pipeline in pipelines if number % 2 == 0 else pipelines[::-1]:
                console.print(f"Round {number + 1} of {rounds}: {pipeline.title}", style="dim")
                pipeline.runs.append(_run(services, pipeline.name, topic, records, batch_records, jars))
    _show(pipelines, warm_up, batch_records, f"{records:,} records, batches of {batch_records:,}, {partitions} tasks")


def _run(services: Services, name: str, topic: str, records: int, batch_records: int, jars: str) -> Run:
    database = create_table(services.mysql)
    done = run(services, name, topic, database, batch_records, spark={"spark.jars": jars} if name == "spark" else {})
    stored = count_and_drop(services.mysql, database)
    if stored != records:
        raise RuntimeError(f"{name} wrote {stored} of {records} records")
    return done


def _end_to_end(done: Run) -> float:
    last = done.batches[-1]
    return sum(batch.rows for batch in done.batches) / (began_s(last) + last.duration_s - began_s(done.batches[0]))


def _show(pipelines: Sequence[Pipeline], warm_up: int, batch_records: int, title: str) -> None:
    shown = table(
        f"Kafka to MySQL 8.0.12: {title}",
        *("pipeline", "guarantee", "rows/s, median batch", "slowest", "fastest", "end to end"),
    )
    costs = table("Processor seconds for 1,000,000 rows, steady batches", "pipeline", *_PARTS, "together")
    for pipeline in pipelines:
        rates = pipeline.rates(warm_up, batch_records)
        figures = (statistics.median(rates), min(rates), max(rates), pipeline.end_to_end())
        shown.add_row(pipeline.title, pipeline.guarantee, *(f"{figure:,.0f}" for figure in figures))
        cpu = pipeline.cpu(warm_up, batch_records)
        costs.add_row(pipeline.title, *(f"{cpu[part]:.2f}" for part in _PARTS), f"{sum(cpu.values()):.2f}")
    console.print(shown)
    console.print(costs)
    ours, peer = (statistics.median(pipeline.rates(warm_up, batch_records)) for pipeline in pipelines)
    by_run = [
        _median_rate(one, warm_up, batch_records) / _median_rate(other, warm_up, batch_records)
        for one, other in zip(pipelines[0].runs, pipelines[1].runs, strict=True)
    ]
    spread = " ".join(f"{ratio:.2f}" for ratio in by_run)
    console.print(f"twophase / Spark: [bold]{ours / peer:.2f}[/bold] (ratio of medians; by round: {spread})")
    foot(statistics.mean(done.meter.others_cores() for pipeline in pipelines for done in pipeline.runs))


def _median_rate(done: Run, warm_up: int, batch_records: int) -> float:
    return statistics.median(batch.rows / batch.duration_s for batch in done.steady(warm_up, batch_records))
