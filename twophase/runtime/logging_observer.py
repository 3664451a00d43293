"""Events as log lines: `logging.getLogger("twophase")`, one line an event."""

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
)
from twophase.redaction import printable

_log = logging.getLogger("twophase")
_INFO = (RecoveryFinished, OrphansAborted)
_WARNING = (CheckpointDeclined, CommitRetried, GroupOffsetsDelayed, JobRestarting)


def log_event(event: Event) -> None:
    """Write one event: warnings for what an operator should see, the routine at debug level."""
    if isinstance(event, _WARNING) or (isinstance(event, JobStopped) and event.cause):
        level = logging.WARNING
    elif isinstance(event, _INFO):
        level = logging.INFO
    else:
        level = logging.DEBUG
    if _log.isEnabledFor(level):
        text = " ".join(f"{field.name}={printable(str(getattr(event, field.name)))}" for field in fields(event))
        _log.log(level, "%s %s", type(event).__name__, text)
