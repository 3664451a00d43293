"""Sessions of Spark that the Delta sink refuses, and that it takes once they are as it says.

Each is in a process of its own: Spark's jars are chosen when its JVM starts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.delta_settings import delta_settings
from harness.spark_features import why_not
from twophase.sinks.delta.sink import DeltaSink
from twophase.spark_versions import DELTA

pytestmark = [
    pytest.mark.part("delta"),
    pytest.mark.proof,
    pytest.mark.skipif(not DELTA.is_here, reason=why_not(DELTA)),
]

SCRIPT = """
import json, sys
import pyarrow as pa
from pyspark.sql import SparkSession
from twophase.contract.sink import SinkContext
from twophase.errors import PreflightError
from twophase.sinks.delta.sink import DeltaSink

def look():
    schema = pa.schema([("id", pa.int64())])
    try:
        DeltaSink(path=sys.argv[1], create=True).open(SinkContext("job", "sink", schema, 1))
    except PreflightError as error:
        return [error.what, error.remedy]
    return ["opened", ""]

found = [look()]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False)
session = builder.config(map=json.loads(sys.argv[2])).getOrCreate()
found.append(look())
session.stop()
print(json.dumps(found))
"""


def looks(folder: Path, settings: dict[str, str]) -> list[list[str]]:
    """What the sink says before there is a session, and in one with these settings."""
    command = [sys.executable, "-c", SCRIPT, str(folder / "orders"), json.dumps(settings)]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-5000:]
    found: list[list[str]] = json.loads(ended.stdout.splitlines()[-1])
    return found


def test_a_session_without_delta_or_none_at_all_is_refused_and_one_with_its_settings_is_taken(
    tmp_path: Path,
) -> None:
    whole = delta_settings()
    assert whole.keys() >= {"spark.sql.extensions", "spark.sql.catalog.spark_catalog"}
    remedy = "start Spark with the settings of DeltaSink.spark_conf()."
    no_settings = {
        name: value for name, value in whole.items() if name not in DeltaSink.spark_conf()
    }
    no_jars = {name: value for name, value in whole.items() if not name.startswith("spark.jars")}
    none, bare = looks(tmp_path, no_settings)
    assert none == ["The Delta sink needs a running Spark session.", "start the job from one."]
    assert bare[0].startswith("Delta is not set up in this Spark session: spark.sql.extensions=")
    assert bare[1] == remedy
    assert looks(tmp_path, no_jars)[1] == [
        "There is no Delta on Spark's class path; this sink works with Delta 4.4.0 only.",
        remedy,
    ]
    assert looks(tmp_path, whole) == [none, ["opened", ""]]
