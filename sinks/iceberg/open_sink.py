"""The open sink: one table of one job and sink."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa

from twophase.contract.committable import Committable
from twophase.contract.outcome import CommitOutcome
from twophase.contract.sink import CommitRequest, OpenArrowSink, SinkHistory, WriterFactory
from twophase.ids import Attempt
from twophase.sinks.common.lake import orphans
from twophase.sinks.iceberg.branch import rolled_back
from twophase.sinks.iceberg.columns import check_rows
from twophase.sinks.iceberg.committer import Committer
from twophase.sinks.iceberg.driver_table import DriverTable
from twophase.sinks.iceberg.fence import Fence
from twophase.sinks.iceberg.layout import check_table
from twophase.sinks.iceberg.rewind import Rewind
from twophase.sinks.iceberg.table import WrittenTable
from twophase.sinks.iceberg.writer import IcebergWriter


class OpenIcebergSink(OpenArrowSink):
    """Appends to one Iceberg table.

    Args:
        table: the table.
        rows: the columns of the rows to come; None if none will follow.
    """

    def __init__(self, table: DriverTable, rows: pa.Schema | None) -> None:
        self.table = table
        self._rows = rows
        self._subsumed: dict[str, int] = {}

    def target(self) -> str:
        """See `OpenSink.target`."""
        return self.table.target

    def history(self) -> SinkHistory:
        """See `OpenSink.history`."""
        loaded = self.table.load()
        proofs = self.table.proofs(loaded)
        return SinkHistory(
            Fence(self.table).read(loaded).generation,
            proofs.committed(),
            rolled_back(loaded.metadata, proofs, self.table.branch),
        )

    def other_names(self) -> Mapping[tuple[str, str], Mapping[str, int]]:
        """See `KnowsOtherNames`: the properties of others."""
        proofs = self.table.proofs(self.table.load())
        return {
            (owner.job, owner.sink): committed
            for owner in proofs.others()
            if (committed := proofs.of(owner).committed())
        }

    def committed_pieces(self, lineage: str, checkpoint: int) -> Sequence[str]:
        """See `NamesPieces`."""
        proof = self.table.proofs(self.table.load()).lineage(lineage)
        return [*proof.pieces.get(str(checkpoint), ())]

    def fence(self, attempt: Attempt) -> None:
        """See `OpenSink.fence`."""
        Fence(self.table).raise_to(attempt)

    def writers(self) -> WriterFactory:
        """See `OpenArrowSink.writers`. The table may have been altered since the last attempt."""
        loaded = self.table.load()
        check_table(loaded, ())
        if self._rows is not None:
            check_rows(self._rows, loaded.schema())
        written = WrittenTable.of(self.table.area, self.table.target, loaded.metadata)
        return partial(IcebergWriter, written)

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `OpenSink.commit`. Without a staging area, what is to be committed is lost."""
        self.table.create_area()
        return Committer(self.table, self._subsumed).commit(requests)

    def abort(self, committables: Sequence[Committable]) -> None:
        """See `OpenSink.abort`."""
        if committables and self.table.area.exists():
            orphans.abort(self.table, committables, Fence(self.table).write_again)

    def in_doubt(self) -> Sequence[Committable]:
        """See `OpenSink.in_doubt`."""
        return orphans.in_doubt(self.table) if self.table.area.exists() else ()

    def unfinished(self, pieces: Sequence[Committable]) -> Sequence[Committable]:
        """See `TellsUnfinished`: a piece without a manifest."""
        return orphans.unfinished(self.table, pieces)

    def subsume(self, lineage: str, checkpoint: int) -> None:
        """See `OpenSink.subsume`. The next commit folds the proofs, in its own step: a step for
        that alone would be as expensive as a commit.
        """
        self._subsumed[lineage] = max(checkpoint, self._subsumed.get(lineage, -1))
        if self.table.area.exists():
            orphans.forget_committed(self.table, lineage, checkpoint)

    def check_rewind(self, keep: Mapping[str, int]) -> None:
        """See `CanRewind`."""
        Rewind(self.table, keep).check(self.table.load())

    def rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """See `CanRewind`."""
        Rewind(self.table, keep).carry_out(attempt)

    def close(self) -> None:
        """See `OpenSink.close`."""
        self.table.catalog.close()
