"""A job that an older version of PySpark has made goes on under a newer one, and back again, with
all of its state: two installations, one folder. From files, and from Kafka by Spark's own source,
whose connector is another one of each version, and by ours. Run by `make versions` only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.jars import CONNECTORS
from harness.counts import KEYS
from harness.folder_sink import FolderTarget
from harness.nemesis import DriverProcess
from harness.versions import UPGRADES, VARIABLE, python_of
from integration.kafka.topics import Topics
from integration.versions.driver import FILES, NUMBERS, OUR_KAFKA, PLANS, SPARK_S_KAFKA
from twophase.spark_versions import LIMITED_READS, version_in
from twophase.testing.services.spark_start import spark_environment

pytestmark = [
    pytest.mark.spark,
    pytest.mark.part("runtime"),
    pytest.mark.timeout(3600),
    pytest.mark.skipif(VARIABLE not in os.environ, reason="make versions runs it"),
]

_FIRST_FILE_S = 1_700_000_000
_ROWS = 10
_TIMEOUT_S = 400
# Of each job's micro-batches this is the fourth to be committed, the second of the second job:
# Spark has not noted it.
_BEFORE_SPARK_NOTES_IT = "C16=kill@4"
# Here each has one.
_IN_ITS_ONLY_MICRO_BATCH = "C16=kill@2"
_TRIED = os.environ.get(VARIABLE, "")
_PYSPARK = _TRIED.split("-")[0]
_OTHERS = _TRIED.removeprefix(_PYSPARK)
PAIRS = [(older + _OTHERS, newer + _OTHERS) for older, newer in UPGRADES if newer == _PYSPARK]
"""Both with the Python and the Java that are tried."""
READABLE = {
    SPARK_S_KAFKA: lambda pair: len({CONNECTORS.get(one) for one in pair} - {None}) == len(pair),
    OUR_KAFKA: lambda pair: all(map(LIMITED_READS.is_in, pair)),
}
"""With which pairs of versions a source of Kafka is tried: Spark's with those whose connectors
differ.
"""


class Jobs:
    """The folder of the jobs, and their input.

    Args:
        root: an empty folder.
        state_format: of Spark's state; its commit log has that version.
    """

    def __init__(self, root: Path, state_format: int = 1) -> None:
        self.root, self.state_format = root, state_format
        self.added = 0
        self.options = {"restart.strategy": "none"}

    def source(self) -> dict[str, Any]:
        """The source's settings for the driver."""
        options = {"path": str(self.root / "input"), "maxFilesPerTrigger": "1"}
        return {"format": FILES, "options": options}

    def write(self, numbers: range) -> None:
        """Put numbers where the source finds them."""
        (self.root / "input").mkdir(exist_ok=True)
        text = "".join(json.dumps({"id": number}) + "\n" for number in numbers)
        temporary = self.root / f".{self.added}"
        temporary.write_text(text)
        os.utime(temporary, (_FIRST_FILE_S + self.added,) * 2)  # Spark reads them in this order
        temporary.rename(self.root / "input" / f"{self.added:05d}.json")

    def add(self) -> None:
        """The numbers of one more micro-batch."""
        first = self.added * _ROWS
        self.write(range(first, first + _ROWS))
        self.added += 1

    def driver(self, release: str, arm: str = "") -> DriverProcess:
        class Driver(DriverProcess):
            module = "integration.versions.driver"
            python = str(python_of(release))

            def environment(self, conf: Mapping[str, str]) -> dict[str, str]:
                """The driver tunes its own Spark: this process has another one."""
                own = spark_environment(conf)
                return {key: value for key, value in os.environ.items() if key not in own}

        settings = {
            "root": str(self.root),
            "source": self.source(),
            "options": self.options,
            "state_format": str(self.state_format),
        }
        return Driver(settings, self.root / "runs", arm)

    def kill(self, release: str, arm: str) -> None:
        """A driver dies at a crash point."""
        killed = self.driver(release, arm).wait(_TIMEOUT_S)
        assert killed.killed, killed.output
        assert self.rows() == self.expected(), release

    def finish(self, release: str) -> None:
        """A driver reads everything."""
        ended = self.driver(release).wait(_TIMEOUT_S)
        assert ended.code == 0, ended.output
        assert self.rows() == self.expected(), release
        assert self.commit_logs() == {f"v{self.state_format}"}, release

    def commit_logs(self) -> set[str]:
        """Return the versions of all files of Spark's commit logs."""
        commits = (self.root / "jobs").glob("*/spark/*/commits/[0-9]*")
        return {path.read_text().partition("\n")[0] for path in commits}

    def rows(self) -> dict[str, list[int]]:
        return {
            name: sorted(row["id"] for row in FolderTarget(self.root / "targets" / name).rows())
            for name in PLANS
        }

    def expected(self) -> dict[str, list[int]]:
        ends = [_ROWS * (number + 1) for number in range(self.added)]
        return {
            "unique": [*range(min(NUMBERS, ends[-1]))],
            "counts": sorted(
                key * 1000 + sum(1 for number in range(end) if number % KEYS == key)
                for end in ends
                for key in range(KEYS)
            ),
        }


class KafkaJobs(Jobs):
    """Their input is a topic.

    Args:
        root: an empty folder.
        topics: of a broker.
        source: the format that reads it.
    """

    def __init__(self, root: Path, topics: Topics, source: str) -> None:
        super().__init__(root)
        self.group = f"versions-{root.name}"
        self._topics, self._format = topics, source
        self._topic = topics.create()
        # Spark 4.1 fails once behind a micro-batch that it has planned before.
        self.options = {"restart.strategy": "fixed", "restart.attempts": "1"}

    def source(self) -> dict[str, Any]:
        options = {
            "kafka.bootstrap.servers": self._topics.servers,
            "subscribe": self._topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(_ROWS),
            "group.id": self.group,
        }
        return {"format": self._format, "options": options}

    def write(self, numbers: range) -> None:
        self._topics.send(self._topic, [str(number).encode() for number in numbers])


@pytest.mark.parametrize("state_format", [1, 2])
@pytest.mark.parametrize(("older", "newer"), PAIRS)
def test_a_job_goes_on_under_another_version_and_back_again(
    tmp_path: Path, older: str, newer: str, state_format: int
) -> None:
    jobs = Jobs(tmp_path, state_format)
    jobs.add()
    jobs.add()
    jobs.kill(older, _BEFORE_SPARK_NOTES_IT)
    for release in (newer, older):
        jobs.add()
        jobs.finish(release)


@pytest.mark.parametrize(
    ("older", "newer", "source"),
    [
        (*pair, source)
        for pair in PAIRS
        for source, is_tried in READABLE.items()
        if is_tried([*map(version_in, pair)])
    ],
)
def test_a_job_from_kafka_is_killed_or_stopped_under_one_version_and_goes_on_under_another(
    topics: Topics, tmp_path: Path, older: str, newer: str, source: str
) -> None:
    jobs = KafkaJobs(tmp_path, topics, source)
    jobs.add()
    jobs.add()
    jobs.kill(older, _BEFORE_SPARK_NOTES_IT)
    for release, killed in (
        (newer, False),
        (older, False),
        (newer, True),
        (older, True),
        (newer, False),
    ):
        jobs.add()
        if killed:
            jobs.kill(release, _IN_ITS_ONLY_MICRO_BATCH)
        else:
            jobs.finish(release)
            assert topics.committed(jobs.group) == {0: jobs.added * _ROWS}, release
