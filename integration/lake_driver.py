"""The driver process of a job that writes orders from files to tables of lakes and others, as a
user would write it.

    python -m integration.lake_driver '{"orders": ..., "location": ..., "form": "write_stream",
        "sinks": {"lake": ["iceberg", {...}]}}'

In the plugin form there is one sink.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame

import twophase
from harness import workload
from integration.mysql.driver import session
from integration.plugin.scenario import as_option
from twophase.internals.failpoints import be_the_driver
from twophase.testing.parent_death import die_with_parent


def main(settings: dict[str, Any]) -> None:
    """Run until the input is used up, two files in a micro-batch."""
    be_the_driver()
    die_with_parent()
    spark = session("local[2]")
    spark.conf.set("spark.sql.files.openCostInBytes", "128MB")  # a task for each file
    orders = (
        spark.readStream.schema(workload.SCHEMA)
        .option("maxFilesPerTrigger", 2)
        .json(settings["orders"])
    )
    start = start_query if settings["form"] == "plugin" else start_job
    start(orders, settings)
    spark.stop()


def start_job(orders: DataFrame, settings: dict[str, Any]) -> None:
    """By `twophase.write_stream`."""
    writer = twophase.write_stream(orders, name="orders")
    for name, (kind, options) in settings["sinks"].items():
        writer.sink(name, kind, **options)
    (
        writer.option("checkpointLocation", settings["location"])
        .trigger(availableNow=True)
        .start()
        .await_termination()
    )


def start_query(orders: DataFrame, settings: dict[str, Any]) -> None:
    """By `writeStream`."""
    [(kind, given)] = settings["sinks"].values()
    options = {key: as_option(value) for key, value in given.items()}
    (
        orders.writeStream.format(f"twophase-{kind}")
        .options(name="orders", **options)
        .option("checkpointLocation", settings["location"])
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
