"""What cannot be printed replaces neither the result of a command nor its error."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twophase.cli.display.console import JobConsole
from twophase.cli.display.json_view import JsonView
from twophase.cli.display.streams import LossyStream
from twophase.cli.display.views import LiveView, PlainView, SilentView, View
from twophase.errors import FencedError, StopJobError
from twophase.events import JobRestarting

FULL = "/dev/full"
Make = Callable[[str, Any], View]


class Broken(io.StringIO):
    """A file that cannot be written."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def write(self, _: str) -> int:
        raise self._error


FAILURES = [
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EIO, "Input/output error"),
    ValueError("I/O operation on closed file."),
]


@pytest.mark.parametrize("failure", FAILURES, ids=str)
@pytest.mark.parametrize("kind", [StopJobError, FencedError])
@pytest.mark.parametrize("make", [PlainView, JsonView, LiveView, lambda job, _: SilentView(job)])
def test_a_view_that_cannot_print_hides_no_error_and_ends_no_job(
    make: Make, kind: type[StopJobError], failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(view: View) -> None:
        with view:
            view(JobRestarting("orders", "boom", 1, 2.0))
            view.print_line("a line of Spark")
            raise kind("a", remedy="b")

    monkeypatch.setattr(sys, "stderr", LossyStream(Broken(failure)))
    with pytest.raises(kind):
        run(make("orders", JobConsole(file=Broken(failure))))


def test_what_the_encoding_does_not_have_is_escaped() -> None:
    data = io.BytesIO()
    stream = LossyStream(io.TextIOWrapper(data, encoding="latin-1"))
    stream.write("Kä ─ €\n")
    stream.flush()
    assert data.getvalue().decode("latin-1") == "Kä \\u2500 \\u20ac\n"
    assert stream.failure is None


def test_a_reader_that_has_gone_is_an_error_as_before() -> None:
    with pytest.raises(BrokenPipeError):
        LossyStream(Broken(BrokenPipeError())).write("a")


def code_of(words: str, out: str) -> int:
    """The exit code of a command that writes to this file."""
    with Path(out).open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-m", "twophase.cli", *words.split()],
            stdout=file,
            stderr=file,
            check=False,
        )
    return done.returncode


CODES = {
    "check {}/none.yaml": 2,
    "run {}/none.yaml": 2,
    "run {}/none.yaml --log-format json": 2,
    "repair accept-loss {}/none.yaml --checkpoint 1 --sink a": 2,
    "savepoint create {}/none.yaml": 2,
    "checkpoints {}/none": 2,
    "nothing": 2,
    "--version": 0,
    "check {}/job.yaml": 0,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    job = {
        "name": "orders",
        "source": {"format": "rate"},
        "sinks": {"facts": {"type": "file", "options": {"path": str(tmp_path / "facts")}}},
        "options": {"checkpointLocation": str(tmp_path / "job")},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    return tmp_path


@pytest.mark.parametrize(("words", "code"), CODES.items(), ids=CODES)
def test_a_full_disk_changes_the_exit_code_of_no_command(words: str, code: int, root: Path) -> None:
    assert code_of(words.format(root), os.devnull) == code
    assert code_of(words.format(root), FULL) == code


def test_a_list_that_was_not_printed_is_no_success(tmp_path: Path) -> None:
    assert code_of(f"savepoint list {tmp_path} --json", os.devnull) == 0
    assert code_of(f"savepoint list {tmp_path} --json", FULL) == 1
