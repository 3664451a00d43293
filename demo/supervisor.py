"""Starts a driver, and another one when it was killed, until one ends by itself."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from demo.driver import Driver
from demo.figures import Life
from demo.kills import RANDOM_AFTER_S, Kill
from demo.screen import Bar, Screen
from demo.target import Target
from twophase.testing.journal import Entry
from twophase.testing.services.delta import fetch_delta

_POLL_S = 0.05
_MORE_DRIVERS = 3


class DriverFailedError(Exception):
    """A driver ended in an unplanned way."""


class Supervisor:
    """Keeps the job running.

    Args:
        folder: for logs and journals.
        environment: the drivers' environment variables.
        plan: the deaths of the first drivers, in order.
        target: the tables that they write into.
        screen: shows events.
        bar: shows how many rows are decided.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        plan: Sequence[Kill],
        target: Target,
        screen: Screen,
        bar: Bar,
    ) -> None:
        self.lives: list[Life] = []
        self._folder = folder
        self._environment = environment
        self._plan = plan
        self._target = target
        self._conf = {**fetch_delta(), **target.spark_conf()}
        self._screen = screen
        self._bar = bar
        self._decided: dict[int, int] = {}
        self._checkpoint = 0
        self._recovering: list[Entry] = []
        self._random_kill_s = float("inf")

    def run(self) -> None:
        """Return when a driver has ended by itself, with everything written.

        Raises:
            DriverFailedError: a driver failed, or none of many finished.
        """
        kills = [*self._plan, *[None] * _MORE_DRIVERS]
        for number, kill in enumerate(kills, 1):
            if self._one_life(number, kill).kill is None:
                return
        raise DriverFailedError(
            f"{len(kills)} drivers were killed, more than planned; logs: {self._folder}"
        )

    def _one_life(self, number: int, kill: Kill | None) -> Life:
        self._screen.line(f"driver {number} starts")
        started_s = time.monotonic()
        environment = {**self._environment, **(kill.environment if kill else {})}
        driver = Driver(number, self._folder, environment, self._conf)
        entries: list[Entry] = []
        try:
            while driver.exit_code is None:
                time.sleep(_POLL_S)
                self._read(driver, kill, entries)
                if time.monotonic() >= self._random_kill_s:
                    driver.kill()
        finally:
            driver.kill()
        self._read(driver, None, entries)
        self._random_kill_s = float("inf")
        life = Life(started_s, time.monotonic(), entries, kill if driver.killed else None)
        self.lives.append(life)
        self._tell_the_end(driver, life)
        return life

    def _tell_the_end(self, driver: Driver, life: Life) -> None:
        if driver.killed and life.kill is not None:
            kills = sum(other.kill is not None for other in self.lives)
            at = f"in checkpoint {self._checkpoint}"
            self._screen.kill(kills, life.kill, at, self._target.visible(), self._target.waiting())
        elif driver.exit_code == 0:
            self._screen.line(f"driver {driver.number} has read everything and ends by itself")
        else:
            raise DriverFailedError(
                f"driver {driver.number} ended with {driver.exit_code}:\n{driver.end_of_log()}"
            )

    def _read(self, driver: Driver, kill: Kill | None, entries: list[Entry]) -> None:
        for entry in driver.new_entries():
            entries.append(entry)
            self._notice(driver.number, kill, entry)

    def _notice(self, number: int, kill: Kill | None, entry: Entry) -> None:
        match entry.kind:
            case "RecoveryStarted":
                self._recovering = []
            case "PieceCommitted":
                self._recovering.append(entry)
            case "RecoveryFinished":
                self._screen.recovery(number, entry.fields, self._recovering)
            case "CheckpointTriggered":
                self._checkpoint = entry.fields["checkpoint"]
                if kill is not None and not kill.point and self._random_kill_s == float("inf"):
                    self._random_kill_s = time.monotonic() + random.uniform(*RANDOM_AFTER_S)
            case "CheckpointReplayed":
                self._screen.more(
                    f"Spark runs checkpoint {entry.fields['checkpoint']} again: "
                    "decided, nothing is written."
                )
            case "CheckpointDecided":
                self._decided[entry.fields["checkpoint"]] = entry.fields["rows"]
                self._bar(sum(self._decided.values()))
            case "CheckpointDeclined" | "JobRestarting" | "CommitRetried":
                self._screen.line(
                    f"[yellow]{entry.kind}[/yellow]  "
                    f"{entry.fields.get('cause') or entry.fields.get('reason')}"
                )
            case _:
                pass
