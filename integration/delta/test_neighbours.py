"""Several jobs that write to one Delta table on a local disk: none replaces a commit of another."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField

from harness.delta_settings import delta_settings
from harness.held_jobs import wait_until
from harness.nemesis import DriverProcess
from harness.spark_settings import changed
from integration.delta.neighbour import IDS, JOB
from integration.delta.sink_harness import DeltaHarness, commit
from twophase.contract.outcome import Committed, RetryLater
from twophase.errors import TargetUnreachableError
from twophase.ids import Attempt
from twophase.sinks.delta import fence, table_lock
from twophase.sinks.delta.ddl import NewColumn, add_columns
from twophase.testing.harness import FIRST
from twophase.testing.sessions import is_gone, kill

pytestmark = [pytest.mark.part("delta"), pytest.mark.proof]

NEXT = Attempt(1, 2)
_RENAMES = "?rename,renameat,renameat2"
_NUMBERS = {"82", "264", "316"} if platform.machine() == "x86_64" else {"38", "276"}
_LONGER_THAN_ANY_TEST_US = 3_600_000_000
_TRACER = re.compile(r"^TracerPid:\s(\d+)$", re.MULTILINE)
_NUMBER = re.compile(r"^(\d+) ")
_STATE = re.compile(r"^State:\s(\w)", re.MULTILINE)
_STOPPED = {"T", "t"}  # by a signal, by a debugger


class Neighbour(DriverProcess):
    """A process of `integration.delta.neighbour`."""

    module = "integration.delta.neighbour"


@pytest.fixture
def table(
    delta_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> DeltaHarness:
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
def held_in_its_commit(
    driver: Neighbour, table: DeltaHarness, go: Path
) -> Iterator[psutil.Process]:
    """Let a driver commit, and hold its Spark where its commit is about to get its name, after all
    of Delta's checks.

    Delta has no crash point there, so a debugger holds the system call. It lets go at the end.

    Yields:
        Its JVM.
    """
    assert shutil.which("strace"), (
        "strace holds a driver between Delta's check and its rename; install it: "
        "apt-get install strace"
    )
    [java] = [child for child in psutil.Process(driver.pid).children() if "java" in child.name()]
    log = table.folder / "_delta_log"
    before = sorted(log.glob("*.json"))
    inject = f"inject={_RENAMES}:delay_enter={_LONGER_THAN_ANY_TEST_US}"
    command = [
        "strace",
        "-f",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        f"trace={_RENAMES}",
        "-e",
        inject,
        "-p",
        str(java.pid),
    ]
    with subprocess.Popen(command) as strace:
        try:
            driver.wait_for(
                lambda: {*_of_tasks(java, "status", _TRACER)} == {str(strace.pid)},
                "strace to be there",
            )
            go.touch()
            driver.wait_for(
                lambda: bool({*_of_tasks(java, "syscall", _NUMBER)} & _NUMBERS),
                "a file to be renamed",
            )
            assert list(log.glob(".*.json.*.tmp"))
            assert sorted(log.glob("*.json")) == before
            yield java
        finally:
            strace.kill()  # a clean end of it waits for ever for threads that were killed


def _of_tasks(process: psutil.Process, file: str, pattern: re.Pattern[str]) -> Iterator[str]:
    """What the kernel says of each thread of a process."""
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if found := pattern.search((task / file).read_text()):
                yield found[1]


def hang(process: psutil.Process) -> None:
    """Stop a process as a disk that does not answer would: it does not end when it should."""
    process.suspend()
    wait_until(
        lambda: {*_of_tasks(process, "status", _STATE)} <= _STOPPED, "the process to be stopped"
    )


def kill_python(driver: Neighbour, table: DeltaHarness) -> None:
    """SIGKILL a driver's Python, and nothing else of it."""
    assert pids_with_a_lock(table.folder / table_lock.NAME) == {driver.pid}
    psutil.Process(driver.pid).kill()
    wait_until(
        lambda: not pids_with_a_lock(table.folder / table_lock.NAME),
        "all threads of Python to be gone",
    )


def pids_with_a_lock(path: Path) -> set[int]:
    """As the kernel lists them, and `lslocks` with it."""
    inode = path.stat().st_ino
    locks = [
        line.split() for line in Path("/proc/locks").read_text().splitlines() if "->" not in line
    ]
    return {
        int(pid) for _, _, _, _, pid, file, *_ in locks if file.rpartition(":")[2] == str(inode)
    }


LINUX_ONLY = pytest.mark.skipif(platform.system() != "Linux", reason="strace is Linux's")


@LINUX_ONLY
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
    assert table.ids() == [*range(3), *IDS], (
        f"{outcome} was reported for the first three\n{ended.output}"
    )
    assert ended.code == 0, ended.output
    assert isinstance(outcome, RetryLater)
    assert f"{table.folder / table_lock.NAME} could not be locked within" in outcome.reason


@LINUX_ONLY
@pytest.mark.parametrize("end", ["goes on", "is killed"])
def test_the_lock_is_held_as_long_as_the_jvm_that_writes(
    table: DeltaHarness,
    neighbour: Neighbour,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: str,
) -> None:
    """The disk hangs in the rename, and an operator kills the driver: its Python is
    gone, its JVM is not.
    """
    monkeypatch.setattr(fence, "_LOCK_TRIES", 1)
    ours, third = table.opened(), table.new_sink().open(table.context(job="third"))
    piece = table.write(ours, range(3))
    with held_in_its_commit(neighbour, table, tmp_path / "go") as java:
        hang(java)
        kill_python(neighbour, table)
        [outcome] = commit(ours, piece)
        holders = pids_with_a_lock(table.folder / table_lock.JVM_NAME)
        with (
            pytest.raises(TargetUnreachableError, match="could not be locked within")
            if holders
            else nullcontext()
        ):
            third.fence(FIRST)
        assert not is_gone(java)
        if end == "is killed":
            kill([java])
    if end == "goes on":
        java.resume()
        wait_until(lambda: is_gone(java), "the JVM to end as its Python has")
    wait_until(
        lambda: not pids_with_a_lock(table.folder / table_lock.JVM_NAME),
        "the kernel to release the lock",
    )
    if isinstance(outcome, RetryLater):
        assert commit(ours, piece) == [Committed()]
    assert {*table.ids()} >= {*range(3)}, f"{outcome} was reported for them"
    third.fence(FIRST)
    again = table.new_sink().open(table.context(job=JOB))
    again.fence(NEXT)
    commit(again, *again.in_doubt())
    assert table.ids() == [*range(3), *IDS]
    assert isinstance(outcome, RetryLater)
    assert f"{table.folder / table_lock.JVM_NAME} could not be locked within" in outcome.reason
    assert holders == {java.pid}


def test_a_job_whose_jvm_has_the_lock_for_ever_stops_and_goes_on_in_another_jvm(
    table: DeltaHarness, tmp_path: Path
) -> None:
    """Its own commit was interrupted, and may be under way: to retry helps nobody,
    to end the JVM does.
    """
    settings = {"table": str(table.folder), "go": str(tmp_path / "go"), "gives_up": True}
    (tmp_path / "go").touch()
    stopped = Neighbour(settings, tmp_path / "runs", conf=delta_settings()).wait()
    assert "StopJobError" in stopped.output
    assert "this JVM has locked" in stopped.output
    assert stopped.code != 0
    wait_until(
        lambda: not pids_with_a_lock(table.folder / table_lock.JVM_NAME),
        "the JVM to end as its Python has",
    )
    assert table.ids() == []
    again = table.new_sink().open(table.context(job=JOB))
    again.fence(NEXT)
    assert commit(again, *again.in_doubt()) == [Committed()]
    assert table.ids() == [*IDS]


@pytest.mark.parametrize("name", [table_lock.NAME, table_lock.JVM_NAME])
def test_a_sink_of_the_same_jvm_waits_too(table: DeltaHarness, name: str) -> None:
    """A JVM that closes the second file twice at a time would lose its lock;
    nobody gets that far.
    """
    one, other = (table.opened().table.log.storage for _ in range(2))
    with one.commit_lock(), pytest.raises(TimeoutError, match=table_lock.NAME), other.commit_lock():
        pass
    with other.commit_lock():
        assert pids_with_a_lock(table.folder / name)
    assert not pids_with_a_lock(table.folder / name)


def test_every_commit_waits_for_the_one_of_another_job(
    table: DeltaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "_LOCK_TRIES", 1)
    sink = table.opened()
    piece = table.write(sink, range(3))
    before = table.commits()
    with table_lock.python_lock(table.folder, time.monotonic()):
        assert isinstance(commit(sink, piece)[0], RetryLater)
        with pytest.raises(TargetUnreachableError, match="could not be locked within"):
            sink.fence(NEXT)
        with pytest.raises(TimeoutError):
            add_columns(sink.table.log, [NewColumn((), StructField("note", StringType()))])
        other = table.new_sink().open(table.context(job="other"))
        with pytest.raises(TargetUnreachableError, match="could not be locked within"):
            other.fence(FIRST)
        assert table.commits() == before
    assert commit(sink, piece) == [Committed()]


def test_vacuum_leaves_the_lock(table: DeltaHarness) -> None:
    sink = table.opened()
    assert commit(sink, table.write(sink, range(3))) == [Committed()]
    lock = table.folder / table_lock.NAME
    made = lock.stat().st_ino
    with changed(table.spark, {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}):
        table.sql("VACUUM {table} RETAIN 0 HOURS")
    assert lock.stat().st_ino == made
    assert table.ids() == [0, 1, 2]
