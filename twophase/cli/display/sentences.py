"""One sentence about each event, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twophase.cli.display.text import count, duration, rows_by_sink
from twophase.engine.progress import Progress, ended_by_stop
from twophase.events import (
    CheckpointCommitted,
    CheckpointDeclined,
    CheckpointNotTriggered,
    CheckpointReplayed,
    CommitRetried,
    Event,
    GroupOffsetsDelayed,
    JobRestarting,
    JobStopped,
    OrphansAborted,
    QueryProgressed,
    RecoveryFinished,
    RecoveryStarted,
    SavepointMade,
    SinkDecided,
    SinkRewound,
    SinksChained,
    TolerableFailuresExceeded,
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
            return f"checkpoint {number} replayed: it was already decided, so no sink wrote"
        case OrphansAborted(sink=sink, pieces=pieces):
            return f"{count(len(pieces), 'orphan')} aborted in sink {sink!r}"
        case SinkRewound(sink=sink, lineage=lineage, newest=newest, kept=kept):
            left = f"to checkpoint {kept}" if kept >= 0 else "to its beginning"
            return f"sink {sink!r} rewound {left} of lineage {lineage}, from checkpoint {newest}"
        case SinksChained(chained=chained, unchained=unchained):
            return _chained(chained, unchained)
        case GroupOffsetsDelayed(checkpoint=number, reason=reason):
            delayed = "could not commit its offsets to the consumer group"
            return f"checkpoint {number} {delayed}: {reason}"
        case JobRestarting(cause=cause, restart=restart, delay_s=delay_s):
            return f"restart {restart} in {duration(delay_s)}: {cause}"
        case _:
            return None


def sentence(event: Event, progress: Progress) -> str:
    """Return one sentence about any event, also about those that a view shows in another way."""
    match event:
        case RecoveryStarted(generation=generation):
            return f"generation {generation} has taken the job over"
        case CheckpointNotTriggered(checkpoint=number, reason=reason, cause=cause):
            return f"checkpoint {number} not triggered: {reason}: {cause}"
        case TolerableFailuresExceeded(failures=failures, reason=reason, cause=cause):
            declined = f"{count(failures, 'attempt')} in a row declined, the query fails"
            return f"{declined}: {reason}: {cause}"
        case SavepointMade(checkpoint=number, path=path):
            return f"savepoint of checkpoint {number} made in {path}"
        case QueryProgressed(records=records, lag=lag):
            behind = "unknown" if lag is None else f"{lag:,}"
            return f"{count(records, 'record')} read since the start, lag {behind}"
        case JobStopped(cause=cause):
            return f"failed: {cause}" if cause else "stopped"
        case _:
            return describe(event, progress) or type(event).__name__


def _waiting(event: CommitRetried) -> str:
    waited = f"has waited {duration(event.waiting_s)} for sink {event.sink!r}"
    next_try = f"next try in {duration(event.next_in_s)}"
    return f"checkpoint {event.checkpoint} {waited}, {next_try}: {event.reason}"


def _chained(chained: Sequence[str], unchained: Mapping[str, str]) -> str:
    parts = [f"chained to the source: {', '.join(chained)}"] if chained else []
    whys = [f"{sink} ({why})" for sink, why in unchained.items()]
    return "; ".join([*parts, *([f"not chained: {', '.join(whys)}"] if whys else [])])


def _declined(event: CheckpointDeclined) -> str:
    attempt = f"checkpoint {event.checkpoint} ({event.attempt})"
    if ended_by_stop(event):
        undecided = f"{attempt} was not decided before the stop"
        return f"{undecided}: none of its rows are visible, and the next start writes them"
    then = "trying again" if event.will_retry else "the query fails"
    return f"{attempt} declined, {then}: {event.reason}: {event.cause}"


def _committed(event: CheckpointCommitted, progress: Progress) -> str:
    lag = "" if progress.query.lag is None else f", lag {progress.query.lag:,}"
    pending = f", {count(len(progress.pending), 'pending commit')}" if progress.pending else ""
    took = f"{duration(event.duration_s)} (protocol {duration(event.protocol_s)})"
    rows = rows_by_sink(event.rows, event.rows_by_sink)
    return f"checkpoint {event.checkpoint} committed: {rows} in {took}{lag}{pending}"


def _recovered(event: RecoveryFinished) -> str:
    return (
        f"generation {event.generation} recovered in {duration(event.duration_s)}: "
        f"{count(event.recommitted, 'checkpoint')} committed again, "
        f"{count(event.aborted, 'orphan')} aborted"
    )
