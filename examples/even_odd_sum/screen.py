"""The terminal of the example: one line for each thing that happens, with the time since the start."""

from __future__ import annotations

import time

from rich.console import Console

_INDENT = " " * 7


class Screen:
    """The terminal, or a file. Times count from the creation."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, soft_wrap=True)
        self._began_s = time.monotonic()

    def line(self, text: str) -> None:
        """Show something that has happened."""
        minutes, seconds = divmod(int(time.monotonic() - self._began_s), 60)
        self.console.print(f"[dim]{minutes:3d}:{seconds:02d}[/dim] {text}")

    def more(self, text: str) -> None:
        """Add to the line before."""
        self.console.print(f"{_INDENT}{text}")
