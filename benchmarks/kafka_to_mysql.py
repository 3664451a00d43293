"""Kafka to MySQL 8.0.12: twophase, exactly once, against Spark's own connectors, at least once.

The same records, table, batch size, number of tasks, servers and settings. Each pipeline runs in a
separate process, every time into an empty table. The ratio is that of the median
batch's rows a second.

    python -m benchmarks kafka_to_mysql --records 4000000 --batch-records 500000 --rounds 2
"""

from __future__ import annotations

import click

from benchmarks.contest import Pipeline, alternate, check_batches, contest_options, show
from benchmarks.jars import peer_jars
from benchmarks.launch import Run, Services, new_kafka, new_mysql, run
from benchmarks.orders import count_and_drop, create_table, produce


@click.command("kafka_to_mysql")
@contest_options(records=4_000_000, batch_records=500_000, warm_up=3)
def command(records: int, batch_records: int, partitions: int, rounds: int, warm_up: int) -> None:
    """Kafka to MySQL, exactly once, against Spark's own connectors."""
    check_batches(records, batch_records, warm_up)
    pipelines = (
        Pipeline("twophase", "twophase", "exactly once"),
        Pipeline("spark", "Spark Kafka + JDBC", "at least once"),
    )
    jars = peer_jars()
    with new_kafka() as kafka, new_mysql() as mysql:
        services = Services(kafka, mysql)
        topic = produce(kafka, records, partitions)
        alternate(
            pipelines,
            rounds,
            lambda name: _run(services, name, topic, records, batch_records, jars),
        )
    measured = f"{records:,} records, batches of {batch_records:,}, {partitions} tasks"
    show(f"Kafka to MySQL 8.0.12: {measured}", pipelines, warm_up, batch_records)


def _run(
    services: Services, name: str, topic: str, records: int, batch_records: int, jars: str
) -> Run:
    database = create_table(services.mysql)
    done = run(
        services,
        name,
        topic,
        database,
        batch_records,
        spark={"spark.jars": jars} if name == "spark" else {},
    )
    stored = count_and_drop(services.mysql, database)
    if stored != records:
        raise RuntimeError(f"{name} wrote {stored} of {records} records")
    return done
