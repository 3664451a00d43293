"""A Paimon table that chains to Kafka's bytes gets what it would get through Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from harness.paimon_harness import PaimonHarness
from integration.kafka.chained_job import COUNT, ORDERS, Outcome, run_to_the_end, send_orders
from integration.kafka.topics import Topics

pytestmark = pytest.mark.spark


def test_a_table_gets_the_rows_that_spark_would_give_it(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source = send_orders(topics)
    found: dict[str, Outcome] = {}
    rows = {}
    for chaining in ("auto", "off"):
        harness = PaimonHarness(tmp_path / chaining, partition_by=["customer"])
        sinks, folder = {"table": harness.new_sink()}, tmp_path / f"job-{chaining}"
        found[chaining] = run_to_the_end(spark, topics, source, folder, sinks, chaining)
        rows[chaining] = sorted(harness.read().to_pylist(), key=lambda row: row["id"])
        assert harness.staged() == []
    chained, unchained = found["auto"], found["off"]
    assert (chained.chained, unchained.chained) == (("table",), ())
    assert chained.pieces == unchained.pieces
    assert chained.records == unchained.records == COUNT
    assert rows["auto"] == rows["off"]
    assert [row["id"] for row in rows["auto"]] == [order["id"] for order in ORDERS]
