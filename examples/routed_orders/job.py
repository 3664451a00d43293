"""Orders from a topic to topics, each row to that of its region, in one checkpoint: with the
customer as key, and headers that say where an order came from. Readers of committed records get
each order once. Run it again when there are more orders.

    python -m examples.routed_orders.job BROKERS FOLDER

The topics `orders`, `orders-eu` and `orders-us` exist.
"""

import sys
from collections.abc import Callable

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import array, col, lit, struct, to_json

import twophase
from twophase.sinks.kafka import KafkaSink

BROKERS, FOLDER = sys.argv[1:]
REGIONS = ["eu", "us"]

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
twophase.register(spark)
orders = (
    spark.readStream.format("twophase-kafka")
    .option("kafka.bootstrap.servers", BROKERS)
    .option("subscribe", "orders")
    .option("value.format", "json")
    .schema("id long, customer string, amount double, region string, kafka_offset long")
    .load()
)


def header(name: str, value: str) -> Column:
    """Return a header of a record."""
    return struct(lit(name).alias("key"), col(value).cast("string").alias("value"))


def records(rows: DataFrame) -> DataFrame:
    """Return the parts of a record for each order, as `format=raw` takes them."""
    return rows.select(
        col("customer").alias("key"),
        to_json(struct("id", "customer", "amount")).alias("value"),
        array(header("region", "region"), header("source-offset", "kafka_offset")).alias("headers"),
    )


def records_of(region: str) -> Callable[[DataFrame], DataFrame]:
    """Return the transform of a region's sink."""
    return lambda rows: records(rows.where(col("region") == region))


writer = twophase.write_stream(orders, name="routed-orders")
for region in REGIONS:
    sink = KafkaSink(
        **{"kafka.bootstrap.servers": BROKERS},
        topic=f"orders-{region}",
        format="raw",
        protocol="staged",  # the job may be down for any length of time
    )
    writer = writer.sink(region, sink, transform=records_of(region))
job = writer.option("checkpointLocation", FOLDER).trigger(availableNow=True).start()
job.await_termination()
print(f"Routed: {job.status.query.records} orders.")
spark.stop()
