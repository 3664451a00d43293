"""The metadata tables in the target: they make "already committed" a fact, not a guess (I4).

    twophase_schema      one row: a random id of this set of tables
    twophase_fence       per job and sink: attempts below this one may not write
    twophase_ledger      per committed branch: a row written inside the branch itself
    twophase_high_water  per job, sink and lineage: everything up to this checkpoint is committed;
                         kept for ever (H50)
    twophase_rewind      per job, sink and lineage: the lowest checkpoint that a rewind which has
                         not ended has removed rows of
    twophase_target      per job and sink: the table that the rest describes (`identity`). Of no job
                         and sink: the schema of the set, which the copy of a set has from where it
                         was copied
    twophase_marked      where rows name their checkpoint: see `checkpoint_column`

Job names, sink names and lineage ids are ASCII, so the keys stay short whatever the
schema's character set.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pymysql

from twophase.errors import PreflightError, TargetUnreachableError
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.sinks.mysql.client.codes import DENIED, LOCK_WAIT_TIMEOUT, code_of
from twophase.sinks.mysql.client.identifiers import qualified, quote
from twophase.sinks.mysql.client.session import Row, Session
from twophase.sinks.mysql.client.session_settings import read_account

NAME = "VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL"
LINEAGE = "CHAR(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL"
_IDENTIFIER = "VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"
NUMBER = "BIGINT UNSIGNED NOT NULL"
_WHEN = "TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"
_KEY = (
    "job = %s AND sink = %s AND lineage = %s AND checkpoint = %s"
    " AND generation = %s AND counter = %s AND subtask = %s AND task_attempt = %s"
)
_ONE_CHECKPOINT = (
    f"job {NAME}, sink {NAME}, lineage {LINEAGE}, checkpoint {NUMBER},"
    " PRIMARY KEY (job, sink, lineage)"
)
_DELETE_ROWS = 1000
_LOCKED_TIMEOUT_S = 60.0

_TABLES = {
    "twophase_schema": f"one TINYINT NOT NULL PRIMARY KEY, id {LINEAGE}",
    "twophase_fence": (
        f"job {NAME}, sink {NAME}, generation {NUMBER}, counter {NUMBER}, PRIMARY KEY (job, sink)"
    ),
    "twophase_ledger": (
        f"job {NAME}, sink {NAME}, lineage {LINEAGE}, checkpoint {NUMBER}, "
        f"generation {NUMBER},"
        f" counter {NUMBER}, subtask {NUMBER}, task_attempt {NUMBER}, row_count {NUMBER},"
        f" offsets_hash {NAME}, written_at {_WHEN},"
        " PRIMARY KEY (job, sink, lineage, checkpoint, generation, counter, subtask, task_attempt)"
    ),
    "twophase_high_water": _ONE_CHECKPOINT,
    "twophase_rewind": _ONE_CHECKPOINT,
    "twophase_target": (
        f"job {NAME}, sink {NAME}, table_schema_name {_IDENTIFIER}, table_name {_IDENTIFIER}, "
        f"created {NAME},"
        " PRIMARY KEY (job, sink)"
    ),
}
_MARKED = {
    "twophase_marked": (
        f"job {NAME}, sink {NAME}, lineage {LINEAGE}, number {NUMBER}, "
        "PRIMARY KEY (job, sink, lineage)"
    )
}


@dataclass(frozen=True)
class MetadataTables:
    """The metadata tables in one schema. Runs statements only; the caller owns the session.

    Attributes:
        schema: the schema they are in.
        marked: whether rows name their checkpoint.
    """

    schema: str
    marked: bool = False

    def find(self, session: Session, *, create: bool) -> str:
        """Return the id of this set of tables.

        Other jobs may be creating the same tables, and lock them meanwhile.

        Args:
            session: of the driver.
            create: whether to create the tables that are missing.

        Returns:
            The id; empty if there are no tables, and none are created.

        Raises:
            PreflightError: privileges are missing; the message has the SQL that an
                administrator has to run. Or some of the tables are missing, and none are created.
                Or they are a copy: both sets would end each other's sessions and branches.
            TargetUnreachableError: somebody keeps the tables locked.
        """
        deadline_s = time.monotonic() + _LOCKED_TIMEOUT_S
        while True:
            try:
                return self._find(session, create=create)
            except pymysql.Error as error:
                # each try has already waited for the session's lock timeout
                if code_of(error) != LOCK_WAIT_TIMEOUT:
                    raise
                if time.monotonic() >= deadline_s:
                    raise TargetUnreachableError(
                        f"The metadata tables in {self.schema!r} have been locked for "
                        f"{_LOCKED_TIMEOUT_S:g} s.",
                        remedy="find the session that locks them "
                        "(performance_schema.metadata_locks, SHOW PROCESSLIST) and end it (KILL), "
                        "then start the job again.",
                    ) from error

    def _find(self, session: Session, *, create: bool) -> str:
        try:
            found = session.rows(
                "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s",
                (self.schema,),
            )
            present = {str(name).lower() for (name,) in found}
            missing = [name for name in _TABLES if name not in present]
            has_id = "twophase_schema" in present and bool(self.read_id(session))
            if not create and len(missing) == len(_TABLES):
                return ""
            if not create and (missing or not has_id):
                raise PreflightError(
                    f"The metadata tables in {self.schema!r} are not whole: "
                    f"{', '.join(missing) or 'their id'} is gone, or was never made.",
                    remedy="restore them from a backup. If nothing was in them, start the job: it "
                    "makes what is missing.",
                )
            # CREATE ... IF NOT EXISTS would need the privilege anyway
            for name in self._tables if create else ():
                if name not in present:
                    session.run(self._ddl(name))
            if not has_id:
                session.run(
                    f"INSERT INTO {self._table('schema')} (one, id) VALUES (1, %s) "
                    "ON DUPLICATE KEY UPDATE one = one",
                    (str(uuid.uuid4()),),
                )
            found_id = self._read_checked_id(session)
            self._try_locking_reads(session)
        except pymysql.Error as error:
            if code_of(error) not in DENIED:
                raise
            raise self._refused(session, error) from error
        return found_id

    def read_id(self, session: Session) -> str:
        """Return the id of this set of tables; empty if it has none yet."""
        found = session.rows(f"SELECT id FROM {self._table('schema')}")
        return str(found[0][0]) if found else ""

    def _read_checked_id(self, session: Session) -> str:
        """Return the id of this set of tables, if it is not that of a set in another schema."""
        target = self._table("target")
        rows = session.rows(
            f"SELECT id, (SELECT table_schema_name FROM {target} WHERE job = '' AND sink = '')"
            f" FROM {self._table('schema')}"
        )
        found, schema = rows[0] if rows else ("", None)
        if schema is not None and str(schema).lower() != self.schema.lower():
            forget = f"DELETE FROM {target} WHERE job = '';"
            raise PreflightError(
                f"The metadata tables in {self.schema!r} were made in {schema!r}: they are a copy, "
                "or were moved. Jobs of two sets with one id end each other's sessions and roll "
                "back each other's branches.",
                remedy=f"if the job still runs with those in {schema!r}, here or on another "
                "server, give these an id of their own: "
                f"UPDATE {self._table('schema')} SET id = UUID(); {forget} "
                f"If they were moved, keep it: {forget}",
            )
        return str(found)

    def _refused(self, session: Session, error: pymysql.Error) -> PreflightError:
        return PreflightError(
            f"The account may not create the metadata tables in {self.schema!r}: "
            f"{error.args[-1]} ({code_of(error)}).",
            remedy="name another schema in bookkeeping_schema, or keep this one and "
            f"have an administrator run: {self.setup_sql(account_of(session))}",
        )

    def setup_sql(self, account: str) -> str:
        """Return the SQL that creates the tables and grants privileges on them.

        The grant is for the whole schema: with privileges on single tables MySQL 8.0.12 denies
        every locking read (1143).
        """
        grant = f"GRANT SELECT, INSERT, UPDATE, DELETE ON {quote(self.schema)}.* TO {account};"
        return " ".join([*(f"{self._ddl(name)};" for name in self._tables), grant])

    def _try_locking_reads(self, session: Session) -> None:
        """Fail now rather than in the first writer: locking reads need more privileges."""
        self.read_fence(session, "", "", shared=True)
        session.rows(
            f"SELECT row_count FROM {self._table('ledger')} WHERE {_KEY} FOR UPDATE",
            ("", "", "", 0, 0, 0, 0, 0),
        )

    def engines(self, session: Session) -> Sequence[str]:
        """Return the storage engines of the tables."""
        rows = session.rows(
            "SELECT DISTINCT ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s "
            "AND TABLE_NAME IN %s",
            (self.schema, tuple(self._tables)),
        )
        return [str(engine) for (engine,) in rows]

    # -- fence -------------------------------------------------------------------------------------

    def read_fence(
        self, session: Session, job: str, sink: str, *, shared: bool = False, locked: bool = False
    ) -> Attempt | None:
        """Return a sink's fence.

        With `shared` or `locked`, nobody can raise it before the branch or transaction is over.
        """
        lock = " LOCK IN SHARE MODE" if shared else " FOR UPDATE" if locked else ""
        found = session.rows(
            f"SELECT generation, counter FROM {self._table('fence')} WHERE job = %s "
            f"AND sink = %s{lock}",
            (job, sink),
        )
        return Attempt(*found[0]) if found else None

    def raise_fence(self, session: Session, job: str, sink: str, attempt: Attempt) -> None:
        """Raise the fence to `attempt`, unless it is already there or above."""
        session.run(
            f"INSERT INTO {self._table('fence')} (job, sink, generation, counter) "
            "VALUES (%s, %s, %s, %s)"
            # Counter first: MySQL assigns from left to right, and the test reads
            # the old generation.
            " ON DUPLICATE KEY UPDATE counter = IF(generation < VALUES(generation)"
            " OR (generation = VALUES(generation) AND counter < VALUES(counter)), "
            "VALUES(counter), counter),"
            " generation = GREATEST(generation, VALUES(generation))",
            (job, sink, attempt.generation, attempt.counter),
        )

    # -- ledger ------------------------------------------------------------------------------------

    def write_ledger(
        self, session: Session, transaction: TransactionId, subtask: Subtask, rows: int
    ) -> None:
        """Write the proof of a branch, inside the branch."""
        session.run(
            f"INSERT INTO {self._table('ledger')} (job, sink, lineage, checkpoint, generation, "
            "counter, subtask,"
            " task_attempt, row_count, offsets_hash) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            (*_key(transaction, subtask), rows, transaction.offsets_hash[:64]),
        )

    def has_ledger(
        self, session: Session, transaction: TransactionId, subtask: Subtask, *, lock: bool
    ) -> bool:
        """Return whether a branch is committed.

        With `lock`, a missing row proves that it is not: the read sees the newest state and waits
        for whoever holds the row, where a plain read would overlook a commit in flight (H49).

        Raises:
            pymysql.Error: 1205: a branch, prepared or open, still holds the row.
        """
        return bool(
            session.rows(
                f"SELECT row_count FROM {self._table('ledger')} "
                f"WHERE {_KEY}{' FOR UPDATE' if lock else ''}",
                _key(transaction, subtask),
            )
        )

    def wait_for_ledger(self, session: Session, job: str, sink: str) -> None:
        """Wait until no branch holds a ledger row of a job and sink: their commits in flight have
        ended (H49). By the primary key, so that rows of other jobs are not waited for.

        Raises:
            pymysql.Error: 1205: a branch, prepared or open, still holds one.
        """
        session.rows(
            f"SELECT checkpoint FROM {self._table('ledger')} FORCE INDEX (PRIMARY)"
            " WHERE job = %s AND sink = %s LOCK IN SHARE MODE",
            (job, sink),
        )

    def has_checkpoint(
        self, session: Session, job: str, sink: str, lineage: str, checkpoint: int
    ) -> bool:
        """Return whether a row or the mark proves a checkpoint.

        One statement, so that no collapse can happen in between.
        """
        mine = (job, sink, lineage, checkpoint)
        [(there,)] = session.rows(
            f"SELECT EXISTS (SELECT 1 FROM {self._table('ledger')}"
            " WHERE job = %s AND sink = %s AND lineage = %s AND checkpoint = %s)"
            f" OR EXISTS (SELECT 1 FROM {self._table('high_water')}"
            " WHERE job = %s AND sink = %s AND lineage = %s AND checkpoint >= %s)",
            (*mine, *mine),
        )
        return bool(there)

    def ledger_of(
        self, session: Session, job: str, sink: str, lineage: str, checkpoint: int
    ) -> list[tuple[int, int, int, int]]:
        """Return generation, counter, subtask and task attempt of each row of a checkpoint."""
        rows = session.rows(
            f"SELECT generation, counter, subtask, task_attempt FROM {self._table('ledger')}"
            " WHERE job = %s AND sink = %s AND lineage = %s AND checkpoint = %s",
            (job, sink, lineage, checkpoint),
        )
        return [(int(row[0]), int(row[1]), int(row[2]), int(row[3])) for row in rows]

    def other_sinks(self, session: Session, transaction: TransactionId) -> list[str]:
        """Return the job's other sinks that have rows of the transaction's checkpoint."""
        rows = session.rows(
            f"SELECT DISTINCT sink FROM {self._table('ledger')} WHERE job = %s AND sink <> %s"
            " AND lineage = %s AND checkpoint = %s",
            (transaction.job, transaction.sink, transaction.lineage, transaction.checkpoint),
        )
        return sorted(str(sink) for (sink,) in rows)

    def highest_row(
        self, session: Session, job: str, sink: str, lineage: str, up_to: int
    ) -> int | None:
        """Return the highest checkpoint up to `up_to` that has rows; None if there is none."""
        [(highest,)] = session.rows(
            f"SELECT MAX(checkpoint) FROM {self._table('ledger')}"
            " WHERE job = %s AND sink = %s AND lineage = %s AND checkpoint <= %s",
            (job, sink, lineage, up_to),
        )
        return None if highest is None else int(highest)

    def high_water(self, session: Session, job: str, sink: str, lineage: str) -> int:
        """Return the checkpoint up to which all of a lineage is committed; -1 without a mark."""
        found = session.rows(
            f"SELECT checkpoint FROM {self._table('high_water')} WHERE job = %s AND sink = %s "
            "AND lineage = %s",
            (job, sink, lineage),
        )
        return int(found[0][0]) if found else -1

    def committed(self, session: Session, job: str, sink: str) -> dict[str, int]:
        """Return, for each lineage, the highest checkpoint that is proven."""
        found = session.rows(
            "SELECT lineage, MAX(checkpoint) FROM ("
            f" SELECT lineage, checkpoint FROM {self._table('ledger')} WHERE job = %s "
            "AND sink = %s UNION ALL"
            f" SELECT lineage, checkpoint FROM {self._table('high_water')} WHERE job = %s "
            "AND sink = %s"
            ") proof GROUP BY lineage",
            (job, sink, job, sink),
        )
        return {str(lineage): int(checkpoint) for lineage, checkpoint in found}

    def raise_high_water(
        self, session: Session, job: str, sink: str, lineage: str, checkpoint: int
    ) -> None:
        """Raise the mark durably; only then may the rows that it replaces be deleted."""
        session.run(
            f"INSERT INTO {self._table('high_water')} (job, sink, lineage, checkpoint) "
            "VALUES (%s, %s, %s, %s)"
            " ON DUPLICATE KEY UPDATE checkpoint = GREATEST(checkpoint, VALUES(checkpoint))",
            (job, sink, lineage, checkpoint),
        )

    def collapse_ledger(
        self, session: Session, job: str, sink: str, lineage: str, checkpoint: int
    ) -> None:
        """Delete the rows that the mark replaces, a bounded number at a time."""
        while True:
            some = f"checkpoint <= %s LIMIT {_DELETE_ROWS}"
            keys = self._ledger_keys(session, some, job, sink, lineage, checkpoint)
            if not keys:
                return
            session.begin()
            self._delete_ledger(session, keys)
            session.commit()

    def _ledger_keys(
        self, session: Session, which: str, job: str, sink: str, lineage: str, checkpoint: int
    ) -> Sequence[Row]:
        return session.rows(
            "SELECT job, sink, lineage, checkpoint, generation, counter, subtask, task_attempt"
            f" FROM {self._table('ledger')} WHERE job = %s AND sink = %s AND lineage = %s "
            f"AND {which}",
            (job, sink, lineage, checkpoint),
        )

    def _delete_ledger(self, session: Session, keys: Iterable[Row]) -> None:
        # One by one: a range would also wait for the row after its end, which a
        # prepared branch may hold.
        for key in keys:
            session.run(f"DELETE FROM {self._table('ledger')} WHERE {_KEY}", key)

    # -- rewind ------------------------------------------------------------------------------------

    def note_rewind(
        self, session: Session, job: str, sink: str, lineage: str, checkpoint: int
    ) -> None:
        """Note that a rewind has removed rows of a checkpoint, and others are left."""
        session.run(
            f"INSERT INTO {self._table('rewind')} (job, sink, lineage, checkpoint) "
            "VALUES (%s, %s, %s, %s)"
            " ON DUPLICATE KEY UPDATE checkpoint = LEAST(checkpoint, VALUES(checkpoint))",
            (job, sink, lineage, checkpoint),
        )

    def half_rewound(self, session: Session, job: str, sink: str) -> dict[str, int]:
        """Return, for each lineage, the lowest checkpoint that a rewind which has not ended has
        removed rows of; empty if none is under way.
        """
        found = session.rows(
            f"SELECT lineage, checkpoint FROM {self._table('rewind')} WHERE job = %s AND sink = %s",
            (job, sink),
        )
        return {str(lineage): int(checkpoint) for lineage, checkpoint in found}

    def forget_rewind(self, session: Session, job: str, sink: str) -> None:
        """Note that no rewind is under way any more."""
        session.run(
            f"DELETE FROM {self._table('rewind')} WHERE job = %s AND sink = %s", (job, sink)
        )

    def rows_by_checkpoint(
        self, session: Session, job: str, sink: str, lineage: str, after: int
    ) -> dict[int, int]:
        """Return how many rows each checkpoint after `after` has, as far as the ledger knows."""
        found = session.rows(
            f"SELECT checkpoint, SUM(row_count) FROM {self._table('ledger')}"
            " WHERE job = %s AND sink = %s AND lineage = %s AND checkpoint >= %s"
            " GROUP BY checkpoint",
            (job, sink, lineage, after + 1),
        )
        return {int(checkpoint): int(rows) for checkpoint, rows in found}

    def reduce_rows(
        self, session: Session, job: str, sink: str, lineage: str, checkpoint: int, removed: int
    ) -> None:
        """Note that rows of a checkpoint have been removed, if the ledger still counts them."""
        found = session.rows(
            "SELECT job, sink, lineage, checkpoint, generation, counter, subtask, task_attempt, "
            f"row_count FROM {self._table('ledger')} WHERE job = %s AND sink = %s "
            "AND lineage = %s AND checkpoint = %s AND row_count > 0",
            (job, sink, lineage, checkpoint),
        )
        for *key, rows in found:
            gone = min(rows, removed)
            session.run(
                f"UPDATE {self._table('ledger')} SET row_count = row_count - %s WHERE {_KEY}",
                (gone, *key),
            )
            removed -= gone
            if not removed:
                return

    def rewind(self, session: Session, job: str, sink: str, lineage: str, last: int) -> None:
        """Remove the proofs of a lineage after `last`; -1 removes them all."""
        mine = (job, sink, lineage)
        keys = self._ledger_keys(session, "checkpoint >= %s", *mine, last + 1)
        self._delete_ledger(session, keys)
        if last < 0:
            session.run(
                f"DELETE FROM {self._table('high_water')}"
                " WHERE job = %s AND sink = %s AND lineage = %s",
                mine,
            )
        else:
            session.run(
                f"UPDATE {self._table('high_water')} SET checkpoint = LEAST(checkpoint, %s)"
                " WHERE job = %s AND sink = %s AND lineage = %s",
                (last, *mine),
            )

    def _ddl(self, name: str) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {qualified(self.schema, name)} ({self._tables[name]}) "
            "ENGINE = InnoDB"
        )

    @property
    def _tables(self) -> Mapping[str, str]:
        return _TABLES | _MARKED if self.marked else _TABLES

    def _table(self, name: str) -> str:
        return qualified(self.schema, f"twophase_{name}")


def account_of(session: Session) -> str:
    """Return the account of a session as GRANT takes it: with the host that it was found by."""
    parts = (part.replace("\\", "\\\\").replace("'", "''") for part in read_account(session))
    return "@".join(f"'{part}'" for part in parts)


def _key(transaction: TransactionId, subtask: Subtask) -> tuple[object, ...]:
    return (
        transaction.job,
        transaction.sink,
        transaction.lineage,
        transaction.checkpoint,
        transaction.attempt.generation,
        transaction.attempt.counter,
        subtask.index,
        subtask.task_attempt,
    )
