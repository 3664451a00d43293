"""The writer, on the executor: one task attempt is one XA branch in one session.

1. connect, take session locks   so that a later driver can find and end this session (H44)
2. XA START, read the fence      shared lock: while we write, the fence cannot be
                                 raised past us (HD9)
   describe the table            it cannot be altered from here on: is it the one we planned by?
3. LOAD DATA                     for each `load_rows` rows, in the order of the primary key;
                                 rows are read back
4. ledger row                    inside the branch: the proof that it was committed (I4)
5. XA END, XA PREPARE            durable and invisible
6. disconnect                    before MySQL 8.0.29 and on MariaDB only then can the
                                 driver commit the branch
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass

import pyarrow as pa
import pymysql

from twophase.contract.committable import Committable
from twophase.contract.fencing import attempt_is_closed
from twophase.contract.writer import SinkWriter
from twophase.errors import (
    DeclinedError,
    RejectedRowsError,
    TargetUnreachableError,
    TwoPhaseError,
)
from twophase.ids import Subtask, TransactionId
from twophase.internals.failpoints import failpoint
from twophase.internals.redaction import shown
from twophase.sinks.mysql.checkpoint_column import value_of
from twophase.sinks.mysql.client.codes import (
    DEADLOCK,
    LOCAL_FORBIDDEN,
    LOCK_WAIT_TIMEOUT,
    NO_NUMBER,
    SERVER_LOST,
    code_of,
    fingerprint_of_reply,
    is_data_fault,
)
from twophase.sinks.mysql.client.driver_session import DriverLink
from twophase.sinks.mysql.client.server import Server
from twophase.sinks.mysql.client.session import SecurityError, Session, hostile
from twophase.sinks.mysql.client.session_exit import wait_until_left
from twophase.sinks.mysql.client.session_locks import SessionLocks, turn
from twophase.sinks.mysql.client.session_settings import end_quietly, open_writer_session
from twophase.sinks.mysql.lock_conflicts import LockConflicts
from twophase.sinks.mysql.metadata_tables import MetadataTables
from twophase.sinks.mysql.options import Endpoint
from twophase.sinks.mysql.planning import TablePlan
from twophase.sinks.mysql.rows.key_order import in_order
from twophase.sinks.mysql.rows.loading import LARGER_TYPE, remedy_of
from twophase.sinks.mysql.table import Table, read_table_locked
from twophase.sinks.mysql.xid import Owner, Xid

_LEAVING_S = 2.0
_MAY_HAVE_WAITED = LOCK_WAIT_TIMEOUT, DEADLOCK, SERVER_LOST
"""MySQL 8.0.12 waits for the row that a foreign key refers to for longer than any timeout of its
own: the deadline of the reply ends it.
"""


@dataclass(frozen=True)
class MySqlWriters:
    """All that the writers of one sink share, as it is sent to the executors.

    Attributes:
        endpoint: where the server is.
        owner: the job and sink that the branches belong to.
        metadata: the metadata tables.
        target: the target's identity (I10).
        plan: how rows fill the table.
        local_infile: whether it may use LOAD DATA LOCAL.
        load_rows: rows in one statement, at most.
        load_bytes: approximate bytes in one statement.
    """

    endpoint: Endpoint
    owner: Owner
    metadata: MetadataTables
    target: str
    plan: TablePlan
    local_infile: bool
    load_rows: int
    load_bytes: int

    def __call__(self, transaction: TransactionId, subtask: Subtask) -> MySqlWriter:
        """Create the writer of one task attempt."""
        return MySqlWriter(self, transaction, subtask)


def target_of(server: Server, owner: Owner, table: Table) -> str:
    """Return the identity of a table (I10): see `OpenMySqlSink.target`."""
    uuid = "" if server.is_mariadb else server.variables.get("server_uuid")
    where = f"mysql:{uuid}" if uuid else f"mariadb:{owner.namespace}"
    return f"{where}/{table.schema}.{table.name}"


class MySqlWriter(SinkWriter):
    """Writes the rows of one task attempt into a branch of its own.

    Args:
        shared: what it shares with the other writers of the sink.
        transaction: the transaction of the attempt.
        subtask: the task attempt.
    """

    def __init__(self, shared: MySqlWriters, transaction: TransactionId, subtask: Subtask) -> None:
        self._shared = shared
        self._transaction = transaction
        self._subtask = subtask
        self._xid: Xid | None = None
        self._session: Session | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = self._waiting_bytes = self._loaded_rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """See `SinkWriter.write`. Rows are buffered until there are enough for one statement."""
        with self._declining("writing rows"):
            for piece in self._pieces(self._marked(batch)):
                if self._waiting_rows + piece.num_rows > self._shared.load_rows:
                    self._flush()
                self._waiting.append(piece)
                self._waiting_rows += piece.num_rows
                self._waiting_bytes += piece.nbytes
                if self._waiting_bytes >= self._shared.load_bytes:
                    self._flush()

    def flush(self) -> None:
        """See `SinkWriter.flush`."""
        with self._declining("writing rows"):
            self._flush()

    def pre_commit(self) -> Committable | None:
        """See `SinkWriter.pre_commit`."""
        with self._declining("preparing"):
            self._flush()
            if self._session is None or self._xid is None:
                return None
            self._prepare(self._session, self._xid)
        failpoint("C05")
        end_quietly(self._session)
        self._session = None
        return Committable(
            self._transaction,
            self._subtask,
            target=self._shared.target,
            rows=self._loaded_rows,
            handle={"gtrid": self._xid.gtrid, "bqual": self._xid.bqual},
        )

    def abort(self) -> None:
        """See `SinkWriter.abort`."""
        self._waiting = []
        self._drop()

    def _marked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with the column that names their checkpoint, if there is one."""
        column = self._shared.plan.checkpoint_column
        if column is None:
            return batch
        values = pa.repeat(value_of(self._transaction), batch.num_rows)
        return batch.append_column(column, values)

    def _pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Split a batch too large for one statement, by the average size of its rows."""
        row_bytes = max(batch.nbytes // max(batch.num_rows, 1), 1)
        step = max(min(self._shared.load_rows, self._shared.load_bytes // row_bytes), 1)
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)

    def _flush(self) -> None:
        if not self._waiting:
            return
        if self._session is None:
            self._begin()
        session, shared = self._in_branch(), self._shared
        wait_s, plan = shared.endpoint.io_timeout_s / 2, shared.plan
        self._waiting = in_order(self._waiting, plan.key_order)
        with turn(session, shared.target, wait_s) if plan.takes_turns else nullcontext():
            plan.loader.load(session, self._waiting)
        first = self._loaded_rows == 0
        self._loaded_rows += self._waiting_rows
        self._waiting = []
        self._waiting_rows = self._waiting_bytes = 0
        if first:
            failpoint("E01")

    def _begin(self) -> None:
        shared, transaction = self._shared, self._transaction
        self._session = session = open_writer_session(
            shared.endpoint, local_infile=shared.local_infile
        )
        xid = Xid.of(shared.owner, transaction, self._subtask, session.id)
        SessionLocks(shared.owner).take(session, xid, first=self._subtask.index)
        session.run(f"XA START {xid.sql}")
        self._xid = xid
        job, sink, attempt = transaction.job, transaction.sink, transaction.attempt
        fence = shared.metadata.read_fence(session, job, sink, shared=True)
        if attempt.is_closed_by(fence):
            raise attempt_is_closed(job, sink, attempt, shared.target, fence)
        self._check_table(session)

    def _check_table(self, session: Session) -> None:
        """Decline if the rows were planned by another table than the branch writes to."""
        planned = self._shared.plan.table
        now = read_table_locked(session, planned)
        changes = ["it is gone"] if now is None else [*planned.changes(now)]
        if changes:
            raise DeclinedError(
                f"{self._transaction}: {planned.sql} was altered while the job runs: "
                f"{'; '.join(changes)}.",
                remedy="the next attempt is planned by the table as it is now, or refused by name.",
            )

    def _in_branch(self) -> Session:
        """Return the session, if the server still has our branch open on it (H39)."""
        if self._session is None or not self._session.in_transaction():
            raise DeclinedError(
                f"{self._transaction}: the session is no longer inside the branch {self._xid}."
            )
        if not self._session.is_alive():
            raise DeclinedError(
                f"{self._transaction}: the server gave no sign of life after a pause in the branch "
                f"{self._xid}.",
                remedy="find out what ends or forgets idle connections between the executors and "
                "the server (a proxy, a firewall), and have it wait longer.",
            )
        return self._session

    def _prepare(self, session: Session, xid: Xid) -> None:
        self._in_branch()
        self._shared.metadata.write_ledger(
            session, self._transaction, self._subtask, self._loaded_rows
        )
        # Without a branch this answers 1399, so rows that went elsewhere are never taken
        # for prepared (H39).
        session.run(f"XA END {xid.sql}")
        failpoint("C04")
        # A lost reply (H3) declines the attempt: the coordinator finds the branch in
        # doubt and aborts it.
        session.run(f"XA PREPARE {xid.sql}")

    @contextmanager
    def _declining(self, doing: str) -> Iterator[None]:
        """End the branch after an error: a retried statement would commit some rows (H7)."""
        try:
            yield
        except TargetUnreachableError as error:
            self._drop()
            raise DeclinedError(f"{self._transaction}: {error.what}", remedy=error.remedy) from None
        except TwoPhaseError:
            self._drop()
            raise
        except SecurityError as error:
            self._drop()
            raise hostile(error) from None
        except pymysql.Error as error:
            waited = self._waiting if code_of(error) in _MAY_HAVE_WAITED else []
            left = self._xid if self._session else None
            self._drop()
            declined = _decline(self._transaction, doing, error, self._shared.plan.table)
            if left and waited:
                declined = self._explain_wait(left, waited, declined)
            raise declined from None

    def _explain_wait(
        self, left: Xid, waited: Sequence[pa.RecordBatch], declined: DeclinedError
    ) -> DeclinedError:
        """Return the error for rows that wait for another task of the attempt, if they do.

        Args:
            left: our branch, whose session may go on waiting when we have left it. Behind a restart
                of the server somebody else's may have its number.
            waited: the rows.
            declined: the error that the rows have met.
        """
        shared, plan = self._shared, self._shared.plan
        conflicts = LockConflicts(
            plan.table, plan.loader.plans, shared.owner, shared.metadata, plan.checkpoint_column
        )
        try:
            with closing(DriverLink(shared.endpoint)) as link, link.session() as session:
                deadline = time.monotonic() + _LEAVING_S
                rest = wait_until_left(session, {left}, deadline, killing=True)
                numbers = {xid.session for xid in rest}
                return conflicts.find(
                    session, self._transaction, self._subtask, waited, numbers, declined
                )
        except TargetUnreachableError:  # the error that the rows have met says it
            return declined

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None and session.open and self._xid is not None:
            # XA END answers 1399 after a deadlock; XA ROLLBACK helps all the same (H8).
            with suppress(pymysql.Error):
                session.run(f"XA END {self._xid.sql}")
            with suppress(pymysql.Error):
                session.run(f"XA ROLLBACK {self._xid.sql}")
        end_quietly(session)


def _decline(
    transaction: TransactionId, doing: str, error: pymysql.Error, table: Table
) -> DeclinedError:
    code = code_of(error)
    what = f"{transaction}: {doing} failed: {shown(error.args[-1])} ({code})."
    if is_data_fault(error):
        return RejectedRowsError(what, remedy=remedy_of({code}, table.sql))
    remedies = {
        LOCK_WAIT_TIMEOUT: "find who holds the rows or the table: a task of the same checkpoint "
        "with the same keys, a trigger that writes to one row for all tasks, another writer, or "
        "DDL.",
        DEADLOCK: "look which transactions have met (SHOW ENGINE INNODB STATUS, LATEST DETECTED "
        "DEADLOCK): keep other writers off these rows, or, if they are tasks of this job, have one "
        "task write all rows (coalesce(1) before the sink).",
        **dict.fromkeys(
            LOCAL_FORBIDDEN,
            "the next attempt takes INSERT, or is refused by name (local_infile).",
        ),
        NO_NUMBER: f"if the server has given its last number, {LARGER_TYPE} Otherwise find who "
        "inserts into the table: the counter is locked.",
    }
    return DeclinedError(
        what,
        remedy=remedies.get(
            code, "change what the message names, or look for the cause in the server's log."
        ),
        fingerprint=fingerprint_of_reply(error),
    )
