"""Events as sentences, for people who watch a job."""

from __future__ import annotations

from twophase.cli.display.progress import Progress
from twophase.cli.display.progress_events import ended_by_stop
from twophase.cli.display.text import count, duration, rows_by_sink
from twophase.events import (
    CheckpointCommitted,
    CheckpointDeclined,
    CheckpointReplayed,
    CommitRetried,
    Event,
    GroupOffsetsDelayed,
    JobRestarting,
    OrphansAborted,
    RecoveryFinished,
    SinkDecided,
    SinkRewound,
)


def describe(event: Event, progress: Progress) -> str | None:
    """Return one sentence about an event, or None if it is routine."""
    match event:
        case CheckpointCommitted():
            return _committed(event, progress)
        case RecoveryFinished():
            return _recovered(event)
        case CheckpointDeclined():
            return _declined(event)
        case CommitRetried():
            return _waiting(event)
        case SinkDecided(checkpoint=number, sink=sink, rows=rows):
            return f"checkpoint {number}: sink {sink!r} commits {count(rows, 'row')} ahead"
        case CheckpointReplayed(checkpoint=number):
            return f"checkpoint {number} replayed: it was decided already, no sink wrote"
        case OrphansAborted(sink=sink, pieces=pieces):
            return f"{count(len(pieces), 'orphan')} aborted in sink {sink!r}"
        case SinkRewound(sink=sink, lineage=lineage, newest=newest, kept=kept):
            left = f"checkpoint {kept} is its newest" if kept >= 0 else "nothing of it is left"
            return (
                f"sink {sink!r}: rows up to checkpoint {newest} of lineage {lineage} were taken "
                f"back; {left}"
            )
        case GroupOffsetsDelayed(checkpoint=number, reason=reason):
            delayed = "its offsets are not committed to the consumer group"
            return f"checkpoint {number}: {delayed}: {reason}"
        case JobRestarting(cause=cause, restart=restart, delay_s=delay_s):
            return f"restart {restart} in {duration(delay_s)}: {cause}"
        case _:
            return None


def _waiting(event: CommitRetried) -> str:
    since = f"waits for sink {event.sink!r} since {duration(event.waiting_s)}"
    next_try = f"next try in {duration(event.next_in_s)}"
    return f"checkpoint {event.checkpoint} {since}, {next_try}: {event.reason}"


def _declined(event: CheckpointDeclined) -> str:
    attempt = f"checkpoint {event.checkpoint} ({event.attempt})"
    if ended_by_stop(event):
        undecided = f"{attempt} was not decided before the stop"
        return f"{undecided}: nothing of it is visible, the next start writes its rows"
    then = "it is tried again" if event.will_retry else "the query fails"
    return f"{attempt} declined, {then}: {event.reason}: {event.cause}"


def _committed(event: CheckpointCommitted, progress: Progress) -> str:
    lag = "" if progress.query.lag is None else f", lag {progress.query.lag:,}"
    pending = f", {count(len(progress.pending), 'pending commit')}" if progress.pending else ""
    took = f"{duration(event.duration_s)} (protocol {duration(event.protocol_s)})"
    rows = rows_by_sink(event.rows, event.rows_by_sink)
    return f"checkpoint {event.checkpoint} committed: {rows} in {took}{lag}{pending}"


def _recovered(event: RecoveryFinished) -> str:
    return (
        f"generation {event.generation} began in {duration(event.duration_s)}: "
        f"{count(event.recommitted, 'checkpoint')} committed again, "
        f"{count(event.aborted, 'orphan')} aborted"
    )
