"""Events of a job, as values for logs, progress and metrics; the protocol itself never logs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from twophase.ids import Attempt


@dataclass(frozen=True)
class Event:
    """Base of all events. `job` is the job's name."""

    job: str


@dataclass(frozen=True)
class RecoveryStarted(Event):
    """A driver has appended its fence, which closes the attempts of older generations."""

    generation: int


@dataclass(frozen=True)
class RecoveryFinished(Event):
    """Decided checkpoints are committed, orphans aborted, sinks fenced."""

    generation: int
    recommitted: int
    aborted: int
    duration_s: float


@dataclass(frozen=True)
class SinksChained(Event):
    """A query is about to start whose tasks read the source and write to some sinks in one process.

    `chained` names these; `unchained` says of each other sink why its rows go through Spark.
    """

    chained: tuple[str, ...]
    unchained: Mapping[str, str]


@dataclass(frozen=True)
class CheckpointTriggered(Event):
    """An attempt at a checkpoint begins."""

    checkpoint: int
    attempt: Attempt


@dataclass(frozen=True)
class CheckpointNotTriggered(Event):
    """No attempt at the checkpoint could begin, or not yet: nothing was asked to pre-commit.

    `reason` is the name of a `CheckpointFailureReason`.
    """

    checkpoint: int
    reason: str
    cause: str


@dataclass(frozen=True)
class SinkAcknowledged(Event):
    """A sink has pre-committed all its pieces."""

    checkpoint: int
    attempt: Attempt
    sink: str
    pieces: int
    rows: int
    duration_s: float


@dataclass(frozen=True)
class CheckpointDeclined(Event):
    """An attempt failed before its decision; its pieces are aborted."""

    checkpoint: int
    attempt: Attempt
    reason: str
    cause: str
    will_retry: bool


@dataclass(frozen=True)
class CheckpointDecided(Event):
    """The completed checkpoint is durable: from here on everything commits.

    `rows` is the sum over all sinks; `rows_by_sink` names every sink of the job, including
    those without rows.
    """

    checkpoint: int
    attempt: Attempt
    rows: int
    duration_s: float
    rows_by_sink: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class SinkDecided(Event):
    """A sink commits its pieces of the checkpoint ahead of the others, which may still fail."""

    checkpoint: int
    attempt: Attempt
    sink: str
    pieces: int
    rows: int


@dataclass(frozen=True)
class PieceCommitted(Event):
    """A sink has proven one piece committed. `proof` is empty if this call committed it."""

    checkpoint: int
    sink: str
    piece: str
    proof: str


@dataclass(frozen=True)
class CommitRetried(Event):
    """A decided checkpoint is not committed yet: a sink asked for a retry.

    `waiting_s` is how long this driver has been trying, in seconds: all that time its pieces
    may hold locks (H5).
    """

    checkpoint: int
    sink: str
    reason: str
    retries: int
    waiting_s: float
    next_in_s: float


@dataclass(frozen=True)
class CheckpointCommitted(Event):
    """Every sink has proven the checkpoint committed.

    Durations in seconds: `duration_s` since the trigger; `protocol_s` the part spent in the
    protocol itself, without Spark and the targets; `pre_commit_s` from the trigger until every
    sink has acknowledged, `decide_s` from there to the decision, `commit_s` from there to here.
    `rows` is the sum over all sinks; `rows_by_sink` names every sink of the job. `size_bytes` is
    the size of the body. `declined` has the reason of each attempt that was declined before.
    """

    checkpoint: int
    rows: int
    offsets: tuple[str, ...]
    duration_s: float
    protocol_s: float
    rows_by_sink: Mapping[str, int] = field(default_factory=dict, hash=False)
    pre_commit_s: float = 0.0
    decide_s: float = 0.0
    commit_s: float = 0.0
    size_bytes: int = 0
    declined: tuple[str, ...] = ()


@dataclass(frozen=True)
class TolerableFailuresExceeded(Event):
    """More attempts in a row were declined than `checkpoint.tolerable_failures` allows: the query
    fails. `reason` and `cause` are of the last one, `failures` counts them.
    """

    checkpoint: int
    failures: int
    reason: str
    cause: str


@dataclass(frozen=True)
class GroupOffsetsDelayed(Event):
    """Offsets did not reach the consumer group; those of the next checkpoint will cover them."""

    checkpoint: int
    reason: str


@dataclass(frozen=True)
class CheckpointReplayed(Event):
    """Spark replayed a checkpoint that was already decided; no sink was asked to write."""

    checkpoint: int
    executed: bool


@dataclass(frozen=True)
class CheckpointSubsumed(Event):
    """The checkpoint's body was deleted; newer checkpoints are kept."""

    checkpoint: int


@dataclass(frozen=True)
class OrphansAborted(Event):
    """Pieces of closed attempts that are in no decision were removed from a sink."""

    sink: str
    pieces: tuple[str, ...]


@dataclass(frozen=True)
class SinkRewound(Event):
    """Checkpoints after the restored one were taken back out of a sink, with their rows.

    `newest` is the newest of a lineage that was; `kept` the last that stays, -1 if none does.
    """

    sink: str
    lineage: str
    newest: int
    kept: int


@dataclass(frozen=True)
class SavepointMade(Event):
    """The job has made a savepoint of a checkpoint; `path` is its folder."""

    checkpoint: int
    path: str


@dataclass(frozen=True)
class QueryProgressed(Event):
    """Spark has reported on the query, which it does after each micro-batch.

    `records` were read since the start of this driver, `rate` is those per second in the newest
    micro-batch. `lag` records wait in the sources; None if no source reports it.
    """

    records: int
    rate: float | None
    lag: int | None


@dataclass(frozen=True)
class JobRestarting(Event):
    """The query failed; the restart strategy starts it again."""

    cause: str
    restart: int
    delay_s: float


@dataclass(frozen=True)
class JobStopped(Event):
    """The job has ended; `cause` is empty after a clean stop."""

    cause: str


Observer = Callable[[Event], None]
"""Receives events in the thread that emits them: several at once with `checkpoint.max_concurrent`
above 1, and `QueryProgressed` and `SavepointMade` beside any other.
"""

_log = logging.getLogger("twophase")


class _Calling(threading.local):
    jobs: tuple[str, ...] = ()


_calling = _Calling()


@contextmanager
def calling_back(job: str) -> Iterator[None]:
    """Call an observer, a listener or a function of a job in the block.

    Who waits there for the end of the job waits for itself.
    """
    before = _calling.jobs
    _calling.jobs = (*before, job)
    try:
        yield
    finally:
        _calling.jobs = before


def is_called_back(job: str) -> bool:
    """Return whether this thread is in such a call of a job."""
    return job in _calling.jobs


class Observers:
    """Passes events to every observer. One that fails is logged and disturbs nothing."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = list(observers)

    def add(self, observer: Observer) -> None:
        """Add an observer; it receives events from now on."""
        self._observers.append(observer)

    def __call__(self, event: Event) -> None:
        """Notify every observer."""
        with calling_back(event.job):
            for observer in self._observers:
                try:
                    observer(event)
                except Exception:  # noqa: BLE001 an observer is foreign code; the protocol goes on
                    _log.exception("An observer failed on %s", event)
