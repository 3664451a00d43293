"""The views of `--progress`: a panel on a terminal, a line for each checkpoint, or nothing."""

from __future__ import annotations

import time
from enum import StrEnum
from types import TracebackType

from rich.console import Console
from rich.text import Text

from twophase.cli.display.console import JobConsole
from twophase.cli.display.live_view import LiveView
from twophase.cli.display.messages import describe
from twophase.cli.display.panel import summary
from twophase.cli.display.text import clean
from twophase.cli.display.view import View
from twophase.events import Event


class ProgressMode(StrEnum):
    """The values of `--progress`."""

    AUTO = "auto"
    LIVE = "live"
    PLAIN = "plain"
    NONE = "none"


class SilentView(View):
    """Shows only the lines of others."""

    def __init__(self, job: str) -> None:
        super().__init__(job)
        self._errors = JobConsole(stderr=True, highlight=False)

    def _show(self, event: Event) -> None:
        """Show nothing."""

    def print_line(self, text: str) -> None:
        """See `View.print_line`."""
        self._errors.print(Text(clean(text)), soft_wrap=True)


class PlainView(SilentView):
    """Prints one line for each checkpoint, and for each event that an operator should know."""

    def __init__(self, job: str, console: Console) -> None:
        super().__init__(job)
        self._console = console

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self._print(summary(self.tracker))

    def _show(self, event: Event) -> None:
        text = describe(event, self.tracker.progress)
        if text is not None:
            self._print(text)

    def _print(self, text: str) -> None:
        now = time.strftime("%H:%M:%S")
        self._console.print(
            f"{now} {self._job}: {clean(text)}", soft_wrap=True, markup=False, highlight=False
        )


def make_view(mode: ProgressMode, job: str, console: Console) -> View:
    """Return the view for a mode; `auto` is live on a terminal and plain elsewhere."""
    match mode:
        case ProgressMode.NONE:
            return SilentView(job)
        case ProgressMode.LIVE:
            return LiveView(job, console)
        case ProgressMode.PLAIN:
            return PlainView(job, console)
        case ProgressMode.AUTO:
            return LiveView(job, console) if console.is_terminal else PlainView(job, console)
