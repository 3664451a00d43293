"""The executor side of a sink: one writer for each task attempt."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pyarrow as pa

from twophase.protocol.committable import Committable


class SinkWriter(ABC):
    """Writes the rows of one task attempt durably and invisibly.

    Lifecycle: 1. made by `ArrowSink.writer` on the executor; 2. `write` for each batch of rows; 3. `pre_commit` once, or
    `abort` once. The process may be killed at any point without any of these being called.
    """

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows. Columns go by their names; NULL stays NULL, and an empty text is not NULL.

        Runs on the executor, any number of times, each batch with at least one row. What a crash leaves behind must be
        found by `Sink.in_doubt` or vanish by itself. Never retry rows: raise, and the whole attempt is declined.

        Raises:
            RejectedRowsError: the target refuses rows; names the first of them.
            FencedError: a newer attempt has closed this one.
        """

    @abstractmethod
    def pre_commit(self) -> Committable | None:
        """Make the rows durable, still invisible, and return their handle; None if there were no rows.

        Runs once, after the last `write`. If a crash hits after this, the piece is listed in a checkpoint and committed,
        or it is found by `Sink.in_doubt` and aborted. Raise if it is not certain that the piece is durable.

        The fence is checked in the transaction that makes the rows durable; see `Sink.fence` for the rule.

        Raises:
            FencedError: the fence is missing, of another generation, or above this attempt.
        """

    @abstractmethod
    def abort(self) -> None:
        """Drop what was written. Runs at most once, after an exception; a crash may skip it. Must not raise."""
