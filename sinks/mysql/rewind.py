"""Takes committed checkpoints back out of the table: `CanRewind`.

    1. check         what the server shows of the table, and the rows of each checkpoint against the
                     ledger where it still has them
    2. delete        by `checkpoint_column`, the newest checkpoint first, `load_rows` rows in a
                     transaction; the ledger keeps count of what is left
    3. proofs        in the last of these transactions the rows of the ledger go, and the marks are
                     lowered

Each transaction locks the fence's row: no newer driver takes over before its end. After a crash it
is repeated from 1. A rewind of up to `load_rows` rows is one transaction, which readers see all of
or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pymysql

from twophase.contract.fencing import driver_is_fenced
from twophase.errors import RestoreRefusedError
from twophase.ids import Attempt
from twophase.internals.failpoints import failpoint
from twophase.sinks.mysql.checkpoint_column import (
    MarkedRows,
    checkpoint_in,
    owner_of,
    range_after,
)
from twophase.sinks.mysql.client.codes import TRANSACTION_TOO_LARGE, code_of
from twophase.sinks.mysql.client.identifiers import qualified, quote
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.identity import TableIdentity
from twophase.sinks.mysql.metadata_tables import MetadataTables
from twophase.sinks.mysql.rewind_obstacles import ForeignKey, Obstacle, RewoundTable
from twophase.sinks.mysql.xid import Owner

_SHOWN = 5
_FINISH_IT = "finish it: start with the same restore.path and `restore.sink_ahead=rewind`"


class Rewind:
    """Rewinds one job's sink.

    Args:
        owner: the job and sink.
        metadata: the metadata tables.
        table: the table.
        checkpoint_column: the column that names each row's checkpoint, if there is one.
        keep: as `CanRewind` takes it.
        rows_at_once: rows in one transaction, at most.
    """

    def __init__(
        self,
        owner: Owner,
        metadata: MetadataTables,
        table: TableIdentity,
        checkpoint_column: str | None,
        keep: Mapping[str, int],
        rows_at_once: int,
    ) -> None:
        self._owner = owner.job, owner.sink
        self._metadata = metadata
        self._name = qualified(table.schema, table.name)
        self._identity = table
        self._checkpoint_column = checkpoint_column
        self._keep = keep
        self._rows_at_once = rows_at_once
        self._removed = 0

    def check(self, session: Session) -> None:
        """See `CanRewind.check_rewind`."""
        self._check(session)

    def run(self, session: Session, attempt: Attempt) -> None:
        """See `CanRewind.rewind`."""
        self._check_fence(session, attempt)
        left, keys = self._check(session)
        while True:
            try:
                left = self._remove(session, attempt, left, keys)
            except pymysql.Error as error:
                tried = min(self._rows_at_once, sum(left.values()))
                if code_of(error) not in TRANSACTION_TOO_LARGE or tried <= 1:
                    raise
                session.rollback()
                self._rows_at_once = tried // 2
                continue
            if not left:
                return
            failpoint("M01")

    def settle(self, session: Session, attempt: Attempt) -> None:
        """See `RewindsInSteps.settle_rewind`: rows that are deleted cannot come back."""
        self._check_fence(session, attempt)
        if self._metadata.half_rewound(session, *self._owner):
            raise self._refused(
                "a part of the rows is removed already, in a rewind that died between two "
                "transactions, and nothing brings them back: it cannot be given up",
                remedy=f"{_FINISH_IT}. What stands in its way is named then. If it can never be "
                "finished, end it by hand (docs/by-hand.md).",
            )

    def _check(self, session: Session) -> tuple[dict[str, int], Sequence[ForeignKey]]:
        """Step 1: return how many rows each value has, the newest first, and the foreign keys."""
        table = self._table
        self._check_keeps_whole(session)
        self._check_marked(session)
        self._raise_first(table.obstacles(session))
        counted = self._counted(session)
        keys = table.foreign_keys(session)
        self._raise_first(table.references(session, keys, tuple(counted)))
        return {value: counted[value] for value in sorted(counted, reverse=True)}, keys

    def _remove(
        self,
        session: Session,
        attempt: Attempt,
        counted: Mapping[str, int],
        keys: Sequence[ForeignKey],
    ) -> dict[str, int]:
        """Steps 2 and 3: one transaction. Return what is left."""
        table, metadata = self._table, self._metadata
        delete = f"DELETE FROM {table.sql} WHERE {quote(table.column)} = %s LIMIT %s"
        session.begin()
        self._check_fence(session, attempt)
        room, left = self._rows_at_once, dict(counted)
        touched: dict[str, int] = {}
        for value, rows in counted.items():
            take = min(room, rows)
            self._raise_first(table.references(session, keys, (value,)))
            done = session.run(delete, (value, take))
            if done.affected != take:
                raise self._changed([f"{value}: {done.affected} rows, {take} were counted"])
            lineage, checkpoint, _ = checkpoint_in(value)
            metadata.reduce_rows(session, *self._owner, lineage, checkpoint, take)
            touched[lineage] = checkpoint
            left[value] -= take
            room -= take
            if not left[value]:
                del left[value]
            if not room:
                break
        if left:
            for lineage, checkpoint in touched.items():
                metadata.note_rewind(session, *self._owner, lineage, checkpoint)
        else:
            self._drop_proofs(session)
            metadata.forget_rewind(session, *self._owner)
        session.commit()
        self._removed += self._rows_at_once - room
        return left

    def _drop_proofs(self, session: Session) -> None:
        """Step 3."""
        metadata = self._metadata
        for lineage in metadata.committed(session, *self._owner):
            last = self._keep.get(lineage, -1)
            if more := self._rows_after(session, lineage, last):
                raise self._changed([f"{value}: {rows} rows more" for value, rows in more.items()])
            metadata.rewind(session, *self._owner, lineage, last)

    def _check_fence(self, session: Session, attempt: Attempt) -> None:
        fence = self._metadata.read_fence(session, *self._owner, locked=True)
        if attempt.is_closed_by(fence):
            raise driver_is_fenced(*self._owner, fence, attempt)

    @property
    def _table(self) -> RewoundTable:
        if self._checkpoint_column is None:
            raise self._refused(
                "its rows do not name their checkpoint",
                remedy="restore from the newest checkpoint, or fork. For the next time: set "
                "`checkpoint_column=COLUMN`, which takes effect for rows written from then on.",
            )
        return RewoundTable(self._identity.schema, self._identity.name, self._checkpoint_column)

    def _check_keeps_whole(self, session: Session) -> None:
        """Check that no checkpoint is kept of which another rewind has removed rows."""
        for lineage, checkpoint in self._metadata.half_rewound(session, *self._owner).items():
            if checkpoint <= self._keep.get(lineage, -1):
                raise self._refused(
                    f"a rewind that died has removed rows of its checkpoint {checkpoint} of "
                    f"lineage {lineage}, which would be kept",
                    remedy=f"{_FINISH_IT} as that one.",
                )

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
                    remedy=f"restore a savepoint of checkpoint {newest} or later, or fork.",
                )

    def _raise_first(self, obstacles: Iterable[Obstacle]) -> None:
        for found in obstacles:
            raise self._refused(found.why, remedy=found.remedy)

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
        column, owner = quote(self._table.column), owner_of(*self._owner)
        found = session.rows(
            f"SELECT {column}, COUNT(*) FROM {self._name} WHERE {column} > %s AND {column} < %s"
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
            remedy="restore those rows, or fork.",
        )

    def _refused(self, why: str, *, remedy: str) -> RestoreRefusedError:
        job, sink = self._owner
        removed = f"{self._removed} rows were" if self._removed else "Nothing was"
        return RestoreRefusedError(
            f"Sink {sink!r} of job {job!r} cannot take back what it has committed to "
            f"{self._name}: {why}. {removed} removed.",
            remedy=remedy,
        )
