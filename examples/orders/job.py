"""The job of the demo, as a user writes it: orders from Kafka into MySQL, Delta and Hive, in one
checkpoint, exactly once. It reads by `twophase-kafka`, which needs PySpark 4.2 or newer.

Started by `demo`.
"""

import os

from pyspark.sql import SparkSession

import twophase
from twophase.sinks.delta import DeltaSink
from twophase.sinks.hive import HiveSink
from twophase.sinks.mysql import MySqlSink
from twophase.testing.journal import Journal

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config(map={**DeltaSink.spark_conf(), **HiveSink.spark_conf()})
    .getOrCreate()
)
twophase.register(spark)
orders = (
    spark.readStream.format("twophase-kafka")
    .option("kafka.bootstrap.servers", os.environ["DEMO_KAFKA"])
    .option("subscribe", "orders")
    .option("value.format", "json")
    .option("maxRecordsPerTrigger", os.environ["DEMO_RECORDS_PER_CHECKPOINT"])
    .schema("id long, customer string, amount double, kafka_partition int, kafka_offset long")
    .load()
)
job = (
    twophase.write_stream(orders, name="orders")
    .sink(
        "facts",
        MySqlSink(url=os.environ["DEMO_MYSQL"], table="orders", password_env="DEMO_MYSQL_PASSWORD"),
    )
    .sink("lake", DeltaSink(path=os.environ["DEMO_LAKE"], create=True))
    .sink("hive", HiveSink(table="orders", create=True, partition_by=["kafka_partition"]))
    .option("checkpointLocation", os.environ["DEMO_FOLDER"])
    .trigger(availableNow=True)
    .observer(Journal(os.environ["DEMO_JOURNAL"]))
    .start()
)
job.await_termination()
