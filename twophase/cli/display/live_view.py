"""Shows the progress of a job as a panel on a terminal."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from twophase.cli.display.console import INTERRUPT_CHARS
from twophase.cli.display.messages import describe
from twophase.cli.display.panel import progress_panel
from twophase.cli.display.text import clean
from twophase.cli.display.view import View
from twophase.events import CheckpointCommitted, Event

_REFRESHES_PER_S = 4


class LiveView(View):
    """A panel that is redrawn a few times a second; lines to keep are printed above it."""

    def __init__(self, job: str, console: Console) -> None:
        super().__init__(job)
        self._console = console
        self._live = Live(
            console=console,
            get_renderable=self.panel,
            refresh_per_second=_REFRESHES_PER_S,
        )

    def panel(self) -> Panel:
        """Return the panel with the current progress."""
        return progress_panel(self._job, self.tracker, self._console.width - INTERRUPT_CHARS)

    def print_line(self, text: str) -> None:
        """See `View.print_line`."""
        self._console.print(Text(clean(text), style="dim"))

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self._live.stop()

    def _show(self, event: Event) -> None:
        if isinstance(event, CheckpointCommitted):
            return
        text = describe(event, self.tracker.progress)
        if text is not None:
            self._console.print(Text(f"{time.strftime('%H:%M:%S')} {clean(text)}"))
