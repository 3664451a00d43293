"""How a driver has failed, as the supervisor judges it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verification.simulation.scheduler import Process


@dataclass(frozen=True)
class Ending:
    """The failure of a driver, or of one run of its query.

    Attributes:
        process: of the driver.
        folder: the job's folder.
        error: what it has failed with.
        restore_path: the job's option `restore.path`; empty without it.
        saves: where it was to make a savepoint when it stops; empty for nowhere.
        records_at_start: what the logs held when it was decided to start it so.
        changes_at_start: how often targets had changed when it was started.
    """

    process: Process
    folder: str
    error: Exception
    restore_path: str
    saves: str
    records_at_start: Mapping[str, int]
    changes_at_start: int

    def __str__(self) -> str:
        return f"{self.process.name} failed with {type(self.error).__name__}: {self.error}"
