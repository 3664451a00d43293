"""The lock of a table on a local disk: Python's, and the JVM's, here of a JVM without Spark (`integration/test_delta_neighbours.py`)."""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway

from harness.rights import permissions_checked
from sinks.delta import table_lock as module
from sinks.delta.jvm import Jvm
from sinks.delta.names import FOLDER
from sinks.delta.table_lock import JVM_NAME, NAME, make_jvm_file, python_lock, table_lock
from twophase.startup.java import java, pyspark_jars

HOLDER = """
import sys
from pathlib import Path
from sinks.delta.table_lock import python_lock

with python_lock(Path(sys.argv[1]), 0):
    print("held", flush=True)
    sys.stdin.read()
"""

ON_A_JVM = """
import sys
from pathlib import Path
from sinks.delta.table_lock import table_lock
from tests.sinks.delta.test_table_lock import connected

with connected(int(sys.argv[2])) as jvm, table_lock(Path(sys.argv[1]), jvm):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def connected(port: int) -> Iterator[Jvm]:
    """A JVM that other Pythons may use too, as that of a notebook, of Livy, or of PYSPARK_GATEWAY_PORT."""
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    session: Any = SimpleNamespace(_jvm=gateway.jvm, _jsparkSession=None)
    try:
        yield Jvm(session)
    finally:
        gc.collect()  # py4j tells the JVM of each object that goes: while it is there
        gateway.close()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / FOLDER).mkdir()
    return tmp_path


@pytest.fixture
def holder(table: Path) -> Iterator[subprocess.Popen[str]]:
    """Another driver in the middle of a commit."""
    command = [sys.executable, "-c", HOLDER, str(table)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_commit_does_not_begin_while_another_process_commits(table: Path, holder: subprocess.Popen[str]) -> None:
    assert holder.poll() is None
    with pytest.raises(TimeoutError, match=f"{table / NAME} could not be had within"), python_lock(table, 0):
        pass


def test_a_driver_that_is_killed_holds_nothing(table: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    with python_lock(table, 0):
        pass


def test_one_process_cannot_take_it_twice(table: Path) -> None:
    with python_lock(table, 0), pytest.raises(TimeoutError), python_lock(table, 0):
        pass
    with python_lock(table, 0):
        pass


def test_a_job_of_another_account_can_lock_what_it_cannot_write(table: Path) -> None:
    with python_lock(table, 0):
        pass
    (table / NAME).chmod(0o444)
    with permissions_checked():
        with pytest.raises(PermissionError):
            (table / NAME).open("r+b")
        with python_lock(table, 0), pytest.raises(TimeoutError), python_lock(table, 0):
            pass


def test_the_table_s_rights_are_the_lock_s(table: Path) -> None:
    with python_lock(table, 0):
        (table / "a file of the table").touch()
        assert (table / NAME).stat().st_mode == (table / "a file of the table").stat().st_mode


def test_a_file_system_that_locks_only_what_may_be_written_is_named(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = re.escape(
        f"NFS locks only what may be written: let the accounts of all jobs write {table / NAME} (chmod, chgrp)"
    )

    def as_on_nfs(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(module.fcntl, "flock", as_on_nfs)
    with pytest.raises(PermissionError, match=named), python_lock(table, 0):
        pass


def test_another_error_of_the_lock_is_not_taken_for_that(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_locks(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(module.fcntl, "flock", without_locks)
    with pytest.raises(OSError, match="No locks available"), python_lock(table, 0):
        pass


@pytest.mark.parametrize("umask", [0o022, 0o077])
@pytest.mark.parametrize("rights", [0o755, 0o775, 0o2770, 0o777])
def test_whoever_may_write_into_the_folder_may_lock_for_the_jvm(table: Path, rights: int, umask: int) -> None:
    """Java locks only what it may write, and whoever made the file may have had a narrow umask."""
    (table / FOLDER).chmod(rights)
    before = os.umask(umask)
    try:
        make_jvm_file(table / JVM_NAME)
    finally:
        os.umask(before)
    assert (table / JVM_NAME).stat().st_mode & rights & 0o666 == rights & 0o666


def test_a_file_that_died_before_it_had_its_rights_gets_them_from_the_next_commit(table: Path) -> None:
    (table / FOLDER).chmod(0o777)
    (table / JVM_NAME).touch(mode=0o600)
    make_jvm_file(table / JVM_NAME)
    assert (table / JVM_NAME).stat().st_mode & 0o777 == 0o666


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder a group of which it is no member")
def test_a_file_system_that_keeps_other_groups_or_rights_costs_no_commit(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that a user namespace or NFS does not map; rights that vfat and some FUSE mounts give to all files alike."""
    os.chown(table / FOLDER, -1, 12_345)
    (table / FOLDER).chmod(0o777)
    (table / JVM_NAME).touch(mode=0o600)
    refused = []

    def refuse(descriptor: int, *_: int) -> None:
        refused.append(descriptor)
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(module.os, "fchown", refuse)
    monkeypatch.setattr(module.os, "fchmod", refuse)
    make_jvm_file(table / JVM_NAME)
    assert len(refused) == 2


def test_an_account_that_may_not_write_the_jvm_s_file_is_told_so(table: Path) -> None:
    (table / JVM_NAME).touch()
    (table / JVM_NAME).chmod(0o444)
    with permissions_checked(), pytest.raises(PermissionError, match="let the accounts of all jobs write"):
        make_jvm_file(table / JVM_NAME)


# -- the JVM's lock ------------------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A JVM, and its port."""
    [jar] = pyspark_jars().glob("py4j-*.jar")
    command = [java(), "-XX:TieredStopAtLevel=1", "-cp", str(jar), "py4j.GatewayServer", "--die-on-broken-pipe", "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def is_locked(path: Path) -> bool:
    """Whether another process has the lock."""
    with path.open("r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_a_jvm_has_its_lock_as_long_as_a_commit_takes(table: Path, server: tuple[subprocess.Popen[str], int]) -> None:
    with connected(server[1]) as jvm:
        for _ in range(2):
            with table_lock(table, jvm):
                assert is_locked(table / JVM_NAME)
            assert not is_locked(table / JVM_NAME)


def test_a_commit_that_waits_for_another_jvm_leaves_nothing_behind(
    table: Path, server: tuple[subprocess.Popen[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TIMEOUT_S", 0)
    script = "import fcntl, sys; f = open(sys.argv[1], 'wb'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); input()"
    command = [sys.executable, "-c", script, str(table / JVM_NAME)]
    with connected(server[1]) as jvm:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            other.stdout.readline()
            for _ in range(2):
                with pytest.raises(TimeoutError, match=f"{JVM_NAME} could not be had within"), table_lock(table, jvm):
                    pass
            other.kill()
        with table_lock(table, jvm):
            pass


def test_a_jvm_whose_python_died_in_a_commit_keeps_its_lock_and_the_next_python_is_told_so(
    table: Path, server: tuple[subprocess.Popen[str], int]
) -> None:
    """The JVM may still be at that commit. To close the file once would release its lock."""
    process, port = server
    command = [sys.executable, "-c", ON_A_JVM, str(table), str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "held\n"
        driver.kill()
    with connected(port) as jvm:
        for _ in range(2):
            with pytest.raises(TimeoutError, match=f"this very JVM .* {table / JVM_NAME}"), table_lock(table, jvm):
                pass
            assert is_locked(table / JVM_NAME)
    process.kill()
    process.wait()
    assert not is_locked(table / JVM_NAME)
