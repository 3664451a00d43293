"""A commit that another driver has sent is neither listed as prepared nor visible yet: behind a new
fence the sink waits for it, so that the history that is read next has it (H49).

The ledger row of an open transaction stands in for that of a branch in the middle of XA COMMIT,
which no client can hold there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pymysql
import pytest

from integration.mysql.sink_harness import MySqlHarness, Server
from twophase.errors import TargetUnreachableError
from twophase.ids import Attempt
from twophase.testing.harness import JOB, LINEAGE, SINK

pytestmark = pytest.mark.part("mysql")

_DEADLINE_S = 60
_CACHED_S = 0.2
"""InnoDB renews INNODB_TRX only when nobody has read it for 0.1 s (trx0i_s.cc)."""


@pytest.fixture
def table(sql_server: Server) -> MySqlHarness:
    return MySqlHarness(sql_server)


@contextmanager
def committing(table: MySqlHarness, job: str = JOB) -> Iterator[pymysql.Connection]:
    """Another driver's ledger row of checkpoint 7, not visible yet."""
    with closing(table.server.connect(table.database)) as connection:
        connection.begin()
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO twophase_ledger (job, sink, lineage, checkpoint, generation, counter,"
                " subtask, task_attempt, row_count, offsets_hash)"
                " VALUES (%s, %s, %s, 7, 1, 1, 0, 0, 3, 'x')",
                (job, SINK, LINEAGE),
            )
        yield connection


def wait_until_somebody_waits(table: MySqlHarness) -> None:
    deadline_s = time.monotonic() + _DEADLINE_S
    waits = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'"
    while not table.sql(waits)[0][0]:
        assert time.monotonic() < deadline_s
        time.sleep(_CACHED_S)


def test_the_history_behind_a_fence_has_a_commit_that_was_in_flight(table: MySqlHarness) -> None:
    sink = table.opened()
    with committing(table) as other, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(sink.in_doubt)
        wait_until_somebody_waits(table)
        assert not asked.done()
        other.commit()
        assert asked.result(_DEADLINE_S) == []
    assert sink.history().committed == {LINEAGE: 7}
    sink.close()


def test_it_is_waited_for_once_behind_each_fence(table: MySqlHarness) -> None:
    """Not with each look at what is prepared, as after each checkpoint."""
    sink = table.opened(fence_timeout="1 s")
    assert sink.in_doubt() == []
    with committing(table):
        assert sink.in_doubt() == []
        sink.fence(Attempt(2, 0))
        with pytest.raises(TargetUnreachableError, match=r"has not ended within 1 s.*INNODB_TRX"):
            sink.in_doubt()
        sink.close()
        table.end_open_transactions()
        again = table.new_sink().open(table.context())
        again.fence(Attempt(3, 0))
        assert again.in_doubt() == []
        again.close()


def test_the_commit_of_another_job_is_not_waited_for(table: MySqlHarness) -> None:
    sink = table.opened(fence_timeout="1 s")
    for job in ("another", "zzz"):
        with committing(table, job):
            sink.fence(Attempt(sink.history().generation + 1, 0))
            assert sink.in_doubt() == []
    sink.close()
