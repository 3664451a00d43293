"""What `test_metastore.py` runs, in a process with a Spark of its own: python -m
integration.hive.metastore_cases FOLDER.

A process has one metastore for its whole life, and the Spark of the other tests
has an embedded one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import twophase
from harness.json_rows import make_input, read
from harness.metastore_server import MetastoreService
from harness.staged_sink_harness import commit, orders
from integration.hive.sink_harness import HiveHarness
from twophase.contract.outcome import AlreadyCommitted, Committed
from twophase.errors import TargetUnreachableError
from twophase.events import (
    CheckpointCommitted,
    CheckpointDecided,
    CheckpointDeclined,
    CommitRetried,
    Event,
    JobRestarting,
)
from twophase.testing.services.spark_start import spark_environment


def main(folder: Path) -> None:
    """The metastore is there, is down before the decision, is down after it, and is back: by
    hand, then under a job.
    """
    server = MetastoreService(folder / "warehouse")
    server.start()
    try:
        os.environ.update(spark_environment(_settings(folder, server.port)))
        spark = SparkSession.builder.master("local[2]").getOrCreate()
        table = HiveHarness(spark, create=True, partition_by=["name"])
        sink = table.opened()
        first = table.write(sink, orders([1]))
        assert commit(sink, first) == [Committed()]
        second = table.write(sink, orders([2]), 1)
        server.kill()
        with pytest.raises(TargetUnreachableError, match="metastore could not look up table"):
            table.opened()
        with pytest.raises(TargetUnreachableError, match="metastore could not add partitions"):
            commit(sink, second)
        assert len(table.staged()) == 1  # no proof was given
        server.restart()
        assert sorted(row["id"] for row in table.rows_visible()) == [1]
        assert commit(sink, first, second) == [AlreadyCommitted("done marker"), Committed()]
        assert sorted(row["id"] for row in table.rows_visible()) == [1, 2]
        assert table.partitions() == ["name=row 1", "name=row 2"]
        assert table.staged() == []
        _run_job(spark, server, folder)
        spark.stop()
    finally:
        server.stop()


def _run_job(spark: SparkSession, server: MetastoreService, folder: Path) -> None:
    """The metastore dies when the second checkpoint is decided, and comes back when its commit was
    tried twice in vain.
    """
    rows, heard = make_input(folder / "in", 3), list[Event]()
    table = HiveHarness(spark, create=True, partition_by=["part"])

    def observe(event: Event) -> None:
        heard.append(event)
        match event:
            case CheckpointDecided(checkpoint=1):
                server.kill()
            case CommitRetried(retries=2):
                server.restart()
            case _:
                pass

    writer = twophase.write_stream(read(spark, folder / "in"), name="orders").observer(observe)
    writer.sink("hive", table.new_sink(), lambda frame: frame.withColumn("part", frame.id % 2))
    job = (
        writer.option("checkpointLocation", str(folder / "job")).trigger(availableNow=True).start()
    )
    assert job.await_termination()
    retried = [event for event in heard if isinstance(event, CommitRetried)]
    assert [(event.checkpoint, event.retries) for event in retried[:2]] == [(1, 1), (1, 2)]
    assert {event.checkpoint for event in retried} == {1}
    assert all("metastore could not add partitions" in event.reason for event in retried[:2]), (
        retried
    )
    assert [event.checkpoint for event in heard if isinstance(event, CheckpointCommitted)] == [
        0,
        1,
        2,
    ]
    assert not [event for event in heard if isinstance(event, CheckpointDeclined | JobRestarting)]
    assert sorted(row.id for row in table.sql("SELECT id FROM {table}")) == list(range(rows))
    assert (table.partitions(), table.staged()) == (["part=0", "part=1"], [])


def _settings(folder: Path, port: int) -> dict[str, str]:
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.hadoop.hive.metastore.uris": f"thrift://127.0.0.1:{port}",
        "spark.hadoop.hive.metastore.client.connect.retry.delay": "1",
        "spark.hadoop.hive.metastore.connect.retries": "1",
        "spark.hadoop.hive.metastore.failure.retries": "1",
        "spark.hadoop.hive.metastore.client.socket.timeout": "60",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.log.level": "OFF",
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stdout.write("as it should be\n")
