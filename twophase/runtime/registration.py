"""Makes the data sources of twophase known to a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from twophase.runtime.plugin.source import data_source
from twophase.runtime.sink_entry_points import sink_names
from twophase.seal import share_key
from twophase.sources.kafka import KafkaDataSource


def register(spark: SparkSession) -> None:
    """Register the formats of twophase in this session.

    `twophase-kafka` is read with `readStream`; `twophase-<sink>`, for each installed sink, is written with `writeStream`.
    """
    share_key(spark.sparkContext.environment)
    spark.dataSource.register(KafkaDataSource)
    for name in sink_names():
        spark.dataSource.register(data_source(name, spark))
