"""The console of the command: its reader may go away, and the job goes on."""

from __future__ import annotations

import os

from rich.console import Console

INTERRUPT_CHARS = len("^C") + 1
"""The columns that a terminal's echo of Ctrl-C takes, and the one after it."""


class JobConsole(Console):
    """A console that falls silent when its reader is gone: `| head`, a journal that restarts.

    Rich would end the process by an exception that Spark's callbacks do not expect, and the JVM
    would wait for ever.
    """

    def on_broken_pipe(self) -> None:
        """Drop everything from here on, also what Python still buffers for this file."""
        self.quiet = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)
