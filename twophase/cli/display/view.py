"""The base of the views, which show the progress of a job.

A view observes the job, prints the lines of others (log, Spark) where they do not disturb it, and
is a context manager around the whole run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from twophase.cli.display.progress_tracker import ProgressTracker
from twophase.events import Event


class View(ABC):
    """Shows one job.

    Args:
        job: the job's name.
    """

    def __init__(self, job: str) -> None:
        self.tracker = ProgressTracker()
        self._job = job

    def __call__(self, event: Event) -> None:
        """Observe the job."""
        self.tracker(event)
        self._show(event)

    @abstractmethod
    def print_line(self, text: str) -> None:
        """Show a line of the log or of Spark: on standard error, or above a live panel."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.tracker.set_state("failed")

    @abstractmethod
    def _show(self, event: Event) -> None:
        """Show an event that the tracker has already recorded."""
