"""The lock of a table on a local disk, between processes."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.rights import permissions_checked
from sinks.delta import table_lock as module
from sinks.delta.names import FOLDER
from sinks.delta.table_lock import NAME, table_lock

HOLDER = """
import sys
from pathlib import Path
from sinks.delta.table_lock import table_lock

with table_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "_TIMEOUT_S", 0.0)
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
    with pytest.raises(TimeoutError, match=f"another driver has held {table / NAME} for"), table_lock(table):
        pass


def test_a_driver_that_is_killed_holds_nothing(table: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    with table_lock(table):
        pass


def test_one_process_cannot_take_it_twice(table: Path) -> None:
    with table_lock(table), pytest.raises(TimeoutError), table_lock(table):
        pass
    with table_lock(table):
        pass


def test_a_job_of_another_account_can_lock_what_it_cannot_write(table: Path) -> None:
    with table_lock(table):
        pass
    (table / NAME).chmod(0o444)
    with permissions_checked():
        with pytest.raises(PermissionError):
            (table / NAME).open("r+b")
        with table_lock(table), pytest.raises(TimeoutError), table_lock(table):
            pass


def test_the_table_s_rights_are_the_lock_s(table: Path) -> None:
    with table_lock(table):
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
    with pytest.raises(PermissionError, match=named), table_lock(table):
        pass


def test_another_error_of_the_lock_is_not_taken_for_that(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_locks(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(module.fcntl, "flock", without_locks)
    with pytest.raises(OSError, match="No locks available"), table_lock(table):
        pass
