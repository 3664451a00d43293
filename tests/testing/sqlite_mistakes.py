"""The SQLite sink with one mistake each: those that authors of sinks make, each in
one step of the sink.
"""

from __future__ import annotations

import socket
import sqlite3
import struct
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakSet

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

from twophase import (
    Attempt,
    CommitOutcome,
    CommitRequest,
    Committable,
    Committed,
    ConfigError,
    DeclinedError,
    FencedError,
    Predecessor,
    RejectedRowsError,
    SinkContext,
    SinkHistory,
    TargetChangedError,
    TargetUnreachableError,
    TwoPhaseError,
)
from twophase.testing.sqlite_sink import (
    TABLES,
    Database,
    OpenSqliteSink,
    SqliteSink,
    SqliteWriter,
    read_fence,
)

# -- declared and open -----------------------------------------------------------------------------


class BindsItself(SqliteSink):
    """Opened again, it is the sink of the second job."""

    opened: OpenSqliteSink | None = None

    def open(self, context: SinkContext) -> OpenSqliteSink:
        found = super().open(context)
        if self.opened is None:
            self.opened = found
        vars(self.opened).update(vars(found))
        return self.opened


class KeepsAConnection(SqliteSink):
    """What it holds once it has been opened cannot be pickled."""

    def open(self, context: SinkContext) -> OpenSqliteSink:
        self.connection = sqlite3.connect(self.database.path)
        return super().open(context)


class NeedsColumns(SqliteSink):
    """A repair has none."""

    def open(self, context: SinkContext) -> OpenSqliteSink:
        if context.schema is None:
            raise ConfigError("The rows have no columns.")
        return super().open(context)


# -- before it is open -----------------------------------------------------------------------------


class ChecksByWriting(SqliteSink):
    """The early look makes the sink's tables, to see whether it may."""

    def check_connection(self) -> None:
        with self.database.transaction():
            pass


class LeavesASession(SqliteSink):
    """The early look keeps its connection for `open`."""

    kept: ClassVar[list[sqlite3.Connection]] = []

    def check_connection(self) -> None:
        self.kept.append(self.database.connect())
        self.database.columns(self.kept[-1])


class ClientThatReconnects:
    """Opens a socket on request, until it is collected: it holds itself, as a callback does."""

    all: ClassVar[WeakSet[ClientThatReconnects]] = WeakSet()

    def __init__(self) -> None:
        self.sockets: list[socket.socket] = []
        self.itself = self
        self.all.add(self)

    def reconnect(self) -> None:
        self.sockets.append(socket.socket())


class LooksBesideGarbage(SqliteSink):
    """No mistake: what is opened during the look is another's, which nobody has any more."""

    def __init__(self, path: Path, table: str) -> None:
        super().__init__(path, table)
        ClientThatReconnects()

    def check_connection(self) -> None:
        for client in [*ClientThatReconnects.all]:
            client.reconnect()
        super().check_connection()


class LooksBesideSpark(SqliteSink):
    """No mistake: a thread calls the JVM of this process's Spark meanwhile, and that calls back, as
    py4j's threads do on either side once something of the other's is collected.
    """

    meanwhile: ClassVar[list[ThreadPoolExecutor]] = []

    def check_connection(self) -> None:
        gateway: Any = SparkContext._gateway
        port = gateway.get_callback_server().get_listening_port()
        self.meanwhile.append(ThreadPoolExecutor(1))
        self.meanwhile[-1].submit(gateway.jvm.java.net.Socket, "127.0.0.1", port).result()
        super().check_connection()


class LeavesASocketBesideSpark(LooksBesideSpark):
    """Of what is opened meanwhile, one is its own."""

    kept: ClassVar[list[socket.socket]] = []

    def check_connection(self) -> None:
        super().check_connection()
        self.kept.append(socket.socket())


class ChecksNothing(SqliteSink):
    """The early look passes over what it meets."""

    def check_connection(self) -> None:
        with suppress(TwoPhaseError):
            super().check_connection()


class TellsSomethingElse(SqliteSink):
    """The early look meets an error of the driver."""

    def check_connection(self) -> None:
        try:
            super().check_connection()
        except TargetUnreachableError as error:
            raise ConfigError(error.what) from error


class SettingsOfNumbers(SqliteSink):
    def spark_conf(self) -> Mapping[str, str]:
        return {"spark.task.cpus": 1}  # type: ignore[dict-item]


class SettingsOfTheTarget(SqliteSink):
    """What Spark is started with is looked up in the target."""

    def spark_conf(self) -> Mapping[str, str]:
        self.check_connection()
        return {}


class Rehearses(SqliteSink):
    """No mistake: all that it writes is in the folder."""

    where: ClassVar[str] = "{folder}/orders.db"

    @classmethod
    def rehearsal(cls, folder: Path) -> tuple[SqliteSink, Mapping[str, str]]:
        path = Path(cls.where.format(folder=folder))
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE orders (id INTEGER, name TEXT, amount REAL)")
        return cls(path, "orders"), {}


class RehearsesInTheWorkingFolder(Rehearses):
    where = "orders.db"


class RehearsesBesideTheFolder(Rehearses):
    where = "{folder}.db"


class RehearsesWithoutSettings(Rehearses):
    @classmethod
    def rehearsal(cls, folder: Path) -> Any:
        return super().rehearsal(folder)[0]


class RehearsesWithNumbers(Rehearses):
    @classmethod
    def rehearsal(cls, folder: Path) -> Any:
        return super().rehearsal(folder)[0], {"spark.task.cpus": 1}


class CallsSpark(OpenSqliteSink):
    """Its commit asks Spark for the session, and the declared sink does not say so."""

    def commit_one(self, request: CommitRequest) -> CommitOutcome:
        SparkSession.active()
        return super().commit_one(request)


# -- a look at the target --------------------------------------------------------------------------


class MakesTablesForALook(SqliteSink):
    """Opened without columns, it makes its tables all the same."""

    def open(self, context: SinkContext) -> OpenSqliteSink:
        with self.database.transaction():
            pass
        return super().open(context)


class ExpectsTheTables(OpenSqliteSink):
    """Raises a fence only where an open with columns has made the tables."""

    def fence(self, attempt: Attempt) -> None:
        with closing(sqlite3.connect(self.database.path)) as connection:
            read_fence(connection, self.job, self.sink)
        super().fence(attempt)


class HistorySavesMarks(OpenSqliteSink):
    """What is asked for is folded on the way."""

    def history(self) -> SinkHistory:
        found = super().history()
        for lineage, checkpoint in found.committed.items():
            self.subsume(lineage, checkpoint)
        return found


class InDoubtTidiesUp(OpenSqliteSink):
    """Removes pieces of attempts that are over, which a driver over another folder has decided."""

    def in_doubt(self) -> Sequence[Committable]:
        found = super().in_doubt()
        self.abort(found)
        return found


class CloseDropsTheFence(OpenSqliteSink):
    def close(self) -> None:
        with self.database.transaction() as connection:
            drop_fence(connection)


# -- abort -----------------------------------------------------------------------------------------


class AbortsByCheckpoint(OpenSqliteSink):
    """One piece to abort, and all that is staged of its checkpoint goes."""

    def drop(self, connection: sqlite3.Connection, committable: Committable) -> None:
        transaction = committable.transaction
        connection.execute(
            "DELETE FROM twophase_piece WHERE lineage = ? AND checkpoint = ? AND NOT committed",
            (transaction.lineage, transaction.checkpoint),
        )


class AbortsByAttempt(OpenSqliteSink):
    """One piece to abort, and all that is staged of its attempt goes."""

    def drop(self, connection: sqlite3.Connection, committable: Committable) -> None:
        attempt = committable.transaction.attempt
        connection.execute(
            "DELETE FROM twophase_piece WHERE generation = ? AND counter = ? AND NOT committed",
            (attempt.generation, attempt.counter),
        )


class AbortTakesBack(OpenSqliteSink):
    """Abort deletes the rows of the piece wherever they are, and its proof."""

    mine: ClassVar[str] = "piece = (SELECT MAX(piece) FROM twophase_piece WHERE task_attempt = ?)"

    def prove(self, connection: sqlite3.Connection, piece: int) -> None:
        connection.execute("UPDATE twophase_piece SET committed = TRUE WHERE piece = ?", (piece,))

    def drop(self, connection: sqlite3.Connection, committable: Committable) -> None:
        task = (committable.subtask.task_attempt,)
        staged = f"SELECT id FROM {self.database.staged} WHERE {self.mine}"
        connection.execute(f"DELETE FROM {self.database.table} WHERE id IN ({staged})", task)
        connection.execute(f"DELETE FROM twophase_piece WHERE {self.mine}", task)


class AbortTakesBackTheCheckpoint(AbortTakesBack):
    """Abort deletes all rows of the piece's checkpoint, also those that another
    attempt has committed.
    """

    def drop(self, connection: sqlite3.Connection, committable: Committable) -> None:
        super().drop(connection, committable)
        connection.execute(f"DELETE FROM {self.database.table}")


# -- identity --------------------------------------------------------------------------------------


class WriterWithoutTaskAttempt(SqliteWriter):
    def stage(self, connection: sqlite3.Connection) -> None:
        connection.execute(
            "DELETE FROM twophase_piece WHERE subtask = ?", (self.piece.subtask.index,)
        )
        super().stage(connection)


class WithoutTaskAttempt(OpenSqliteSink):
    """A piece is named by its task; the second attempt of the task replaces what the
    first has written.
    """

    writer_class = WriterWithoutTaskAttempt


class OneTargetForAll(OpenSqliteSink):
    """Every database has the same name."""

    def target(self) -> str:
        return "sqlite"


# -- fence -----------------------------------------------------------------------------------------


def drop_fence(connection: sqlite3.Connection) -> None:
    connection.execute("DELETE FROM twophase_fence")


class AbortDropsTheFence(OpenSqliteSink):
    def drop(self, connection: sqlite3.Connection, committable: Committable) -> None:
        super().drop(connection, committable)
        drop_fence(connection)


class SubsumeDropsTheFence(OpenSqliteSink):
    def drop_proofs(self, connection: sqlite3.Connection, lineage: str, checkpoint: int) -> None:
        super().drop_proofs(connection, lineage, checkpoint)
        drop_fence(connection)


class CommitDropsTheFence(OpenSqliteSink):
    def prove(self, connection: sqlite3.Connection, piece: int) -> None:
        super().prove(connection, piece)
        drop_fence(connection)


class InDoubtDropsTheFence(OpenSqliteSink):
    def in_doubt(self) -> Any:
        with self.database.transaction() as connection:
            drop_fence(connection)
        return super().in_doubt()


class OpenDropsTheFence(OpenSqliteSink):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        with self.database.transaction() as connection:
            drop_fence(connection)


class LowerOnlyWriter(SqliteWriter):
    """Compares with the fence, and takes "higher" and "none" for "free"."""

    def check_fence(self, connection: sqlite3.Connection) -> None:
        fence = read_fence(connection, self.transaction.job, self.transaction.sink)
        if fence is not None and self.transaction.attempt < fence:
            raise FencedError("closed")


class RefusesLowerOnly(OpenSqliteSink):
    writer_class = LowerOnlyWriter


class GenerationOnlyWriter(SqliteWriter):
    """Compares generations, so that a declined attempt goes on."""

    def check_fence(self, connection: sqlite3.Connection) -> None:
        fence = read_fence(connection, self.transaction.job, self.transaction.sink)
        if fence is None or fence.generation != self.transaction.attempt.generation:
            raise FencedError("closed")


class RefusesGenerationsOnly(OpenSqliteSink):
    writer_class = GenerationOnlyWriter


class ExactWriter(SqliteWriter):
    """Lets the very attempt pass that raised the fence, and none after it."""

    def check_fence(self, connection: sqlite3.Connection) -> None:
        fence = read_fence(connection, self.transaction.job, self.transaction.sink)
        if fence != self.transaction.attempt:
            raise FencedError("closed")


class RefusesLaterAttempts(OpenSqliteSink):
    writer_class = ExactWriter


class CheckingFirstWriter(SqliteWriter):
    def pre_commit(self) -> Committable | None:
        if not self.rows:
            return None
        with self.database.transaction() as connection:
            self.check_fence(connection)
        with self.database.transaction() as connection:
            self.stage(connection)
        return Committable(self.transaction, self.piece.subtask, self.piece.target, len(self.rows))


class ChecksInAnotherTransaction(OpenSqliteSink):
    writer_class = CheckingFirstWriter


# -- rows ------------------------------------------------------------------------------------------


class EmptyForNullWriter(SqliteWriter):
    def stage_rows(self, connection: sqlite3.Connection, piece: int | None) -> None:
        self.rows = [
            {name: "" if value is None else value for name, value in row.items()}
            for row in self.rows
        ]
        super().stage_rows(connection, piece)


class NullIsEmpty(OpenSqliteSink):
    writer_class = EmptyForNullWriter


class NullForEmptyWriter(SqliteWriter):
    def stage_rows(self, connection: sqlite3.Connection, piece: int | None) -> None:
        self.rows = [
            {name: None if value == "" else value for name, value in row.items()}
            for row in self.rows
        ]
        super().stage_rows(connection, piece)


class EmptyIsNull(OpenSqliteSink):
    writer_class = NullForEmptyWriter


class PositionalWriter(SqliteWriter):
    def stage_rows(self, connection: sqlite3.Connection, piece: int | None) -> None:
        connection.executemany(
            f"INSERT INTO {self.database.staged} VALUES (?, ?, ?, ?)",
            [(piece, *row.values()) for row in self.rows],
        )


class ColumnsByPosition(OpenSqliteSink):
    writer_class = PositionalWriter


class LossyWriter(SqliteWriter):
    """Changes the values of one column."""

    column: ClassVar[str]

    def stage_rows(self, connection: sqlite3.Connection, piece: int | None) -> None:
        self.rows = [{**row, self.column: self.changed(row[self.column])} for row in self.rows]
        super().stage_rows(connection, piece)

    def changed(self, value: Any) -> Any:
        raise NotImplementedError


class AsciiWriter(LossyWriter):
    column = "name"

    def changed(self, value: Any) -> Any:
        return value and value.encode("ascii", "replace").decode()


class ShortTextWriter(LossyWriter):
    column = "name"

    def changed(self, value: Any) -> Any:
        return value and value[:255]


class StrippedTextWriter(LossyWriter):
    column = "name"

    def changed(self, value: Any) -> Any:
        return value and value.strip(" ")


class SinglePrecisionWriter(LossyWriter):
    column = "amount"

    def changed(self, value: Any) -> Any:
        return value and struct.unpack("f", struct.pack("f", min(value, 3e38)))[0]


class NumbersAsFloatsWriter(LossyWriter):
    column = "id"

    def changed(self, value: Any) -> Any:
        return int(float(value)) if abs(value) < 2**62 else value


class TextInAscii(OpenSqliteSink):
    writer_class = AsciiWriter


class TextCutOff(OpenSqliteSink):
    writer_class = ShortTextWriter


class TextStripped(OpenSqliteSink):
    writer_class = StrippedTextWriter


class FloatsOf32Bits(OpenSqliteSink):
    writer_class = SinglePrecisionWriter


class NumbersAsFloats(OpenSqliteSink):
    writer_class = NumbersAsFloatsWriter


class FlushesAWriter(SqliteWriter):
    """Sends its rows when it is flushed, and all of them again."""

    def flush(self) -> None:
        self.rows = self.rows * 2


class FlushesTwice(OpenSqliteSink):
    writer_class = FlushesAWriter


class ForgetfulWriter(SqliteWriter):
    """Sends its rows when it is flushed, and counts those that come then."""

    def flush(self) -> None:
        self.rows = self.rows[-1:]


class FlushForgets(OpenSqliteSink):
    writer_class = ForgetfulWriter


class HastyWriter(SqliteWriter):
    """Pre-commits when it is flushed."""

    made: Committable | None = None

    def flush(self) -> None:
        self.made = super().pre_commit()

    def pre_commit(self) -> Committable | None:
        return self.made or super().pre_commit()


class FlushPreCommits(OpenSqliteSink):
    writer_class = HastyWriter


class FortyRowsWriter(SqliteWriter):
    def stage_rows(self, connection: sqlite3.Connection, piece: int | None) -> None:
        self.rows = self.rows[:40]
        super().stage_rows(connection, piece)


class FortyRowsAPiece(OpenSqliteSink):
    """One statement takes so many, and there is no second one."""

    writer_class = FortyRowsWriter


class PiecesWithColumnsOfTheQuery(ColumnsByPosition):
    """Stages rows by position, and names the columns of the query that commits them."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.names = NamesTheQuerysColumns.names

    def move_rows(self, connection: sqlite3.Connection, piece: int) -> None:
        staged = connection.execute(
            f"SELECT * FROM {self.database.staged} WHERE piece = ?", (piece,)
        ).fetchall()
        names = ", ".join(self.names)
        connection.executemany(
            f"INSERT INTO {self.database.table} ({names}) VALUES (?, ?, ?)",
            [values for _, *values in staged],
        )


class NamesTheQuerysColumns(SqliteSink):
    """Its open sink takes a piece for one of this query."""

    names: ClassVar[Sequence[str]] = ()

    def __init__(self, path: Path, table: str) -> None:
        super().__init__(path, table)
        self.open_class = PiecesWithColumnsOfTheQuery

    def open(self, context: SinkContext) -> OpenSqliteSink:
        type(self).names = context.schema.names if context.schema else ()
        return super().open(context)


class TakesFewerColumns(SqliteSink):
    """No mistake: a query may leave columns of the table out, and they are NULL."""

    def open(self, context: SinkContext) -> OpenSqliteSink:
        return super().open(replace(context, schema=None))


class PiecesWithColumnsOfTheQueryOnly(OpenSqliteSink):
    """Commits no other columns than those of its own query."""

    def move_rows(self, connection: sqlite3.Connection, piece: int) -> None:
        names = ", ".join(LeavesColumnsOut.names)
        connection.execute(
            f"INSERT INTO {self.database.table} ({names}) SELECT {names} "
            f"FROM {self.database.staged} WHERE piece = ?",
            (piece,),
        )


class LeavesColumnsOut(TakesFewerColumns):
    """A piece with more columns than the query loses them."""

    names: ClassVar[Sequence[str]] = ()

    def __init__(self, path: Path, table: str) -> None:
        super().__init__(path, table)
        self.open_class = PiecesWithColumnsOfTheQueryOnly

    def open(self, context: SinkContext) -> OpenSqliteSink:
        type(self).names = context.schema.names if context.schema else ()
        return super().open(context)


class PaddingWriter(SqliteWriter):
    """A column that the rows lack is 0."""

    def stage_rows(self, connection: sqlite3.Connection, piece: int | None) -> None:
        self.rows = [{"amount": 0.0, **row} for row in self.rows]
        super().stage_rows(connection, piece)


class OpenFillsColumns(OpenSqliteSink):
    writer_class = PaddingWriter


class FillsColumns(TakesFewerColumns):
    """A piece with fewer columns than the table gets a value for the others."""

    def __init__(self, path: Path, table: str) -> None:
        super().__init__(path, table)
        self.open_class = OpenFillsColumns


class NanIsNullWriter(SqliteWriter):
    def check_values(self, batch: pa.RecordBatch) -> None:
        pass


class NanIsNull(OpenSqliteSink):
    """It is SQLite that makes NULL of it."""

    writer_class = NanIsNullWriter


class NanIsRefusedInGeneralWriter(SqliteWriter):
    def check_values(self, batch: pa.RecordBatch) -> None:
        try:
            super().check_values(batch)
        except RejectedRowsError:
            raise RejectedRowsError("SQLite has no NaN.") from None


class NanIsRefusedInGeneral(OpenSqliteSink):
    """Nobody knows in which column."""

    writer_class = NanIsRefusedInGeneralWriter


class MovesDistinctRows(OpenSqliteSink):
    """Equal rows of a piece are taken for one."""

    def move_rows(self, connection: sqlite3.Connection, piece: int) -> None:
        connection.execute(
            f"DELETE FROM {self.database.staged} WHERE piece = ? AND rowid NOT IN "
            f"(SELECT MIN(rowid) FROM {self.database.staged} GROUP BY piece, id, name, amount)",
            (piece,),
        )
        super().move_rows(connection, piece)


class MovesNewRowsOnly(OpenSqliteSink):
    """A row that the table has already is taken for the same one."""

    def move_rows(self, connection: sqlite3.Connection, piece: int) -> None:
        connection.execute(
            f"DELETE FROM {self.database.staged} WHERE piece = ? AND (id, name, amount) IN "
            f"(SELECT id, name, amount FROM {self.database.table})",
            (piece,),
        )
        super().move_rows(connection, piece)


# -- names -----------------------------------------------------------------------------------------


class AsksByPattern(OpenSqliteSink):
    """Compares names with LIKE: without regard to case, and `_` is any letter."""

    compare: ClassVar[str] = "{0} LIKE ?"

    def in_doubt(self) -> Sequence[Committable]:
        mine = super().in_doubt()
        with self.database.transaction() as connection:
            similar = connection.execute(
                "SELECT DISTINCT job, sink FROM twophase_piece WHERE "
                f"{self.compare.format('job')} AND {self.compare.format('sink')}",
                (self.job, self.sink),
            ).fetchall()
        job, sink = max(similar, default=("", ""))
        return mine or OpenSqliteSink(self.database, job, sink, self.token).in_doubt()


class AsksWithoutCase(AsksByPattern):
    compare = "? = {0} COLLATE NOCASE"


class AsksByPrefix(AsksByPattern):
    compare = "instr({0}, ?) = 1"


# -- calls -----------------------------------------------------------------------------------------


class SixPiecesACall(OpenSqliteSink):
    """Says of the others what it says of the sixth."""

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        outcomes = [*super().commit(requests[:6])]
        return outcomes + outcomes[-1:] * (len(requests) - 6)


class KnownPiecesFirst(OpenSqliteSink):
    """Gives the outcomes of what is committed already first."""

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        outcomes = super().commit(requests)
        return sorted(outcomes, key=lambda one: isinstance(one, Committed))


class AsksForThePredecessorLast(OpenSqliteSink):
    """The first piece of a call is visible by then."""

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        early = [replace(one, predecessor=None) for one in requests[:-1]]
        return super().commit([*early, *requests[-1:]])


class DecliningWriter(SqliteWriter):
    def check_fence(self, connection: sqlite3.Connection) -> None:
        try:
            super().check_fence(connection)
        except FencedError as error:
            raise DeclinedError(error.what) from None


class DeclinesWhatIsFenced(OpenSqliteSink):
    """A driver that is told so tries again, for ever."""

    writer_class = DecliningWriter


# -- proof -----------------------------------------------------------------------------------------


class ProofAfterTheRows(OpenSqliteSink):
    """Rows in one transaction, proof in the next."""

    def commit_one(self, request: CommitRequest) -> CommitOutcome:
        with self.database.transaction() as connection:
            outcome = self.known(connection, request)
            if isinstance(outcome, CommitOutcome):
                return outcome
            self.move_rows(connection, outcome)
        with self.database.transaction() as connection:
            self.prove(connection, outcome)
        return Committed()


class ProofBeforeTheRows(OpenSqliteSink):
    """Proof in one transaction, rows in the next."""

    def commit_one(self, request: CommitRequest) -> CommitOutcome:
        with self.database.transaction() as connection:
            outcome = self.known(connection, request)
            if isinstance(outcome, CommitOutcome):
                return outcome
            connection.execute(
                "UPDATE twophase_piece SET committed = TRUE WHERE piece = ?", (outcome,)
            )
        with self.database.transaction() as connection:
            self.move_rows(connection, outcome)
            self.prove(connection, outcome)
        return Committed()


class RowsMadeGoodLater(ProofBeforeTheRows):
    """Proof in one transaction, rows in the next; the commit of the next checkpoint makes good
    what a death in between has left.
    """

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        with self.database.transaction() as connection:
            left = connection.execute(
                f"SELECT DISTINCT piece FROM {self.database.staged} JOIN twophase_piece "
                "USING (piece) WHERE committed AND checkpoint < ?",
                (requests[0].committable.transaction.checkpoint,),
            ).fetchall()
            for (piece,) in left:
                self.move_rows(connection, piece)
                self.prove(connection, piece)
        return super().commit(requests)


class ProofDroppedBeforeTheMark(OpenSqliteSink):
    """Subsume deletes proofs in one transaction and raises the mark to what they
    proved in the next.
    """

    def subsume(self, lineage: str, checkpoint: int) -> None:
        with self.database.transaction() as connection:
            (proven,) = connection.execute(
                "SELECT MAX(checkpoint) FROM twophase_piece"
                " WHERE job = ? AND sink = ? AND lineage = ? AND checkpoint <= ? AND committed",
                (self.job, self.sink, lineage, checkpoint),
            ).fetchone()
            self.drop_proofs(connection, lineage, checkpoint)
        with self.database.transaction() as connection:
            if proven is not None:
                set_mark(self, connection, lineage, proven)


class MarkAheadOfTheProof(OpenSqliteSink):
    """Subsume believes that the target has what the driver says is committed."""

    def raise_mark(self, connection: sqlite3.Connection, lineage: str, checkpoint: int) -> None:
        set_mark(self, connection, lineage, checkpoint)


def set_mark(
    sink: OpenSqliteSink, connection: sqlite3.Connection, lineage: str, checkpoint: int
) -> None:
    """Raise the mark, whatever is proven by now."""
    connection.execute(
        "INSERT INTO twophase_mark VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET checkpoint = MAX(checkpoint, excluded.checkpoint)",
        (sink.job, sink.sink, lineage, checkpoint),
    )


# -- numbers as text -------------------------------------------------------------------------------


class TextDatabase(Database):
    """Its tables have checkpoints as text."""

    def make_tables(self, connection: sqlite3.Connection) -> None:
        rows_of_pieces = (
            f"CREATE TABLE IF NOT EXISTS {self.committed} "
            "(job, sink, lineage, checkpoint, row INTEGER PRIMARY KEY)"
        )
        for statement in (*TABLES, rows_of_pieces):
            connection.execute(statement.replace("checkpoint", "checkpoint TEXT", 1))
        super().make_tables(connection)


class OpenNumbersAsText(OpenSqliteSink):
    def history(self) -> SinkHistory:
        found = super().history()
        return replace(found, committed={key: int(text) for key, text in found.committed.items()})


class NumbersAsText(SqliteSink):
    """The target compares checkpoints, and has them as text."""

    def __init__(self, path: Path, table: str) -> None:
        super().__init__(path, table)
        self.database = TextDatabase(Path(path), table)
        self.open_class = OpenNumbersAsText


class TextNumber(int):
    """Ordered as its text is."""

    def __lt__(self, other: int) -> bool:
        return str(int(self)) < str(int(other))

    def __gt__(self, other: int) -> bool:
        return str(int(self)) > str(int(other))

    def __le__(self, other: int) -> bool:
        return not self > other

    def __ge__(self, other: int) -> bool:
        return not self < other


class MarkAsText(OpenSqliteSink):
    """The sink compares a checkpoint with the mark, and has both as text."""

    def mark(self, connection: sqlite3.Connection, lineage: str) -> int:
        return TextNumber(super().mark(connection, lineage))


def text_fence(connection: sqlite3.Connection, job: str, sink: str) -> Attempt | None:
    fence = read_fence(connection, job, sink)
    return fence and Attempt(TextNumber(fence.generation), TextNumber(fence.counter))


class FenceAsTextWriter(SqliteWriter):
    def check_fence(self, connection: sqlite3.Connection) -> None:
        fence = text_fence(connection, self.transaction.job, self.transaction.sink)
        if self.transaction.attempt.is_closed_by(fence):
            raise FencedError("closed")


class WriterComparesText(OpenSqliteSink):
    """A writer compares its attempt with the fence, and has both as text."""

    writer_class = FenceAsTextWriter


class FenceComparesText(OpenSqliteSink):
    """A driver compares its attempt with the fence, and has both as text."""

    def fence(self, attempt: Attempt) -> None:
        with self.database.transaction() as connection:
            fence = text_fence(connection, self.job, self.sink) or attempt
            if fence.generation > attempt.generation:
                raise FencedError("closed")
            drop_fence(connection)
            connection.execute(
                "INSERT INTO twophase_fence VALUES (?, ?, ?, ?)",
                (self.job, self.sink, *astuple(max(fence, attempt))),
            )


# -- predecessor -----------------------------------------------------------------------------------


class AsksForNoPredecessor(OpenSqliteSink):
    """A piece is committed to whatever the target is by now."""

    def has(self, connection: sqlite3.Connection, before: Predecessor) -> bool:
        return True


class AsksForTheMarkOnly(OpenSqliteSink):
    """A predecessor that is not subsumed yet is missing."""

    def has(self, connection: sqlite3.Connection, before: Predecessor) -> bool:
        return self.mark(connection, before.lineage) >= before.checkpoint


class AsksAnySinkForThePredecessor(OpenSqliteSink):
    """The ledger of another sink proves the predecessor of this one."""

    def has(self, connection: sqlite3.Connection, before: Predecessor) -> bool:
        found = connection.execute(
            "SELECT 1 FROM twophase_piece WHERE lineage = ? AND checkpoint = ? AND committed",
            (before.lineage, before.checkpoint),
        ).fetchone()
        return found is not None or super().has(connection, before)


class AsksForTheTargetFirst(OpenSqliteSink):
    """What is proven still needs the target that it was written to."""

    def known(self, connection: sqlite3.Connection, request: CommitRequest) -> CommitOutcome | int:
        if request.committable.target != self.target():
            raise TargetChangedError(
                f"{request.committable.transaction} is in {request.committable.target}."
            )
        return super().known(connection, request)


# -- rewind ----------------------------------------------------------------------------------------


class RewindsByNumber(OpenSqliteSink):
    """A checkpoint stays if its number does, whatever its lineage."""

    def ends(
        self, connection: sqlite3.Connection, keep: Mapping[str, int]
    ) -> list[tuple[str, int]]:
        last = max(keep.values())
        return [(lineage, last) for lineage, _ in super().ends(connection, keep)]


class RewindsOneTooMany(OpenSqliteSink):
    """The savepoint's own checkpoint goes too."""

    def ends(
        self, connection: sqlite3.Connection, keep: Mapping[str, int]
    ) -> list[tuple[str, int]]:
        return [(lineage, last - 1) for lineage, last in super().ends(connection, keep)]


class RewindsOthers(OpenSqliteSink):
    """Rows are found by lineage and checkpoint alone."""

    def delete_rows(self, connection: sqlite3.Connection, keep: Mapping[str, int]) -> None:
        for lineage, last in self.ends(connection, keep):
            connection.execute(
                f"DELETE FROM {self.database.table} WHERE rowid IN "
                f"(SELECT row FROM {self.database.committed} WHERE lineage = ? AND checkpoint > ?)",
                (lineage, last),
            )


class RewindsWhatHasAPieceOnly(OpenSqliteSink):
    """What was subsumed is not found."""

    def ends(
        self, connection: sqlite3.Connection, keep: Mapping[str, int]
    ) -> list[tuple[str, int]]:
        pieces = {row[0] for row in connection.execute("SELECT lineage FROM twophase_piece")}
        return [one for one in super().ends(connection, keep) if one[0] in pieces]


class RewindLeavesTheMark(OpenSqliteSink):
    """The mark goes on proving what is gone."""

    def lower_mark(self, connection: sqlite3.Connection, lineage: str, last: int) -> None:
        pass


class RewindDropsTheMark(OpenSqliteSink):
    """The mark goes with what it proved too much; what stays has no proof any more."""

    def lower_mark(self, connection: sqlite3.Connection, lineage: str, last: int) -> None:
        connection.execute("DELETE FROM twophase_mark WHERE lineage = ?", (lineage,))


class RewindDropsTheFence(OpenSqliteSink):
    def lower_proofs(self, connection: sqlite3.Connection, keep: Mapping[str, int]) -> None:
        super().lower_proofs(connection, keep)
        drop_fence(connection)


class RewindsBehindNoFence(OpenSqliteSink):
    def check_driver(self, connection: sqlite3.Connection, attempt: Attempt) -> None:
        pass


class CheckRewinds(OpenSqliteSink):
    """The check takes back what it is asked about."""

    def check_rewind(self, keep: Mapping[str, int]) -> None:
        with self.database.transaction() as connection:
            self.delete_rows(connection, keep)


class RewindsTheProofsFirst(OpenSqliteSink):
    """A death in between leaves rows that nothing tells of."""

    def rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        with self.database.transaction() as connection:
            self.check_driver(connection, attempt)
            ends = self.ends(connection, keep)
            rows = [
                row
                for lineage, last in ends
                for row in connection.execute(
                    f"SELECT row FROM {self.database.committed}"
                    " WHERE lineage = ? AND checkpoint > ?",
                    (lineage, last),
                )
            ]
            self.lower_proofs(connection, keep)
        with self.database.transaction() as connection:
            connection.executemany(f"DELETE FROM {self.database.table} WHERE rowid = ?", rows)


class RewindsInTwoSteps(OpenSqliteSink):
    """No mistake: rows go before proofs, and a rewind that died between them can be given up."""

    def history(self) -> SinkHistory:
        with self.database.transaction() as connection:
            half = self.is_half_rewound(connection)
        return replace(super().history(), half_rewound=half)

    def is_half_rewound(self, connection: sqlite3.Connection) -> bool:
        """Whether rows are gone whose proofs are there."""
        found = connection.execute(
            f"SELECT 1 FROM {self.database.committed} WHERE job = ? AND sink = ? "
            f"AND row NOT IN (SELECT rowid FROM {self.database.table})",
            (self.job, self.sink),
        )
        return found.fetchone() is not None

    def check_rows(self, connection: sqlite3.Connection, keep: Mapping[str, int]) -> None:
        """An interrupted rewind may have removed them."""

    def rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        with self.database.transaction() as connection:
            self.check_driver(connection, attempt)
            self.delete_rows(connection, keep)
        with self.database.transaction() as connection:
            self.check_driver(connection, attempt)
            self.lower_proofs(connection, keep)

    def settle_rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        with self.database.transaction() as connection:
            self.check_driver(connection, attempt)
            if self.is_half_rewound(connection):
                self.lower_proofs(connection, keep)


class HidesAHalfRewind(RewindsInTwoSteps):
    def history(self) -> SinkHistory:
        return replace(super().history(), half_rewound=False)


class SettlesNothing(RewindsInTwoSteps):
    def settle_rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        with self.database.transaction() as connection:
            self.check_driver(connection, attempt)


class SettlesByRewinding(RewindsInTwoSteps):
    def settle_rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        self.rewind(keep, attempt)


class SettlesTheProofs(RewindsInTwoSteps):
    """Whether rows are gone or not."""

    def settle_rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        with self.database.transaction() as connection:
            self.check_driver(connection, attempt)
            self.lower_proofs(connection, keep)


class SettlesBehindNoFence(RewindsInTwoSteps):
    def settle_rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        with self.database.transaction() as connection:
            if self.is_half_rewound(connection):
                self.lower_proofs(connection, keep)


class SettlesWhatHasBegunOnly(RewindsInTwoSteps):
    def settle_rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        if not self.history().half_rewound:
            raise TargetChangedError("No rewind has begun.")
        super().settle_rewind(keep, attempt)


# -- names of pieces -------------------------------------------------------------------------------


class NamesWhatIsStaged(OpenSqliteSink):
    """A piece that waits is named like a committed one."""

    def committed_pieces(self, lineage: str, checkpoint: int) -> Sequence[str]:
        waiting = [
            f"{piece.transaction.attempt}/{piece.subtask}"
            for piece in self.in_doubt()
            if (piece.transaction.lineage, piece.transaction.checkpoint) == (lineage, checkpoint)
        ]
        return [*super().committed_pieces(lineage, checkpoint), *waiting]


class NamesEveryLineage(OpenSqliteSink):
    """The number of a checkpoint is taken for its name."""

    def committed_pieces(self, lineage: str, checkpoint: int) -> Sequence[str]:
        with self.database.transaction() as connection:
            found = connection.execute("SELECT lineage FROM twophase_piece").fetchall()
        named = super().committed_pieces
        return [name for (one,) in found for name in named(one, checkpoint)]


class NamesTasksOnly(OpenSqliteSink):
    """Which attempt wrote a piece is left out."""

    def committed_pieces(self, lineage: str, checkpoint: int) -> Sequence[str]:
        names = super().committed_pieces(lineage, checkpoint)
        return [name.partition("/")[2] for name in names]


# -- unfinished pieces -----------------------------------------------------------------------------


class TwoStepWriter(SqliteWriter):
    """Makes the piece in one transaction, and stages its rows in the next."""

    def pre_commit(self) -> Committable | None:
        with self.database.transaction() as connection:
            self.check_fence(connection)
            connection.execute(
                "INSERT INTO twophase_piece (job, sink, lineage, checkpoint, generation, counter,"
                " subtask, task_attempt, offsets_hash, rows, committed)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, FALSE)",
                (*self.identity(), self.transaction.offsets_hash),
            )
        with self.database.transaction() as connection:
            self.check_fence(connection)
            [(piece,)] = connection.execute("SELECT MAX(piece) FROM twophase_piece")
            self.stage_rows(connection, piece)
            connection.execute(
                "UPDATE twophase_piece SET rows = ? WHERE piece = ?", (len(self.rows), piece)
            )
        return with_handle(replace(self.piece, rows=len(self.rows)))


class StagesInTwoSteps(OpenSqliteSink):
    """No mistake: what is left between the two steps is told from what can be committed."""

    writer_class = TwoStepWriter

    def in_doubt(self) -> Sequence[Committable]:
        return [with_handle(piece) for piece in super().in_doubt()]

    def unfinished(self, pieces: Sequence[Committable]) -> Sequence[Committable]:
        return [piece for piece in pieces if not piece.handle]


class TakesAllForUnfinished(StagesInTwoSteps):
    def unfinished(self, pieces: Sequence[Committable]) -> Sequence[Committable]:
        return pieces


class TakesNoneForUnfinished(StagesInTwoSteps):
    def unfinished(self, pieces: Sequence[Committable]) -> Sequence[Committable]:
        return []


def with_handle(piece: Committable) -> Committable:
    """A handle for what can be committed, and for nothing else."""
    return replace(piece, handle={"rows": piece.rows} if piece.rows else {})
