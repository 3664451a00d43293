"""DDL that waits for a prepared branch: a start and a commit beside it.

On MySQL a branch keeps the metadata lock of its table, before 8.0.13 for as long as its session
lives, and the DDL waits for up to a year: the job has to come as far as to end its branch. On
MariaDB the DDL gives up after innodb_lock_wait_timeout (50 seconds), and a start that has met it
passes then.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pymysql
import pytest

from harness.held_jobs import wait_until
from integration.mysql.sink_harness import MySqlHarness, remade
from twophase.contract.outcome import Committed, RetryLater
from twophase.contract.sink import CommitRequest, Predecessor
from twophase.errors import TargetUnreachableError
from twophase.testing.harness import LINEAGE
from twophase.testing.services import MySqlService

pytestmark = pytest.mark.part("mysql")

MARK = "twophase_checkpoint"
INDEX = "ALTER TABLE target ADD INDEX (amount)"
WAITING = (
    "SELECT ID FROM information_schema.PROCESSLIST"
    " WHERE DB = DATABASE() AND STATE = 'Waiting for table metadata lock'"
)


@pytest.fixture
def harness(own_mysql: MySqlService) -> MySqlHarness:
    return MySqlHarness(
        own_mysql,
        "id BIGINT PRIMARY KEY, name VARCHAR(50), amount DOUBLE, "
        f"{MARK} VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin, INDEX ({MARK})",
        checkpoint_column=MARK,
    )


@contextmanager
def waiting_ddl(harness: MySqlHarness) -> Iterator[None]:
    """An ALTER waits for a prepared branch, of a session that lives on."""
    ended: list[str] = []

    def alter() -> None:
        with closing(harness.server.connect(harness.database)) as one, one.cursor() as cursor:
            cursor.execute("SET lock_wait_timeout = 3000, innodb_lock_wait_timeout = 1")
            try:
                cursor.execute(INDEX)
            except pymysql.Error as error:
                ended.append(str(error))

    thread = threading.Thread(target=alter)
    with closing(harness.server.connect(harness.database)) as one, one.cursor() as cursor:
        cursor.execute("XA START 'of somebody'")
        cursor.execute("INSERT INTO target (id) VALUES (77)")
        cursor.execute("XA END 'of somebody'")
        cursor.execute("XA PREPARE 'of somebody'")
        thread.start()
        wait_until(lambda: bool(harness.sql(WAITING)), INDEX)
        try:
            yield
        finally:
            cursor.execute("XA ROLLBACK 'of somebody'")
            thread.join()


def test_a_start_passes_ddl_that_waits_for_a_branch(
    harness: MySqlHarness, caplog: pytest.LogCaptureFixture
) -> None:
    with waiting_ddl(harness):
        harness.new_sink().check_connection()
        sink = harness.opened()
        assert harness.sql(WAITING)
        assert "a restore could not take rows back" not in caplog.text
    assert sink.commit([CommitRequest(harness.write(sink, harness.rows([0])))]) == [Committed()]
    assert harness.ids() == [0]


def test_a_table_whose_rows_cannot_be_seen_behind_ddl_is_named_with_the_way_on(
    harness: MySqlHarness,
) -> None:
    """The table was altered since the commit of the predecessor: whether it is the same one, its
    rows tell.
    """
    with closing(harness.opened()) as sink:
        first = harness.write(sink, harness.rows([0]))
        assert sink.commit([CommitRequest(first)]) == [Committed()]
        remade(harness, "ALTER TABLE target ADD INDEX (name)")
        second = CommitRequest(
            harness.write(sink, harness.rows([1]), checkpoint=1),
            predecessor=Predecessor(LINEAGE, 0),
        )
        with waiting_ddl(harness):
            [outcome] = sink.commit([second])
            assert isinstance(outcome, RetryLater)
            with (
                closing(harness.new_sink().open(harness.context())) as started,
                pytest.raises(TargetUnreachableError) as caught,
            ):
                started.history()
            for said in (outcome.reason, str(caught.value)):
                assert f"{harness.database}.target" in said
                assert "SHOW PROCESSLIST" in said
                assert "KILL" in said
            [(number,)] = harness.sql(WAITING)
            harness.sql(f"KILL {number}")
            with closing(harness.new_sink().open(harness.context())) as started:
                assert started.history().replaced == ""
            assert sink.commit([second]) == [Committed()]
    assert harness.ids() == [0, 1]
