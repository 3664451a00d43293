"""The lock of a table on a local disk: Python's, and the JVM's, here of a JVM without Spark
(`integration/delta/test_neighbours.py`).
"""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError

from harness.rights import permissions_checked, umask
from twophase.sinks.delta import table_lock as module
from twophase.sinks.delta.jvm import Jvm, may_be_running
from twophase.sinks.delta.names import FOLDER
from twophase.sinks.delta.table_lock import (
    JVM_NAME,
    NAME,
    JvmLockedError,
    create_jvm_file,
    python_lock,
    table_lock,
)
from twophase.spark.startup.java import java, pyspark_jars

HOLDER = """
import sys
from pathlib import Path
from twophase.sinks.delta.table_lock import python_lock

with python_lock(Path(sys.argv[1]), 0):
    print("held", flush=True)
    sys.stdin.read()
"""

ON_A_JVM = """
import sys
from pathlib import Path
from twophase.sinks.delta.table_lock import table_lock
from tests.sinks.delta.test_table_lock import connected

with connected(int(sys.argv[2])) as jvm, table_lock(Path(sys.argv[1]), jvm):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def connected(port: int) -> Iterator[Jvm]:
    """A JVM that other Pythons may use too, as that of a notebook, of Livy, or of
    PYSPARK_GATEWAY_PORT.
    """
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
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_commit_does_not_begin_while_another_process_commits(
    table: Path, holder: subprocess.Popen[str]
) -> None:
    assert holder.poll() is None
    with (
        pytest.raises(TimeoutError, match=f"{table / NAME} could not be locked within"),
        python_lock(table, 0),
    ):
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
        "NFS can lock a file only if it may write it: let the accounts of all jobs write "
        f"{table / NAME} (chmod, chgrp)"
    )

    def as_on_nfs(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(fcntl, "flock", as_on_nfs)
    with pytest.raises(PermissionError, match=named), python_lock(table, 0):
        pass


def test_another_error_of_the_lock_is_not_taken_for_that(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_locks(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", without_locks)
    with pytest.raises(OSError, match="No locks available"), python_lock(table, 0):
        pass


@pytest.mark.parametrize("mask", [0o022, 0o077])
@pytest.mark.parametrize("rights", [0o755, 0o775, 0o2770, 0o777])
def test_whoever_may_write_into_the_folder_may_lock_for_the_jvm(
    table: Path, rights: int, mask: int
) -> None:
    """Java locks only what it may write, and whoever made the file may have had a narrow umask."""
    (table / FOLDER).chmod(rights)
    with umask(mask):
        create_jvm_file(table / JVM_NAME)
    assert (table / JVM_NAME).stat().st_mode & rights & 0o666 == rights & 0o666


def test_a_file_that_died_before_it_had_its_rights_gets_them_from_the_next_commit(
    table: Path,
) -> None:
    (table / FOLDER).chmod(0o777)
    (table / JVM_NAME).touch(mode=0o600)
    create_jvm_file(table / JVM_NAME)
    assert (table / JVM_NAME).stat().st_mode & 0o777 == 0o666


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can give a folder a group of which it is no member"
)
def test_a_file_system_that_keeps_other_groups_or_rights_costs_no_commit(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that a user namespace or NFS does not map; rights that vfat and some FUSE mounts give
    to all files alike.
    """
    os.chown(table / FOLDER, -1, 12_345)
    (table / FOLDER).chmod(0o777)
    (table / JVM_NAME).touch(mode=0o600)
    refused = []

    def refuse(descriptor: int, *_: int) -> None:
        refused.append(descriptor)
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "fchown", refuse)
    monkeypatch.setattr(os, "fchmod", refuse)
    create_jvm_file(table / JVM_NAME)
    assert len(refused) == 2


def test_an_account_that_may_not_write_the_jvm_s_file_gets_a_named_error(table: Path) -> None:
    (table / JVM_NAME).touch()
    (table / JVM_NAME).chmod(0o444)
    with (
        permissions_checked(),
        pytest.raises(PermissionError, match="let the accounts of all jobs write"),
    ):
        create_jvm_file(table / JVM_NAME)


# -- the JVM's lock --------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A JVM, and its port."""
    [jar] = pyspark_jars().glob("py4j-*.jar")
    command = [
        java(),
        "-XX:TieredStopAtLevel=1",
        "-cp",
        str(jar),
        "py4j.GatewayServer",
        "--die-on-broken-pipe",
        "0",
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
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


@contextmanager
def another_jvm(table: Path) -> Iterator[None]:
    """Another process that has the second lock."""
    script = (
        "import fcntl, sys; f = open(sys.argv[1], 'wb'); fcntl.lockf(f, fcntl.LOCK_EX); "
        "print(flush=True); input()"
    )
    command = [sys.executable, "-c", script, str(table / JVM_NAME)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        yield
        other.kill()


def test_a_jvm_has_its_lock_as_long_as_a_commit_takes(
    table: Path, server: tuple[subprocess.Popen[str], int]
) -> None:
    with connected(server[1]) as jvm:
        for _ in range(2):
            with table_lock(table, jvm):
                assert is_locked(table / JVM_NAME)
            assert not is_locked(table / JVM_NAME)


def test_a_commit_that_waits_for_another_jvm_leaves_nothing_behind(
    table: Path, server: tuple[subprocess.Popen[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TIMEOUT_S", 0)
    with connected(server[1]) as jvm:
        with another_jvm(table):
            for _ in range(2):
                with (
                    pytest.raises(TimeoutError, match=f"{JVM_NAME} could not be locked within"),
                    table_lock(table, jvm),
                ):
                    pass
        with table_lock(table, jvm):
            pass


def test_a_jvm_whose_python_died_in_a_commit_keeps_its_lock_and_the_next_python_gets_a_named_error(
    table: Path, server: tuple[subprocess.Popen[str], int]
) -> None:
    """The JVM may still be at that commit. To close the file once would release its lock."""
    process, port = server
    command = [sys.executable, "-c", ON_A_JVM, str(table), str(port)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "held\n"
        driver.kill()
    with connected(port) as jvm:
        for _ in range(2):
            with (
                pytest.raises(JvmLockedError, match=f"this JVM .* {table / JVM_NAME}"),
                table_lock(table, jvm),
            ):
                pass
            assert is_locked(table / JVM_NAME)
    process.kill()
    process.wait()
    assert not is_locked(table / JVM_NAME)


# -- a commit whose answer does not come -----------------------------------------------------------


def below(error: BaseException, cause: BaseException) -> BaseException:
    """An error raised by what cleans up behind another."""
    error.__context__ = cause
    return error


UNANSWERED = {
    "Ctrl-C": KeyboardInterrupt(),
    "exit": SystemExit(3),
    "no connection": Py4JNetworkError(
        "An error occurred while trying to connect to the Java server"
    ),
    "a connection that ends within a call": Py4JError("An error occurred while calling o42.commit"),
    "Ctrl-C, and an error behind it": below(AttributeError("shutdown_socket"), KeyboardInterrupt()),
    "the same, deeper": below(ValueError("b"), below(ValueError("a"), KeyboardInterrupt())),
}
ANSWERED = {
    "no such method": Py4JError(
        "An error occurred while calling o42.commit. Trace:\npy4j.Py4JException: no method\n"
    ),
    "Python's own": OSError(errno.ENOSPC, "No space left on device"),
    "one behind another": below(ValueError("b"), ValueError("a")),
}


@pytest.mark.parametrize("error", UNANSWERED.values(), ids=UNANSWERED)
def test_a_call_that_was_given_up_may_be_running(error: BaseException) -> None:
    assert may_be_running(error)


@pytest.mark.parametrize("error", ANSWERED.values(), ids=ANSWERED)
def test_a_call_that_was_answered_is_over(error: BaseException) -> None:
    assert not may_be_running(error)


def test_what_was_dealt_with_before_the_call_says_nothing_of_it() -> None:
    """A commit of a repair can begin where an interrupt of something else is dealt with."""
    older = KeyboardInterrupt()
    error = below(ValueError("b"), below(ValueError("a"), older))
    assert not may_be_running(error, older)
    assert may_be_running(error, KeyboardInterrupt())
    assert may_be_running(below(ValueError("b"), below(KeyboardInterrupt(), older)), older)
    assert may_be_running(older, older)


def collect(jvm: Jvm, folder: Path) -> None:
    """Have both sides drop what nobody uses any more: Java closes a file that nobody has.

    Returns when Java has closed such a file: twice, since its thread for that takes those of one
    round in any order.
    """
    for number in range(2):
        control = folder / f"control-{number}"
        _lock_and_forget(jvm, control)
        gc.collect()
        deadline_s = time.monotonic() + 60
        while is_locked(control):
            assert time.monotonic() < deadline_s, "Java has not closed a file that nobody has"
            jvm._class("java.lang.System").gc()
            time.sleep(0.02)


def _lock_and_forget(jvm: Jvm, path: Path) -> None:
    path.touch()
    assert jvm.open_file(path).getChannel().tryLock() is not None
    assert is_locked(path)


def test_a_commit_that_is_interrupted_keeps_the_jvm_s_lock_and_the_next_one_gets_a_named_error(
    table: Path, server: tuple[subprocess.Popen[str], int]
) -> None:
    """The JVM may stand before its rename: to close the file would let another
    driver commit meanwhile.
    """
    process, port = server
    reported = (
        re.escape(f"this JVM has locked {table / JVM_NAME}") + ".* was interrupted .* end this JVM"
    )
    with connected(port) as jvm:
        with pytest.raises(KeyboardInterrupt), table_lock(table, jvm):
            raise KeyboardInterrupt
        collect(jvm, table)
        assert is_locked(table / JVM_NAME)
        with python_lock(table, 0):
            pass
        for _ in range(2):
            with pytest.raises(JvmLockedError, match=reported), table_lock(table, jvm):
                pass
            assert is_locked(table / JVM_NAME)
    process.kill()
    process.wait()
    assert not is_locked(table / JVM_NAME)


def test_a_commit_that_has_failed_gives_the_jvm_s_lock_back(
    table: Path, server: tuple[subprocess.Popen[str], int]
) -> None:
    with connected(server[1]) as jvm:
        for error in ANSWERED.values():
            with pytest.raises(type(error)), table_lock(table, jvm):
                raise error
            assert not is_locked(table / JVM_NAME)
        for _ in range(2):
            with pytest.raises(Py4JJavaError, match="IndexOutOfBounds"), table_lock(table, jvm):
                jvm._class("java.util.ArrayList")().get(1)
            assert not is_locked(table / JVM_NAME)


def test_a_commit_that_has_failed_within_an_interrupt_s_handling_gives_the_jvm_s_lock_back(
    table: Path, server: tuple[subprocess.Popen[str], int]
) -> None:
    """The interrupt is of something else: it is the context of all that is raised from then on."""
    with connected(server[1]) as jvm:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            with pytest.raises(Py4JJavaError, match="IndexOutOfBounds"), table_lock(table, jvm):
                jvm._class("java.util.ArrayList")().get(1)
            assert not is_locked(table / JVM_NAME)
            with pytest.raises(KeyboardInterrupt), table_lock(table, jvm):
                raise KeyboardInterrupt from None
        assert is_locked(table / JVM_NAME)


def test_an_interrupt_while_a_commit_waits_for_another_jvm_leaves_nothing_behind(
    table: Path, server: tuple[subprocess.Popen[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with connected(server[1]) as jvm:
        with another_jvm(table), monkeypatch.context() as patch:
            clock = SimpleNamespace(monotonic=time.monotonic, sleep=interrupted)
            patch.setattr(module, "time", clock)  # py4j's threads sleep too
            with pytest.raises(KeyboardInterrupt), table_lock(table, jvm):
                pass
        with table_lock(table, jvm):
            assert is_locked(table / JVM_NAME)


INTERRUPTED = """
import signal, sys, threading, time
from pathlib import Path
from twophase.sinks.delta.table_lock import table_lock
from tests.sinks.delta.test_table_lock import connected

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
main = threading.main_thread().ident
with connected(int(sys.argv[2])) as jvm:
    threading.Thread(target=lambda: (sys.stdin.read(), signal.pthread_kill(main, signal.SIGINT)), daemon=True).start()
    try:
        with table_lock(Path(sys.argv[1]), jvm):
            print("held", flush=True)
            jvm._class("java.lang.Thread").sleep(60_000)
    except (KeyboardInterrupt, AttributeError):  # py4j's connections without pinned threads have no way to end the call
        print("interrupted", flush=True)
"""  # noqa: E501


def test_ctrl_c_in_a_call_of_the_main_thread_leaves_the_lock_though_its_python_ends(
    table: Path, server: tuple[subprocess.Popen[str], int]
) -> None:
    """The JVM is still in that call. A Python that ends tells the JVM of all that it
    does not use any more.
    """
    command = [sys.executable, "-c", INTERRUPTED, str(table), str(server[1])]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "held\n"
        time.sleep(0.5)  # it is in the call
        ended, _ = driver.communicate(timeout=60)
    assert ended == "interrupted\n"
    with connected(server[1]) as jvm:
        collect(jvm, table)
        assert is_locked(table / JVM_NAME)
        with pytest.raises(JvmLockedError, match="this JVM"), table_lock(table, jvm):
            pass
