"""The executor side of a sink: one writer for each task attempt."""

from __future__ import annotations

from abc import ABC, abstractmethod

import pyarrow as pa

from twophase.contract.committable import Committable


class SinkWriter(ABC):
    """Writes the rows of one task attempt durably and invisibly.

    Lifecycle: 1. created by the sink's `WriterFactory` on the executor; 2. `write` for each batch
    of rows; 3. perhaps `flush`, then `pre_commit` once, or `abort` once. The process may be killed
    at any point without any of these being called.
    """

    @abstractmethod
    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows. Columns match by name; NULL stays NULL, and an empty string is not NULL.

        Runs on the executor, any number of times, each batch with at least one row. Whatever a
        crash leaves must be found by `OpenSink.in_doubt` or vanish by itself. Never retry rows:
        raise, and the whole attempt is declined.

        Raises:
            RejectedRowsError: the target rejects rows; names the first of them.
            FencedError: a newer attempt has closed this one.
        """

    def flush(self) -> None:  # noqa: B027 most writers keep nothing back
        """Send the rows that are kept back, so that their errors come before `pre_commit`.

        Runs on the executor, at most once, after the last `write`, in a task that writes to several
        sinks: an error of the last row is then found before a piece of another sink is durable.
        Does nothing by default: `pre_commit` has to send all rows anyway.

        Raises:
            RejectedRowsError: as `write`, and likewise every other error.
        """

    @abstractmethod
    def pre_commit(self) -> Committable | None:
        """Make the rows durable, still invisible; return their handle, or None without rows.

        Runs on the executor, once, after the last `write`. After a crash the piece is either listed
        in a checkpoint and committed, or found by `OpenSink.in_doubt` and aborted. Raise if it is
        not certain that the piece is durable.

        Check the fence in the transaction that makes the rows durable; see `OpenSink.fence` for the
        rule.

        Raises:
            FencedError: the fence is above this attempt.
            FenceLostError: it is missing, or of an older driver (`attempt_is_closed` makes both).
        """

    @abstractmethod
    def abort(self) -> None:
        """Discard the written rows.

        Runs at most once, after an exception; a crash may skip it. Must not raise.
        """
