"""The definitions of the pipeline: a sink, and the flow that writes to it.

It reads by `twophase-kafka`, which needs PySpark 4.2 or newer: docs/kafka.md has what to do with
4.1.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

import twophase

spark = SparkSession.active()
twophase.register(spark)

dp.create_sink(
    "orders",
    "twophase-mysql",
    {
        "name": "orders",
        "url": str(spark.conf.get("orders.mysql")),
        "table": "orders",
        "password_env": "SHOP_PASSWORD",
    },
)


@dp.append_flow(target="orders")
def all_orders() -> DataFrame:
    """Return every order."""
    options = {
        "kafka.bootstrap.servers": str(spark.conf.get("orders.kafka")),
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "value.format": "json",
    }
    orders = spark.readStream.format("twophase-kafka").options(**options)
    return orders.schema("id long, customer string, amount double").load()
