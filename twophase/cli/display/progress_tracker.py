"""Tracks the progress of a running job, from its events and from Spark's reports on its query."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from twophase.cli.display.progress import Progress
from twophase.cli.display.progress_events import apply
from twophase.cli.display.query_progress import QueryProgress
from twophase.events import Event


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

    def set_query(self, query: QueryProgress) -> None:
        """Set Spark's latest report on the query."""
        with self._lock:
            self._progress = replace(self._progress, query=query)

    def __call__(self, event: Event) -> None:
        """See `twophase.events.Observer`."""
        with self._lock:
            self._progress = apply(self._progress, event, time.monotonic())
