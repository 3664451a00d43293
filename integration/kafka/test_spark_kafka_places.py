"""Two of Spark's own Kafka sources change places in the program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.jars import CONNECTORS, peer_jars
from integration.kafka.topics import Topics
from twophase.spark_versions import SPARK
from twophase.testing.services.spark_start import spark_environment

pytestmark = [
    pytest.mark.part("kafka"),
    pytest.mark.proof,
    pytest.mark.skipif(
        SPARK not in CONNECTORS, reason="no connector is known for this version of PySpark"
    ),
]

ROOT = Path(__file__).parents[2]


def test_two_that_change_places_are_refused_with_their_topics(
    topics: Topics, tmp_path: Path
) -> None:
    """In their old order the job goes on, and it does with one topic more."""
    topic, other = topics.create(1), topics.create(1)
    command = ["-m", "integration.kafka.spark_kafka_places_driver"]
    command += [topics.servers, topic, other, str(tmp_path)]
    environment = spark_environment({"spark.jars": peer_jars()}) | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    first, swapped, again, more = found["said"]
    assert (first, again, more) == ("", "", "")
    assert f"kafka ({other}) would go on where kafka ({topic}) is" in swapped
    assert f"their old order in the program: kafka ({topic}), kafka ({other})." in swapped
    assert swapped.startswith("ConfigError")
    assert found["ids"] == sorted([*range(40), *range(10, 20), *range(30, 40)])
