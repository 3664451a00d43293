"""Passes on what Spark and its workers print, except lines that mean nothing to the user."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from typing import IO

# Spark asks for it, nothing turns it off
_JAVA_GREETING = "WARNING: Using incubator modules: jdk.incubator.vector"
# Ivy's report of what it looks for: a hundred lines at a first start.
_IVY = re.compile(
    r":: |\t|\s*[-|]{2}|Ivy Default Cache set|The jars for the packages|downloading https?:|\S+ "
    r"added as a dependency|\s+\|"
)


class SparkOutput:
    """Receives what Spark prints.

    Args:
        print_line: called with each line, in a separate thread.

    Attributes:
        print_line: see above.
        fetching: whether packages are being fetched; Ivy's lines are held back.
        muted: whether everything is dropped, because Spark is being stopped and reports everything
            that it interrupts.
    """

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self.print_line = print_line
        self._kept: list[str] = []
        self.fetching = False
        self.muted = False

    def open(self) -> IO[bytes]:
        """Open a file for Spark to write to; its lines are passed on as long as Spark lives."""
        reading, writing = os.pipe()
        threading.Thread(
            target=self._pump, args=(reading,), name="twophase-spark-output", daemon=True
        ).start()
        return os.fdopen(writing, "wb", buffering=0)

    def print_kept(self) -> None:
        """Print the lines that were held back: Spark did not start, and they may say why."""
        self.fetching = False
        kept, self._kept = self._kept, []
        for line in kept:
            self.print_line(line)

    def _pump(self, reading: int) -> None:
        with os.fdopen(reading, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                text = line.rstrip()
                if not text or text == _JAVA_GREETING or self.muted:
                    continue
                if self.fetching and _IVY.match(text):
                    self._kept.append(text)
                else:
                    self.print_line(text)
