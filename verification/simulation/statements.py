"""The SQL that the sink sends, and nothing else: a statement that is not known here stops the run.

Texts are compared whole, as `sinks/mysql` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from verification.simulation.branches import ServerSession
from verification.simulation.catalogue import Catalogue, Rows
from verification.simulation.dialects import (
    ACCESS_DENIED,
    DUPLICATE_ENTRY,
    UNKNOWN_THREAD,
    ServerError,
)
from verification.simulation.engine import Transaction
from verification.simulation.loads import Loads
from verification.simulation.server import Server

_BOOKS = "`shop`.`twophase_"
_TABLES = ("schema", "fence", "ledger", "high_water", "rewind", "target")
_SCHEMA, _FENCE, _LEDGER, _MARK, _REWIND, _TARGET = (f"{_BOOKS}{name}`" for name in _TABLES)
_KEY = (
    "job = %s AND sink = %s AND lineage = %s AND checkpoint = %s"
    " AND generation = %s AND counter = %s AND subtask = %s AND task_attempt = %s"
)
_KEY_COLUMNS = "job, sink, lineage, checkpoint, generation, counter, subtask, task_attempt"
_COLLAPSED = "job = %s AND sink = %s AND lineage = %s AND checkpoint <= %s"
_SETTINGS = re.compile(
    r"SET SESSION autocommit = (\d), sql_mode = CONCAT_WS\(',', '([^']*)', .*"
    r" time_zone = '([^']*)', .* innodb_lock_wait_timeout = (\d+), .*"
)
_ANY_ROW = re.compile(r"SELECT 1 FROM `shop`\.`(\w+)` LIMIT 1")
_FENCE_READ = f"SELECT generation, counter FROM {_FENCE} WHERE job = %s AND sink = %s"
_LEDGER_READ = f"SELECT row_count FROM {_LEDGER} WHERE {_KEY}"
_FENCE_RAISE = (
    f"INSERT INTO {_FENCE} (job, sink, generation, counter) VALUES (%s, %s, %s, %s)"
    " ON DUPLICATE KEY UPDATE counter = IF(generation < VALUES(generation)"
    " OR (generation = VALUES(generation) AND counter < VALUES(counter)),"
    " VALUES(counter), counter), generation = GREATEST(generation, VALUES(generation))"
)
_LEDGER_WRITE = (
    f"INSERT INTO {_LEDGER} (job, sink, lineage, checkpoint, generation, counter, subtask,"
    " task_attempt, row_count, offsets_hash) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"
)
_LEDGER_WAIT = (
    f"SELECT checkpoint FROM {_LEDGER} FORCE INDEX (PRIMARY) WHERE job = %s AND sink = %s "
    "LOCK IN SHARE MODE"
)
_LEDGER_HIGHEST = f"SELECT MAX(checkpoint) FROM {_LEDGER} WHERE {_COLLAPSED}"
_LEDGER_COLLAPSED = f"SELECT {_KEY_COLUMNS} FROM {_LEDGER} WHERE {_COLLAPSED} LIMIT 1000"
_LEDGER_OF_CHECKPOINT = (
    f"SELECT generation, counter, subtask, task_attempt FROM {_LEDGER}"
    " WHERE job = %s AND sink = %s AND lineage = %s AND checkpoint = %s"
)
_MARK_READ = f"SELECT checkpoint FROM {_MARK} WHERE job = %s AND sink = %s AND lineage = %s"
_MARK_RAISE = (
    f"INSERT INTO {_MARK} (job, sink, lineage, checkpoint) VALUES (%s, %s, %s, %s)"
    " ON DUPLICATE KEY UPDATE checkpoint = GREATEST(checkpoint, VALUES(checkpoint))"
)
_REWIND_READ = f"SELECT lineage, checkpoint FROM {_REWIND} WHERE job = %s AND sink = %s"
_IS_COMMITTED = (
    f"SELECT EXISTS (SELECT 1 FROM {_LEDGER}"
    " WHERE job = %s AND sink = %s AND lineage = %s AND checkpoint = %s)"
    f" OR EXISTS (SELECT 1 FROM {_MARK}"
    " WHERE job = %s AND sink = %s AND lineage = %s AND checkpoint >= %s)"
)
_COMMITTED = (
    "SELECT lineage, MAX(checkpoint) FROM ("
    f" SELECT lineage, checkpoint FROM {_LEDGER} WHERE job = %s AND sink = %s UNION ALL"
    f" SELECT lineage, checkpoint FROM {_MARK} WHERE job = %s AND sink = %s"
    ") proof GROUP BY lineage"
)
_TARGET_READ = (
    f"SELECT table_schema_name, table_name, created FROM {_TARGET} WHERE job = %s AND sink = %s"
)
_TARGET_WRITE = (
    f"INSERT INTO {_TARGET} (job, sink, table_schema_name, table_name, created)"
    " VALUES ('', '', %s, '', ''), (%s, %s, %s, %s, %s) ON DUPLICATE KEY UPDATE"
    " table_schema_name = VALUES(table_schema_name), table_name = VALUES(table_name),"
    " created = VALUES(created)"
)
_SCHEMA_WRITE = f"INSERT INTO {_SCHEMA} (one, id) VALUES (1, %s) ON DUPLICATE KEY UPDATE one = one"
_SCHEMA_CHECKED = (
    f"SELECT id, (SELECT table_schema_name FROM {_TARGET} WHERE job = '' AND sink = '')"
    f" FROM {_SCHEMA}"
)
_SESSION_READ = (
    "SELECT CONNECTION_ID(), @@sql_mode, @@autocommit, @@innodb_lock_wait_timeout, @@time_zone"
)
_PRESENT = "SELECT ID FROM information_schema.PROCESSLIST WHERE ID IN %s AND ID <> CONNECTION_ID()"
_TRANSACTIONS = (
    "SELECT trx_mysql_thread_id, COALESCE(trx_query, '') LIKE %s FROM information_schema.INNODB_TRX"
)
_WARNING = ("Warning", DUPLICATE_ENTRY, "Duplicate entry for key 'PRIMARY' at row 1")

Arguments = Sequence[Any]


class UnknownStatementError(Exception):
    """The simulated server was asked for what it does not know."""


@dataclass(frozen=True)
class Reply:
    """What the server answers."""

    rows: Rows = field(default_factory=list)
    affected: int = 0
    warnings: int = 0


_OK = Reply(affected=1)
Handler = Callable[[ServerSession, Arguments], Reply]


def _settled(session: ServerSession, arguments: Arguments) -> Reply:
    return _OK


class Statements:
    """Carries statements out on a server.

    Args:
        server: the server.
        catalogue: what it says of itself.
        loads: how it stores rows.
    """

    def __init__(self, server: Server, catalogue: Catalogue, loads: Loads) -> None:
        self._server = server
        self._engine = server.engine
        self._catalogue = catalogue
        self._loads = loads
        self._whole = self._known_texts()

    def run(self, session: ServerSession, sql: str, arguments: Arguments) -> Reply:
        """Carry one out; blocks while it waits for a lock."""
        handler = self._whole.get(sql)
        if handler is not None:
            return handler(session, arguments)
        if sql.startswith("XA "):
            return self._xa(session, sql)
        if sql.startswith("SELECT IS_USED_LOCK('"):
            return Reply([tuple(self._holder(name) for name in sql.split("'")[1::2])])
        if sql.startswith("KILL QUERY "):
            self._find(int(sql.removeprefix("KILL QUERY ")))
            return _OK
        if sql.startswith("KILL "):
            self._server.leave(self._find(int(sql.removeprefix("KILL "))))
            return _OK
        if settings := _SETTINGS.fullmatch(sql):
            session.autocommit, session.sql_mode = settings[1] == "1", settings[2]
            session.time_zone, session.lock_wait_s = settings[3], float(settings[4])
            return _OK
        if found := _ANY_ROW.fullmatch(sql):
            return Reply([(1,)] if self._engine.table(found[1]) else [])
        if (
            sql.startswith("INSERT INTO `shop`.`")
            and (stored := self._loads.insert(session, sql)) is not None
        ):
            return Reply(affected=stored)
        rows = self._catalogue.answer(sql, arguments)
        if rows is None:
            rows = self._loads.read_back(session, sql, arguments)
        if rows is None:
            raise UnknownStatementError(sql)
        return Reply(rows)

    def load(self, session: ServerSession, sql: str, data: bytes) -> Reply:
        """LOAD DATA LOCAL with the bytes of its file."""
        stored = self._loads.load(session, sql, data)
        if stored is None:
            raise UnknownStatementError(sql)
        return Reply(affected=stored, warnings=self._loads.warnings)

    def _known_texts(self) -> dict[str, Handler]:
        return {
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE": _settled,
            # uncommitted rows are not simulated: no conflict is found
            "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED": _settled,
            _SESSION_READ: self._settings,
            "SELECT @@character_set_filesystem": lambda *_: Reply([("binary",)]),
            "SHOW WARNINGS LIMIT 5": lambda session, _: Reply(
                [_WARNING] * min(self._loads.warnings, 5)
            ),
            "SELECT GET_LOCK(%s, 0)": self._get_lock,
            "SELECT IS_USED_LOCK(%s)": lambda session, asked: Reply([(self._holder(asked[0]),)]),
            _PRESENT: self._listed,
            "SELECT 1 FROM information_schema.INNODB_TRX LIMIT 1": self._transactions,
            _TRANSACTIONS: self._transactions,
            "START TRANSACTION WITH CONSISTENT SNAPSHOT": self._begin,
            "BEGIN": self._begin,
            "COMMIT AND NO CHAIN NO RELEASE": _settled,
            "COMMIT": self._commit,
            "ROLLBACK": self._roll_back,
            f"SELECT id FROM {_SCHEMA}": lambda session, _: Reply(
                list(self._engine.table("schema").values())
            ),
            _SCHEMA_CHECKED: lambda session, _: Reply(
                [(*row, "shop") for row in self._engine.table("schema").values()]
            ),
            _SCHEMA_WRITE: lambda session, new: self._write(
                session, "schema", 1, self._engine.table("schema").get(1, (new[0],))
            ),
            _FENCE_READ: lambda session, asked: self._read("fence", asked),
            f"{_FENCE_READ} LOCK IN SHARE MODE": self._read_fence_shared,
            _FENCE_RAISE: self._raise_fence,
            _LEDGER_READ: lambda session, asked: self._read("ledger", asked),
            f"{_LEDGER_READ} FOR UPDATE": self._read_ledger_locked,
            _LEDGER_WRITE: self._write_ledger,
            _LEDGER_WAIT: self._wait_for_ledger,
            _LEDGER_HIGHEST: self._highest_row,
            _LEDGER_COLLAPSED: self._collapsed,
            f"DELETE FROM {_LEDGER} WHERE {_KEY}": lambda session, key: self._write(
                session, "ledger", tuple(key), None
            ),
            _MARK_READ: lambda session, asked: self._read("high_water", asked),
            _REWIND_READ: self._half_rewound,
            _IS_COMMITTED: self._has_checkpoint,
            _LEDGER_OF_CHECKPOINT: self._ledger_of,
            _TARGET_READ: lambda session, asked: self._read("target", asked),
            _TARGET_WRITE: lambda session, new: self._write(
                session, "target", tuple(new[1:3]), tuple(new[3:])
            ),
            _COMMITTED: self._committed,
            _MARK_RAISE: self._raise_mark,
        }

    # -- sessions ----------------------------------------------------------------------------------

    @staticmethod
    def _settings(session: ServerSession, asked: Arguments) -> Reply:
        return Reply(
            [
                (
                    session.number,
                    session.sql_mode,
                    int(session.autocommit),
                    int(session.lock_wait_s),
                    session.time_zone,
                )
            ]
        )

    def _get_lock(self, session: ServerSession, asked: Arguments) -> Reply:
        return Reply([(int(self._server.user_locks.setdefault(asked[0], session) is session),)])

    def _holder(self, name: str) -> int | None:
        holder = self._server.user_locks.get(name)
        return None if holder is None else holder.number

    def _listed(self, session: ServerSession, asked: Arguments) -> Reply:
        sessions = self._server.sessions
        others = [number for number in asked[0] if number != session.number]
        return Reply(
            [(number,) for number in others if number in sessions and sessions[number].listed]
        )

    def _find(self, number: int) -> ServerSession:
        """A session as KILL finds it."""
        session = self._server.sessions.get(number)
        if session is None or (self._server.dialect.forgets_early and not session.listed):
            raise ServerError(UNKNOWN_THREAD)
        return session

    def _transactions(self, session: ServerSession, asked: Arguments) -> Reply:
        if not self._server.dialect.shows_transactions:
            raise ServerError(ACCESS_DENIED)
        wanted = asked[0].strip("%") if asked else ""
        listed = self._server.transactions(session, wanted)
        return Reply([(number, query == wanted) for number, query in listed])

    # -- transactions ------------------------------------------------------------------------------

    def _begin(self, session: ServerSession, asked: Arguments) -> Reply:
        session.transaction = Transaction()
        return _OK

    def _commit(self, session: ServerSession, asked: Arguments) -> Reply:
        if session.transaction is not None:
            self._engine.commit(session.transaction)
            session.transaction = None
        return _OK

    def _roll_back(self, session: ServerSession, asked: Arguments) -> Reply:
        if session.transaction is not None:
            self._engine.roll_back(session.transaction)
            session.transaction = None
        return _OK

    def _xa(self, session: ServerSession, sql: str) -> Reply:
        server = self._server
        if sql == "XA RECOVER":
            return Reply([_recovered(branch.xid) for branch in server.recover()])
        _, verb, xid = sql.split(" ", 2)
        verbs = {
            "START": server.xa_start,
            "END": server.xa_end,
            "PREPARE": server.xa_prepare,
            "COMMIT": server.xa_commit,
            "ROLLBACK": server.xa_rollback,
        }
        verbs[verb](session, xid)
        return _OK

    # -- the books ---------------------------------------------------------------------------------

    def _read(self, table: str, key: Arguments) -> Reply:
        found = self._engine.table(table).get(tuple(key))
        return Reply([] if found is None else [found])

    def _write(self, session: ServerSession, table: str, key: Any, value: Any) -> Reply:
        """Write one row, in the session's transaction if it has one."""
        transaction = self._server.wait_for_lock(session, (table, key), exclusive=True)
        transaction.changes.append(((table, key), value))
        if transaction in (session.branch, session.transaction):
            self._engine.lock(transaction, (table, key), exclusive=True)
        else:
            self._engine.commit(transaction)
        return _OK

    def _read_fence_shared(self, session: ServerSession, asked: Arguments) -> Reply:
        row = ("fence", tuple(asked))
        transaction = self._server.wait_for_lock(session, row, exclusive=False)
        if transaction in (session.branch, session.transaction) and row[1] in self._engine.table(
            "fence"
        ):
            self._engine.lock(transaction, row, exclusive=False)
        return self._read("fence", asked)

    def _raise_fence(self, session: ServerSession, asked: Arguments) -> Reply:
        key, attempt = tuple(asked[:2]), tuple(asked[2:])
        self._server.wait_for_lock(session, ("fence", key), exclusive=True)
        return self._write(
            session, "fence", key, max(attempt, self._engine.table("fence").get(key, attempt))
        )

    def _read_ledger_locked(self, session: ServerSession, asked: Arguments) -> Reply:
        self._server.wait_for_lock(session, ("ledger", tuple(asked)), exclusive=True)
        return self._read("ledger", asked)

    def _wait_for_ledger(self, session: ServerSession, asked: Arguments) -> Reply:
        """One row after the other, as the engine scans the index."""
        for key in sorted(self._engine.locked("ledger")):
            if key[:2] == tuple(asked):
                self._server.wait_for_lock(session, ("ledger", key), exclusive=False)
        return Reply([(key[3],) for key in self._engine.table("ledger") if key[:2] == tuple(asked)])

    def _write_ledger(self, session: ServerSession, asked: Arguments) -> Reply:
        key = tuple(asked[:8])
        self._server.wait_for_lock(session, ("ledger", key), exclusive=True)
        if key in self._engine.table("ledger"):
            raise ServerError(DUPLICATE_ENTRY)
        return self._write(session, "ledger", key, (asked[8],))

    def _collapsed(self, session: ServerSession, asked: Arguments) -> Reply:
        keys = self._engine.table("ledger")
        return Reply([key for key in keys if key[:3] == tuple(asked[:3]) and key[3] <= asked[3]])

    def _highest_row(self, session: ServerSession, asked: Arguments) -> Reply:
        return Reply(
            [(max((key[3] for key in self._collapsed(session, asked).rows), default=None),)]
        )

    def _committed(self, session: ServerSession, asked: Arguments) -> Reply:
        proofs = [
            (key[2], key[3]) for key in self._engine.table("ledger") if key[:2] == tuple(asked[:2])
        ]
        marks = self._engine.table("high_water").items()
        proofs += [(key[2], mark[0]) for key, mark in marks if key[:2] == tuple(asked[:2])]
        lineages = dict.fromkeys(lineage for lineage, _ in proofs)
        return Reply(
            [
                (lineage, max(found for name, found in proofs if name == lineage))
                for lineage in lineages
            ]
        )

    def _half_rewound(self, session: ServerSession, asked: Arguments) -> Reply:
        marks = self._engine.table("rewind").items()
        return Reply([(key[2], mark) for key, (mark,) in marks if key[:2] == tuple(asked)])

    def _has_checkpoint(self, session: ServerSession, asked: Arguments) -> Reply:
        sought, checkpoint = tuple(asked[:3]), asked[3]
        row = any(key[:4] == (*sought, checkpoint) for key in self._engine.table("ledger"))
        (mark,) = self._engine.table("high_water").get(sought, (-1,))
        return Reply([(int(row or mark >= checkpoint),)])

    def _ledger_of(self, session: ServerSession, asked: Arguments) -> Reply:
        return Reply([key[4:] for key in self._engine.table("ledger") if key[:4] == tuple(asked)])

    def _raise_mark(self, session: ServerSession, asked: Arguments) -> Reply:
        key = tuple(asked[:3])
        self._server.wait_for_lock(session, ("high_water", key), exclusive=True)
        mark = max(asked[3], self._engine.table("high_water").get(key, (-1,))[0])
        return self._write(session, "high_water", key, (mark,))


def _recovered(xid: str) -> tuple[int, int, int, bytes]:
    gtrid, bqual, format_id = xid.split(",")
    parts = [part.strip("'").encode() for part in (gtrid, bqual)]
    return int(format_id), len(parts[0]), len(parts[1]), b"".join(parts)
