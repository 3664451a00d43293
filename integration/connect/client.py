"""The client of the tests over Spark Connect: the queries of `integration.plugin.driver`, on a
server.

    python -m integration.connect.client '{"remote": "sc://127.0.0.1:15002", ...}'

With `written_by` "write_stream" it tries the other form.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

import twophase
from integration.mysql.driver import read
from integration.plugin.driver import run
from twophase.errors import TwoPhaseError
from twophase.testing.parent_death import die_with_parent


def main(settings: dict[str, Any]) -> int:
    """Run every query until its input is used up, or for ever."""
    die_with_parent()
    spark = SparkSession.builder.remote(settings["remote"]).getOrCreate()
    twophase.register(spark)
    if settings.get("written_by") == "write_stream":
        try:
            twophase.write_stream(read(spark, settings), name="orders")
        except TwoPhaseError as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            return error.exit_code
    return run(spark, settings)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
