"""Kafka to an Iceberg table, against Iceberg's own streaming sink of Spark, and against the same
rows to plain files and to Delta by the sinks of twophase; and what the sink's own files cost
against pyarrow alone, which is the limit.

The same records, batch size, number of tasks and settings. Each pipeline runs in a separate
process, every time into a new table on the local disk, ours of Iceberg with a catalog in SQLite,
that of Iceberg's sink in its catalog of folders. There is no Iceberg for a Spark newer than 4.1:
the peer runs on that one, and ours a second time, with the same source as the peer, to which no
task chains; nor does Delta to any source. The ratios are those of the median batch's rows a second.

The limit has no Kafka and no Spark: the rows of one batch are written to one file by
`pyarrow.parquet`, synced, and by the sink's writer, with its digest, the statistics that Iceberg
keeps and the commit.

    python -m benchmarks kafka_to_iceberg --records 4000000 --batch-records 500000 --rounds 2
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable

from benchmarks.contest import Pipeline, alternate, check_batches, compared, contest_options
from benchmarks.driver import DELTA, FILES, ICEBERG
from benchmarks.iceberg_tables import new_piece, new_table, opened
from benchmarks.jars import iceberg_runtime, peer_jars
from benchmarks.kafka_to_delta import ARROW, spark_settings
from benchmarks.launch import Run, new_kafka, run_pipeline
from benchmarks.orders import order, produce
from benchmarks.report import Ratio, Result, table
from harness import delta_lake
from harness.order_files import parquet_rows
from harness.versions import python_of
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest
from twophase.testing.services import KafkaService

_ON_4_1, _PEER = "iceberg on 4.1", "spark-kafka-iceberg"
_TITLES = {
    ICEBERG: "twophase, Iceberg, chained",
    _PEER: "Iceberg's sink, Spark 4.1",
    _ON_4_1: "twophase, Iceberg, Spark 4.1",
    FILES: "twophase, files, chained",
    DELTA: "twophase, Delta",
}
_GOALS = {_PEER: 1.0}
_OLDER, _CATALOG = "4.1.4", "spark.sql.catalog.lake"
_NAME = "kafka_to_iceberg"


@click.command(_NAME)
@contest_options(records=4_000_000, batch_records=500_000, warm_up=3)
def command(records: int, batch_records: int, partitions: int, rounds: int, warm_up: int) -> None:
    """Kafka to Iceberg against Iceberg's own sink, files, Delta and pyarrow alone."""
    check_batches(records, batch_records, warm_up)
    pipelines = [Pipeline(name, title, "exactly once") for name, title in _TITLES.items()]
    with new_kafka() as kafka:
        topic = produce(kafka, records, partitions)
        alternate(pipelines, rounds, lambda name: _run(kafka, name, topic, records, batch_records))
    measured = f"{records:,} records, batches of {batch_records:,}, {partitions} tasks"
    title = f"Kafka to Iceberg: {measured}"
    compared(_NAME, title, pipelines, warm_up, batch_records, _GOALS).show()
    _limit(batch_records, max(rounds, 3)).show()


def _run(kafka: KafkaService, name: str, topic: str, records: int, batch_records: int) -> Run:
    with tempfile.TemporaryDirectory(prefix="twophase-bench-") as folder:
        asked = _on_older(name, folder) if name in (_PEER, _ON_4_1) else _on_ours(name, folder)
        done = run_pipeline(kafka, topic=topic, batch_records=batch_records, **asked)
        stored = _COUNTS[name](Path(folder))
    if stored != records:
        raise RuntimeError(f"{name} wrote {stored} of {records} records")
    return done


def _on_ours(name: str, folder: str) -> dict[str, Any]:
    return {
        "pipeline": "several",
        "sinks": [name],
        "path": folder if name == ICEBERG else f"{folder}/orders",
        "spark": spark_settings(),
        "options": {"chaining": "auto"},
    }


def _on_older(name: str, folder: str) -> dict[str, Any]:
    catalog = {
        _CATALOG: "org.apache.iceberg.spark.SparkCatalog",
        f"{_CATALOG}.type": "hadoop",
        f"{_CATALOG}.warehouse": folder,
    }
    return {
        "pipeline": name if name == _PEER else "several-by-spark",
        "python": str(python_of(_OLDER)),
        "sinks": [ICEBERG],
        "path": folder,
        "table": "lake.shop.orders",
        "spark": ARROW | catalog | {"spark.jars": f"{peer_jars((4, 1))},{iceberg_runtime()}"},
    }


def _peer_rows(folder: Path) -> int:
    metadata = folder / "shop" / "orders" / "metadata"
    newest = max(
        metadata.glob("v*.metadata.json"), key=lambda file: int(file.name[1:].partition(".")[0])
    )
    return StaticTable.from_metadata(str(newest)).scan().count()


def _iceberg_rows(folder: Path) -> int:
    with closing(SqlCatalog("default", uri=f"sqlite:///{folder}/catalog.db")) as catalog:
        return catalog.load_table("shop.orders").scan().count()


_COUNTS: dict[str, Callable[[Path], int]] = {
    ICEBERG: _iceberg_rows,
    _ON_4_1: _iceberg_rows,
    _PEER: _peer_rows,
    FILES: lambda folder: parquet_rows(folder / "orders"),
    DELTA: lambda folder: delta_lake.count(folder / "orders"),
}


def _limit(rows: int, rounds: int) -> Result:
    """Write the rows of a batch by pyarrow alone and by the sink, in turn."""
    lines = b"\n".join(order(number) for number in range(rows))
    read = pj.read_json(pa.BufferReader(lines)).combine_chunks()
    rates: dict[str, list[float]] = {"pyarrow alone": [], "the sink's writer": [], "and commit": []}
    for _ in range(rounds + 1):  # the first is the warm-up
        with tempfile.TemporaryDirectory(prefix="twophase-bench-") as folder:
            with _timed(rates["pyarrow alone"], rows):
                _write_alone(read, Path(folder) / "orders.parquet")
            _write_by_sink(read, Path(folder), rates)
    shown = table(f"{rows:,} rows to one file", "by", "rows/s, median", "slowest", "fastest")
    for name, found in rates.items():
        figures = statistics.median(found[1:]), min(found[1:]), max(found[1:])
        shown.add_row(name, *(f"{figure:,.0f}" for figure in figures))
    limit = statistics.median(rates["pyarrow alone"][1:])
    ratios = [
        Ratio(name, "pyarrow alone", statistics.median(found[1:]) / limit, "rows/s")
        for name, found in [*rates.items()][1:]
    ]
    return Result(f"{_NAME}-limit", [shown], ratios)


def _write_alone(rows: pa.Table, path: Path) -> None:
    with path.open("wb") as file:
        pq.write_table(rows, file, compression="zstd")
        file.flush()
        os.fsync(file.fileno())


def _write_by_sink(rows: pa.Table, folder: Path, rates: dict[str, list[float]]) -> None:
    with closing(opened(new_table(folder), rows.schema)) as sink:
        began_s = time.perf_counter()
        with _timed(rates["the sink's writer"], rows.num_rows):
            piece = new_piece(sink, rows, 0)
        if sink.commit([CommitRequest(piece)]) != [Committed()]:
            raise click.ClickException("the commit failed")
        rates["and commit"].append(rows.num_rows / (time.perf_counter() - began_s))


@contextmanager
def _timed(rates: list[float], rows: int) -> Iterator[None]:
    began_s = time.perf_counter()
    yield
    rates.append(rows / (time.perf_counter() - began_s))
