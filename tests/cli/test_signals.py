"""The first signal stops the job, the second ends the process. In processes of their
own, without Spark.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from twophase.cli import signals

Start = Callable[..., subprocess.Popen[str]]

PROGRAM = """
import sys, threading
from twophase.cli.signals import StopSignals
ended = threading.Event()
def stop():
    print("stopping", flush=True)
    if "hang" not in sys.argv: ended.set()
    if "fail" in sys.argv: raise ConnectionError
def hangs(text):
    print(text, flush=True)
    if "fail" in sys.argv: raise ConnectionError
deadline_s = 0.2 if "late" in sys.argv else 3600
with StopSignals(hangs, deadline_s).handled() as signals:
    signals.first = lambda: (sys.stdout.write("asked\\n"), sys.stdout.flush())
    try:
        if "early" in sys.argv:
            print("running", flush=True)
            ended.wait()
        signals.stop_with(stop)
        print("running", flush=True)
        ended.wait()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
print("ended", flush=True)
"""


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts the program; kills what is left of it."""
    with ExitStack() as left:

        def start(*arguments: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, text=True
            )
            left.callback(process.kill)
            assert process.stdout is not None
            assert process.stdout.readline() == "running\n"
            return process

        yield start


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("argument", ["", "fail"])
def test_the_first_signal_stops_cleanly(
    start: Start, number: signal.Signals, argument: str
) -> None:
    process = start(argument)
    process.send_signal(number)
    assert process.communicate(timeout=60)[0].splitlines() == ["asked", "stopping", "ended"]
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_before_there_is_a_job_the_first_signal_interrupts(
    start: Start, number: signal.Signals
) -> None:
    process = start("early")
    process.send_signal(number)
    out = process.communicate(timeout=60)[0]
    assert out.replace("asked\n", "") == "interrupted\nended\n"
    assert process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_the_process(start: Start, number: signal.Signals) -> None:
    process = start("hang")
    assert process.stdout is not None
    process.send_signal(number)
    assert [process.stdout.readline() for _ in range(2)] == ["asked\n", "stopping\n"]
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 128 + number


@pytest.mark.parametrize("argument", ["", "fail"])
def test_a_stop_that_hangs_ends_the_process_and_says_so(start: Start, argument: str) -> None:
    process = start("hang", "late", argument)
    process.send_signal(signal.SIGTERM)
    lines = process.communicate(timeout=60)[0].splitlines()
    assert lines[:2] == ["asked", "stopping"]
    assert lines[2].startswith(
        "The job did not stop within 0.2 s: ending the process now. No data is lost"
    )
    assert process.returncode == 1


def test_a_terminal_that_has_gone_does_not_keep_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    ended: list[int] = []
    monkeypatch.setattr(os, "isatty", lambda _: True)
    monkeypatch.setattr(os, "write", gone)
    monkeypatch.setattr(os, "_exit", ended.append)
    signals._exit_at_once(130)
    assert ended == [130]
