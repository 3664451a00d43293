"""How a process of a job has failed, as the supervisor judges it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verification.simulation.scheduler import Process

ACCEPT, FORK = "accept-loss", "fork"


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        verb: which one.
        folder: the job's.
        path: the savepoint's, if it is about one.
        checkpoint, sink, sink_ahead: its options, if it has them.
        begun_in: likewise; empty without it.
        committed_only: whether a savepoint is asked for by the running job.
    """

    verb: str
    folder: str
    path: str = ""
    checkpoint: int = -1
    sink: str = ""
    sink_ahead: str = ""
    begun_in: str = ""
    committed_only: bool = False


@dataclass(frozen=True)
class Ending:
    """The failure of a driver or a command, or of one run of a driver's query.

    Attributes:
        process: which one.
        folder: the job's folder.
        error: what it has failed with.
    """

    process: Process
    folder: str
    error: Exception

    def __str__(self) -> str:
        return f"{self.process.name} failed with {type(self.error).__name__}: {self.error}"


@dataclass(frozen=True)
class DriverEnding(Ending):
    """That of a driver.

    Attributes:
        restore_path: the job's option `restore.path`; empty without it.
        saves: where it was to make a savepoint when it stops; empty for nowhere.
        records_at_start: what the logs held when it was decided to start it so.
        changes_at_start: how often targets had changed when it was started.
    """

    restore_path: str
    saves: str
    records_at_start: Mapping[str, int]
    changes_at_start: int


@dataclass(frozen=True)
class CommandEnding(Ending):
    """That of a command.

    Attributes:
        command: which one.
        alone: whether no driver lived when it began.
    """

    command: Command
    alone: bool = False

    def __str__(self) -> str:
        return f"{super().__str__()} ({self.command})"
