"""Makes the data sources of twophase known to a Spark session."""

from __future__ import annotations

from pyspark.sql import SparkSession

from twophase.sources.kafka import KafkaDataSource


def register(spark: SparkSession) -> None:
    """Register the formats of twophase, such as `twophase-kafka`, in this session."""
    spark.dataSource.register(KafkaDataSource)
