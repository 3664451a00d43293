"""Kafka to MySQL or MariaDB: twophase, exactly once, against Spark's own connectors, at least once.

twophase runs twice: with its tasks chained to the source, and with rows that go through Spark. The
same records, table, batch size, number of tasks, servers and settings. Each pipeline runs in a
separate process, every time into an empty table. The ratios are those of the median batches' rows
a second.

    python -m benchmarks kafka_to_mysql --records 8000000 --batch-records 500000 --rounds 2
    python -m benchmarks kafka_to_mysql --server mariadb --keys random
    python -m benchmarks kafka_to_mysql --slices
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from benchmarks.contest import Pipeline, alternate, check_batches, compared, contest_options
from benchmarks.jars import peer_jars
from benchmarks.launch import Run, Services, new_kafka, new_mariadb, new_mysql, run
from benchmarks.orders import ASCENDING, KEYS, count_and_drop, create_table, produce

CHAINED, UNCHAINED, PEER = "chained", "unchained", "spark"
CHAINING = {CHAINED: "auto", UNCHAINED: "off"}
_GOALS = {"mysql": 2.2, "mariadb": 3.0}
SERVERS = {"mysql": ("MySQL 8.0.12", new_mysql), "mariadb": ("MariaDB 10.11", new_mariadb)}


@click.command("kafka_to_mysql")
@contest_options(records=4_000_000, batch_records=500_000, warm_up=3)
@click.option("--server", type=click.Choice([*SERVERS]), default="mysql", show_default=True)
@click.option(
    "--keys",
    type=click.Choice([*KEYS]),
    default=ASCENDING,
    show_default=True,
    help="Ids that rise or are random; or that rise, beside a secondary index.",
)
@click.option(
    "--slices",
    is_flag=True,
    help="Each partition has a range of the keys of a micro-batch, and not every n-th one: what "
    "tasks with separate ranges of rising keys would gain.",
)
def command(
    records: int,
    batch_records: int,
    partitions: int,
    rounds: int,
    warm_up: int,
    server: str,
    keys: str,
    *,
    slices: bool,
) -> None:
    """Kafka to MySQL or MariaDB, exactly once, against Spark's own connectors."""
    check_batches(records, batch_records, warm_up)
    pipelines = (
        Pipeline(CHAINED, "twophase, chained", "exactly once"),
        Pipeline(UNCHAINED, "twophase, not chained", "exactly once"),
        Pipeline(PEER, "Spark Kafka + JDBC", "at least once"),
    )
    title, new_server = SERVERS[server]
    jars = peer_jars()
    with new_kafka() as kafka, new_server() as target:
        services = Services(kafka, target)
        in_a_row = max(1, batch_records // partitions) if slices else 1
        topic = produce(kafka, records, partitions, keys, in_a_row)
        alternate(
            pipelines,
            rounds,
            lambda name: run_to_mysql(services, name, topic, records, batch_records, keys, jars),
        )
    order = f"{keys} keys in slices" if slices else f"{keys} keys"
    measured = f"{records:,} records, {order}, batches of {batch_records:,}, {partitions} tasks"
    result = "-".join(["kafka_to_mysql", *variant(server, keys, slices=slices)])
    title = f"Kafka to {title}: {measured}"
    goals = {PEER: _GOALS[server]}
    compared(result, title, pipelines, warm_up, batch_records, goals).show()


def variant(server: str, keys: str, *, slices: bool) -> Iterator[str]:
    """Yield what a run's result is called by beside the name of the benchmark."""
    if server != "mysql":
        yield server
    if keys != ASCENDING:
        yield keys
    if slices:
        yield "slices"


def run_to_mysql(
    services: Services,
    name: str,
    topic: str,
    records: int,
    batch_records: int,
    keys: str = ASCENDING,
    jars: str = "",
) -> Run:
    """Run a pipeline into an empty table, and check that every record is there."""
    database = create_table(services.mysql, keys)
    done = run(
        services,
        "spark" if name == PEER else "twophase",
        topic,
        database,
        batch_records,
        schema=KEYS[keys].schema,
        spark={"spark.jars": jars} if name == PEER else {},
        options={"chaining": CHAINING[name]} if name in CHAINING else {},
    )
    stored = count_and_drop(services.mysql, database)
    if stored != records:
        raise RuntimeError(f"{name} wrote {stored} of {records} records")
    return done
