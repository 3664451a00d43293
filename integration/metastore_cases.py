"""What `test_hive_metastore.py` runs, in a process with a Spark of its own: python -m integration.metastore_cases FOLDER.

A process has one metastore for its whole life, and the Spark of the other tests has an embedded one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from integration.hive_harness import HiveHarness
from integration.metastore_server import MetastoreProgram, metastore_server
from tests.sinks.file.harness import commit, orders
from twophase.errors import TargetUnreachableError
from twophase.protocol.outcome import AlreadyCommitted, Committed
from twophase.testing.spark_start import spark_environment


def main(folder: Path) -> None:
    """The metastore is there, is down before the decision, is down after it, and is back."""
    program = MetastoreProgram(folder / "warehouse")
    server = metastore_server(program)
    server.start()
    try:
        os.environ.update(spark_environment(_settings(folder, program.port)))
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
        spark.stop()
    finally:
        server.stop()


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
