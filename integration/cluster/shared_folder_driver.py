"""A driver process on a cluster: a job with keyed state, from a folder of JSON files into a
folder of Parquet files.

python -m integration.cluster.shared_folder_driver '{"master": ..., "input": ..., "table": ...,
"location": ..., "trigger": {...}}'
"""

from __future__ import annotations

import json
import sys
from typing import Any

import twophase
from integration.mysql.driver import session
from twophase.errors import TwoPhaseError
from twophase.sinks.file.sink import FileSink
from twophase.testing.parent_death import die_with_parent


def main(settings: dict[str, Any]) -> int:
    """Run the job to its end; returns the exit code that `twophase run` would have."""
    die_with_parent()
    spark = session(settings["master"])
    rows = (
        spark.readStream.schema("id long")
        .option("maxFilesPerTrigger", 1)
        .json(f"file://{settings['input']}")
    )
    writer = (
        twophase.write_stream(rows.dropDuplicates(["id"]), name="orders")
        .sink("facts", FileSink(path=settings["table"]))
        .option("checkpointLocation", settings["location"])
        .option("restart.strategy", "none")
        .trigger(**settings["trigger"])
    )
    try:
        writer.start().await_termination()
    except TwoPhaseError as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\n")
        return error.exit_code
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
