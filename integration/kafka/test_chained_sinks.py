"""Iceberg tables and topics that chain to Kafka's bytes get what they would get through Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from harness.iceberg_harness import IcebergHarness
from integration.kafka.chained_job import COUNT, ORDERS, Outcome, run_to_the_end, send_orders
from integration.kafka.topics import Topics
from integration.kafka_sink.sink_harness import KafkaHarness

pytestmark = [pytest.mark.part("kafka"), pytest.mark.spark, pytest.mark.thin(3)]


class Lake:
    """A partitioned Iceberg table."""

    def __init__(self, folder: Path) -> None:
        self.harness = IcebergHarness(folder, partition_by=["bucket[4](customer)"])
        self.sink = self.harness.new_sink()

    def rows(self) -> list[dict[str, Any]]:
        found = self.harness.table().scan().to_arrow()
        return [row | {"at": row["at"].isoformat()} for row in found.to_pylist()]


class Log:
    """A topic, with the keys of its records."""

    def __init__(self, topics: Topics, protocol: str) -> None:
        self.harness = KafkaHarness(topics, key="customer", protocol=protocol)
        self.sink = self.harness.new_sink()

    def rows(self) -> list[dict[str, Any]]:
        found = self.harness.topics.records(self.harness.topic)
        rows = [json.loads(one.value() or b"") for one in found]
        assert [one.key() for one in found] == [row["customer"].encode() for row in rows]
        return rows


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


def test_a_table_and_topics_of_both_protocols_are_written_in_one_task(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source = send_orders(topics)
    found: dict[str, Outcome] = {}
    rows: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for chaining in ("auto", "off"):
        targets: dict[str, Lake | Log] = {
            "table": Lake(tmp_path / chaining),
            "open": Log(topics, "transaction"),
            "staged": Log(topics, "staged"),
        }
        sinks = {name: target.sink for name, target in targets.items()}
        folder = tmp_path / f"job-{chaining}"
        found[chaining] = run_to_the_end(spark, topics, source, folder, sinks, chaining)
        rows[chaining] = {name: in_order(target.rows()) for name, target in targets.items()}
    chained, unchained = found["auto"], found["off"]
    assert chained.chained == ("table", "open", "staged")
    assert unchained.chained == ()
    assert chained.pieces == unchained.pieces
    assert chained.records == unchained.records == COUNT
    assert rows["auto"] == rows["off"]
    for written in rows["auto"].values():
        assert [row["id"] for row in written] == [order["id"] for order in ORDERS]
