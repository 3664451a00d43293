"""A session as the sink sees it: stands for `twophase.sinks.mysql.client.session.Session`, between
the sink and a simulated server.

Here the network fails: a connection is refused, or breaks before or after the server has
carried a statement out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import pymysql

from twophase.sinks.mysql.client.session import Done
from verification.simulation.dialects import DEADLOCK, ServerError, SessionEndedError
from verification.simulation.scheduler import Process, Scheduler
from verification.simulation.server import Server
from verification.simulation.statements import Reply, Statements, UnknownStatementError

_LATENCY_S = 0.000_2
_CONNECTING_S = 0.001
_LOST, _REFUSED = 2013, 2003
_IDLE_S = 30.0


class Broken(Enum):
    """When a connection breaks."""

    BEFORE = auto()
    AFTER = auto()


@dataclass(frozen=True)
class NetworkFault:
    """What goes wrong with a statement or a connection attempt.

    Attributes:
        broken: the connection breaks, before or after the statement is carried out.
        code: or the server answers with this error number, and does nothing.
        notice_s: how long the server takes to notice that the connection is gone.
    """

    broken: Broken | None = None
    code: int = 0
    notice_s: float = 0.0


@dataclass(frozen=True)
class Line:
    """The way to one server.

    Attributes:
        server: the server.
        statements: what it understands.
        scheduler: whose turn it is.
        fault: decides what goes wrong with a statement; an empty text is a connection attempt.
    """

    server: Server
    statements: Statements
    scheduler: Scheduler
    fault: Callable[[Server, str], NetworkFault | None]


class SimulatedSession:
    """One session. Belongs to the process that opens it, and ends with it.

    Args:
        line: the way to the server.
    """

    def __init__(self, line: Line) -> None:
        self._line = line
        self._process: Process = line.scheduler.current.process
        line.scheduler.step(f"{line.server.name} connect", _CONNECTING_S)
        fault = line.fault(line.server, "")
        if not line.server.up or fault is not None:
            raise pymysql.OperationalError(
                _REFUSED if fault is None else fault.code, "no connection"
            )
        self._session = line.server.connect()
        self._in_transaction = False
        self._used_s = line.scheduler.now_s
        self.open = True
        self._process.on_death.append(self._hang_up)

    @property
    def server_version(self) -> str:
        return self._line.server.dialect.version

    @property
    def is_mariadb(self) -> bool:
        return "mariadb" in self.server_version.lower()

    @property
    def id(self) -> int:
        return self._session.number

    def run(self, sql: str, arguments: Sequence[object] = ()) -> Done:
        reply = self._ask(sql, lambda: self._line.statements.run(self._session, sql, arguments))
        return Done(reply.affected, reply.warnings)

    def rows(self, sql: str, arguments: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._ask(sql, lambda: self._line.statements.run(self._session, sql, arguments)).rows

    raw_rows = rows

    def run_bytes(self, sql: bytes) -> Done:
        return self.run(sql.decode())

    def load(self, sql: str, chunks: Iterable[memoryview]) -> Done:
        text = sql.replace("{file}", "'file'", 1)
        data = b"".join(bytes(chunk) for chunk in chunks)
        reply = self._ask(
            "LOAD DATA", lambda: self._line.statements.load(self._session, text, data)
        )
        return Done(reply.affected, reply.warnings)

    def in_transaction(self) -> bool:
        return self._in_transaction

    def begin(self) -> None:
        self.run("BEGIN")

    def commit(self) -> None:
        self.run("COMMIT")

    def rollback(self) -> None:
        self.run("ROLLBACK")

    def is_alive(self) -> bool:
        now_s = self._line.scheduler.now_s
        idle_s, self._used_s = now_s - self._used_s, now_s
        if not self.open or idle_s < _IDLE_S:
            return self.open
        try:
            self._ask("ping", Reply)
        except pymysql.Error:
            return False
        return True

    def end(self) -> None:
        if self.open:
            self._line.scheduler.step(f"{self._line.server.name} close", _LATENCY_S)
            self._hang_up()

    def _ask(self, sql: str, carry_out: Callable[[], Reply]) -> Reply:
        line = self._line
        line.scheduler.step(f"{line.server.name} {sql}", _LATENCY_S)
        if not self.open:
            raise pymysql.InterfaceError(0, "the session is closed")
        fault = line.fault(line.server, sql)
        if self._session.ended or (fault is not None and fault.broken is Broken.BEFORE):
            raise self._break(fault)
        if fault is not None and fault.code:
            if fault.code == DEADLOCK:
                line.server.end_branch(self._session)
            raise pymysql.OperationalError(fault.code, "an error of the server")
        self._session.hung_up = fault is not None
        try:
            reply = carry_out()
        except ServerError as error:
            raise pymysql.OperationalError(error.code, "an error of the server") from None
        except SessionEndedError:
            raise self._break(fault) from None
        except UnknownStatementError:
            line.scheduler.stop(f"the simulated server does not know this statement: {sql}")
            raise
        if fault is not None:
            raise self._break(fault)
        self._in_transaction = self._session.in_transaction
        return reply

    def _break(self, fault: NetworkFault | None) -> pymysql.Error:
        self._hang_up(fault.notice_s if fault is not None else 0.0)
        return pymysql.OperationalError(_LOST, "Lost connection to server during query")

    def _hang_up(self, notice_s: float = 0.0) -> None:
        if self.open:
            self.open = False
            self._line.server.leave(self._session, notice_s)
