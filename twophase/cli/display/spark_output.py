"""What Spark and its workers print: passed on line by line, without what says nothing to the user of a job."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from typing import IO

_JAVA_GREETING = "WARNING: Using incubator modules: jdk.incubator.vector"  # Spark asks for it, nothing turns it off
# Ivy's report of what it looks for: a hundred lines at a first start.
_IVY = re.compile(
    r":: |\t|\s*[-|]{2}|Ivy Default Cache set|The jars for the packages|downloading https?:|\S+ added as a dependency|\s+\|"
)


class SparkOutput:
    """Takes what Spark prints.

    Args:
        print_line: gets each line, in a thread of its own.

    Attributes:
        print_line: see above.
        fetching: whether packages are being fetched: Ivy's lines are kept back.
        muted: whether everything is dropped: Spark is being stopped, and tells of each thing that it interrupts.
    """

    def __init__(self, print_line: Callable[[str], None]) -> None:
        self.print_line = print_line
        self._kept: list[str] = []
        self.fetching = False
        self.muted = False

    def open(self) -> IO[bytes]:
        """A file that Spark writes to; its lines are passed on for as long as Spark lives."""
        reading, writing = os.pipe()
        threading.Thread(target=self._pump, args=(reading,), name="twophase-spark-output", daemon=True).start()
        return os.fdopen(writing, "wb", buffering=0)

    def print_kept(self) -> None:
        """Print what was kept back after all: Spark did not start, and it may say why."""
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
