"""Drivers that can be stopped between any two of their steps, to die there or to let
another driver run.

A step is the moment before or after a call of the storage or a sink: whatever is between two steps
is atomic for everybody else, as a link or a transaction is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from harness.memory_driver import JOB, Driver
from twophase.contract.committable import Committable
from twophase.contract.outcome import CommitOutcome, RetryLater
from twophase.contract.sink import CommitRequest
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.state.files.storage import NO_CRASH_POINTS, CrashPoints, LocalStorage
from twophase.testing.memory import MemoryTarget, OpenMemorySink

PIECES = 2


class Crash(BaseException):
    """The driver dies here: no handler of the product may treat it as an error
    to clean up after.
    """


class Steps:
    """Counts the steps of one driver, and runs an action at one of them."""

    def __init__(self) -> None:
        self._left = -1
        self._action: Callable[[], object] = lambda: None

    def plan(self, steps: int, action: Callable[[], object]) -> None:
        """Run `action` after a number of steps from now; it may raise."""
        self._left, self._action = steps, action

    def clear(self) -> bool:
        """Forget the plan; return whether it was carried out."""
        done, self._left = self._left < 0, -1
        return done

    def __call__(self) -> None:
        if self._left >= 0:
            self._left -= 1
            if self._left < 0:
                self._action()


def between_steps(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a method of an object that has `_steps`: one step before it, one after it."""

    @wraps(method)
    def stepping(self: Any, *arguments: Any) -> Any:
        self._steps()
        found = method(self, *arguments)
        self._steps()
        return found

    return stepping


class SteppingStorage(LocalStorage):
    """The job's folder, as one driver sees it.

    Attributes:
        on_append: called as soon as a log record is durable.
        before_create: a prefix, and the error raised instead of the next creation of a name
            that begins with it.
        after_create: a prefix, and the error raised after such a creation.
    """

    def __init__(self, root: Path, steps: Steps) -> None:
        super().__init__(root)
        self._steps = steps
        self.on_append: Callable[[], object] = lambda: None
        self.before_create: tuple[str, Exception] | None = None
        self.after_create: tuple[str, Exception] | None = None

    def create(self, name: str, data: bytes, crash_points: CrashPoints = NO_CRASH_POINTS) -> None:
        self._steps()
        self.before_create = self._fail(self.before_create, name)
        super().create(name, data, crash_points)
        if name.startswith("log/"):
            self.on_append()
        self.after_create = self._fail(self.after_create, name)
        self._steps()

    @staticmethod
    def _fail(planned: tuple[str, Exception] | None, name: str) -> tuple[str, Exception] | None:
        if planned is not None and name.startswith(planned[0]):
            raise planned[1]
        return planned

    def read(self, name: str) -> bytes:
        self._steps()
        return super().read(name)

    def sync(self, folder: str) -> None:
        self._steps()
        super().sync(folder)

    def names(self, folder: str) -> list[str]:
        self._steps()
        return super().names(folder)

    delete = between_steps(LocalStorage.delete)
    delete_temporary = between_steps(LocalStorage.delete_temporary)


class SteppingSink(OpenMemorySink):
    """A sink, as one driver sees it.

    Attributes:
        refusals: the number of commits to refuse, with `RetryLater` or an error.
        lost_replies: the number of commits to carry out and lose the reply of.
        failing_aborts: the number of aborts that fail.
    """

    def __init__(self, target: MemoryTarget, sink: str, steps: Steps) -> None:
        super().__init__(target, JOB, sink)
        self._steps = steps
        self.refusals = self.lost_replies = self.failing_aborts = 0

    history = between_steps(OpenMemorySink.history)
    fence = between_steps(OpenMemorySink.fence)
    in_doubt = between_steps(OpenMemorySink.in_doubt)
    subsume = between_steps(OpenMemorySink.subsume)

    writers = between_steps(OpenMemorySink.writers)

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        if self.refusals:
            self.refusals -= 1
            if self.refusals % 2:
                raise ConnectionError("refused")
            return [RetryLater("refused") for _ in requests]
        outcomes: list[CommitOutcome] = []
        for request in requests:
            self._steps()
            outcomes += super().commit([request])
        self._steps()
        if self.lost_replies:
            self.lost_replies -= 1
            raise ConnectionError("reply lost")
        return outcomes

    def abort(self, committables: Sequence[Committable]) -> None:
        if self.failing_aborts:
            self.failing_aborts -= 1
            raise ConnectionError("abort failed")
        for committable in committables:
            self._steps()
            super().abort([committable])
        self._steps()


class SteppingDriver(Driver):
    """A driver of the job; each of its steps can be its last."""

    storage_type = SteppingStorage

    def __init__(
        self,
        folder: Path,
        targets: dict[str, MemoryTarget],
        listeners: Sequence[Any] = (),
        **options: Any,
    ) -> None:
        self.steps = Steps()
        self.stepping_storage = self.storage_type(folder, self.steps)
        self.stepping_sinks = {
            name: SteppingSink(target, name, self.steps) for name, target in targets.items()
        }
        self.transactions: list[TransactionId] = []
        super().__init__(
            folder,
            targets,
            options=options,
            sinks={**self.stepping_sinks, **self.other_sinks(folder)},
            listeners=listeners,
            storage=self.stepping_storage,
        )

    def other_sinks(self, folder: Path) -> dict[str, Any]:
        """Return sinks of other kinds.

        Args:
            folder: of the job.
        """
        return {}

    def write(self, pending: PendingCheckpoint) -> None:
        """Give every sink the rows of the checkpoint, each with the attempt that wrote it."""
        for name, sink in self.stepping_sinks.items():
            transaction = pending.transaction(name)
            self.transactions.append(transaction)
            pieces = []
            for index in range(PIECES):
                piece = sink.write_direct(
                    transaction, self.subtask(index, pending.attempt), rows(pending, index)
                )
                pieces += [piece] if piece else []
            pending.acknowledge(name, pieces)
            self.steps()

    @staticmethod
    def subtask(index: int, attempt: Attempt) -> Subtask:
        return Subtask(index, attempt.counter * PIECES + index)


def rows(pending: PendingCheckpoint, index: int) -> list[dict[str, Any]]:
    """Return one row a piece; every fourth checkpoint is empty (HD6)."""
    return [row(pending.checkpoint, index, pending.attempt)] if pending.checkpoint % 4 != 3 else []


def row(checkpoint: int, index: int, attempt: Attempt) -> dict[str, Any]:
    return {"checkpoint": checkpoint, "index": index, "attempt": str(attempt)}
