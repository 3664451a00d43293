"""Runs tasks that fetch services side by side, each chain of them in a process of its own.

1. begin      fork a process for each chain, in a process group of its own
2. follow     show the steps that they report in one place; one that fails does not stop the others,
              whose files are of use
3. interrupt  at Ctrl-C or SIGTERM: SIGINT to each group, as if each process had been alone in the
              terminal, and wait until all have cleaned up

Processes, not threads: a signal interrupts one wherever it waits, be it for a program or for a lock
of the cache.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from twophase.errors import ServiceError, TwoPhaseError
from twophase.spark.startup.progress import SCREEN, report_to

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_CLEAN_UP_TIMEOUT_S = 30.0
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Task:
    """Something to fetch.

    Attributes:
        name: in messages.
        run: fetches it, by files that are renamed when they are whole (`cached`).
    """

    name: str
    run: Callable[[], object]


@dataclass(frozen=True)
class _Failure:
    name: str
    text: str


def fetch_side_by_side(chains: Sequence[Sequence[Task]]) -> None:
    """Run all chains as `run_side_by_side` does.

    Raises:
        ServiceError: some failed; the message names them.
    """
    failed = run_side_by_side(chains)
    if failed:
        raise ServiceError(
            "\n".join(f"{name} could not be fetched: {text}" for name, text in failed.items())
        )


def run_side_by_side(chains: Sequence[Sequence[Task]]) -> dict[str, str]:
    """Run all chains at once, and the tasks of a chain in turn until one fails.

    To be called from the main thread of a process that has no other threads, because it forks.

    Args:
        chains: the tasks.

    Returns:
        What went wrong, by the name of each task that failed; empty if all is well.
    """
    workers: list[_Worker] = []
    failed: dict[str, str] = {}
    with _sigterm_exits():
        try:
            with _signals_held():  # no process is begun and not known
                for chain in chains:
                    workers.append(_Worker(chain, [worker.reports for worker in workers]))
            _follow(workers, failed)
        except BaseException:
            _interrupt(workers)
            raise
    return failed


class _Worker:
    """The process of one chain.

    Args:
        chain: its tasks.
        inherited: what it must not keep open: the ends of pipes of others.
    """

    def __init__(self, chain: Sequence[Task], inherited: Sequence[Connection]) -> None:
        self.chain = chain
        self.reports, into = _FORK.Pipe(duplex=False)
        ours = [*inherited, self.reports]
        self._process = _FORK.Process(target=_work, args=(chain, into, ours))
        self._process.start()
        with suppress(OSError):  # it does so too: whichever is first
            os.setpgid(self._pid, self._pid)
        into.close()

    def receive(self, failed: dict[str, str]) -> bool:
        """Take a report; return False if there will be no more, since the process has ended."""
        try:
            report = self.reports.recv()
        except EOFError:
            self.join()
            names = [task.name for task in self.chain]
            if self._process.exitcode and not failed.keys() & set(names):
                failed[names[0]] = f"its process ended with exit code {self._process.exitcode}"
            return False
        if isinstance(report, _Failure):
            failed[report.name] = report.text
        else:
            SCREEN.show(report)
        return True

    def join(self) -> None:
        """Wait for its end, and show its steps no longer."""
        self._process.join()
        self.reports.close()
        SCREEN.forget(self._pid)

    def end(self, timeout_s: float) -> None:
        """Wait for its end after an interruption; SIGKILL it if it takes too long."""
        if self.reports.closed:
            return  # it was joined before, and its id may be another's
        wait([self._process.sentinel], timeout_s)
        self._signal(signal.SIGKILL)  # also what was being started at that moment
        self.join()

    def interrupt(self) -> None:
        """Send SIGINT to the process and to what it has started, if it is still running."""
        if self._process.exitcode is None:
            self._signal(signal.SIGINT)

    @property
    def _pid(self) -> int:
        return self._process.pid or 0

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._pid, number)


def _follow(workers: Sequence[_Worker], failed: dict[str, str]) -> None:
    """Take reports until all have ended."""
    running: dict[Any, _Worker] = {worker.reports: worker for worker in workers}
    while running:
        for reports in wait(list(running)):
            if not running[reports].receive(failed):
                del running[reports]


def _interrupt(workers: Sequence[_Worker]) -> None:
    """End all processes, which first remove what they have half done; a second Ctrl-C waits too.

    What one leaves that takes too long is removed by the next process that fetches it.
    """
    before = [signal.signal(number, signal.SIG_IGN) for number in _SIGNALS]
    for worker in workers:
        worker.interrupt()
    for worker in workers:
        worker.end(_CLEAN_UP_TIMEOUT_S)
    for number, handler in zip(_SIGNALS, before, strict=True):
        signal.signal(number, handler)


@contextmanager
def _sigterm_exits() -> Iterator[None]:
    """Have SIGTERM raise, unless the caller has a handler of its own for it."""
    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _signals_held() -> Iterator[None]:
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _work(chain: Sequence[Task], report: Connection, inherited: Sequence[Connection]) -> None:
    """Run a chain in its process. It ends at its next report if the one that began it is gone."""
    for other in inherited:
        other.close()
    os.setpgid(0, 0)  # Ctrl-C reaches the process that began this one, which passes it on
    for number in _SIGNALS:
        signal.signal(number, _stop_once)
    report_to(report.send)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        _run_in_turn(chain, report)
    except (KeyboardInterrupt, BrokenPipeError):
        os._exit(1)


def _run_in_turn(chain: Sequence[Task], report: Connection) -> None:
    for task in chain:
        try:
            task.run()
        except BrokenPipeError:
            raise
        except (TwoPhaseError, OSError, subprocess.SubprocessError) as error:
            report.send(_Failure(task.name, str(error)))
            return


def _stop_once(*_: Any) -> None:
    """Raise at the first signal; later ones must not disturb what it cleans up."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
