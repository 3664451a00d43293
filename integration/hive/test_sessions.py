"""Sessions of Spark that the Hive sink refuses, and that it takes once they are as it says, in a
process of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.hive_settings import hive_settings

pytestmark = [pytest.mark.part("hive"), pytest.mark.proof]

SCRIPT = """
import json, sys
import pyarrow as pa
from pyspark.sql import SparkSession
from twophase.contract.sink import SinkContext
from twophase.errors import PreflightError
from twophase.sinks.hive.sink import HiveSink

def look():
    schema = pa.schema([("id", pa.int64())])
    try:
        HiveSink(table="orders", create=True).open(SinkContext("job", "sink", schema, 1))
    except PreflightError as error:
        return [error.what, error.remedy]
    return ["opened", ""]

def builder():
    settings = json.loads(sys.argv[1])
    return SparkSession.builder.master("local[1]").config(map=settings)

found = [look()]
session = builder().getOrCreate()
found.append(look())
session.stop()
session = builder().enableHiveSupport().getOrCreate()
found.append(look())
session.stop()
print(json.dumps(found))
"""


def test_a_session_without_a_metastore_or_none_at_all_is_refused_and_one_with_it_is_taken(
    tmp_path: Path,
) -> None:
    settings = {"spark.ui.enabled": "false", **hive_settings(tmp_path)}
    del settings["spark.sql.catalogImplementation"]
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(settings)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-5000:]
    assert json.loads(ended.stdout.splitlines()[-1]) == [
        ["The Hive sink needs a running Spark session.", "start the job from one."],
        [
            "The Spark session has no Hive metastore.",
            "build the session with enableHiveSupport().",
        ],
        ["opened", ""],
    ]
