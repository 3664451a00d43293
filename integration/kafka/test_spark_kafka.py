"""A job over Spark's own Kafka source, to be taken where `twophase-kafka` is refused."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.jars import CONNECTORS, peer_jars
from integration.kafka.topics import Topics
from twophase.cli.checkpoint_list import offsets_of, read_checkpoints
from twophase.spark.plugin.confirmed_start import noted_line
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
_groups = itertools.count()


def answered(driver: str, *arguments: str) -> dict[str, Any]:
    """Run a driver with Spark's connector in a process of its own; return what it prints."""
    environment = spark_environment({"spark.jars": peer_jars()}) | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", f"integration.kafka.{driver}", *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_a_job_over_spark_s_kafka_source_commits_its_group_and_says_what_is_lost(
    topics: Topics, tmp_path: Path
) -> None:
    topic, group = topics.create(2), f"contract-{next(_groups)}"
    said = answered("spark_kafka_driver", topics.servers, topic, group, str(tmp_path))
    assert said["lag"] == 0
    began = {noted_line(path) for path in tmp_path.glob("job/spark/*/sources/0/0")}
    assert f'{{"{topic}":{{"0":0,"1":0}}}}' in began
    assert "kafka does not number its tasks by what they read" in said["refused"]
    partitions = [f"{topic}-{number}:20 to 40 (source kafka)" for number in range(2)]
    assert said["ranges"] == partitions
    assert topics.committed(group) == {0: 60, 1: 60}, "the newest one is not committed"
    newest = read_checkpoints(str(tmp_path / "job")).entries[-1].body
    assert newest is not None
    assert offsets_of(newest) == [("kafka", [{topic: {"0": 80, "1": 80}}])]
    begun, numbers = said["begun"], [*range(40), *range(100, 140)]
    assert "was first read in this micro-batch" in begun["said"]
    assert "give up these rows: twophase repair accept-loss" in begun["said"]
    assert begun["lake"] == numbers
    left = [one for one in numbers if one % 100 >= 20]
    assert begun["facts"] in ([*range(20), *left], [*left[:20], *range(100, 120), *left[20:]])
    for name, kept in (("assign", [0]), ("left", [0, 100, 7]), ("expired", [0, 100])):
        found = said[name]
        assert "have been deleted" in found["said"]
        assert "failOnDataLoss=false" in found["said"]
        read = [one for first in kept for one in range(first, first + (1 if first == 7 else 60))]
        gone = [*range(100, 120)] if name == "assign" else []
        lost = range(20, 30) if name == "expired" else ()
        assert found["ids"] == sorted(one for one in (*read, *gone) if one not in lost)


def test_two_sources_that_change_places_are_refused_with_their_topics(
    topics: Topics, tmp_path: Path
) -> None:
    """In their old order the job goes on, and it does with one topic more."""
    topic, other = topics.create(1), topics.create(1)
    found = answered("spark_kafka_places_driver", topics.servers, topic, other, str(tmp_path))
    first, swapped, again, more = found["said"]
    assert (first, again, more) == ("", "", "")
    assert f"kafka ({other}) would go on where kafka ({topic}) is" in swapped
    assert f"their old order in the program: kafka ({topic}), kafka ({other})." in swapped
    assert swapped.startswith("ConfigError")
    assert found["ids"] == sorted([*range(40), *range(10, 20), *range(30, 40)])
