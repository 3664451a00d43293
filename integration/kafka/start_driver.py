"""A driver that reads one topic by every start mode at once; killed in batch 0, it must begin at
the same start again.

python -m integration.kafka.start_driver '{"servers": ..., "topic": ..., "folder": ..., "modes":
{...}, "kill": true}'
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import twophase


def main(settings: dict[str, Any]) -> None:
    """Start a query for each mode; with `kill`, die when every one of them is inside batch 0."""
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    twophase.register(spark)
    for name, options in settings["modes"].items():
        inside = threading.Event()
        query = start(spark, settings, name, options, inside)
        if settings.get("kill"):
            assert inside.wait(60), query.exception()
        else:
            query.awaitTermination()
    os.killpg(0, signal.SIGKILL if settings.get("kill") else 0)


def start(
    spark: SparkSession,
    settings: dict[str, Any],
    name: str,
    options: dict[str, str],
    inside: threading.Event,
) -> Any:
    """One query; its rows go to a file a batch. With `kill` it stays in batch 0
    until the process dies.
    """
    folder = Path(settings["folder"]) / name

    def write(batch: DataFrame, number: int) -> None:
        if settings.get("kill"):
            inside.set()
            threading.Event().wait()
        values = [int(row.value) for row in batch.select("value").collect()]
        (folder / f"{number}.json").write_text(json.dumps(values))

    folder.mkdir(parents=True, exist_ok=True)
    frame = (
        spark.readStream.format("twophase-kafka")
        .option("kafka.bootstrap.servers", settings["servers"])
        .option("subscribe", settings["topic"])
        .options(**options)
        .load()
    )
    writer = frame.writeStream.foreachBatch(write).option(
        "checkpointLocation", str(folder / "spark")
    )
    return writer.trigger(availableNow=True).start()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
