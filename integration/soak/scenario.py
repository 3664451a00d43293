"""The job of the soak: a scenario whose drivers run for ever, have short timeouts
and keep journals.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import psutil

from harness.nemesis import DriverProcess
from integration.mysql.scenario import Scenario
from twophase.testing.journal import Entry, JournalReader
from twophase.testing.services import KafkaService, SqlService
from twophase.testing.sessions import session_of

BATCH = 1000
_MASTER = "local[2]"
_SOURCE = {"request.timeout": "4 s", "read.timeout": "8 s"}
_SINK = {
    "connect_timeout": "4 s",
    "lock_wait_timeout": "1 s",
    "io_timeout": "4 s",
    "fence_timeout": "20 s",
}
_JOB = {
    "restart.delay": "100 ms",
    "restart.delay_max": "500 ms",
    "commit.backoff_max": "500 ms",
    "checkpoint.tolerable_failures": 2,
}

_LINGERS = ("C06", "C11", "C12", "C13", "C14", "C15", "C19", "C20", "C22")
"""Crash points where a driver lingers, so that a good part of all random moments is between a
decision and the end of its commit, which takes a few milliseconds otherwise.
"""
_LINGER_MS = 25

DRIVER_STARTED = "DriverStarted"
"""What the journals have of a driver before it reports anything."""

Ends = Mapping[int, int]
"""For each partition the offset after its last record."""


class SoakDriver(DriverProcess):
    """A process of `integration.soak.driver`, killed like any other driver."""

    module = "integration.soak.driver"

    def __init__(self, settings: dict[str, Any], scratch: Path, arm: str) -> None:
        super().__init__(settings, scratch, arm)
        self._journal = Path(settings["journal"])

    def has_recovered(self) -> bool:
        """Whether the job has started in it."""
        return any(entry.kind == "RecoveryFinished" for entry in JournalReader(self._journal).new())

    def python_workers(self) -> list[psutil.Process]:
        """The Python processes that the JVM has started: the daemon, the workers of tasks,
        that of the source.
        """
        return [process for process in session_of(self.pid) if "pyspark" in _module(process)]


class Journals:
    """What all drivers of a job have reported so far. Safe for use by several threads."""

    def __init__(self) -> None:
        self._readers: list[JournalReader] = []
        self._entries: list[Entry] = []
        self._ends: dict[int, int] = {}
        self._lock = threading.Lock()

    def add(self, path: Path) -> None:
        """Read the journal of one more driver, which is about to be started."""
        with self._lock:
            self._readers.append(JournalReader(path))
            self._entries = [*self._entries, Entry(DRIVER_STARTED, time.monotonic(), {})]

    def entries(self) -> list[Entry]:
        """All events, in the order of their time."""
        with self._lock:
            new = sorted(
                (entry for reader in self._readers for entry in reader.new()),
                key=lambda entry: entry.at_s,
            )
            for entry in new:
                if entry.kind == "CheckpointCommitted":
                    self._ends = ends_of(entry.fields["offsets"])
            self._entries = (
                sorted([*self._entries, *new], key=lambda entry: entry.at_s)
                if new
                else self._entries
            )
            return self._entries

    def since(self, at_s: float, kinds: Iterable[str]) -> list[Entry]:
        """The events of these kinds after a moment."""
        wanted = set(kinds)
        return [entry for entry in self.entries() if entry.at_s > at_s and entry.kind in wanted]

    @property
    def rows(self) -> int:
        """Records that are in committed checkpoints."""
        self.entries()
        return sum(self._ends.values())


class SoakScenario(Scenario):
    """See `Scenario`.

    Args:
        kafka: where the orders come from.
        servers: the sinks by name, and the server of each.
        scratch: a folder for the job's folder, the journals and the logs.
        batch: records of a checkpoint, at the most.
        linger_ms: how long a driver lingers at each crash point around the decision and the commit.

    Attributes:
        batch: records of a checkpoint, at the most.
        journals: what the drivers report.
    """

    servers: Mapping[str, SqlService]

    def __init__(
        self,
        kafka: KafkaService,
        servers: Mapping[str, SqlService],
        scratch: Path,
        batch: int = BATCH,
        linger_ms: int = _LINGER_MS,
    ) -> None:
        super().__init__(kafka, servers, scratch, options=_JOB, protocol=_SINK)
        self.batch = batch
        self.journals = Journals()
        self._arm = ",".join(f"{point}=delay:{linger_ms}@*" for point in _LINGERS)
        self._numbers = count(1)
        self.settings |= {"master": _MASTER, "source": _source(kafka, self.topic, batch)}

    def start(self, arm: str = "", **settings: Any) -> SoakDriver:
        """Start a driver that reads for ever."""
        journal = self.scratch / f"driver-{next(self._numbers)}.events"
        self.journals.add(journal)
        return SoakDriver(
            self.settings | settings | {"journal": str(journal)}, self.scratch, arm or self._arm
        )


def ends_of(lines: Iterable[str | None]) -> dict[int, int]:
    """The end of each partition in the offsets of a checkpoint, of which the job has one source."""
    [line] = lines
    return {
        entry["partition"]: entry["offset"]
        for entry in json.loads(line or "{}").get("partitions") or ()
    }


def _source(kafka: KafkaService, topic: str, batch: int) -> dict[str, str]:
    return _SOURCE | {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "subscribe": topic,
        "group.id": "soak",
        "startingOffsets": "earliest",
        "value.format": "json",
        "maxRecordsPerTrigger": str(batch),
    }


def _module(process: psutil.Process) -> str:
    """What `python -m` runs; empty for other programs and once the process is gone."""
    try:
        command = process.cmdline()
    except psutil.Error:
        return ""
    return command[command.index("-m") + 1] if "-m" in command else ""
