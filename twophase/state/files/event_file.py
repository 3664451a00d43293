"""The events of the last hours, in the job's folder: for people, never for decisions.

    events/0000000007    one JSON object a line, oldest first: {"at": ..., "event": ..., ...}

A driver appends from its fence on, and begins another file when the last one is full; the newest
two are kept. Nothing is synced, and nothing waits for it: a write that fails is logged once, and
the job goes on. A killed driver may leave half a line; the next one begins with a line break, and
readers leave out what is no event.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from twophase import events
from twophase.contract.offset_text import line_text
from twophase.errors import CorruptRecordError
from twophase.ids import Attempt
from twophase.internals.clock import Clock
from twophase.internals.redaction import printable
from twophase.state.files.storage import Storage

FOLDER = "events"
MAX_FILE_BYTES = 4 * 1024 * 1024
"""Two such files hold some 30,000 checkpoints of a topic with two partitions."""
_KEPT = 2
_ITEMS = 1000
ROUTINE = (
    events.CheckpointTriggered,
    events.SinkAcknowledged,
    events.CheckpointDecided,
    events.PieceCommitted,
    events.CheckpointSubsumed,
)
_log = logging.getLogger("twophase")


@dataclass(frozen=True)
class PastEvent:
    """An event in the file.

    Attributes:
        at_ms: when it was observed, Unix time.
        event: the event; its offsets are text, as `line_text` gives them.
        line: its JSON values.
    """

    at_ms: int
    event: events.Event
    line: Mapping[str, Any]


class EventFile:
    """An observer that appends events to the file. Safe to use from several threads.

    Args:
        storage: the job's folder.
        clock: the time.
    """

    def __init__(self, storage: Storage, clock: Clock) -> None:
        self._storage = storage
        self._clock = clock
        self._number: int | None = None
        self._is_torn = True  # perhaps, by a driver before this one
        self._has_failed = False
        self._lag: int | None = None

    def __call__(self, event: events.Event) -> None:
        """See `twophase.events.Observer`."""
        if isinstance(event, ROUTINE) or not self._is_news(event):
            return
        line = json.dumps(event_to_json(event, self._clock.unix_ms())).encode() + b"\n"
        try:
            self._append(line)
        except (OSError, CorruptRecordError) as error:
            self._is_torn = True
            if not self._has_failed:
                self._has_failed = True
                _log.warning("Events are not kept in the folder of job %s: %s", event.job, error)

    def _is_news(self, event: events.Event) -> bool:
        """Return whether a report of Spark, which comes after each micro-batch, has another lag."""
        if not isinstance(event, events.QueryProgressed):
            return True
        before, self._lag = self._lag, event.lag
        return event.lag != before

    def _append(self, line: bytes) -> None:
        number = self._number or max(map(int, _names(self._storage)), default=1)
        size = self._storage.append(_name(number), b"\n" + line if self._is_torn else line)
        self._is_torn, self._number = False, number
        if size >= MAX_FILE_BYTES:
            self._number = number + 1
            for name in _names(self._storage):
                if int(name) <= self._number - _KEPT:
                    self._storage.delete_unneeded(_name(int(name)))


def event_to_json(event: events.Event, at_ms: int) -> dict[str, Any]:
    """Return the JSON values of an event: texts of bounded length, offsets as people read them."""
    if isinstance(event, events.CheckpointCommitted):
        event = replace(event, offsets=tuple(line_text(line or None) for line in event.offsets))
    values = {one.name: _plain(getattr(event, one.name)) for one in fields(event)}
    return {"at": utc(at_ms), "event": type(event).__name__, **values}


def utc(unix_ms: int) -> str:
    """Return a time in UTC, as ISO 8601 has it."""
    return datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec="milliseconds")


def read_events(storage: Storage) -> Iterator[PastEvent | None]:
    """Yield the events in a job's folder, oldest first; None for a line that is no event."""
    for name in _names(storage):
        try:
            data = storage.read(_name(int(name)))
        except FileNotFoundError:
            continue  # the job has begun another file meanwhile
        for line in data.split(b"\n"):
            if line.strip():
                yield event_from_line(line)


def event_from_line(line: bytes) -> PastEvent | None:
    """Return the event of a line of the file; None for one that is damaged, torn, or of a newer
    version.
    """
    try:
        found = json.loads(line)
        values = {key: value for key, value in found.items() if key not in ("at", "event")}
        if "attempt" in values:
            values["attempt"] = Attempt(*map(int, values["attempt"].split(".")))
        event = _adapter(found["event"]).validate_python(values)
        return PastEvent(
            round(datetime.fromisoformat(found["at"]).timestamp() * 1000), event, found
        )
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError):
        return None


@cache
def _adapter(name: str) -> TypeAdapter[events.Event]:
    kind = getattr(events, name)
    if not (isinstance(kind, type) and issubclass(kind, events.Event)):
        raise TypeError(name)
    return TypeAdapter(kind)


def _plain(value: Any) -> Any:
    match value:
        case str():
            return printable(value)
        case Attempt():
            return str(value)
        case tuple():
            return [_plain(one) for one in value[:_ITEMS]]
        case Mapping():
            return dict(value)
        case _:
            return value


def _names(storage: Storage) -> list[str]:
    return [name for name in storage.names(FOLDER) if name.isascii() and name.isdecimal()]


def _name(number: int) -> str:
    return f"{FOLDER}/{number:010d}"
