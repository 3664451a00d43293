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
    SinkRewound,
    TolerableFailuresExceeded,
)
from twophase.internals.redaction import printable

_log = logging.getLogger("twophase")
_INFO = (RecoveryFinished, OrphansAborted)
_WARNING = (
    CheckpointDeclined,
    CommitRetried,
    GroupOffsetsDelayed,
    JobRestarting,
    SinkRewound,
    TolerableFailuresExceeded,
)


def log_event(event: Event) -> None:
    """Log one event: as a warning if an operator should see it, at debug level if it is routine."""
    if isinstance(event, _WARNING) or (isinstance(event, JobStopped) and event.cause):
        level = logging.WARNING
    elif isinstance(event, _INFO):
        level = logging.INFO
    else:
        level = logging.DEBUG
    if _log.isEnabledFor(level):
        text = " ".join(
            f"{field.name}={printable(str(getattr(event, field.name)))}" for field in fields(event)
        )
        _log.log(level, "%s %s", type(event).__name__, text)
