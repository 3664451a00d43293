"""A driver's events as lines of JSON in a file: an observer writes them, the demo follows them.

A killed driver may leave its last line half written. Each driver has its own file, and only
whole lines are read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twophase.events import Event


@dataclass(frozen=True)
class Entry:
    """One event of one driver.

    Attributes:
        kind: the name of the event's class.
        at_s: its time, in seconds on the clock that all processes of this machine share.
        fields: the fields of the event.
    """

    kind: str
    at_s: float
    fields: dict[str, Any]


class Journal:
    """An observer that writes each event at once."""

    def __init__(self, path: str) -> None:
        # open as long as the process lives
        self._file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115

    def __call__(self, event: Event) -> None:
        """Write one event."""
        self._file.write(json.dumps([type(event).__name__, time.monotonic(), asdict(event)]) + "\n")
        self._file.flush()


class JournalReader:
    """Follows a journal while it is being written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new(self) -> Iterator[Entry]:
        """Return the entries since the last call."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._position += len(line)
                yield Entry(*json.loads(line))
