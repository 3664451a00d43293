"""The cost of one task of the Kafka source, without Spark: `python -m benchmarks.kafka_task`.

Reads the same partition several times in this process, so the first figure is cold. Processor time
is that of all threads.
"""

from __future__ import annotations

import contextlib
import json
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self
from unittest import mock

import click
from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from pyspark.sql.types import StructType, _parse_datatype_json_string

from twophase.sources.kafka import KafkaDataSource, range_reader
from twophase.sources.kafka.data_source import KafkaPartition
from twophase.sources.kafka.engines import cluster_of
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import KafkaOptions
from twophase.sources.kafka.range_digest import RangeDigest
from twophase.state.checkpoints import replay_guard
from twophase.state.checkpoints.replay_guard import ReplayGuard
from twophase.testing.services import KafkaService

_TOPIC = "read"
_JSON_TYPES = {
    "id": "long",
    "customer": "string",
    "amount": "double",
    "status": "string",
    "created": "timestamp",
}
_RAW_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "integer",
    "offset": "long",
    "timestamp": "timestamp",
}
_TYPES = {"json": _JSON_TYPES, "raw": _RAW_TYPES}


@click.command()
@click.option("--records", default=1_000_000, show_default=True)
@click.option(
    "--engine",
    type=click.Choice(["librdkafka", "kafka-python"]),
    default="librdkafka",
    show_default=True,
)
@click.option("--rounds", default=3, show_default=True)
def main(records: int, engine: str, rounds: int) -> None:
    """Read records of about 100 bytes, raw and as JSON, with the digest that
    plans with state keep.
    """
    with KafkaService() as kafka:
        _fill(kafka.bootstrap_servers, records)
        for value_format in _TYPES:
            for _ in range(rounds):
                _read(kafka.bootstrap_servers, value_format, engine, records)


def _fill(servers: str, records: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics(
        [NewTopic(_TOPIC, num_partitions=1, replication_factor=1)], wait_for_metadata=True
    )
    admin.close()
    producer = Producer({"bootstrap.servers": servers, "compression.type": "lz4", "linger.ms": 50})
    noise = random.Random(1)
    for i in range(records):
        created = f"2026-01-{1 + i % 28:02d}T{i % 24:02d}:{i % 60:02d}:{i % 60:02d}Z"
        value = {
            "id": i,
            "customer": f"customer-{noise.randrange(10**6)}",
            "amount": i / 8,
            "status": "paid",
        }
        producer.poll(0)
        while True:
            try:
                producer.produce(
                    _TOPIC, json.dumps(value | {"created": created}), key=str(i), partition=0
                )
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()


def _read(servers: str, value_format: str, engine: str, records: int) -> None:
    settings = {
        "kafka.bootstrap.servers": servers,
        "subscribe": _TOPIC,
        "value.format": value_format,
    }
    settings["fetch.engine"] = engine
    fields = [
        {"name": n, "type": t, "nullable": True, "metadata": {}}
        for n, t in _TYPES[value_format].items()
    ]
    schema = _parse_datatype_json_string(json.dumps({"type": "struct", "fields": fields}))
    assert isinstance(schema, StructType)
    reader = KafkaDataSource(settings).streamReader(schema)
    topic_id = cluster_of(KafkaOptions.parse(settings)).topics([_TOPIC])[_TOPIC].topic_id
    digest = _TimedDigests()
    begun, cpu = time.perf_counter(), time.process_time()
    item = KafkaPartition(OffsetRange("kafka", _TOPIC, topic_id, 0, 0, records))
    with digest:
        rows = sum(batch.num_rows for batch in reader.read(item))
    took, cpu = time.perf_counter() - begun, time.process_time() - cpu
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"{engine} {value_format}: {rows / took / 1000:,.0f} k records/s, "
        f"{cpu / rows * 1e9:,.0f} ns of processor time a record, "
        f"{100 * digest.spent_s / (cpu - digest.spent_s):.1f} % more than without a digest, "
        f"{memory_mb} MB at most"
    )


class _TimedDigests(contextlib.ExitStack):
    """Makes reads in its `with` block keep a digest.

    Attributes:
        spent_s: seconds of processor time that the digest has taken.
    """

    def __enter__(self) -> Self:
        self.spent_s = 0.0
        folder = self.enter_context(tempfile.TemporaryDirectory())
        kept = replay_guard.begin(Path(folder), 1, 1, None)
        self.enter_context(mock.patch.object(ReplayGuard, "of_task", return_value=kept))
        for owner, name in ((RangeDigest, "take"), (range_reader, "settle")):
            self.enter_context(mock.patch.object(owner, name, self._timed(getattr(owner, name))))
        return self

    def _timed(self, method: Callable[..., None]) -> Callable[..., None]:
        def timed(*arguments: Any) -> None:
            begun = time.thread_time()
            method(*arguments)
            self.spent_s += time.thread_time() - begun

        return timed


if __name__ == "__main__":
    main()
