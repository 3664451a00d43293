"""A job that an older version of PySpark has made goes on under a newer one, and back again, with
all of its state: two installations, one folder. Run by `make versions` only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.counts import KEYS
from harness.folder_sink import FolderTarget
from harness.nemesis import DriverProcess
from harness.versions import UPGRADES, VARIABLE, python_of
from integration.versions.driver import NUMBERS, PLANS
from twophase.testing.services.spark_start import spark_environment

pytestmark = [
    pytest.mark.spark,
    pytest.mark.part("runtime"),
    pytest.mark.skipif(VARIABLE not in os.environ, reason="make versions runs it"),
]

_FIRST_FILE_S = 1_700_000_000
_ROWS = 10
_TIMEOUT_S = 400
# Of each job's micro-batches this is the fourth to be committed, the second of the second job:
# Spark has not noted it.
_BEFORE_SPARK_NOTES_IT = "C16=kill@4"
PAIRS = [pair for pair in UPGRADES if pair[1] == os.environ.get(VARIABLE)]


class Jobs:
    """The folder of the jobs, and their input."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = 0
        (root / "input").mkdir()

    def add(self) -> None:
        first = self.files * _ROWS
        text = "".join(json.dumps({"id": first + step}) + "\n" for step in range(_ROWS))
        temporary = self.root / f".{self.files}"
        temporary.write_text(text)
        os.utime(temporary, (_FIRST_FILE_S + self.files,) * 2)  # Spark reads them in this order
        temporary.rename(self.root / "input" / f"{self.files:05d}.json")
        self.files += 1

    def driver(self, release: str, arm: str = "") -> DriverProcess:
        class Driver(DriverProcess):
            module = "integration.versions.driver"
            python = str(python_of(release))

            def environment(self, conf: Mapping[str, str]) -> dict[str, str]:
                """The driver tunes its own Spark: this process has another one."""
                own = spark_environment(conf)
                return {key: value for key, value in os.environ.items() if key not in own}

        settings = {"input": str(self.root / "input"), "root": str(self.root)}
        return Driver(settings, self.root / "runs", arm)

    def finish(self, release: str) -> None:
        ended = self.driver(release).wait(_TIMEOUT_S)
        assert ended.code == 0, ended.output

    def rows(self) -> dict[str, list[int]]:
        return {
            name: sorted(row["id"] for row in FolderTarget(self.root / "targets" / name).rows())
            for name in PLANS
        }

    def expected(self) -> dict[str, list[int]]:
        ends = [_ROWS * (number + 1) for number in range(self.files)]
        return {
            "unique": [*range(min(NUMBERS, ends[-1]))],
            "counts": sorted(
                key * 1000 + sum(1 for number in range(end) if number % KEYS == key)
                for end in ends
                for key in range(KEYS)
            ),
        }


@pytest.mark.parametrize(("older", "newer"), PAIRS)
def test_a_job_goes_on_under_another_version_and_back_again(
    tmp_path: Path, older: str, newer: str
) -> None:
    jobs = Jobs(tmp_path)
    jobs.add()
    jobs.add()
    killed = jobs.driver(older, _BEFORE_SPARK_NOTES_IT).wait(_TIMEOUT_S)
    assert killed.killed, killed.output
    assert jobs.rows() == jobs.expected()
    for release in (newer, older):
        jobs.add()
        jobs.finish(release)
        assert jobs.rows() == jobs.expected(), release
