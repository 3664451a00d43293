"""One driver of the job: a process and everything that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from twophase.testing.journal import Entry, JournalReader
from twophase.testing.services.spark_start import spark_environment
from twophase.testing.sessions import kill, session_of

_ROOT = Path(__file__).parents[1]
_END_TIMEOUT_S = 30
_LOG_LINES = 15


class Driver:
    """A running `examples/orders/job.py`.

    Args:
        number: counts the drivers of the demo, from 1.
        folder: for its log and its journal.
        environment: more variables.
        conf: Spark's configuration.
    """

    def __init__(
        self, number: int, folder: Path, environment: Mapping[str, str], conf: Mapping[str, str]
    ) -> None:
        self.number = number
        self.log = folder / f"driver-{number}.log"
        journal = folder / f"driver-{number}.events"
        self._reader = JournalReader(journal)
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "twophase.testing.parent_death", "examples.orders.job"],
                env={
                    **os.environ,
                    **spark_environment(conf),
                    "DEMO_JOURNAL": str(journal),
                    **environment,
                },
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal."""
        return self._process.poll()

    @property
    def killed(self) -> bool:
        """True if SIGKILL has ended it."""
        return self.exit_code == -signal.SIGKILL

    def new_entries(self) -> Iterator[Entry]:
        """Return its events since the last call."""
        yield from self._reader.new()

    def kill(self) -> None:
        """SIGKILL the driver, its JVM and its workers, and wait until they are gone, as when
        a machine is lost.

        After a driver that died alone this ends the processes that it left, as systemd does with
        those of a service.
        """
        kill(session_of(self._process.pid))
        self._process.wait(_END_TIMEOUT_S)

    def end_of_log(self) -> str:
        """Return the last lines of its output."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
