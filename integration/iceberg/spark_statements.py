"""Runs statements by Iceberg's extensions of Spark's SQL, in a REST catalog.

python -m integration.iceberg.spark_statements '{"catalog_uri": ..., "statements": [...]}'
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession

from benchmarks.jars import iceberg_runtime
from twophase.testing.parent_death import die_with_parent

_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def main(catalog_uri: str, statements: Sequence[str]) -> None:
    """Run the statements, as somebody does in a shell of Spark's SQL."""
    die_with_parent()
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", iceberg_runtime())
        .config("spark.ui.enabled", "false")
        .config("spark.sql.extensions", _EXTENSIONS)
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "rest")
        .config("spark.sql.catalog.lake.uri", catalog_uri)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.sql("USE lake")
    for statement in statements:
        spark.sql(statement).collect()
    spark.stop()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
