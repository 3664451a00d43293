"""`spark.stop()` under a running job, as in a notebook, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.selection import first_of
from tests.spark.job import spark_stopped_driver

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime")]

_SECONDS = 30
"""Of a machine that others use too. Without the end of Spark the job would wait for ever."""


@pytest.mark.parametrize("moment", first_of(1, ["writes", "waits", "commits"]))
def test_a_job_whose_spark_was_stopped_ends_and_can_be_started_again(
    tmp_path: Path, moment: str
) -> None:
    done = subprocess.run(
        [sys.executable, spark_stopped_driver.__file__, str(tmp_path), moment],
        env=os.environ,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=300,
    )
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["ended"].startswith("SparkLostError: Job 'orders': its Spark application has ended")
    assert "No data is lost" in seen["ended"]
    assert seen["ended"].endswith("Next: start the job again.")
    assert seen["after_s"] < _SECONDS
    assert seen["stopped"]
    assert seen["ids"] == [1, 2]
