"""Crash points: armed by name from the environment, acting at the very hit they are told to, and
nothing otherwise.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from twophase.errors import ConfigError
from twophase.internals import failpoints
from twophase.internals.failpoints import FailpointError, failpoint

Patch = pytest.MonkeyPatch
Arm = Callable[[str], None]


@pytest.fixture
def arm(monkeypatch: Patch) -> Arm:
    """Arm failpoints in this process, as the environment would."""

    def arm(text: str) -> None:
        monkeypatch.setattr(failpoints, "_rules", failpoints._parse(text))
        monkeypatch.setattr(failpoints, "_hits", {})

    return arm


def acted(name: str, times: int) -> list[int]:
    """At which of `times` hits the point raises, counted from 1."""
    found = []
    for hit in range(1, times + 1):
        try:
            failpoint(name)
        except FailpointError:
            found.append(hit)
    return found


def test_a_forked_process_arms_other_points_and_counts_from_there(arm: Arm) -> None:
    arm("C06=raise@2,C07=raise")
    assert acted("C06", 1) == []
    failpoints.arm("C06=raise@2")
    assert acted("C06", 3) == [2]
    assert acted("C07", 1) == []
    with pytest.raises(ConfigError):
        failpoints.arm("C06=what")
    failpoints.arm("")


def test_a_point_that_is_not_armed_does_nothing(arm: Arm) -> None:
    arm("C06=raise")
    assert acted("C07", 3) == []


@pytest.mark.parametrize(
    ("text", "hits"),
    [("C06=raise", [1]), ("C06=raise@3", [3]), ("C06=raise@*", [1, 2, 3, 4]), ("C06=raise@9", [])],
)
def test_a_point_acts_at_its_hit_and_only_then(arm: Arm, text: str, hits: list[int]) -> None:
    arm(text)
    assert acted("C06", 4) == hits


def test_points_are_counted_each_for_itself(arm: Arm) -> None:
    arm(" C06=raise@2 , C07=raise ,")
    assert acted("C07", 2) == [1]
    assert acted("C06", 2) == [2]


def test_a_point_says_its_name(arm: Arm) -> None:
    arm("C06=raise")
    with pytest.raises(FailpointError, match=r"^failpoint C06$"):
        failpoint("C06")


def test_a_delay_is_in_milliseconds(arm: Arm) -> None:
    arm("C09=delay:50")
    began_s = time.monotonic()
    failpoint("C09")
    assert time.monotonic() - began_s >= 0.05


@pytest.mark.parametrize(
    "text",
    [
        "C06",
        "C06=",
        "C06=explode",
        "=kill",
        "C06=kill@x",
        "C06=delay:long",
        "C06=delay:1.5",
        "C06=raise;C07=raise",
    ],
)
def test_a_mistake_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(
        ConfigError,
        match=r"TWOPHASE_FAILPOINTS: .* Next: use name=ACTION with one of kill, kill_driver",
    ):
        failpoints._parse(text)


@pytest.mark.parametrize("action", failpoints._ACTIONS)
def test_each_action_that_the_form_names_can_be_armed(arm: Arm, action: str) -> None:
    with pytest.raises(ConfigError) as caught:
        arm(f"C06={action}s")
    assert action in re.findall(r"\w+", caught.value.remedy)
    [example] = re.findall(r"such as (\S+),", caught.value.remedy)
    for hit, expected in (("", 1), ("@3", 3), ("@*", None)):
        arm(f"{example.partition('=')[0]}={action}{hit}")
        assert failpoints._rules["C09"] == failpoints._Rule(action, 0, expected)
        arm(f"{example}{hit}")
        assert failpoints._rules["C09"] == failpoints._Rule("delay", 200, expected)


def test_nothing_armed_costs_one_look_up(arm: Arm) -> None:
    arm("")
    assert failpoints._rules == {}
    failpoint("")


def test_the_log_has_a_line_for_each_point_acted_on(
    arm: Arm, tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv(failpoints.LOG_VARIABLE, str(tmp_path / "log"))
    arm("C06=raise@2,C07=delay:0@*")
    acted("C06", 3)
    acted("C07", 2)
    pid = os.getpid()
    assert (tmp_path / "log").read_text() == f"C06 raise {pid}\nC07 delay {pid}\nC07 delay {pid}\n"


# -- what ends or stops the process ----------------------------------------------------------------

PROGRAM = """
import sys
from twophase.internals.failpoints import failpoint

for hit in range(3):
    failpoint("C06")
    print(hit, flush=True)
"""

IN_A_THREAD = """
import threading
from twophase.internals.failpoints import failpoint

def run():
    for hit in range(9):
        failpoint("C06")
        print(hit, end="", flush=True)

threading.Thread(target=run).start()
"""


def start(
    points: str, log: Path, program: str = PROGRAM, **variables: str
) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        failpoints.VARIABLE: points,
        failpoints.LOG_VARIABLE: str(log),
        **variables,
    }
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_killed_process_is_gone_at_once_and_has_said_so_before(tmp_path: Path) -> None:
    with start("C06=kill@2", tmp_path / "log") as process:
        output, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert output == "0\n"
    assert (tmp_path / "log").read_text() == f"C06 kill {process.pid}\n"


def test_a_worker_kills_its_driver_and_goes_on(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as driver:
        with start(
            "C06=kill_driver", tmp_path / "log", **{failpoints.DRIVER_VARIABLE: str(driver.pid)}
        ) as worker:
            output, _ = worker.communicate(timeout=60)
        assert driver.wait(60) == -signal.SIGKILL
    assert (worker.returncode, output) == (0, "0\n1\n2\n")


def test_a_stopped_process_stands_still_until_it_is_continued(tmp_path: Path) -> None:
    with start("C06=stop@2", tmp_path / "log") as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        output, _ = process.communicate(timeout=60)
    assert output == "0\n1\n2\n"


def test_a_thread_does_not_run_on_while_another_one_takes_the_signal(tmp_path: Path) -> None:
    with start("C06=stop@*", tmp_path / "log", IN_A_THREAD) as process:
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        printed = ""
        try:
            for hit in range(9):
                os.waitpid(process.pid, os.WUNTRACED)
                with contextlib.suppress(BlockingIOError):
                    printed += os.read(process.stdout.fileno(), 9).decode()
                assert printed == "012345678"[:hit]
                process.send_signal(signal.SIGCONT)
        finally:
            process.kill()


def test_a_mistake_in_the_environment_is_refused_at_the_start(tmp_path: Path) -> None:
    with start("C06=explode", tmp_path / "log") as process:
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "twophase.errors.ConfigError: TWOPHASE_FAILPOINTS: 'C06=explode'" in errors


def test_a_process_can_be_armed_again() -> None:
    failpoints.arm("X=raise@2")
    try:
        failpoint("X")
        with pytest.raises(FailpointError):
            failpoint("X")
        failpoints.arm("X=raise")
        with pytest.raises(FailpointError):
            failpoint("X")
    finally:
        failpoints.arm("")
    failpoint("X")
