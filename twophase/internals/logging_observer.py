"""Logs events to `logging.getLogger("twophase")`, one line per event."""

from __future__ import annotations

import logging
from dataclasses import fields

from twophase.events import (
    CheckpointDeclined,
    CommitRetried,
    Event,
    GroupOffsetsDelayed,
    JobRestarting,
    JobStopped,
    OrphansAborted,
    RecoveryFinished,
    SavepointMade,
    SinkRewound,
    SinksChained,
    TolerableFailuresExceeded,
)
from twophase.internals.redaction import printable

_log = logging.getLogger("twophase")
_INFO = (RecoveryFinished, OrphansAborted, SavepointMade, SinksChained)
_WARNING = (
    CheckpointDeclined,
    CommitRetried,
    GroupOffsetsDelayed,
    JobRestarting,
    SinkRewound,
    TolerableFailuresExceeded,
)


def log_event(event: Event) -> None:
    """Log one event at its level."""
    level = level_of(event)
    if _log.isEnabledFor(level):
        text = " ".join(
            f"{field.name}={printable(str(getattr(event, field.name)))}" for field in fields(event)
        )
        _log.log(level, "%s %s", type(event).__name__, text)


def level_of(event: Event) -> int:
    """Return the level: a warning if an operator should see it, debug if it is routine."""
    if isinstance(event, _WARNING) or (isinstance(event, JobStopped) and event.cause):
        return logging.WARNING
    return logging.INFO if isinstance(event, _INFO) else logging.DEBUG
