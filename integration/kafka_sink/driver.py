"""The driver process of a job from a topic to a topic, as a user would write it.

python -m integration.kafka_sink.driver '{"servers": ..., "topic": ..., "location": ...,
    "sink": {...}}'
"""

from __future__ import annotations

import json
import sys
from typing import Any

import twophase
from integration.mysql.driver import read, session
from twophase.internals.failpoints import be_the_driver
from twophase.sinks.kafka import KafkaSink
from twophase.testing.parent_death import die_with_parent


def main(settings: dict[str, Any]) -> None:
    """Run until the input is used up."""
    be_the_driver()
    die_with_parent()
    spark = session("local[2]")
    orders = read(spark, settings)
    if settings["plugin"]:
        query = (
            orders.writeStream.format("twophase-kafka")
            .options(name="orders", **settings["sink"])
            .option("checkpointLocation", settings["location"])
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    else:
        (
            twophase.write_stream(orders, name="orders")
            .sink("out", KafkaSink(**settings["sink"]))
            .option("checkpointLocation", settings["location"])
            .trigger(availableNow=True)
            .start()
            .await_termination()
        )
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
