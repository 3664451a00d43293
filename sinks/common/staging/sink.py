"""The common base of the sinks that write files: all but their options and checks."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from twophase.errors import StopJobError
from twophase.ids import Attempt, Subtask, TransactionId, check_name
from twophase.protocol.committable import Committable
from twophase.protocol.outcome import CommitOutcome
from twophase.protocol.sink import ArrowSink, CommitRequest, SinkContext, SinkHistory
from twophase.sinks.common.staging import orphans, rewound
from twophase.sinks.common.staging.committer import Committer
from twophase.sinks.common.staging.manifest import Manifest
from twophase.sinks.common.staging.rewind import Rewind
from twophase.sinks.common.staging.staging_area import DONE
from twophase.sinks.common.staging.table import Table
from twophase.sinks.common.staging.writer import StagedWriter


class StagedSink(ArrowSink):
    """Stages files in a hidden folder of the table, and commits them by a rename."""

    def __init__(self) -> None:
        self._table: Table | None = None

    @abstractmethod
    def bind(self, context: SinkContext) -> Table:
        """Do the checks of `Sink.open`, create the staging area, and return the target's table."""

    def publish(self, pieces: Sequence[Manifest], stage: Path) -> None:
        """Announce pieces whose files are in the table to a catalogue; the default has none.

        Runs on the driver in every commit, after the files are durable at their final names and
        before the proof. May run again for the same pieces.

        Args:
            pieces: their manifests.
            stage: the folder of the fence that was up when this commit began. Anything stored there
                is stored by this path only: if the fence was raised since, the path leads nowhere,
                and the commit is repeated.
        """

    def check_retract(self) -> None:
        """Check that files can leave the table, by what a catalogue says; the default has none.

        Raises:
            RestoreRefusedError: it does not.
        """

    def retract(self, left: Sequence[Path]) -> None:
        """Take back what `publish` has announced of these folders; the default has nothing.

        Runs on the driver in a rewind, after its checks and before the first file leaves the table.
        May run again.

        Args:
            left: the folders that files leave.

        Raises:
            RestoreRefusedError: as `check_retract`.
        """

    def open(self, context: SinkContext) -> None:
        """See `Sink.open`."""
        check_name("job", context.job)
        check_name("sink", context.sink)
        self._table = self.bind(context)

    def target(self) -> str:
        """See `Sink.target`."""
        return self.table.target

    def history(self) -> SinkHistory:
        """See `Sink.history`."""
        area = self.table.area
        return SinkHistory(area.fence().generation, area.committed())

    def committed_pieces(self, lineage: str, checkpoint_id: int) -> Sequence[str]:
        """See `NamesPieces`: the folders in `done`."""
        pieces = self.table.area.pieces(DONE)
        found = [
            piece
            for piece in pieces
            if (piece.lineage, piece.checkpoint) == (lineage, checkpoint_id)
        ]
        return [f"{piece.attempt}/{piece.subtask}" for piece in found]

    def fence(self, attempt: Attempt) -> None:
        """See `Sink.fence`."""
        self.table.area.raise_fence(attempt)

    def writer(self, transaction: TransactionId, subtask: Subtask) -> StagedWriter:
        """See `ArrowSink.writer`."""
        return StagedWriter(self.table, transaction, subtask)

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `Sink.commit`."""
        return Committer(self.table, self.publish).commit(requests)

    def abort(self, committables: Sequence[Committable]) -> None:
        """See `Sink.abort`."""
        orphans.abort(self.table, committables)

    def in_doubt(self) -> Sequence[Committable]:
        """See `Sink.in_doubt`."""
        return orphans.in_doubt(self.table)

    def unfinished(self, pieces: Sequence[Committable]) -> Sequence[Committable]:
        """See `TellsUnfinished`: a piece without a manifest and with no file in the table."""
        return orphans.unfinished(self.table, pieces)

    def subsume(self, lineage: str, checkpoint_id: int) -> None:
        """See `Sink.subsume`: raise the mark first, then remove the proofs it replaces (H50)."""
        self.table.area.raise_mark(lineage, checkpoint_id)
        rewound.sweep(self.table.area.stage())

    def check_rewind(self, keep: Mapping[str, int]) -> None:
        """See `CanRewind`."""
        if Rewind(self.table, keep).check():
            self.check_retract()

    def rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """See `CanRewind`."""
        Rewind(self.table, keep).carry_out(attempt, self.retract)

    def close(self) -> None:
        """See `Sink.close`. There is no connection to release."""

    @property
    def table(self) -> Table:
        """The table that the rows go to.

        Raises:
            StopJobError: the sink is not open.
        """
        if self._table is None:
            raise StopJobError(
                f"{self!r} was used before it was opened.", remedy="call open first."
            )
        return self._table
