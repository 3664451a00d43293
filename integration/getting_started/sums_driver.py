"""A driver with the query of `examples.even_odd_sum` that can be stopped with a savepoint.

    python -m integration.getting_started.sums_driver '{"environment": {...}, "folder": ...,
        "restore": ..., "stop": ..., "checkpoints": 2}'

With `stop` it stops itself with a savepoint in that folder once it has committed so many
checkpoints; without it, it ends when everything is read.
"""

from __future__ import annotations

import json
import os
import sys
from threading import Semaphore
from typing import Any

import twophase
from examples.even_odd_sum.query import start_spark, sums
from twophase.events import CheckpointCommitted, Event
from twophase.sinks.mysql import MySqlSink
from twophase.testing.parent_death import die_with_parent

_POLL_S = 0.1


def main(settings: dict[str, Any]) -> None:
    """Run the job."""
    die_with_parent()
    os.environ.update(settings["environment"])
    committed = Semaphore(0)

    def note(event: Event) -> None:
        if isinstance(event, CheckpointCommitted):
            committed.release()

    sink = MySqlSink(
        url=os.environ["SUMS_MYSQL"],
        table=os.environ["SUMS_TABLE"],
        password_env="SUMS_MYSQL_PASSWORD",
    )
    writer = twophase.write_stream(sums(start_spark()), name="even-odd-sum").sink("sums", sink)
    writer.option("checkpointLocation", settings["folder"]).observer(note)
    if settings["restore"]:
        writer.option("restore.path", settings["restore"])
    if not settings["stop"]:
        writer.trigger(availableNow=True).start().await_termination()
        return
    job = writer.start()
    for _ in range(settings["checkpoints"]):
        while not committed.acquire(timeout=_POLL_S):
            assert job.is_active, job.exception()
    job.stop_with_savepoint(settings["stop"])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
