"""Kafka to Kafka: twophase, exactly once, in both protocols of its sink, against Spark's own Kafka
source and sink, at least once.

The same records, as JSON objects without keys, batch size, number of tasks, broker and settings.
Each pipeline runs in a separate process, every time into a new topic with as many partitions as
tasks. The ratios are those of the median batch's rows a second. A batch of twophase includes its
commit; with `protocol=staged` that is the copy of all of its rows.

    python -m benchmarks kafka_to_kafka --records 4000000 --batch-records 500000 --rounds 2
"""

from __future__ import annotations

from contextlib import closing
from itertools import count

import click
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from benchmarks.contest import Pipeline, alternate, check_batches, compared, contest_options
from benchmarks.driver import STAGED, TRANSACTION
from benchmarks.jars import peer_jars
from benchmarks.launch import Run, new_kafka, run_pipeline
from benchmarks.orders import produce
from twophase.testing.services import KafkaService

_NAME, _PEER = "kafka_to_kafka", "spark"
_runs = count()


@click.command(_NAME)
@contest_options(records=4_000_000, batch_records=500_000, warm_up=3)
def command(records: int, batch_records: int, partitions: int, rounds: int, warm_up: int) -> None:
    """Kafka to Kafka, exactly once, against Spark's own source and sink."""
    check_batches(records, batch_records, warm_up)
    pipelines = [
        Pipeline(TRANSACTION, "twophase, transaction, chained", "exactly once"),
        Pipeline(STAGED, "twophase, staged, chained", "exactly once"),
        Pipeline(_PEER, "Spark Kafka", "at least once"),
    ]
    with new_kafka() as kafka:
        topic = produce(kafka, records, partitions)
        alternate(
            pipelines,
            rounds,
            lambda name: _run(kafka, name, topic, records, batch_records, partitions),
        )
    measured = f"{records:,} records, batches of {batch_records:,}, {partitions} tasks"
    title = f"Kafka to Kafka: {measured}"
    compared(_NAME, title, pipelines, warm_up, batch_records, {_PEER: 1.0}).show()


def _run(
    kafka: KafkaService, name: str, topic: str, records: int, batch_records: int, partitions: int
) -> Run:
    to = f"copy-{next(_runs)}"
    with closing(KafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)) as admin:
        admin.create_topics([NewTopic(to, num_partitions=partitions, replication_factor=1)])
        admin.wait_for_topics([to])
        is_peer = name == _PEER
        done = run_pipeline(
            kafka,
            "spark-kafka-kafka" if is_peer else "several",
            topic,
            batch_records,
            to=to,
            sinks=[name],
            spark={"spark.jars": peer_jars()} if is_peer else {},
            options={} if is_peer else {"chaining": "auto"},
        )
        stored = _committed(kafka, to, partitions)
        admin.delete_topics([to])
    if stored != records:
        raise RuntimeError(f"{name} wrote {stored} of {records} records")
    return done


def _committed(kafka: KafkaService, topic: str, partitions: int) -> int:
    """Count the records of a topic as a reader of committed ones gets them."""
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "group.id": "count",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    found, ended = 0, 0
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        while ended < partitions:
            for message in consumer.consume(10_000, 1.0):
                if message.error() is None:
                    found += 1
                else:
                    ended += 1
    return found
