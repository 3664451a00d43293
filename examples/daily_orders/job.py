"""Orders from a folder of JSON lines into a Paimon table with a partition for each day, exactly
once, and what each day has taken. Run it again when there are more orders.

    python -m examples.daily_orders.job ORDERS LAKE
"""

import sys
from pathlib import Path

from pypaimon import CatalogFactory
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, to_date

import twophase
from twophase.sinks.paimon import PaimonSink

ORDERS, LAKE = sys.argv[1], Path(sys.argv[2]).absolute()
WAREHOUSE, TABLE = str(LAKE / "warehouse"), "shop.orders"

Path(WAREHOUSE).mkdir(parents=True, exist_ok=True)
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
orders = (
    spark.readStream.schema("id long, customer string, amount double, at timestamp")
    .json(ORDERS)
    .withColumn("day", to_date(col("at")))
)
sink = PaimonSink(warehouse=WAREHOUSE, table=TABLE, create=True, partition_by=["day"])
job = (
    twophase.write_stream(orders, name="orders")
    .sink("lake", sink)
    .option("checkpointLocation", str(LAKE / "job"))
    .trigger(availableNow=True)
    .start()
)
job.await_termination()
spark.stop()

# Any reader of Paimon will do.
reader = CatalogFactory.create({"warehouse": WAREHOUSE}).get_table(TABLE).new_read_builder()
rows = reader.new_read().to_arrow(reader.new_scan().plan().splits())
taken = rows.group_by("day").aggregate([("amount", "sum"), ("id", "count")]).sort_by("day")
for day in taken.to_pylist():
    print(f"{day['day']}: {day['id_count']} orders, {day['amount_sum']:.2f}")
