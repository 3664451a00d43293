"""Applies the events of a job to its progress: a pure fold."""

from __future__ import annotations

from dataclasses import replace

from twophase.cli.display.progress import STOPPING, Progress
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
    RecoveryFinished,
    RecoveryStarted,
    SinkAcknowledged,
)
from twophase.failure_reason import CheckpointFailureReason


def ended_by_stop(declined: CheckpointDeclined) -> bool:
    """Return whether an attempt was declined by the stop of the job, which is no failure."""
    return declined.reason == CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN.name


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
