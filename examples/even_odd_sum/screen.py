"""The terminal output of the example: one line for each event, with the time since the start."""

from __future__ import annotations

import time

from rich.console import Console

_INDENT = " " * 7


class Screen:
    """The terminal, or a file. Times count from its creation."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self._began_s = time.monotonic()

    def line(self, text: str) -> None:
        """Show an event."""
        minutes, seconds = divmod(int(time.monotonic() - self._began_s), 60)
        self.console.print(f"[dim]{minutes:3d}:{seconds:02d}[/dim] {text}")

    def more(self, text: str) -> None:
        """Add to the previous line."""
        self.console.print(f"{_INDENT}{text}")
