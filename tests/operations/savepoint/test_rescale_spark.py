"""Rescaled savepoints on real Spark: 2 partitions, then 3, then 1; moved, restored, exact."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from harness.counts import counts
from harness.selection import first_of
from harness.spark_features import needs
from tests.operations.savepoint.test_savepoint_spark import (
    _COUNTS,
    _WINDOWS,
    Moved,
    windows,
)
from twophase.errors import ConfigError
from twophase.internals import failpoints
from twophase.internals.clock import SystemClock
from twophase.operations.savepoint.make import open_savepoint
from twophase.operations.savepoint.rescale import Rescaler, repartition_with
from twophase.spark.folder import state_stores
from twophase.spark_versions import REPARTITIONED_STATE
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.log import JobLog
from twophase.testing.services.spark_start import spark_environment
from twophase.testing.sessions import kill, session_of

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime"), needs(REPARTITIONED_STATE)]

ROCKSDB = {"state.backend": "rocksdb"}
WHOLE = {**ROCKSDB, "state.backend.incremental": "false"}
PLANS = {
    "transformWithState": (counts, ROCKSDB, _COUNTS),
    "windows": (windows, WHOLE, _WINDOWS),
}
_COMMAND = "from twophase.cli.main import main; main()"


@pytest.fixture
def moved(spark: SparkSession, tmp_path: Path) -> Moved:
    return Moved(spark, tmp_path)


def rescaled(moved: Moved, path: Path, partitions: int) -> Path:
    output = moved.root / f"in-{partitions}"
    rescaler = Rescaler(str(path), partitions, str(output))
    rescaler.run(repartition_with(moved.spark), SystemClock())
    return output


def noted(folder: Path) -> tuple[int, str]:
    """The newest micro-batch of a job, and the partitions that it ran with."""
    newest = max(folder.glob("spark/*/offsets/[0-9]*"), key=lambda path: int(path.name))
    conf = json.loads(newest.read_text().split("\n")[1])["conf"]
    return int(newest.name), conf["spark.sql.shuffle.partitions"]


@pytest.mark.parametrize("plan", first_of(1, PLANS))
def test_a_job_goes_on_exactly_from_a_savepoint_rescaled_twice_and_moved(
    moved: Moved, plan: str
) -> None:
    moved.build, options, expected = PLANS[plan]
    for _ in range(3):
        moved.add()
    made = moved.root / "made"
    moved.stopped(made, **options)
    newest, partitions = noted(moved.root / "job")
    assert partitions == "2"
    twice = rescaled(moved, rescaled(moved, made, 3), 1)
    there = twice.rename(moved.root / "moved there")
    for gone in ("job", "made", "in-3"):
        shutil.rmtree(moved.root / gone)
    moved.add()
    moved.add()
    moved.run(moved.writing("again", **options, **{"restore.path": str(there)}))
    assert moved.ids() == expected
    last, partitions = noted(moved.root / "again")
    assert (last >= newest + 3, partitions) == (True, "1")
    lineage = JobLog(LocalStorage(moved.root / "again"), "orders").read().lineage
    assert lineage is not None
    assert [one.partitions for one in lineage.rescaled] == [3, 1]
    state = moved.root / "again" / "spark" / lineage.id / "state"
    assert state_stores.have_version(state, last + 1)


@pytest.mark.parametrize("point", first_of(0, ["S15", "S14", "S02", "S03"]))
def test_a_kill_leaves_no_savepoint_and_the_old_one_as_it_was(moved: Moved, point: str) -> None:
    moved.build = counts
    moved.add()
    made, new = moved.root / "made", moved.root / "made-3"
    moved.stopped(made, **ROCKSDB)
    command = ["savepoint", "rescale", str(made), "--partitions", "3"]
    environment = {**os.environ, **spark_environment(), failpoints.VARIABLE: f"{point}=kill"}
    process = subprocess.Popen(
        [sys.executable, "-c", _COMMAND, *command], env=environment, start_new_session=True
    )
    code = process.wait()
    kill(session_of(process.pid))
    assert code == -signal.SIGKILL
    with pytest.raises(ConfigError, match="is incomplete: it has no manifest"):
        open_savepoint(str(new))
    open_savepoint(str(made)).verify()
    shutil.rmtree(new)
    moved.add()
    moved.run(moved.writing("again", **ROCKSDB, **{"restore.path": str(rescaled(moved, made, 3))}))
    assert moved.ids() == sorted(
        key * 1000 + sum(1 for number in range(last) if number % 3 == key)
        for last in (10, 20)
        for key in range(3)
    )
