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
from twophase.sinks.paimon.columns import check_rows
from twophase.sinks.paimon.committer import Committer
from twophase.sinks.paimon.driver_table import DriverTable
from twophase.sinks.paimon.layout import check_table
from twophase.sinks.paimon.options import PaimonOptions
from twophase.sinks.paimon.proofs import fold_notes, others
from twophase.sinks.paimon.records import short
from twophase.sinks.paimon.table import WrittenTable
from twophase.sinks.paimon.writer import PaimonWriter


class OpenPaimonSink(OpenArrowSink):
    """Appends to one Paimon table.

    Args:
        table: the table.
        rows: the columns of the rows to come; None if none will follow.
        options: of the sink.
    """

    def __init__(self, table: DriverTable, rows: pa.Schema | None, options: PaimonOptions) -> None:
        self.table = table
        self._rows = rows
        self._options = options

    def target(self) -> str:
        """See `OpenSink.target`."""
        return self.table.target

    def history(self) -> SinkHistory:
        """See `OpenSink.history`."""
        if not self.table.area.exists():
            return SinkHistory(0, {})
        look = self.table.look()
        committed = look.proofs.committed()
        for name in self.table.unnoted(look):
            committed[name.lineage] = max(name.checkpoint, committed.get(name.lineage, -1))
        return SinkHistory(self.table.area.fence().generation, committed, look.proofs.rolled_back())

    def other_names(self) -> Mapping[tuple[str, str], Mapping[str, int]]:
        """See `KnowsOtherNames`: the staging areas of others in the table's folder."""
        return {(owner.job, owner.sink): committed for owner, committed in others(self.table.area)}

    def committed_pieces(self, lineage: str, checkpoint: int) -> Sequence[str]:
        """See `NamesPieces`."""
        if not self.table.area.exists():
            return ()
        look = self.table.look()
        found = {*look.proofs.pieces(lineage, checkpoint)}
        found |= {
            short(name)
            for name in self.table.unnoted(look)
            if (name.lineage, name.checkpoint) == (lineage, checkpoint)
        }
        return sorted(found)

    def fence(self, attempt: Attempt) -> None:
        """See `OpenSink.fence`."""
        self.table.create_area()
        self.table.area.raise_fence(attempt)

    def writers(self) -> WriterFactory:
        """See `OpenArrowSink.writers`. The table may have been altered since the last attempt."""
        look = self.table.look()
        schema = look.table.schema
        check_table(schema, self._options)
        if self._rows is not None:
            check_rows(self._rows, schema.columns)
        written = WrittenTable(
            self.table.area,
            self.table.target,
            self.table.location,
            self.table.name,
            schema.encode(),
            look.proofs.newest,
        )
        return partial(PaimonWriter, written)

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `OpenSink.commit`. Without a staging area, what is to be committed is lost, unless a
        snapshot proves it.
        """
        self.table.create_area()
        return Committer(self.table).commit(requests)

    def abort(self, committables: Sequence[Committable]) -> None:
        """See `OpenSink.abort`."""
        if committables and self.table.area.exists():
            orphans.abort(self.table, committables, self.table.stop_commits)

    def in_doubt(self) -> Sequence[Committable]:
        """See `OpenSink.in_doubt`."""
        return orphans.in_doubt(self.table) if self.table.area.exists() else ()

    def unfinished(self, pieces: Sequence[Committable]) -> Sequence[Committable]:
        """See `TellsUnfinished`: a piece without a manifest."""
        return orphans.unfinished(self.table, pieces)

    def subsume(self, lineage: str, checkpoint: int) -> None:
        """See `OpenSink.subsume`."""
        if self.table.area.exists():
            self.table.area.raise_mark(lineage, checkpoint)
            fold_notes(self.table.look().proofs, lineage)

    def close(self) -> None:
        """See `OpenSink.close`. There is no connection to release."""
