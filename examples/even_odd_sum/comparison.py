"""The run without the protocol: the usual `foreachBatch`, with one transaction a micro-batch.
Started by `examples.even_odd_sum`.
"""

import os
from urllib.parse import urlsplit

import pymysql
from pyspark.sql import DataFrame

from examples.even_odd_sum.query import start_spark, sums
from twophase.internals.failpoints import failpoint

WRITTEN = "WRITTEN"
"""The crash point after the transaction: the rows are in MySQL, and Spark does not know it."""


def write(batch: DataFrame, _: int) -> None:
    rows = [tuple(row) for row in batch.collect()]
    url = urlsplit(os.environ["SUMS_MYSQL"])
    connection = pymysql.connect(
        host=url.hostname,
        port=url.port or 3306,
        user=url.username,
        password=os.environ["SUMS_MYSQL_PASSWORD"],
        database=url.path.removeprefix("/"),
    )
    with connection, connection.cursor() as cursor:
        cursor.executemany(f"INSERT INTO {os.environ['SUMS_TABLE']} VALUES (%s, %s, %s)", rows)
        connection.commit()
    failpoint(WRITTEN)


if __name__ == "__main__":
    query = (
        sums(start_spark())
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", os.environ["SUMS_FOLDER"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
