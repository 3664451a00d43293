"""The driver process of a job that writes orders from files to a table of a lake, as a user would
write it.

    python -m integration.lake_driver '{"orders": ..., "location": ..., "type": ..., "sink": {...}}'
"""

from __future__ import annotations

import json
import sys
from typing import Any

import twophase
from harness import workload
from integration.mysql.driver import session
from twophase.internals.failpoints import be_the_driver
from twophase.testing.parent_death import die_with_parent


def main(settings: dict[str, Any]) -> None:
    """Run until the input is used up, two files in a micro-batch."""
    be_the_driver()
    die_with_parent()
    spark = session("local[2]")
    spark.conf.set("spark.sql.files.openCostInBytes", "128MB")  # a task for each file
    orders = (
        spark.readStream.schema(workload.SCHEMA)
        .option("maxFilesPerTrigger", 2)
        .json(settings["orders"])
    )
    (
        twophase.write_stream(orders, name="orders")
        .sink("lake", settings["type"], **settings["sink"])
        .option("checkpointLocation", settings["location"])
        .trigger(availableNow=True)
        .start()
        .await_termination()
    )
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
