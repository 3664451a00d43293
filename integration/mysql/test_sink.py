"""The MySQL sink on real servers: the contract, and everything that an unknown branch can mean."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pymysql
import pytest

import twophase.sinks.mysql.committer
import twophase.sinks.mysql.writer
from harness.selection import representatives
from harness.tcp_proxy import CuttingProxy
from integration.mysql.sink_harness import MySqlHarness, Server, commit, xid_sql
from twophase.contract.outcome import AlreadyCommitted, Committed, Lost, RetryLater
from twophase.errors import (
    DeclinedError,
    FencedError,
    StopJobError,
    TargetUnreachableError,
)
from twophase.ids import Attempt, Subtask
from twophase.sinks.mysql.open_sink import OpenMySqlSink
from twophase.testing.contract import (
    ArrowSinkContract,
    FenceContract,
    KnowsOtherNamesContract,
    NamesPiecesContract,
    PhasesContract,
    RewindRefusedContract,
    SinkKillContract,
    UnbegunRewindContract,
)
from twophase.testing.contract.sink import LookContract, RowContract
from twophase.testing.harness import JOB, LINEAGE, SINK, transaction_id
from twophase.testing.services import MariaDbService

pytestmark = [pytest.mark.part("mysql"), pytest.mark.thin(4)]

SECOND = Attempt(1, 2)


class OnMySql:
    @pytest.fixture
    def harness(self, sql_server_in_proof: Server) -> MySqlHarness:
        # Two rows a statement: writers are in their branch while they still write.
        return MySqlHarness(sql_server_in_proof, load_rows=2)


class TestMySqlSinkInShort(OnMySql, PhasesContract, FenceContract, LookContract):
    """What stands for the contract in `make test`."""


@pytest.mark.proof
class TestMySqlSink(
    OnMySql,
    ArrowSinkContract,
    KnowsOtherNamesContract,
    NamesPiecesContract,
    RewindRefusedContract,
    UnbegunRewindContract,
):
    """All of it."""

    rewinds_in = "integration.mysql.test_rewind:TestMySqlSinkRewinds"


class TestMySqlSinkWithoutAKey(RowContract):
    """Whose table takes equal rows."""

    @pytest.fixture
    def harness(self, sql_server: Server) -> MySqlHarness:
        return MySqlHarness(sql_server, "id BIGINT, name VARCHAR(5000), amount DOUBLE")


class TestMySqlSinkIsKilled(SinkKillContract):
    points = representatives(SinkKillContract.points, {"C05=kill_driver", "C13=kill"})
    methods = ("commit",)
    lines_at_most = 4

    @pytest.fixture
    def harness(self, sql_server_in_proof: Server) -> MySqlHarness:
        return MySqlHarness(sql_server_in_proof)


@pytest.fixture
def harness(sql_server_in_proof: Server) -> MySqlHarness:
    return MySqlHarness(sql_server_in_proof)


@pytest.fixture
def sink(harness: MySqlHarness):
    sink = harness.opened()
    yield sink
    sink.close()


@pytest.fixture
def lingering(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Writers that prepare and do not disconnect."""
    sessions: list[Any] = []
    monkeypatch.setattr(twophase.sinks.mysql.writer, "end_quietly", sessions.append)
    return sessions


@contextmanager
def dead(server: Server) -> Iterator[None]:
    """The server is killed, and is back afterwards."""
    server.kill()
    try:
        yield
    finally:
        server.restart()


def test_every_piece_of_a_checkpoint_is_named(harness: MySqlHarness, sink: OpenMySqlSink) -> None:
    """A repair tells by them which task has another piece committed: one that is left out would
    be committed twice.
    """
    count = 1_100
    rows = ", ".join(
        f"('{JOB}', '{SINK}', '{LINEAGE}', 3, 1, 1, {task}, {task}, 1, '')" for task in range(count)
    )
    harness.sql(
        "INSERT INTO twophase_ledger (job, sink, lineage, checkpoint, generation, counter, "
        "subtask, task_attempt, row_count,"
        f" offsets_hash) VALUES {rows}"
    )
    assert sorted(sink.committed_pieces(LINEAGE, 3)) == sorted(
        f"1.1/{task}.{task}" for task in range(count)
    )


class TestUnknownBranch:
    @pytest.fixture
    def harness(self, sql_server: Server) -> MySqlHarness:
        """What a branch is after its session has gone is another thing on each kind of server."""
        return MySqlHarness(sql_server)

    def test_committed_by_hand_is_committed(self, harness, sink):
        piece = harness.write(sink, harness.rows(range(3)))
        time.sleep(0.2)
        harness.sql(f"XA COMMIT {xid_sql(piece)}")
        assert commit(sink, piece) == [AlreadyCommitted("ledger row")]
        assert harness.ids() == [0, 1, 2]

    def test_rolled_back_by_hand_is_lost(self, harness, sink):
        piece = harness.write(sink, harness.rows(range(3)))
        time.sleep(0.2)
        harness.sql(f"XA ROLLBACK {xid_sql(piece)}")
        [outcome] = commit(sink, piece)
        assert isinstance(outcome, Lost)
        assert str(piece.handle["bqual"]) in outcome.evidence

    def test_never_there_is_lost_and_others_are_committed(self, harness, sink):
        piece = harness.write(sink, harness.rows(range(3)))
        never = dataclasses.replace(
            piece,
            subtask=Subtask(9, 9),
            handle={**piece.handle, "bqual": piece.handle["bqual"].replace("-0.0-", "-9.9-")},
        )
        lost, committed = commit(sink, never, piece)
        assert isinstance(lost, Lost)
        assert committed == Committed()

    def test_covered_by_the_high_water_mark_is_committed(self, harness, sink):
        piece = harness.write(sink, harness.rows(range(3)))
        commit(sink, piece)
        sink.subsume(LINEAGE, 0)
        assert harness.sql("SELECT * FROM twophase_ledger") == []
        assert commit(sink, piece) == [AlreadyCommitted("high-water mark")]

    def test_held_by_its_living_session_is_asked_for_again_then_freed(
        self, harness, sink, lingering
    ):
        piece = harness.write(sink, harness.rows(range(3)))
        [outcome] = commit(sink, piece)
        assert isinstance(outcome, RetryLater)
        assert harness.ids() == []
        assert commit(sink, piece, retries=1) == [Committed()]
        assert harness.ids() == [0, 1, 2]

    def test_another_session_under_the_number_of_the_writers_is_left_alone(self, harness, sink):
        piece = harness.write(sink, harness.rows(range(3)))
        other = harness.server.connect()
        bqual = piece.handle["bqual"].rpartition("-")[0] + f"-{other.thread_id()}"
        never = dataclasses.replace(
            piece, handle={**piece.handle, "bqual": bqual}, subtask=Subtask(5, 5)
        )
        [outcome] = commit(sink, never, retries=3)
        assert isinstance(outcome, Lost)
        other.ping(reconnect=False)

    def test_ok_is_not_believed_without_the_ledger_row(self, harness, sink, monkeypatch):
        """Straight after the writer's disconnect the server may say OK to XA COMMIT and do nothing
        (session_exit.py).
        """
        monkeypatch.setattr(
            twophase.sinks.mysql.committer, "wait_until_left", lambda *_, **__: set()
        )
        visible = 0
        for number in range(25):
            piece = harness.write(
                sink, harness.rows([number]), checkpoint=number, subtask=Subtask(0, number)
            )
            visible += isinstance(commit(sink, piece)[0], Committed | AlreadyCommitted)
        assert len(harness.ids()) == visible

    def test_every_commit_straight_after_the_disconnect_holds(self, harness, sink):
        for number in range(25):
            piece = harness.write(
                sink, harness.rows([number]), checkpoint=number, subtask=Subtask(0, number)
            )
            assert commit(sink, piece) == [Committed()]
        assert harness.ids() == list(range(25))


class TestServerTrouble:
    def test_a_lost_reply_is_settled_by_the_ledger(self, harness, sink):
        with CuttingProxy(harness.server.host, harness.server.port, b"XA COMMIT") as proxy:
            url = f"mysql://{harness.server.user}@127.0.0.1:{proxy.port}/{harness.database}"
            piece = harness.write(sink, harness.rows(range(3)))
            through_proxy = harness.opened(url=url)
            [outcome] = commit(through_proxy, piece)
            assert proxy.cuts == 1
            assert isinstance(outcome, RetryLater)
            outcome = commit(through_proxy, piece, retries=1)[0]
            assert outcome in (AlreadyCommitted("ledger row"), Committed())
        assert harness.ids() == [0, 1, 2]

    def test_a_lost_reply_to_prepare_declines_and_leaves_what_in_doubt_finds(self, harness, sink):
        with CuttingProxy(harness.server.host, harness.server.port, b"XA PREPARE") as proxy:
            url = f"mysql://{harness.server.user}@127.0.0.1:{proxy.port}/{harness.database}"
            with pytest.raises(DeclinedError):
                harness.write(harness.opened(url=url), harness.rows(range(3)))
            assert proxy.cuts == 1
        sink.abort(sink.in_doubt())
        sink.fence(SECOND)
        sink.abort(sink.in_doubt())
        assert sink.in_doubt() == []
        assert commit(sink, harness.write(sink, harness.rows(range(3)), attempt=SECOND)) == [
            Committed()
        ]

    def test_what_is_prepared_outlives_the_death_of_the_server(self, harness, sink):
        pieces = [harness.write(sink, harness.rows([n]), subtask=Subtask(n, n)) for n in range(3)]
        with dead(harness.server):
            outcomes = commit(sink, *pieces)
            assert all(isinstance(outcome, RetryLater) for outcome in outcomes)
        assert len(sink.in_doubt()) == 3
        assert commit(sink, *pieces, retries=1) == [Committed()] * 3
        assert harness.ids() == [0, 1, 2]

    def test_what_is_not_prepared_does_not_outlive_it(self, harness, sink):
        writer = harness.begun(sink, range(3))
        with dead(harness.server):
            with pytest.raises(DeclinedError):
                writer.pre_commit()
            writer.abort()
            with pytest.raises(TargetUnreachableError, match="start the server"):
                sink.in_doubt()
        assert sink.in_doubt() == []
        assert harness.ids() == []

    def test_the_fence_outlives_it(self, harness, sink):
        sink.fence(Attempt(4, 1))
        with dead(harness.server):
            pass
        again = harness.new_sink().open(harness.context())
        assert again.history().generation == 4


class TestFence:
    def test_an_open_branch_is_ended(self, harness, sink):
        late = harness.begun(sink, range(3))
        sink.fence(SECOND)
        with pytest.raises(DeclinedError):
            late.pre_commit()
        assert sink.in_doubt() == []
        assert commit(sink, harness.write(sink, harness.rows(range(3)), attempt=SECOND)) == [
            Committed()
        ]

    def test_many_open_branches_are_ended(self, harness, sink):
        late = [harness.begun(sink, [n], Subtask(n, n)) for n in range(6)]
        sink.fence(Attempt(2, 1))
        for writer in late:
            with pytest.raises(DeclinedError):
                writer.pre_commit()
        assert sink.in_doubt() == []

    def test_a_branch_prepared_in_time_is_found_in_doubt_and_aborted(
        self, harness, sink, lingering
    ):
        harness.write(sink, harness.rows(range(3)))
        [found] = sink.in_doubt()
        sink.abort([found])
        sink.fence(SECOND)
        assert sink.in_doubt() == []
        assert lingering

    def test_a_fenced_driver_does_not_end_the_sessions_of_the_newer_one(self, harness, sink):
        newer = harness.new_sink().open(harness.context())
        newer.fence(Attempt(2, 1))
        writer = newer.writers()(transaction_id(0, Attempt(2, 1)), Subtask(0, 0))
        writer.write(harness.batch(harness.rows(range(3))))
        writer._flush()
        with pytest.raises(FencedError):
            sink.fence(Attempt(1, 9))
        piece = writer.pre_commit()
        assert commit(newer, piece) == [Committed()]

    def test_a_task_that_comes_late_is_told_that_it_is_fenced(self, harness, sink):
        sink.fence(Attempt(2, 1))
        with pytest.raises(FencedError, match=r"facts.*2\.1.*let the newer driver go on"):
            harness.begun(sink, range(3))
        newer = harness.write(sink, harness.rows(range(3)), attempt=Attempt(2, 1))
        assert commit(sink, newer) == [Committed()]

    def test_what_stands_in_the_way_is_named(self, harness, sink):
        blocker = harness.server.connect(harness.database)
        blocker.begin()
        blocker.cursor().execute("SELECT * FROM twophase_fence FOR UPDATE")
        piece = harness.new_sink(fence_timeout="1 s").open(harness.context())
        with pytest.raises(TargetUnreachableError, match=r"could not be raised to 1\.2") as caught:
            piece.fence(SECOND)
        assert "Sessions: none. Prepared: none." in caught.value.what
        assert "the one that locks twophase_fence (information_schema.INNODB_TRX)" in str(
            caught.value
        )
        harness.end_open_transactions()
        again = harness.new_sink().open(harness.context())
        again.fence(SECOND)
        again.close()


class TestAbort:
    def test_a_branch_held_by_its_living_session_is_freed_and_rolled_back(
        self, harness, sink, lingering
    ):
        sink.abort([harness.write(sink, harness.rows(range(3)))])
        assert sink.in_doubt() == []
        assert harness.ids() == []

    def test_a_session_that_does_not_end_in_time_is_named_and_the_next_start_goes_on_without_it(
        self, harness, lingering
    ):
        sink = harness.opened(fence_timeout="0.001 ms")
        piece = harness.write(sink, harness.rows(range(3)))
        with pytest.raises(TargetUnreachableError, match="end that session") as caught:
            sink.abort([piece])
        [number] = re.findall(r"session (\d+) is still there", caught.value.what)
        for listed, *_ in harness.sql("SHOW PROCESSLIST"):
            if listed == int(number):
                with suppress(pymysql.Error):  # it was ending
                    harness.sql(f"KILL {number}")
        again = harness.new_sink().open(harness.context())
        again.abort(again.in_doubt())
        again.fence(SECOND)
        assert again.in_doubt() == []
        piece = harness.write(again, harness.rows(range(3)), attempt=SECOND)
        assert commit(again, piece, retries=1) == [Committed()]
        assert harness.ids() == [0, 1, 2]
        again.close()

    def test_a_branch_that_somebody_committed_stops_the_job(self, harness, sink):
        piece = harness.write(sink, harness.rows(range(3)))
        commit(sink, piece)
        with pytest.raises(StopJobError, match=r"visible.*its row of twophase_ledger"):
            sink.abort([piece])
        harness.sql("DELETE FROM target")
        harness.sql("DELETE FROM twophase_ledger")
        sink.abort([piece])
        again = harness.write(sink, harness.rows(range(3)), subtask=Subtask(0, 1))
        assert commit(sink, again) == [Committed()]

    def test_foreign_branches_are_neither_seen_nor_touched(self, harness, sink):
        with harness.server.connect(harness.database) as other, other.cursor() as cursor:
            for verb in ("XA START", "INSERT", "XA END", "XA PREPARE"):
                cursor.execute(
                    "INSERT INTO target VALUES (7, '', 0)"
                    if verb == "INSERT"
                    else f"{verb} X'ff00', X'fe', 99"
                )
        time.sleep(0.2)
        assert sink.in_doubt() == []
        sink.abort([])
        harness.sql("XA ROLLBACK X'ff00', X'fe', 99")


def test_subsume_does_not_wait_for_a_branch_that_is_prepared(harness, sink):
    first = harness.write(sink, harness.rows([0]), checkpoint=0)
    commit(sink, first)
    second = harness.write(sink, harness.rows([1]), checkpoint=1, subtask=Subtask(0, 1))
    sink.subsume(LINEAGE, 0)
    assert harness.sql("SELECT COUNT(*) FROM twophase_ledger WHERE checkpoint = 0") == [(0,)]
    assert commit(sink, second) == [Committed()]


def test_a_session_in_whose_transaction_something_failed_is_not_used_again(harness, sink):
    """What came next would belong to that transaction, and be rolled back with it: a fence
    that nobody else sees.
    """
    commit(sink, harness.write(sink, harness.rows([0])))
    with closing(harness.server.connect(harness.database)) as other, other.cursor() as cursor:
        other.begin()
        cursor.execute("SELECT * FROM twophase_ledger FOR UPDATE")
        with pytest.raises(TargetUnreachableError, match="Lock wait timeout") as caught:
            sink.subsume(LINEAGE, 0)
        assert "remove what the message names; SHOW PROCESSLIST" in caught.value.remedy
        listed = {row[0]: row[3] for row in harness.sql("SHOW PROCESSLIST")}
        assert listed[other.thread_id()] == harness.database
        harness.sql(f"KILL {other.thread_id()}")
        sink.fence(Attempt(1, 7))
        assert harness.sql("SELECT generation, counter FROM twophase_fence") == [(1, 7)]
        sink.subsume(LINEAGE, 0)
    assert harness.sql("SELECT * FROM twophase_ledger") == []


def test_a_thousand_ledger_rows_and_more_collapse(harness, sink):
    rows = ", ".join(
        f"('contract', 'facts', '{LINEAGE}', {n}, 1, 1, 0, {n}, 1, '')" for n in range(2500)
    )
    columns = (
        "job, sink, lineage, checkpoint, generation, counter, subtask, task_attempt, row_count, "
        "offsets_hash"
    )
    harness.sql(f"INSERT INTO twophase_ledger ({columns}) VALUES {rows}")
    sink.subsume(LINEAGE, 2400)
    assert harness.sql("SELECT COUNT(*) FROM twophase_ledger") == [(99,)]
    assert sink.history().committed == {LINEAGE: 2499}


def test_a_name_that_leads_to_another_server_in_the_meantime_gets_no_rows(
    sink: OpenMySqlSink, harness: MySqlHarness
) -> None:
    writers = sink.writers()
    if isinstance(harness.server, MariaDbService):
        # MariaDB has no id that lasts; the next start finds out
        assert writers.endpoint.server_uuid is None
        return
    endpoint = dataclasses.replace(writers.endpoint, server_uuid="of the one that failed")
    sink._writers = dataclasses.replace(writers, endpoint=endpoint)
    with pytest.raises(TargetUnreachableError, match="was the server of the one that failed"):
        harness.begun(sink, range(3))
    assert harness.rows_visible() == []
