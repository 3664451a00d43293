"""Orders from a topic to topics, each row to that of its region: with the customer as key, and
headers that say where an order came from. Readers of committed records get each order once. Run it
again when there are more orders.

    python -m examples.routed_orders.job BROKERS FOLDER

The topics `orders`, `orders-eu`, `orders-us` and `orders-elsewhere` exist. It reads by
`twophase-kafka`, which needs PySpark 4.2 or newer.
"""

import sys

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import array, col, concat, lit, struct, to_json

import twophase
from twophase.sinks.kafka import KafkaSink

BROKERS, FOLDER = sys.argv[1:]

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
        concat(lit("orders-"), "region").alias("topic"),
    )


sink = KafkaSink(
    **{"kafka.bootstrap.servers": BROKERS},
    topic="orders-elsewhere",  # for those without a region
    other_topics=["orders-eu", "orders-us"],
    format="raw",
    protocol="staged",  # the job may be down for any length of time
)
job = (
    twophase.write_stream(orders, name="routed-orders")
    .sink("regions", sink, transform=records)
    .option("checkpointLocation", FOLDER)
    .trigger(availableNow=True)
    .start()
)
job.await_termination()
print(f"Routed: {job.status.query.records} orders.")
spark.stop()
