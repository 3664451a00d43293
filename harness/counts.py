"""A plan with the state of a function in Python: how many records a key has had."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

KEYS = 3


class Counts(StatefulProcessor):
    """Gives out how many records a key has had."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._count = handle.getValueState("count", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Count."""
        count = (self._count.get() or (0,))[0] + sum(1 for _ in rows)
        self._count.update((count,))
        yield Row(id=key[0] * 1000 + count)

    def close(self) -> None:
        """Nothing is open."""


def counts(frame: DataFrame) -> DataFrame:
    """Return how many numbers have had a remainder of `KEYS`, after each micro-batch."""
    keyed = frame.withColumn("key", F.col("id") % KEYS).groupBy("key")
    return keyed.transformWithState(Counts(), "id long", "Append", "None")
