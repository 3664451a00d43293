"""Sinks that commit through the driver are refused as formats; `write_stream` takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import twophase
from twophase.errors import ConfigError

pytestmark = [pytest.mark.spark, pytest.mark.part("plugin")]


@pytest.mark.parametrize(
    ("sink", "said"), [("delta", "commits on the driver"), ("hive", "through a Spark session")]
)
@pytest.mark.usefixtures("delta_spark", "hive_spark")
def test_a_format_that_is_refused_is_a_sink_of_write_stream(
    spark: SparkSession, tmp_path: Path, sink: str, said: str
) -> None:
    targets = {"delta": {"path": str(tmp_path / "lake")}, "hive": {"table": "driver_sinks"}}
    target: dict[str, Any] = targets[sink]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"id": 1}\n{"id": 2}\n')
    rows = spark.readStream.schema("id long").json(str(tmp_path / "in"))
    options: dict[str, Any] = {"checkpointLocation": str(tmp_path / "job")}
    twophase.register(spark)
    query = rows.writeStream.format(f"twophase-{sink}").option("name", "orders")
    with pytest.raises(ConfigError, match=said) as caught:
        query.options(**options, **target).trigger(availableNow=True).start()
    assert caught.value.remedy == "use twophase.write_stream with it."
    writer = twophase.write_stream(rows, name="orders").options(**options)
    writer.sink("facts", sink, create=True, **target)
    writer.trigger(availableNow=True).start().await_termination(300)
    found = (
        spark.table("driver_sinks")
        if sink == "hive"
        else spark.read.format("delta").load(str(tmp_path / "lake"))
    )
    assert sorted(row["id"] for row in found.collect()) == [1, 2]
