"""Takes committed checkpoints back out of the table: `CanRewind`.

One transaction, which readers see all of or nothing:

    1. the fence     its row is locked: no newer driver takes over before the end
    2. count         the rows of each checkpoint, against the ledger where it still has them
    3. delete        checkpoint by checkpoint, by `checkpoint_column`
    4. proofs        the rows of the ledger go, the marks are lowered
"""

from __future__ import annotations

from collections.abc import Mapping

import pymysql

from twophase.contract.fencing import driver_is_fenced
from twophase.errors import RestoreRefusedError
from twophase.ids import Attempt
from twophase.sinks.mysql.checkpoint_column import (
    MarkedRows,
    checkpoint_in,
    owner_of,
    range_after,
)
from twophase.sinks.mysql.client.codes import DENIED, code_of
from twophase.sinks.mysql.client.identifiers import qualified, quote
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.identity import TableIdentity
from twophase.sinks.mysql.metadata_tables import MetadataTables
from twophase.sinks.mysql.xid import Owner

_SHOWN = 5


class Rewind:
    """Rewinds one job's sink.

    Args:
        owner: the job and sink.
        metadata: the metadata tables.
        table: the table.
        checkpoint_column: the column that names each row's checkpoint, if there is one.
        keep: as `CanRewind` takes it.
    """

    def __init__(
        self,
        owner: Owner,
        metadata: MetadataTables,
        table: TableIdentity,
        checkpoint_column: str | None,
        keep: Mapping[str, int],
    ) -> None:
        self._owner = owner.job, owner.sink
        self._metadata = metadata
        self._table = qualified(table.schema, table.name)
        self._checkpoint_column = checkpoint_column
        self._keep = keep

    def check(self, session: Session) -> None:
        """See `CanRewind.check_rewind`."""
        self._column()
        self._check_marked(session)
        self._check_right(session)
        self._counted(session)

    def run(self, session: Session, attempt: Attempt) -> None:
        """See `CanRewind.rewind`."""
        column = self._column()
        session.begin()
        metadata = self._metadata
        fence = metadata.read_fence(session, *self._owner, locked=True)
        if fence is None or fence > attempt:
            raise driver_is_fenced(*self._owner, fence or Attempt(0, 0), attempt)
        self._check_marked(session)
        for value, rows in self._counted(session).items():
            done = session.run(f"DELETE FROM {self._table} WHERE {column} = %s", (value,))
            if done.affected != rows:
                raise self._changed([f"{value}: {done.affected} rows, {rows} were counted"])
        for lineage in metadata.committed(session, *self._owner):
            last = self._keep.get(lineage, -1)
            metadata.take_back(session, *self._owner, lineage, last)
        session.commit()

    def _column(self) -> str:
        column = self._checkpoint_column
        if column is None:
            raise self._refused(
                "its rows do not name their checkpoint",
                "restore from the newest checkpoint, or fork. For the next time: set "
                "checkpoint_column, which takes effect for rows written from then on.",
            )
        return quote(column)

    def _check_marked(self, session: Session) -> None:
        """Check that every row to delete was written with its checkpoint."""
        metadata = self._metadata
        unmarked = MarkedRows(metadata).unmarked(session, *self._owner)
        for lineage in metadata.committed(session, *self._owner):
            newest, last = unmarked.get(lineage, -1), self._keep.get(lineage, -1)
            if newest > last:
                raise self._refused(
                    f"rows of its checkpoints from {last + 1} to {newest} of lineage {lineage} "
                    "may have been written without checkpoint_column, and do not name theirs",
                    f"restore a savepoint of checkpoint {newest} or later, or fork.",
                )

    def _check_right(self, session: Session) -> None:
        try:
            session.run(f"EXPLAIN DELETE FROM {self._table} WHERE {self._column()} = ''")
        except pymysql.Error as error:
            if code_of(error) not in DENIED:
                raise
            raise self._refused(
                f"the account may not delete from {self._table}",
                f"GRANT DELETE ON {self._table} TO the user of the sink.",
            ) from error

    def _counted(self, session: Session) -> dict[str, int]:
        """Return the values to delete, with how many rows have each.

        Raises:
            RestoreRefusedError: they are not as many as were committed.
        """
        metadata = self._metadata
        found: dict[str, int] = {}
        wrong: list[str] = []
        for lineage in metadata.committed(session, *self._owner):
            last = self._keep.get(lineage, -1)
            rows = self._rows_after(session, lineage, last)
            ledger = metadata.rows_by_checkpoint(session, *self._owner, lineage, last)
            mark = metadata.high_water(session, *self._owner, lineage)
            there = {checkpoint_in(value)[1]: count for value, count in rows.items()}
            for number in sorted(there.keys() | ledger.keys()):
                # what the ledger has folded into the mark has no count any more
                expected = ledger.get(number, there.get(number) if number <= mark else 0)
                if there.get(number, 0) != expected:
                    wrong.append(
                        f"checkpoint {number} of lineage {lineage} has {there.get(number, 0)} "
                        f"rows, {expected} were committed"
                    )
            found.update(rows)
        if wrong:
            raise self._changed(wrong)
        return found

    def _rows_after(self, session: Session, lineage: str, last: int) -> dict[str, int]:
        column, owner = self._column(), owner_of(*self._owner)
        found = session.rows(
            f"SELECT {column}, COUNT(*) FROM {self._table} WHERE {column} > %s AND {column} < %s"
            f" GROUP BY {column}",
            range_after(lineage, last),
        )
        counts = {str(value): int(count) for value, count in found}
        return {value: count for value, count in counts.items() if value.endswith(f"/{owner}")}

    def _changed(self, wrong: list[str]) -> RestoreRefusedError:
        shown = "; ".join(wrong[:_SHOWN])
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        return self._refused(
            f"its rows have been changed since: {shown}{more}",
            "restore those rows, or fork.",
        )

    def _refused(self, why: str, remedy: str) -> RestoreRefusedError:
        job, sink = self._owner
        return RestoreRefusedError(
            f"Sink {sink!r} of job {job!r} cannot take back what it has committed to "
            f"{self._table}: {why}. Nothing was removed.",
            remedy=remedy,
        )
