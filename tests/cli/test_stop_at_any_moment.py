"""`twophase run` is stopped cleanly at every moment of its start, from its first imports on.

One job is started and stopped again and again, later each time; then it has lost and repeated
nothing.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from harness.job_command import TIMEOUT_S, Command, without_end
from tests.cli import test_first_signals as first

pytestmark = [pytest.mark.spark, pytest.mark.part("cli"), pytest.mark.thin(3)]

_HANDLED = (1 << (signal.SIGINT - 1)) | (1 << (signal.SIGTERM - 1))
_CALM_S = 0.3
"""Into a step that has no visible sign of its own."""
_RECORDING = "twophase.spark.startup.class_archive"


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    with ExitStack() as left:
        yield without_end(tmp_path_factory.mktemp("stopped"), left)


class Start:
    """One start of the command.

    Args:
        command: starts it.
    """

    def __init__(self, command: Command) -> None:
        self.command = command
        self._records, self._rows = self._log(), len(command.ids())
        self.process = command.start()

    def handles(self) -> bool:
        """The command has taken over both signals."""
        with suppress(OSError):
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            caught = int(status.partition("SigCgt:\t")[2].partition("\n")[0], 16)
            return caught & _HANDLED == _HANDLED
        return False

    def has_java(self) -> bool:
        """The JVM is there, or the one that works out its command line."""
        return any("java" in "".join(words(child)[:1]) for child in self.children())

    def has_workers(self) -> bool:
        """Spark has started the daemon of its workers."""
        return any(words(child)[1:2] == ["-m"] for child in self.children())

    def takes_over(self) -> bool:
        """It has written to the job's log."""
        return self._log() > self._records

    def commits(self) -> bool:
        """Rows of it are visible."""
        return len(self.command.ids()) > self._rows

    def children(self) -> list[psutil.Process]:
        """Return what ends with it: all but the recording of Spark's classes in the background."""
        started = children_of(self.process.pid)
        kept = [one for one in started if _RECORDING not in words(one)]
        return [*kept, *(one for child in kept for one in children_of(child.pid, recursive=True))]

    def _log(self) -> int:
        """The number of the newest record."""
        names = [path.name for path in (self.command.root / "job" / "log").glob("*")]
        return max((int(name) for name in names if name.isdecimal()), default=0)


def words(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return process.cmdline()
    return []


def children_of(pid: int, *, recursive: bool = False) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).children(recursive=recursive)
    return []


Moment = Callable[[Start], bool]
MOMENTS: list[tuple[Moment, float]] = [
    (moment, after_s)
    for moment in (
        Start.handles,
        Start.has_java,
        Start.has_workers,
        Start.takes_over,
        Start.commits,
    )
    for after_s in (0, _CALM_S, 3 * _CALM_S)
]
IN_EVERY_RUN = MOMENTS[0], MOMENTS[3], MOMENTS[4], MOMENTS[9]


@pytest.mark.parametrize("torn", [False, True])
def test_a_signal_while_spark_starts_is_no_failure_whatever_a_library_makes_of_it(
    endless: Command, torn: bool
) -> None:
    """It tears the import of what comes after Spark."""
    job_file, module = endless.root / "job.yaml", "twophase.cli.jobfile.pipeline"
    code, out = first.run(job_file, module, signal.SIGTERM, torn=torn, timeout_s=TIMEOUT_S)
    assert code == 0
    assert "failed" not in out
    assert out.endswith(f"{first.SAID}\n")


@pytest.mark.parametrize(
    ("moment", "after_s"),
    [
        pytest.param(*case, marks=[] if case in IN_EVERY_RUN else [pytest.mark.proof])
        for case in MOMENTS
    ],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_moment_is_a_clean_stop(
    endless: Command, moment: Moment, after_s: float, number: signal.Signals
) -> None:
    start = Start(endless)
    process, deadline_s = start.process, time.monotonic() + TIMEOUT_S
    while not (start.handles() and moment(start)):
        assert time.monotonic() < deadline_s, "the moment does not come"
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    time.sleep(after_s)
    family = start.children()
    os.killpg(process.pid, number)  # as Ctrl-C and `timeout` do
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, ""), out
    assert "topped " in out.splitlines()[-1]
    assert psutil.wait_procs(family, timeout=TIMEOUT_S)[1] == []


def test_nothing_was_lost_or_repeated_by_all_these_stops(endless: Command) -> None:
    code, _, err = endless.run("--available-now")
    assert (code, err) == (0, "")
    assert endless.ids() == [*range(len(endless.ids()))]
    assert endless.ids()
