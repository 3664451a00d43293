"""No branch is asked for before the engine has let go of it, however slowly its session ends
(docs/decisions/0010).

The thread of each session that has prepared a branch gets next to no processor time before its
connection is closed, so that it stays between the steps of ending for milliseconds
instead of microseconds.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import count

import pymysql
import pytest

from integration.mysql.sink_harness import MySqlHarness, Server
from twophase.ids import Subtask, TransactionId
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.client.session_exit import wait_until_left
from twophase.sinks.mysql.client.session_locks import SLOTS, SessionLocks
from twophase.sinks.mysql.options import Endpoint, Replaceable, Tls
from twophase.sinks.mysql.xid import Owner, Xid
from twophase.testing.harness import FIRST, JOB, SINK

pytestmark = [pytest.mark.part("mysql"), pytest.mark.proof]

_OWNER = Owner("books", JOB, SINK)
_CYCLES = 3000
_AT_ONCE = 6
_CPU = min(os.sched_getaffinity(0))
_DEADLINE_S = 30.0
_LISTS = {
    "MySqlService": (
        "SELECT THREAD_OS_ID FROM performance_schema.threads WHERE PROCESSLIST_ID = CONNECTION_ID()"
    ),
    "MariaDbService": "SELECT TID FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()",
}


@pytest.fixture
def table(sql_server: Server) -> Iterator[MySqlHarness]:
    """A table on a server that keeps no threads of sessions that have ended, and does not
    wait for the disk.
    """
    harness = MySqlHarness(sql_server)
    settings = {"thread_cache_size": 0, "innodb_flush_log_at_trx_commit": 0, "sync_binlog": 0}
    before = {name: harness.sql(f"SELECT @@GLOBAL.{name}")[0][0] for name in settings}
    for name, value in settings.items():
        harness.sql(f"SET GLOBAL {name} = {value}")
    yield harness
    for name, value in before.items():
        harness.sql(f"SET GLOBAL {name} = {value}")


@pytest.fixture
def busy_cpu() -> Iterator[None]:
    """A processor that always has something better to do than to run a thread of
    the lowest priority.
    """
    process = multiprocessing.get_context("spawn").Process(target=_be_busy, daemon=True)
    process.start()
    yield
    process.kill()
    process.join()


def _be_busy() -> None:
    os.sched_setaffinity(0, {_CPU})
    for _ in count():
        pass


@pytest.mark.usefixtures("busy_cpu")
def test_each_branch_is_committed_at_the_first_try(table: MySqlHarness) -> None:
    refused = []
    with ThreadPoolExecutor(_AT_ONCE) as pool, closing(_session(table)) as driver:
        for first in range(0, _CYCLES, _AT_ONCE):
            numbers = range(first, first + _AT_ONCE)
            xids = list(pool.map(partial(_prepare, table), numbers))
            assert not wait_until_left(driver, xids, time.monotonic() + _DEADLINE_S, killing=False)
            for number, xid in zip(numbers, xids, strict=True):
                try:
                    driver.run(f"XA COMMIT {xid.sql}")
                except pymysql.Error as error:
                    refused.append(f"{number}: {error}")
    assert refused == []
    assert {*range(_CYCLES)} - {*table.ids()} == set()  # an OK that commits nothing


def _session(table: MySqlHarness) -> Session:
    server = table.server
    return Session(
        Endpoint(
            server.host,
            server.port,
            server.user,
            table.database,
            Replaceable(server.password),
            Tls.OFF,
        )
    )


def _prepare(table: MySqlHarness, number: int) -> Xid:
    with closing(_session(table)) as session:
        [(thread,)] = session.rows(_LISTS[type(table.server).__name__])
        transaction = TransactionId(
            JOB, "6a1f5bd0-3c53-4d0c-9d53-2f4b8d1c0a11", number, FIRST, SINK, "0" * 64
        )
        xid = Xid.of(_OWNER, transaction, Subtask(0, 0), session.id)
        SessionLocks(_OWNER).take(session, xid, number % SLOTS)
        session.run(f"XA START {xid.sql}")
        session.run("INSERT INTO target (id) VALUES (%s)", (number,))
        session.run(f"XA END {xid.sql}")
        session.run(f"XA PREPARE {xid.sql}")
        os.sched_setaffinity(int(thread), {_CPU})
        os.setpriority(os.PRIO_PROCESS, int(thread), 19)
        return xid
