"""The simulated servers do what the real ones were measured to do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pymysql
import pytest

from twophase.ids import Attempt, Subtask, TransactionId
from twophase.sinks.mysql.client.session_exit import wait_until_left
from twophase.sinks.mysql.client.session_settings import _settle
from twophase.sinks.mysql.options import Endpoint, Replaceable, Tls
from twophase.sinks.mysql.xid import Owner, Xid
from verification.simulation.branches import ServerSession
from verification.simulation.catalogue import Catalogue
from verification.simulation.client import Line, SimulatedSession
from verification.simulation.dialects import DIALECTS, Dialect
from verification.simulation.loads import Loads
from verification.simulation.options import Options
from verification.simulation.scheduler import Process, Scheduler
from verification.simulation.server import Hooks, Server
from verification.simulation.statements import Statements, UnknownStatementError
from verification.simulation.world import World

OLD = ["mysql-8.0.12", "mariadb-10.11"]
XID = "'g','b',1"
ENDPOINT = Endpoint("db", 3306, "app", "shop", Replaceable(""), Tls.OFF)
LINGERING_S = 0.01
FENCE = "SELECT generation, counter FROM `shop`.`twophase_fence` WHERE job = %s AND sink = %s"
RAISE = (
    "INSERT INTO `shop`.`twophase_fence` (job, sink, generation, counter) VALUES (%s, %s, %s, %s)"
    " ON DUPLICATE KEY UPDATE counter = IF(generation < VALUES(generation)"
    " OR (generation = VALUES(generation) AND counter < VALUES(counter)), "
    "VALUES(counter), counter),"
    " generation = GREATEST(generation, VALUES(generation))"
)


class Bench:
    """One server, and somebody who talks to it."""

    def __init__(
        self, name: str, dialect: Dialect | None = None, lingering_s: float = LINGERING_S
    ) -> None:
        dialect = dialect or DIALECTS[name]
        self.scheduler = Scheduler(Random(1), 0.0, 10_000)
        hooks = Hooks(*[lambda branch: None] * 5)
        self.server = Server("db", dialect, self.scheduler, hooks, lingering_s)
        catalogue = Catalogue(dialect, "db", keyed=True, local_infile=True)
        statements = Statements(self.server, catalogue, Loads(self.server, keyed=True))
        self.line = Line(self.server, statements, self.scheduler, lambda server, sql: None)

    def run(self, work: Callable[[], object]) -> None:
        task = self.scheduler.spawn(Process("client"), "client", work)
        self.scheduler.run()
        if task.error is not None:
            raise task.error

    def session(self, *, autocommit: bool = True) -> SimulatedSession:
        session = SimulatedSession(self.line)
        _settle(session, ENDPOINT, autocommit=autocommit, lock_wait_s=1)  # type: ignore[arg-type]
        return session

    def branch(self, row: int = 1) -> SimulatedSession:
        """A session with an open branch that holds one row."""
        session = self.session(autocommit=False)
        session.run(f"XA START {XID}")
        insert(session, row)
        return session

    def prepared(self) -> SimulatedSession:
        session = self.branch()
        session.run(f"XA END {XID}")
        session.run(f"XA PREPARE {XID}")
        return session

    def rows(self) -> list[object]:
        return sorted(self.server.engine.table("orders"))

    def listed(self) -> list[str]:
        return [branch.xid for branch in self.server.recover()]


def insert(session: SimulatedSession, *rows: int) -> None:
    values = ",".join(f"(0,{row})" for row in rows)
    session.run(f"INSERT INTO `shop`.`orders` (`checkpoint`, `id`) VALUES {values}")


def fails(code: int, work: Callable[[], object]) -> None:
    with pytest.raises(pymysql.Error) as caught:
        work()
    assert caught.value.args[0] == code


@pytest.fixture(params=list(DIALECTS))
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def test_a_branch_is_committed_by_another_session_once_its_own_has_ended(bench: Bench) -> None:
    def work() -> None:
        bench.prepared().end()
        other = bench.session()
        bench.scheduler.sleep(1)
        assert bench.listed() == [XID]
        assert bench.rows() == []
        other.run(f"XA COMMIT {XID}")
        assert bench.rows() == [1]
        fails(1397, lambda: other.run(f"XA COMMIT {XID}"))

    bench.run(work)


@pytest.mark.parametrize("dialect", list(DIALECTS))
def test_while_the_session_that_prepared_lives_the_older_servers_know_no_such_branch(
    dialect: str,
) -> None:
    bench = Bench(dialect)

    def work() -> None:
        bench.prepared()
        other = bench.session()
        assert bench.listed() == [XID]
        if dialect in OLD:
            fails(1397, lambda: other.run(f"XA COMMIT {XID}"))
        else:
            other.run(f"XA COMMIT {XID}")
            assert bench.rows() == [1]

    bench.run(work)


@pytest.mark.parametrize("verb", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("dialect", OLD)
def test_a_branch_that_is_asked_for_too_early_is_in_limbo_until_a_restart(
    dialect: str, verb: str
) -> None:
    bench = Bench(dialect)

    def work() -> None:
        bench.prepared().end()
        branch = bench.server.branches[XID]
        other = bench.session()
        bench.scheduler.wait_until(lambda: branch.handed_over, bench.scheduler.now_s + 1)
        assert branch.session is not None
        other.run(f"XA {verb} {XID}")
        bench.scheduler.sleep(1)
        assert bench.listed() == bench.rows() == []
        fails(1397, lambda: other.run(f"XA COMMIT {XID}"))
        fails(1205, lambda: insert(_started(bench, "'g','c',1"), 1))
        bench.server.crash()
        assert bench.listed() == [XID]

    bench.run(work)


def _started(bench: Bench, xid: str) -> SimulatedSession:
    session = bench.session(autocommit=False)
    session.run(f"XA START {xid}")
    return session


@pytest.mark.parametrize("dialect", list(DIALECTS))
def test_mariadb_lets_go_of_a_shared_lock_at_prepare_and_mysql_does_not(dialect: str) -> None:
    bench = Bench(dialect)

    def work() -> None:
        driver = bench.session()
        driver.run(RAISE, ("job", "sink", 1, 0))
        session = _started(bench, XID)
        assert session.rows(f"{FENCE} LOCK IN SHARE MODE", ("job", "sink")) == [(1, 0)]
        fails(1205, lambda: driver.run(RAISE, ("job", "sink", 2, 0)))
        insert(session, 1)
        session.run(f"XA END {XID}")
        session.run(f"XA PREPARE {XID}")
        if dialect.startswith("mariadb"):
            driver.run(RAISE, ("job", "sink", 2, 0))
            assert driver.rows(FENCE, ("job", "sink")) == [(2, 0)]
        else:
            fails(1205, lambda: driver.run(RAISE, ("job", "sink", 2, 0)))

    bench.run(work)


def test_a_lock_wait_rolls_back_the_statement_and_not_the_branch(bench: Bench) -> None:
    def work() -> None:
        bench.branch(row=5)
        session = _started(bench, "'g','c',1")
        insert(session, 1)
        fails(1205, lambda: insert(session, 2, 5))
        session.run("XA END 'g','c',1")
        session.run("XA PREPARE 'g','c',1")
        session.end()
        bench.scheduler.sleep(1)
        bench.session().run("XA COMMIT 'g','c',1")
        assert bench.rows() == [1]

    bench.run(work)


def test_after_a_deadlock_only_xa_rollback_helps(bench: Bench) -> None:
    def work() -> None:
        session = bench.branch()
        bench.server.end_branch(next(iter(bench.server.sessions.values())))
        fails(1399, lambda: session.run(f"XA END {XID}"))
        session.run(f"XA ROLLBACK {XID}")
        assert not bench.server.branches

    bench.run(work)


def test_an_empty_branch_cannot_be_committed_after_its_session(bench: Bench) -> None:
    def work() -> None:
        session = _started(bench, XID)
        session.run(f"XA END {XID}")
        session.run(f"XA PREPARE {XID}")
        session.end()
        bench.scheduler.sleep(1)
        fails(1402, lambda: bench.session().run(f"XA COMMIT {XID}"))

    bench.run(work)


def test_an_xid_that_is_prepared_cannot_be_used_again(bench: Bench) -> None:
    def work() -> None:
        bench.prepared()
        fails(1440, lambda: _started(bench, XID))

    bench.run(work)


def test_a_crash_keeps_what_is_prepared_and_nothing_else(bench: Bench) -> None:
    def work() -> None:
        bench.prepared()
        open_branch = _started(bench, "'g','c',1")
        insert(open_branch, 7)
        bench.server.crash()
        fails(2013, lambda: insert(open_branch, 8))
        assert bench.listed() == [XID]
        assert bench.rows() == []

    bench.run(work)


def test_load_data_skips_duplicates_with_a_warning_and_insert_fails(bench: Bench) -> None:
    def work() -> None:
        session = bench.branch(row=1)
        sql = (
            "LOAD DATA LOCAL INFILE {file} INTO TABLE `shop`.`orders` CHARACTER SET "
            "utf8mb4 (`checkpoint`, `id`)"
        )
        done = session.load(sql, [memoryview(b"0\t1\n0\t2\n")])
        assert (done.affected, done.warnings) == (1, 1)
        fails(1062, lambda: insert(session, 2))

    bench.run(work)


def test_a_statement_that_is_not_known_stops_the_run() -> None:
    bench = Bench("mysql-8.0.12")
    with pytest.raises(UnknownStatementError, match="SELECT 1"):
        bench.run(lambda: bench.session().rows("SELECT 1"))
    assert "does not know this statement: SELECT 1" in bench.scheduler.failure


SLOW_MARIADB = Dialect(
    "10.11.19-MariaDB",
    keeps_shared_locks=False,
    forgets_early=True,
    forgotten_s=0.5,
    shows_transactions=True,
)


@pytest.mark.parametrize(
    "bench",
    [Bench("mysql-8.0.12"), Bench("mariadb-10.11"), Bench("db", SLOW_MARIADB, lingering_s=0.5)],
    ids=["mysql-8.0.12", "mariadb-10.11", "slow mariadb"],
)
def test_no_branch_is_asked_for_before_the_engine_has_let_go_of_it(bench: Bench) -> None:
    """A session is off the process list for a moment before that. Of the third server its list of
    transactions tells.
    """
    owner = Owner("books", "job", "sink")
    transaction = TransactionId(
        "job", "6a1f5bd0-3c53-4d0c-9d53-2f4b8d1c0a11", 0, Attempt(1, 1), "sink", "0" * 64
    )

    def work() -> None:
        for task in range(50):
            writer = bench.session(autocommit=False)
            xid = Xid.of(owner, transaction, Subtask(0, task), writer.id)
            writer.run(f"XA START {xid.sql}")
            insert(writer, task)
            writer.run(f"XA END {xid.sql}")
            writer.run(f"XA PREPARE {xid.sql}")
            driver, ended = bench.session(), bench.server.sessions[xid.session]
            writer.end()
            bench.scheduler.wait_until(partial(_is_off_the_list, ended), None)
            assert not wait_until_left(driver, [xid], bench.scheduler.now_s + 2, killing=False)  # type: ignore[arg-type]
            assert bench.server.branches[xid.sql].session is None

    with World(Options.of(0)).entered(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("twophase.sinks.mysql.client.session_exit.time", _Time(bench.scheduler))
        bench.run(work)


def test_a_number_of_the_driver_s_own_session_is_that_of_one_before_a_restart_of_the_server() -> (
    None
):
    bench = Bench("db", SLOW_MARIADB)
    transaction = TransactionId(
        "job", "6a1f5bd0-3c53-4d0c-9d53-2f4b8d1c0a11", 0, Attempt(1, 1), "sink", "0" * 64
    )

    def work() -> None:
        driver = bench.session()
        xid = Xid.of(Owner("books", "job", "sink"), transaction, Subtask(0, 0), driver.id)
        assert not wait_until_left(driver, [xid], bench.scheduler.now_s + 2, killing=False)  # type: ignore[arg-type]

    with World(Options.of(0)).entered(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("twophase.sinks.mysql.client.session_exit.time", _Time(bench.scheduler))
        bench.run(work)


def _is_off_the_list(session: ServerSession) -> bool:
    return not session.listed


class _Time:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.sleep = scheduler.sleep

    def monotonic(self) -> float:
        return self._scheduler.now_s
