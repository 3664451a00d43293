"""A driver process of another job that writes to a Delta table: one checkpoint, committed
when it is told to.

python -m integration.delta.neighbour '{"table": ..., "go": ...}'
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.held_jobs import wait_until
from integration.delta.sink_harness import DeltaHarness, commit
from integration.mysql.driver import session
from twophase.contract.outcome import Committed
from twophase.testing.harness import FIRST, transaction_id
from twophase.testing.parent_death import die_with_parent

JOB = "neighbour"
IDS = range(100, 103)


def main(settings: dict[str, Any]) -> None:
    """Pre-commit, wait until the file `go` is there, commit; with `gives_up` after a commit
    that is interrupted.
    """
    die_with_parent()
    spark = session("local[1]")
    table = DeltaHarness(spark, Path(settings["table"]), columns="")
    sink = table.new_sink().open(table.context(job=JOB))
    sink.fence(FIRST)
    [piece] = sink.pre_commit(table.frame(table.rows(IDS)), transaction_id(job=JOB))
    go = Path(settings["go"])
    go.with_name("ready").touch()
    wait_until(go.exists, str(go))
    if settings.get("gives_up"):
        with suppress(KeyboardInterrupt), sink.table.log.storage.commit_lock():
            raise KeyboardInterrupt
    outcomes = commit(sink, piece)
    assert outcomes == [Committed()], outcomes
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
