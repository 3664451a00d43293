"""The run with the protocol, as a user writes it. Started by `examples.even_odd_sum`."""

import os

import twophase
from examples.even_odd_sum.query import start_spark, sums
from twophase.sinks.mysql import MySqlSink

job = (
    twophase.write_stream(sums(start_spark()), name="even-odd-sum")
    .sink(
        "sums",
        MySqlSink(
            url=os.environ["SUMS_MYSQL"],
            table=os.environ["SUMS_TABLE"],
            password_env="SUMS_MYSQL_PASSWORD",
        ),
    )
    .option("checkpointLocation", os.environ["SUMS_FOLDER"])
    .trigger(availableNow=True)
    .start()
)
job.await_termination()
