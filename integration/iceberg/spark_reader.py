"""Reads Iceberg tables by Iceberg's own reader in Spark, which knows nothing of the product.

python -m integration.iceberg.spark_reader '{"folder": ...}'

For each `NAME.json` in the folder, which has the location of a table and conditions, it writes its
rows to `NAME.arrow` and the number of rows that meet each condition to `NAME.counts`. If asked so,
it writes to `NAME.missed` which conditions find others than in memory.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.jars import iceberg_runtime
from harness import bounds
from twophase.testing.parent_death import die_with_parent


def main(folder: Path) -> None:
    """Read every table."""
    die_with_parent()
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", iceberg_runtime())
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    for asked in folder.glob("*.json"):
        table = json.loads(asked.read_text())
        frame = spark.read.format("iceberg").load(table["location"])
        rows = frame.toArrow()
        with pa.OSFile(str(asked.with_suffix(".arrow")), "wb") as file:
            with pa.ipc.new_file(file, rows.schema) as writer:
                writer.write_table(rows)
        counts = [frame.where(condition).count() for condition in table["conditions"]]
        asked.with_suffix(".counts").write_text(json.dumps(counts))
        if table["bounds"]:
            missed = bounds.missed_by_spark(frame)
            asked.with_suffix(".missed").write_text(json.dumps(missed))
    spark.stop()


if __name__ == "__main__":
    main(Path(json.loads(sys.argv[1])["folder"]))
