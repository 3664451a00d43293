"""Runs a job over Spark's file source, to be killed.

python -m integration.beginnings.files_driver ROOT [once_each]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from integration.beginnings.test_file_sources import FilesJob, once_each

if __name__ == "__main__":
    settings: dict[str, Any] = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    job = FilesJob(spark, Path(sys.argv[1]))
    if sys.argv[2:]:
        job.transform = once_each
    job.run()
