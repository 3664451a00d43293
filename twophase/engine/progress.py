"""The progress of a running job, folded from its events and Spark's reports on its query."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from twophase.events import (
    CheckpointCommitted,
    CheckpointDecided,
    CheckpointDeclined,
    CheckpointReplayed,
    CheckpointTriggered,
    CommitRetried,
    Event,
    JobRestarting,
    JobStopped,
    QueryProgressed,
    RecoveryFinished,
    RecoveryStarted,
    SinkAcknowledged,
)
from twophase.failure_reason import CheckpointFailureReason

STOPPING = "stopping"
"""The state of a job that has been asked to stop."""


@dataclass(frozen=True)
class QueryProgress:
    """The progress of the query at one moment.

    Attributes:
        records: records read since the start of this driver.
        rate: records per second in the newest micro-batch; None before the first.
        lag: records that wait in the sources; None if no source reports it.
    """

    records: int = 0
    rate: float | None = None
    lag: int | None = None


@dataclass(frozen=True)
class Progress:
    """The progress at one moment. Times are monotonic seconds.

    Attributes:
        state: what the job is doing.
        query: records read, their rate, and the lag, as Spark has last reported them.
        rows: rows committed, over all sinks.
        rows_by_sink: the same by sink.
        committed: checkpoints committed by this driver.
        last: the newest committed checkpoint.
        last_s: when that was committed.
        current: the checkpoint in progress.
        current_s: when that began.
        has_workers: whether Spark's Python workers have written for a checkpoint since the last
            start of the query.
        pending: decided checkpoints that are not committed yet.
        declined: attempts that were declined.
        restarts: restarts of the query.
        last_error: the newest reason why an attempt was declined, a commit is retried,
            or the query failed.
    """

    state: str = "starting"
    query: QueryProgress = field(default_factory=QueryProgress)
    rows: int = 0
    rows_by_sink: Mapping[str, int] = field(default_factory=dict)
    committed: int = 0
    last: CheckpointCommitted | None = None
    last_s: float = 0.0
    current: int | None = None
    current_s: float = 0.0
    has_workers: bool = False
    pending: frozenset[int] = frozenset()
    declined: int = 0
    restarts: int = 0
    last_error: str = ""

    def __str__(self) -> str:
        checkpoints = f"{self.committed:,} checkpoint{'' if self.committed == 1 else 's'}"
        rows = f"{self.rows:,} row{'' if self.rows == 1 else 's'}"
        failed = f"; last error: {self.last_error}" if self.last_error else ""
        return f"{self.state}, {checkpoints} and {rows} committed{failed}"


class ProgressTracker:
    """Tracks the progress of a job as an observer. Safe to use from several threads.

    Attributes:
        started_s: when it was created, in monotonic seconds.
    """

    def __init__(self) -> None:
        self.started_s = time.monotonic()
        self._progress = Progress()
        self._lock = threading.Lock()

    @property
    def progress(self) -> Progress:
        """The current progress."""
        with self._lock:
            return self._progress

    def set_state(self, state: str) -> None:
        """Set the job's state where no event reports it."""
        with self._lock:
            self._progress = replace(self._progress, state=state)

    def __call__(self, event: Event) -> None:
        """See `twophase.events.Observer`."""
        with self._lock:
            self._progress = apply(self._progress, event, time.monotonic())


def apply(now: Progress, event: Event, now_s: float) -> Progress:
    """Return the progress after an event that was observed at `now_s`, in monotonic seconds."""
    match event:
        case RecoveryStarted():
            return replace(now, state="recovering", has_workers=False)
        case RecoveryFinished():
            return replace(
                now,
                state=now.state if now.state == STOPPING else "running",
                pending=frozenset(),
            )
        case QueryProgressed(records=records, rate=rate, lag=lag):
            return replace(now, query=QueryProgress(records, rate, lag))
        case JobRestarting(cause=cause, restart=restart):
            return replace(
                now, state="restarting", restarts=restart, last_error=cause, current=None
            )
        case JobStopped(cause=cause):
            return replace(
                now,
                state="failed" if cause else "stopped",
                last_error=cause or now.last_error,
                current=None,
            )
        case _:
            return _apply_checkpoint(now, event, now_s)


def ended_by_stop(declined: CheckpointDeclined) -> bool:
    """Return whether an attempt was declined by the stop of the job, which is no failure."""
    return declined.reason == CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN.name


def _apply_checkpoint(now: Progress, event: Event, now_s: float) -> Progress:
    match event:
        case CheckpointTriggered(checkpoint=number):
            return replace(now, current=number, current_s=now_s)
        case SinkAcknowledged():
            return replace(now, has_workers=True)
        case CheckpointDecided(checkpoint=number):
            return replace(now, pending=now.pending | {number})
        case CheckpointCommitted(checkpoint=number, rows=rows, rows_by_sink=by_sink):
            added = {sink: now.rows_by_sink.get(sink, 0) + n for sink, n in by_sink.items()}
            return replace(
                now,
                rows=now.rows + rows,
                rows_by_sink={**now.rows_by_sink, **added},
                committed=now.committed + 1,
                last=event,
                last_s=now_s,
                current=None if now.current == number else now.current,
                pending=now.pending - {number},
            )
        case CheckpointReplayed(checkpoint=number):
            return replace(now, current=None, pending=now.pending - {number})
        case CheckpointDeclined() if ended_by_stop(event):
            return replace(now, current=None)
        case CheckpointDeclined(cause=cause):
            return replace(now, declined=now.declined + 1, last_error=cause, current=None)
        case CommitRetried(sink=sink, reason=reason):
            return replace(now, last_error=f"sink {sink!r}: {reason}")
        case _:
            return now
