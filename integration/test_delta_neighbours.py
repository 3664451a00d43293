"""Several jobs that write to one Delta table on a local disk: none replaces a commit of another."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField

from integration.delta_harness import DeltaHarness, commit
from integration.delta_jars import delta_settings
from integration.delta_neighbour import IDS
from integration.nemesis import DriverProcess
from sinks.delta import fence, table_lock
from sinks.delta.alter import add_columns
from twophase.errors import TargetUnreachableError
from twophase.ids import Attempt
from twophase.protocol.outcome import Committed, RetryLater
from twophase.testing.harness import FIRST

pytestmark = [pytest.mark.part("delta"), pytest.mark.proof]

NEXT = Attempt(1, 2)
_RENAMES = "?rename,renameat,renameat2"
_NUMBERS = {"82", "264", "316"} if platform.machine() == "x86_64" else {"38", "276"}
_LONGER_THAN_ANY_TEST_US = 3_600_000_000
_TRACER = re.compile(r"^TracerPid:\s(\d+)$", re.MULTILINE)
_NUMBER = re.compile(r"^(\d+) ")


class Neighbour(DriverProcess):
    """A process of `integration.delta_neighbour`."""

    module = "integration.delta_neighbour"


@pytest.fixture
def table(delta_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaHarness:
    monkeypatch.setattr(table_lock, "_TIMEOUT_S", 0.1)
    return DeltaHarness(delta_spark, tmp_path / "orders")


@pytest.fixture
def neighbour(table: DeltaHarness, tmp_path: Path) -> Iterator[Neighbour]:
    """Another job on the table, in a process of its own, that has pre-committed."""
    settings = {"table": str(table.folder), "go": str(tmp_path / "go")}
    driver = Neighbour(settings, tmp_path / "runs", conf=delta_settings())
    try:
        driver.wait_for((tmp_path / "ready").exists, "the other job to pre-commit")
        yield driver
    finally:
        driver.kill()


@contextmanager
def held_in_its_commit(driver: Neighbour, table: DeltaHarness, go: Path) -> Iterator[None]:
    """Let a driver commit, and hold its Spark where its commit is about to get its name, after all of Delta's checks.

    Delta has no crash point there, so a debugger holds the system call.
    """
    [java] = [child for child in psutil.Process(driver.pid).children() if "java" in child.name()]
    log = table.folder / "_delta_log"
    before = sorted(log.glob("*.json"))
    inject = f"inject={_RENAMES}:delay_enter={_LONGER_THAN_ANY_TEST_US}"
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={_RENAMES}", "-e", inject, "-p", str(java.pid)]
    with subprocess.Popen(command) as strace:
        try:
            driver.wait_for(lambda: {*_of_tasks(java, "status", _TRACER)} == {str(strace.pid)}, "strace to be there")
            go.touch()
            driver.wait_for(lambda: bool({*_of_tasks(java, "syscall", _NUMBER)} & _NUMBERS), "a file to be renamed")
            assert list(log.glob(".*.json.*.tmp"))
            assert sorted(log.glob("*.json")) == before
            yield
        finally:
            strace.terminate()


def _of_tasks(process: psutil.Process, file: str, pattern: re.Pattern[str]) -> Iterator[str]:
    """What the kernel says of each thread of a process."""
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if found := pattern.search((task / file).read_text()):
                yield found[1]


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace holds a driver between Delta's check and its rename")
def test_two_drivers_do_not_replace_each_other_s_commits(
    table: DeltaHarness, neighbour: Neighbour, tmp_path: Path
) -> None:
    """One has found its version free and is about to rename its commit to it."""
    ours = table.opened()
    piece = table.write(ours, range(3))
    with held_in_its_commit(neighbour, table, tmp_path / "go"):
        [outcome] = commit(ours, piece)
    ended = neighbour.wait()
    if isinstance(outcome, RetryLater):
        assert commit(ours, piece) == [Committed()]
    assert table.ids() == [*range(3), *IDS], f"{outcome} was reported for the first three\n{ended.output}"
    assert ended.code == 0, ended.output
    assert isinstance(outcome, RetryLater)
    assert f"another driver has held {table.folder / table_lock.NAME}" in outcome.reason


def test_every_commit_of_ours_waits_for_the_one_of_another_job(
    table: DeltaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "_LOCK_TRIES", 1)
    sink = table.opened()
    piece = table.write(sink, range(3))
    before = table.commits()
    with table_lock.table_lock(table.folder):
        assert isinstance(commit(sink, piece)[0], RetryLater)
        with pytest.raises(TargetUnreachableError, match="another driver has held"):
            sink.fence(NEXT)
        with pytest.raises(TimeoutError):
            add_columns(sink._bound().log, [StructField("note", StringType())])
        other = table.new_sink()
        other.open(table.context(job="other"))
        with pytest.raises(TargetUnreachableError, match="another driver has held"):
            other.fence(FIRST)
        assert table.commits() == before
    assert commit(sink, piece) == [Committed()]


def test_vacuum_leaves_the_lock(table: DeltaHarness) -> None:
    sink = table.opened()
    assert commit(sink, table.write(sink, range(3))) == [Committed()]
    lock = table.folder / table_lock.NAME
    made = lock.stat().st_ino
    table.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    table.sql("VACUUM {table} RETAIN 0 HOURS")
    table.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert lock.stat().st_ino == made
    assert table.ids() == [0, 1, 2]
