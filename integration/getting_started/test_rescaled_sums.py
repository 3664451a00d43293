"""The example of the two sums is stopped with a savepoint, rescaled and moved between its drivers:
2 partitions of state, then 3, then 1; the sums stay exact.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from examples.even_odd_sum.numbers import PARTITIONS, TOPIC, expected, produce
from examples.even_odd_sum.target import Target
from harness.nemesis import ROOT, DriverProcess
from harness.spark_features import needs
from twophase.operations.savepoint.make import open_savepoint
from twophase.spark_versions import REPARTITIONED_STATE
from twophase.testing.services import KafkaService, MySqlService
from twophase.testing.services.spark_start import spark_environment

pytestmark = [
    pytest.mark.part("stateful"),
    pytest.mark.proof,
    pytest.mark.timeout(1800),
    needs(REPARTITIONED_STATE),
]

NUMBERS = 600
"""Of each Kafka partition."""
BATCH = 50
TIMEOUT_S = 600
TABLE = "rescaled"
_RESCALE = (sys.executable, "-m", "twophase.cli", "savepoint", "rescale")


class SumsDriver(DriverProcess):
    """A process of `integration.getting_started.sums_driver`."""

    module = "integration.getting_started.sums_driver"


class Sums:
    """The example's topic and table, and one job after the other."""

    def __init__(self, kafka: KafkaService, mysql: MySqlService, root: Path) -> None:
        produce(kafka.bootstrap_servers, NUMBERS)
        self.target = Target(mysql)
        self.target.create(TABLE)
        self.root = root
        self._environment = {
            "SUMS_KAFKA": kafka.bootstrap_servers,
            "SUMS_TOPIC": TOPIC,
            "SUMS_MYSQL": self.target.url,
            "SUMS_MYSQL_PASSWORD": mysql.password,
            "SUMS_TABLE": TABLE,
        }

    def run(self, folder: str, restore: Path | None, stop: Path | None) -> int:
        """Run a driver until it has stopped with a savepoint, or has read everything; return the
        rows of the table.
        """
        records = BATCH if stop else PARTITIONS * NUMBERS
        settings = {
            "environment": {**self._environment, "SUMS_RECORDS_PER_CHECKPOINT": str(records)},
            "folder": str(self.root / folder),
            "restore": restore and str(restore),
            "stop": stop and str(stop),
            "checkpoints": 2,
        }
        ended = SumsDriver(settings, self.root / "logs").wait(TIMEOUT_S)
        assert ended.code == 0, ended.output
        return self.target.rows(TABLE)

    def partitions(self, folder: str) -> int:
        """The state partitions that Spark has noted with the newest micro-batch of a job."""
        offsets = (self.root / folder).glob("spark/*/offsets/[0-9]*")
        newest = max(offsets, key=lambda path: int(path.name))
        header = json.loads(newest.read_text().split("\n")[1])
        return int(header["conf"]["spark.sql.shuffle.partitions"])

    def is_exact_so_far(self) -> None:
        """What a reader adds up is what Spark's state has."""
        sums = self.target.sums(TABLE)
        assert {name: one.added for name, one in sums.items()} == {
            name: one.total for name, one in sums.items()
        }


def rescaled_and_moved(savepoint: Path, partitions: int) -> Path:
    """`twophase savepoint rescale`, then another folder; nothing of the old one is left."""
    new = savepoint.with_name(f"{savepoint.name}-{partitions}")
    done = subprocess.run(
        [*_RESCALE, str(savepoint), "--partitions", str(partitions)],
        cwd=ROOT,
        env={**os.environ, **spark_environment()},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(savepoint)
    moved = savepoint.parent / "moved there" / f"to {partitions}"
    moved.parent.mkdir(exist_ok=True)
    new.rename(moved)
    open_savepoint(str(moved)).verify()
    return moved


def test_the_sums_are_exact_after_each_rescale(
    kafka: KafkaService, mysql: MySqlService, tmp_path: Path
) -> None:
    sums = Sums(kafka, mysql, tmp_path)
    restored, rows = None, 0
    for partitions, wanted in ((2, 3), (3, 1)):
        folder, saved = f"with-{partitions}", tmp_path / f"of-{partitions}"
        before, rows = rows, sums.run(folder, restored, saved)
        assert before < rows
        sums.is_exact_so_far()
        assert sums.partitions(folder) == partitions
        shutil.rmtree(tmp_path / folder)
        restored = rescaled_and_moved(saved, wanted)
    assert rows < sums.run("with-1", restored, None)
    assert sums.partitions("with-1") == 1
    found = sums.target.sums(TABLE)
    assert {name: one.added for name, one in found.items()} == expected(NUMBERS)
    assert {name: one.total for name, one in found.items()} == expected(NUMBERS)
