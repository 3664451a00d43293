"""A whole sink to read and to begin with, for SQLite, as docs/writing-a-sink.md describes one:
pieces are staged beside the table, and a commit moves them into it.

It imports from `twophase` alone, as a package of your own does, passes every suite of
`twophase.testing.contract` (`sqlite_harness.py` is its harness), and runs from a job file as
`type: twophase.testing.sqlite_sink:SqliteSink`.

    twophase_target      a token that tells this database from every other
    twophase_fence       per job and sink, the attempt that may write
    twophase_piece       pieces; those that are committed are the proof, until they are subsumed
    twophase_mark        per job, sink and lineage, the checkpoint up to which all is
                         committed; kept for ever
    staged_<table>       the rows of pieces that are pre-committed
    committed_<table>    per committed row: the checkpoint that it is of, for a rewind. Rows go by
                         their rowid, which a VACUUM changes in a table without an INTEGER PRIMARY
                         KEY: a sink of your own had better have a column for it

Each step that a mistake can spoil is a method of its own: the tests of the suites spoil one after
the other.
"""

from __future__ import annotations

import functools
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from twophase import (
    AlreadyCommitted,
    ArrowSink,
    Attempt,
    CommitOutcome,
    CommitRequest,
    Committable,
    Committed,
    ConfigError,
    Lost,
    OpenArrowSink,
    Predecessor,
    RejectedRowsError,
    RestoreRefusedError,
    SinkContext,
    SinkHistory,
    SinkWriter,
    Subtask,
    TargetUnreachableError,
    TransactionId,
    WriterFactory,
    another_target,
    attempt_is_closed,
    commit_each,
    driver_is_fenced,
    failpoint,
    predecessor_missing,
)

Row = dict[str, Any]

IDENTITY = (
    "job",
    "sink",
    "lineage",
    "checkpoint",
    "generation",
    "counter",
    "subtask",
    "task_attempt",
)
THIS_PIECE = " AND ".join(f"{column} = ?" for column in IDENTITY)
TABLES = (
    "CREATE TABLE IF NOT EXISTS twophase_target (token TEXT)",
    (
        "CREATE TABLE IF NOT EXISTS twophase_fence (job, sink, generation, counter, "
        "PRIMARY KEY (job, sink))"
    ),
    (
        "CREATE TABLE IF NOT EXISTS twophase_piece (piece INTEGER "
        f"PRIMARY KEY, {', '.join(IDENTITY)}, offsets_hash, rows,"
        f" committed, UNIQUE ({', '.join(IDENTITY)}))"
    ),
    (
        "CREATE TABLE IF NOT EXISTS twophase_mark (job, sink, lineage, checkpoint, "
        "PRIMARY KEY (job, sink, lineage))"
    ),
)
TAKEN_BACK = "job = ? AND sink = ? AND lineage = ? AND checkpoint > ?"


class Database:
    """One file and one table in it. A connection lives as long as a transaction, so that
    this can be pickled.

    A transaction makes the tables of the sink if they are missing. A look keeps nothing of that.
    """

    def __init__(self, path: Path, table: str) -> None:
        self.path = path
        self.token = uuid.uuid4().hex
        self.table = quoted(table)
        self.staged = quoted(f"staged_{table}")
        self.committed = quoted(f"committed_{table}")

    def connect(self) -> sqlite3.Connection:
        """Never makes the file."""
        where = f"{self.path.absolute().as_uri()}?mode=rw"
        try:
            return sqlite3.connect(where, uri=True, timeout=30, isolation_level=None)
        except sqlite3.OperationalError as error:
            raise TargetUnreachableError(
                f"{self.path} cannot be opened: {error}.", remedy="correct path, or make it."
            ) from error

    @contextmanager
    def transaction(self, *, look: bool = False) -> Iterator[sqlite3.Connection]:
        """One transaction that nobody else writes beside; a look leaves the database as it is."""
        with closing(self.connect()) as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                self.make_tables(connection)
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("ROLLBACK" if look else "COMMIT")

    def make_tables(self, connection: sqlite3.Connection) -> None:
        """Those of the sink that are missing, beside a table that is there."""
        self.columns(connection)
        for statement in TABLES:
            connection.execute(statement)
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {self.staged} "
            f"AS SELECT 0 AS piece, * FROM {self.table} WHERE 0"
        )
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {self.committed} "
            "(job, sink, lineage, checkpoint, row INTEGER PRIMARY KEY)"
        )
        connection.execute(
            "INSERT INTO twophase_target SELECT ? WHERE NOT EXISTS (SELECT * FROM twophase_target)",
            (self.token,),
        )

    def columns(self, connection: sqlite3.Connection) -> list[str]:
        """The names of the table's columns."""
        found = [row[1] for row in connection.execute(f"PRAGMA table_info({self.table})")]
        if not found:
            raise ConfigError(f"There is no table {self.table} in {self.path}.")
        return found


class SqliteWriter(SinkWriter):
    """Holds the rows of one task attempt until they are pre-committed."""

    def __init__(
        self, database: Database, target: str, transaction: TransactionId, subtask: Subtask
    ) -> None:
        self.database = database
        self.transaction = transaction
        self.piece = Committable(transaction, subtask, target, 0)
        self.rows: list[Row] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """See `SinkWriter.write`."""
        self.check_values(batch)
        self.rows.extend(batch.to_pylist())
        failpoint("E01")

    def check_values(self, batch: pa.RecordBatch) -> None:
        """Refuse what SQLite would change: it makes NULL of NaN."""
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            if not pa.types.is_floating(values.type):
                continue
            row = pc.index(pc.is_nan(values), pa.scalar(True)).as_py()
            if row >= 0:
                raise RejectedRowsError(
                    f"Row {row + 1} of a batch of {len(values)}: column {name!r} cannot store NaN: "
                    "SQLite would make NULL of it.",
                    remedy="correct the rows.",
                )

    def pre_commit(self) -> Committable | None:
        """See `SinkWriter.pre_commit`."""
        if not self.rows:
            return None
        failpoint("C04")
        with self.database.transaction() as connection:
            self.check_fence(connection)
            self.stage(connection)
        failpoint("C05")
        return Committable(self.transaction, self.piece.subtask, self.piece.target, len(self.rows))

    def check_fence(self, connection: sqlite3.Connection) -> None:
        """No fence, and any other generation, refuses too."""
        fence, ours = (
            read_fence(connection, self.transaction.job, self.transaction.sink),
            self.transaction.attempt,
        )
        if ours.is_closed_by(fence):
            raise attempt_is_closed(
                self.transaction.job,
                self.transaction.sink,
                ours,
                f"the database {self.database.path}",
                fence,
            )

    def stage(self, connection: sqlite3.Connection) -> None:
        """The piece and its rows."""
        values = (*self.identity(), self.transaction.offsets_hash, len(self.rows), False)
        piece = connection.execute(
            f"INSERT INTO twophase_piece ({', '.join(IDENTITY)}, offsets_hash, rows, committed)"
            f" VALUES ({', '.join('?' * len(values))})",
            values,
        ).lastrowid
        self.stage_rows(connection, piece)

    def identity(self) -> tuple[object, ...]:
        """What names the piece."""
        return identity_of(self.piece)

    def stage_rows(self, connection: sqlite3.Connection, piece: int | None) -> None:
        """The rows, by the names of their columns."""
        names = list(self.rows[0])
        columns = ", ".join(map(quoted, names))
        connection.executemany(
            f"INSERT INTO {self.database.staged} (piece, {columns}) VALUES (?{', ?' * len(names)})",
            [(piece, *(row[name] for name in names)) for row in self.rows],
        )

    def abort(self) -> None:
        """See `SinkWriter.abort`."""
        self.rows = []


class SqliteSink(ArrowSink):
    """Appends to one table. The table is there; its columns have the names of the rows' columns.

    Args:
        path: the database.
        table: the table.

    Attributes:
        open_class: of the open sink.
    """

    def __init__(self, path: str | Path, table: str) -> None:
        self.database = Database(Path(path), table)
        self.open_class: type[OpenSqliteSink] = OpenSqliteSink

    def check_connection(self) -> None:
        """See `Sink.check_connection`."""
        with closing(self.database.connect()) as connection:
            self.database.columns(connection)

    def open(self, context: SinkContext) -> OpenSqliteSink:
        """See `Sink.open`."""
        with self.database.transaction(look=context.schema is None) as connection:
            columns = self.database.columns(connection)
            if context.schema is not None and {*columns} != {*context.schema.names}:
                raise ConfigError(
                    f"Table {self.database.table} has the columns {columns}, "
                    f"the rows {context.schema.names}."
                )
            [(token,)] = connection.execute("SELECT token FROM twophase_target")
        return self.open_class(self.database, context.job, context.sink, token)


class OpenSqliteSink(OpenArrowSink):
    """The sink of a job; a connection lives as long as a transaction.

    Args:
        database: with its table.
        job: the job's name.
        sink: the sink's name.
        token: what tells the database from every other.
    """

    writer_class: ClassVar[type[SqliteWriter]] = SqliteWriter

    def __init__(self, database: Database, job: str, sink: str, token: str) -> None:
        self.database = database
        self.job, self.sink, self.token = job, sink, token

    def target(self) -> str:
        """See `OpenSink.target`."""
        return f"sqlite:{self.token}:{self.database.table}"

    def history(self) -> SinkHistory:
        """See `OpenSink.history`."""
        owner = (self.job, self.sink)
        with self.database.transaction(look=True) as connection:
            fence = read_fence(connection, *owner)
            committed = connection.execute(
                "SELECT lineage, MAX(checkpoint) FROM (SELECT job, sink, lineage, checkpoint "
                "FROM twophase_mark UNION ALL"
                " SELECT job, sink, lineage, checkpoint FROM twophase_piece WHERE committed) "
                "WHERE job = ? AND sink = ?"
                " GROUP BY lineage",
                owner,
            ).fetchall()
        return SinkHistory(fence.generation if fence else 0, dict(committed))

    def fence(self, attempt: Attempt) -> None:
        """See `OpenSink.fence`."""
        with self.database.transaction() as connection:
            fence = read_fence(connection, self.job, self.sink) or attempt
            if fence.generation > attempt.generation:
                raise driver_is_fenced(self.job, self.sink, fence, attempt)
            highest = max(fence, attempt)
            connection.execute(
                "REPLACE INTO twophase_fence VALUES (?, ?, ?, ?)",
                (self.job, self.sink, highest.generation, highest.counter),
            )

    def writers(self) -> WriterFactory:
        """See `OpenArrowSink.writers`."""
        return functools.partial(self.writer_class, self.database, self.target())

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `OpenSink.commit`."""
        return commit_each(requests, self.commit_one)

    def commit_one(self, request: CommitRequest) -> CommitOutcome:
        """Rows, proof and the end of what is staged are one transaction (invariant I4)."""
        with self.database.transaction() as connection:
            outcome = self.known(connection, request)
            if isinstance(outcome, CommitOutcome):
                return outcome
            self.move_rows(connection, outcome)
            self.prove(connection, outcome)
        return Committed()

    def known(self, connection: sqlite3.Connection, request: CommitRequest) -> CommitOutcome | int:
        """What the target says of a piece, or its number if it is still to be committed.

        What is proven needs neither its target nor its predecessor any more.
        """
        committable = request.committable
        found = connection.execute(
            f"SELECT piece, committed FROM twophase_piece WHERE {THIS_PIECE}",
            identity_of(committable),
        ).fetchone()
        if found is not None and found[1]:
            return AlreadyCommitted("ledger row")
        transaction = committable.transaction
        mark = self.mark(connection, transaction.lineage)
        if found is None and transaction.checkpoint <= mark:
            return AlreadyCommitted("high-water mark")
        if committable.target != self.target():
            raise another_target(committable, self.target())
        if request.predecessor is not None and not self.has(connection, request.predecessor):
            raise predecessor_missing(request, self.target())
        if found is None:
            return Lost(
                f"{transaction} is neither staged nor in the ledger; the high-water mark is {mark}."
            )
        return int(found[0])

    def mark(self, connection: sqlite3.Connection, lineage: str) -> int:
        """The checkpoint up to which all of a lineage is committed; -1 if there is none."""
        found = connection.execute(
            "SELECT checkpoint FROM twophase_mark WHERE job = ? AND sink = ? AND lineage = ?",
            (self.job, self.sink, lineage),
        ).fetchone()
        return -1 if found is None else int(found[0])

    def has(self, connection: sqlite3.Connection, before: Predecessor) -> bool:
        """Whether there is proof of a checkpoint."""
        piece = connection.execute(
            "SELECT 1 FROM twophase_piece WHERE job = ? AND sink = ? AND lineage = ? "
            "AND checkpoint = ? AND committed",
            (self.job, self.sink, before.lineage, before.checkpoint),
        ).fetchone()
        return piece is not None or self.mark(connection, before.lineage) >= before.checkpoint

    def move_rows(self, connection: sqlite3.Connection, piece: int) -> None:
        """From the staging table into the table, by the names of the columns."""
        names = ", ".join(map(quoted, self.database.columns(connection)))
        rows = connection.execute(
            f"INSERT INTO {self.database.table} ({names}) SELECT {names} "
            f"FROM {self.database.staged} WHERE piece = ? RETURNING rowid",
            (piece,),
        ).fetchall()
        # SQLite gives the rowids of deleted rows out again
        connection.executemany(
            f"REPLACE INTO {self.database.committed} SELECT job, sink, lineage, checkpoint, ? "
            "FROM twophase_piece WHERE piece = ?",
            [(row, piece) for (row,) in rows],
        )

    def prove(self, connection: sqlite3.Connection, piece: int) -> None:
        """The piece is committed, and not staged any more."""
        connection.execute("UPDATE twophase_piece SET committed = TRUE WHERE piece = ?", (piece,))
        connection.execute(f"DELETE FROM {self.database.staged} WHERE piece = ?", (piece,))

    def abort(self, committables: Sequence[Committable]) -> None:
        """See `OpenSink.abort`."""
        for committable in committables:
            with self.database.transaction() as connection:
                self.drop(connection, committable)
            failpoint("C20")

    def drop(self, connection: sqlite3.Connection, committable: Committable) -> None:
        """One piece, if it is not committed."""
        where = f"FROM twophase_piece WHERE {THIS_PIECE} AND NOT committed"
        connection.execute(
            f"DELETE FROM {self.database.staged} WHERE piece IN (SELECT piece {where})",
            identity_of(committable),
        )
        connection.execute(f"DELETE {where}", identity_of(committable))

    def in_doubt(self) -> Sequence[Committable]:
        """See `OpenSink.in_doubt`."""
        with self.database.transaction(look=True) as connection:
            found = connection.execute(
                f"SELECT {', '.join(IDENTITY)}, offsets_hash, rows FROM twophase_piece"
                " WHERE job = ? AND sink = ? AND NOT committed ORDER BY piece",
                (self.job, self.sink),
            ).fetchall()
        return [
            Committable(
                TransactionId(
                    job, lineage, checkpoint, Attempt(generation, counter), sink, offsets_hash
                ),
                Subtask(subtask, task_attempt),
                self.target(),
                rows,
            )
            for job, sink, lineage, checkpoint, generation, counter, subtask, task_attempt, offsets_hash, rows in found  # noqa: E501
        ]

    def committed_pieces(self, lineage: str, checkpoint: int) -> Sequence[str]:
        """See `NamesPieces`."""
        with self.database.transaction(look=True) as connection:
            found = connection.execute(
                "SELECT generation, counter, subtask, task_attempt FROM twophase_piece "
                "WHERE job = ? AND sink = ? AND lineage = ? AND checkpoint = ? AND committed",
                (self.job, self.sink, lineage, checkpoint),
            ).fetchall()
        return ["{}.{}/{}.{}".format(*row) for row in found]

    def subsume(self, lineage: str, checkpoint: int) -> None:
        """See `OpenSink.subsume`."""
        with self.database.transaction() as connection:
            self.raise_mark(connection, lineage, checkpoint)
            self.drop_proofs(connection, lineage, checkpoint)

    def raise_mark(self, connection: sqlite3.Connection, lineage: str, checkpoint: int) -> None:
        """The mark of a lineage, to what is proven and never backwards."""
        connection.execute(
            "INSERT INTO twophase_mark SELECT job, sink, lineage, MAX(checkpoint) "
            "FROM twophase_piece"
            " WHERE job = ? AND sink = ? AND lineage = ? AND checkpoint <= ? AND committed "
            "GROUP BY job, sink, lineage"
            " ON CONFLICT DO UPDATE SET checkpoint = MAX(checkpoint, excluded.checkpoint)",
            (self.job, self.sink, lineage, checkpoint),
        )

    def drop_proofs(self, connection: sqlite3.Connection, lineage: str, checkpoint: int) -> None:
        """Of the pieces that the mark proves now."""
        connection.execute(
            "DELETE FROM twophase_piece WHERE job = ? AND sink = ? AND lineage = ? "
            "AND checkpoint <= ? AND committed",
            (self.job, self.sink, lineage, checkpoint),
        )

    def check_rewind(self, keep: Mapping[str, int]) -> None:
        """See `CanRewind`."""
        with self.database.transaction(look=True) as connection:
            self.check_rows(connection, keep)

    def rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """Rows and proofs go in one transaction."""
        with self.database.transaction() as connection:
            self.check_driver(connection, attempt)
            self.check_rows(connection, keep)
            self.delete_rows(connection, keep)
            self.lower_proofs(connection, keep)

    def check_driver(self, connection: sqlite3.Connection, attempt: Attempt) -> None:
        """The fence is this driver's."""
        fence = read_fence(connection, self.job, self.sink)
        if attempt.is_closed_by(fence):
            raise driver_is_fenced(self.job, self.sink, fence, attempt)

    def check_rows(self, connection: sqlite3.Connection, keep: Mapping[str, int]) -> None:
        """Every row to delete is still there."""
        for lineage, last in self.ends(connection, keep):
            gone = connection.execute(
                f"SELECT checkpoint FROM {self.database.committed} WHERE {TAKEN_BACK} "
                f"AND row NOT IN (SELECT rowid FROM {self.database.table})",
                (self.job, self.sink, lineage, last),
            ).fetchone()
            if gone is not None:
                raise RestoreRefusedError(f"Rows of checkpoint {gone[0]} are gone.")

    def ends(
        self, connection: sqlite3.Connection, keep: Mapping[str, int]
    ) -> list[tuple[str, int]]:
        """Each lineage with rows or proofs of this sink, and its last checkpoint that stays."""
        found = connection.execute(
            f"SELECT lineage FROM {self.database.committed} WHERE job = ? AND sink = ? "
            "UNION SELECT lineage FROM twophase_mark WHERE job = ? AND sink = ?",
            (self.job, self.sink) * 2,
        ).fetchall()
        return [(lineage, keep.get(lineage, -1)) for (lineage,) in found]

    def delete_rows(self, connection: sqlite3.Connection, keep: Mapping[str, int]) -> None:
        """Those that were committed after what is kept."""
        for lineage, last in self.ends(connection, keep):
            after = (self.job, self.sink, lineage, last)
            connection.execute(
                f"DELETE FROM {self.database.table} "
                f"WHERE rowid IN (SELECT row FROM {self.database.committed} WHERE {TAKEN_BACK})",
                after,
            )

    def lower_proofs(self, connection: sqlite3.Connection, keep: Mapping[str, int]) -> None:
        """Nothing proves what was taken back, and what stays is proven as before."""
        for lineage, last in self.ends(connection, keep):
            after = (self.job, self.sink, lineage, last)
            for table in (self.database.committed, "twophase_piece"):
                connection.execute(f"DELETE FROM {table} WHERE {TAKEN_BACK}", after)
            self.lower_mark(connection, lineage, last)

    def lower_mark(self, connection: sqlite3.Connection, lineage: str, last: int) -> None:
        """To the last checkpoint that is kept."""
        connection.execute(
            f"UPDATE twophase_mark SET checkpoint = ? WHERE {TAKEN_BACK}",
            (last, self.job, self.sink, lineage, last),
        )
        connection.execute("DELETE FROM twophase_mark WHERE checkpoint < 0")

    def close(self) -> None:
        """There is nothing to release."""


def quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return '"{}"'.format(name.replace('"', '""'))


def identity_of(committable: Committable) -> tuple[object, ...]:
    """The values of the columns `IDENTITY`."""
    transaction, subtask = committable.transaction, committable.subtask
    attempt = transaction.attempt
    named = (transaction.job, transaction.sink, transaction.lineage, transaction.checkpoint)
    return (*named, attempt.generation, attempt.counter, subtask.index, subtask.task_attempt)


def read_fence(connection: sqlite3.Connection, job: str, sink: str) -> Attempt | None:
    """The attempt that holds the fence, if anybody has ever raised it."""
    found = connection.execute(
        "SELECT generation, counter FROM twophase_fence WHERE job = ? AND sink = ?", (job, sink)
    ).fetchone()
    return None if found is None else Attempt(*found)
