"""The console of the command: whoever reads it may go away, and the job goes on."""

from __future__ import annotations

import os

from rich.console import Console

INTERRUPT_CHARS = len("^C") + 1
"""What a terminal shows of Ctrl-C, and the place after it."""


class JobConsole(Console):
    """A console that falls silent when nobody reads it any more: `| head`, a journal that restarts.

    Rich ends the process then, by an exception that Spark's callbacks do not expect: the JVM would wait for ever.
    """

    def on_broken_pipe(self) -> None:
        """Drop everything from here on; what Python still holds for this file goes nowhere at its exit."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)
