"""Rows of MySQL name their checkpoint, and are taken back by it: the contract on real servers, and
every reason to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from integration.mysql.sink_harness import DDL, MySqlHarness, Server, commit
from twophase.contract.outcome import Committed
from twophase.errors import (
    ConfigError,
    RestoreRefusedError,
    StopJobError,
    TargetUnreachableError,
)
from twophase.ids import Attempt, Subtask
from twophase.internals.failpoints import FailpointError
from twophase.sinks.mysql import rewind
from twophase.sinks.mysql.open_sink import OpenMySqlSink
from twophase.testing.contract import RewindContract, RewindKillContract, RewindStepsContract
from twophase.testing.harness import LINEAGE, SinkHarness
from twophase.testing.services import MariaDbService

pytestmark = pytest.mark.part("mysql")

COLUMN = "twophase_checkpoint"
MARKED_DDL = f"{DDL}, {COLUMN} VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin, INDEX ({COLUMN})"
RESTORING = Attempt(2, 0)


def marked(server: Server, **options: Any) -> MySqlHarness:
    return MySqlHarness(server, MARKED_DDL, checkpoint_column=COLUMN, **options)


@pytest.mark.proof
class TestMySqlSinkIsKilledInARewind(RewindKillContract):
    lines_at_most = 12

    @pytest.fixture
    def harness(self, sql_server_in_proof: Server) -> SinkHarness:
        return marked(sql_server_in_proof)


class TestMySqlSinkRewinds(RewindContract, RewindStepsContract):
    killed_by = TestMySqlSinkIsKilledInARewind

    @pytest.fixture
    def harness(self, sql_server_in_proof: Server) -> SinkHarness:
        return marked(sql_server_in_proof)


@pytest.mark.proof
class TestMySqlSinkRewindsByInsert(RewindContract):
    """The same where the server forbids LOAD DATA LOCAL."""

    killed_by = TestMySqlSinkIsKilledInARewind

    @pytest.fixture
    def harness(self, sql_server_in_proof: Server) -> SinkHarness:
        return marked(sql_server_in_proof, load="insert", load_rows=2)


@pytest.fixture
def harness(sql_server_in_proof: Server) -> MySqlHarness:
    return marked(sql_server_in_proof)


@pytest.fixture
def sink(harness: MySqlHarness) -> Iterator[OpenMySqlSink]:
    """Checkpoints 0 to 3 have two rows each."""
    sink = harness.opened()
    for number in range(4):
        ids = range(2 * number, 2 * number + 2)
        commit(sink, harness.write(sink, harness.rows(ids), number))
    yield sink
    sink.close()


def refused(sink: OpenMySqlSink, keep: int, match: str) -> RestoreRefusedError:
    with pytest.raises(RestoreRefusedError, match=match) as caught:
        sink.check_rewind({LINEAGE: keep})
    assert "Nothing was removed" in caught.value.what
    assert caught.value.remedy
    return caught.value


def test_without_the_column_it_is_refused_and_the_option_named(
    sql_server_in_proof: Server,
) -> None:
    harness = MySqlHarness(sql_server_in_proof)
    sink = harness.opened()
    commit(sink, harness.write(sink, harness.rows([0]), 3))
    error = refused(sink, 2, "do not name their checkpoint")
    assert "checkpoint_column" in error.remedy
    sink.close()


@pytest.mark.parametrize(
    ("change", "restore"),
    [
        ("DELETE FROM target WHERE id = 7", "INSERT INTO target SELECT * FROM backup WHERE id = 7"),
        (
            f"INSERT INTO target SELECT 99, '', 1, {COLUMN} FROM backup WHERE id = 7",
            "DELETE FROM target WHERE id = 99",
        ),
    ],
    ids=["deleted", "added"],
)
def test_rows_that_others_have_changed_are_noticed_before_anything_is_removed(
    harness: MySqlHarness, sink: OpenMySqlSink, change: str, restore: str
) -> None:
    harness.sql("CREATE TABLE backup SELECT * FROM target")
    harness.sql(change)
    before = harness.ids()
    error = refused(sink, 1, "checkpoint 3 of lineage")
    assert error.remedy == "restore those rows, or fork."
    sink.fence(RESTORING)
    with pytest.raises(RestoreRefusedError):
        sink.rewind({LINEAGE: 1}, RESTORING)
    assert harness.ids() == before
    assert sink.history().committed == {LINEAGE: 3}
    harness.sql(restore)
    sink.check_rewind({LINEAGE: 1})
    sink.rewind({LINEAGE: 1}, RESTORING)
    assert harness.ids() == [0, 1, 2, 3]


def test_rows_of_others_without_a_checkpoint_stay(
    harness: MySqlHarness, sink: OpenMySqlSink
) -> None:
    harness.sql("INSERT INTO target (id) VALUES (100)")
    sink.check_rewind({LINEAGE: 1})
    sink.fence(RESTORING)
    sink.rewind({LINEAGE: 1}, RESTORING)
    assert harness.ids() == [0, 1, 2, 3, 100]


def test_checkpoints_written_before_the_option_was_set_are_not_taken_back(
    harness: MySqlHarness,
) -> None:
    plain = harness.new_sink(checkpoint_column=None).open(harness.context())
    plain.fence(Attempt(1, 1))
    for number in range(2):
        commit(plain, harness.write(plain, harness.rows([number]), number))
    plain.subsume(LINEAGE, 1)
    plain.close()
    sink = harness.opened()
    refused(sink, 0, "without checkpoint_column")
    second = Attempt(2, 1)
    sink.fence(second)
    for number in (2, 3):
        commit(sink, harness.write(sink, harness.rows([number]), number, second))
    refused(sink, 0, "from 1 to 1 of lineage")
    sink.check_rewind({LINEAGE: 1})
    sink.fence(Attempt(3, 0))
    sink.rewind({LINEAGE: 2}, Attempt(3, 0))
    assert harness.ids() == [0, 1, 2]
    sink.close()


def test_a_driver_without_the_option_ends_it(harness: MySqlHarness, sink: OpenMySqlSink) -> None:
    plain = harness.new_sink(checkpoint_column=None).open(harness.context())
    second = Attempt(2, 1)
    plain.fence(second)
    commit(plain, harness.write(plain, harness.rows([8]), 4, second))
    plain.subsume(LINEAGE, 4)
    plain.close()
    refused(sink, 3, "without checkpoint_column")
    sink.fence(Attempt(3, 1))
    refused(sink, 3, "from 4 to 4 of lineage")
    sink.check_rewind({LINEAGE: 4})


@pytest.mark.parametrize(
    ("ddl", "why"),
    [
        (DDL, "there is no such column"),
        (f"{DDL}, {COLUMN} TEXT", "it is text"),
        (f"{DDL}, {COLUMN} VARCHAR(40) CHARACTER SET ascii COLLATE ascii_bin", "varchar.40"),
        (f"{DDL}, {COLUMN} VARCHAR(64) CHARACTER SET ascii", "its collation is ascii_general_ci"),
        (f"{DDL}, {COLUMN} VARCHAR(64) AS (name) STORED", "the server computes it"),
    ],
    ids=["missing", "text", "short", "not binary", "computed"],
)
def test_a_column_that_does_not_fit_is_refused_at_open(
    sql_server_in_proof: Server, ddl: str, why: str
) -> None:
    harness = MySqlHarness(sql_server_in_proof, ddl, checkpoint_column=COLUMN)
    sink = harness.new_sink()
    with pytest.raises(ConfigError, match=why) as caught:
        sink.open(harness.context())
    [statement] = re.findall(r"ALTER TABLE .+?(?= adds it|; otherwise)", caught.value.remedy)
    harness.sql(statement)
    sink.open(harness.context()).close()


def test_rows_that_have_the_column_themselves_are_refused_at_open(harness: MySqlHarness) -> None:
    schema = harness.schema.append(pa.field(COLUMN.upper(), pa.string()))
    with pytest.raises(ConfigError, match=r"which the sink fills itself.*: drop or rename it"):
        harness.new_sink().open(harness.context(schema=schema))
    harness.new_sink().open(harness.context(schema=harness.schema)).close()


def test_a_newer_driver_waits_for_a_rewind_or_is_noticed_by_it(
    harness: MySqlHarness, sink: OpenMySqlSink
) -> None:
    sink.fence(RESTORING)
    with harness.server.connect(harness.database) as other, other.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        cursor.execute("SELECT * FROM twophase_fence FOR UPDATE")
        with pytest.raises(TargetUnreachableError, match="Lock wait timeout"):
            sink.rewind({LINEAGE: 1}, RESTORING)
    assert harness.ids() == [*range(8)]


def test_a_rewind_that_dies_between_its_transactions_is_known_until_it_has_ended(
    sql_server_in_proof: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = marked(sql_server_in_proof, load="insert", load_rows=1)
    sink = harness.opened()
    for number in range(2):
        commit(sink, harness.write(sink, harness.rows(range(2 * number, 2 * number + 2)), number))
    sink.fence(RESTORING)
    with monkeypatch.context() as patch:
        patch.setattr(rewind, "failpoint", mock.Mock(side_effect=FailpointError("M01")))
        with pytest.raises(FailpointError):
            sink.rewind({LINEAGE: 0}, RESTORING)
    again = harness.new_sink().open(harness.context())
    assert (harness.ids(), again.history().half_rewound) == ([0, 1, 3], True)
    again.fence(Attempt(3, 0))
    with pytest.raises(StopJobError, match=r"has not finished.*: repeat the restore"):
        again.commit([])
    with pytest.raises(RestoreRefusedError, match=r"removed rows of its checkpoint 1 .* be kept"):
        again.rewind({LINEAGE: 1}, Attempt(3, 0))
    again.rewind({LINEAGE: 0}, Attempt(3, 0))
    assert (harness.ids(), again.history().half_rewound) == ([0, 1], False)
    piece = harness.write(again, harness.rows([4]), 1, Attempt(3, 0))
    assert commit(again, piece) == [Committed()]
    again.close()
    sink.close()


def test_a_rewind_that_can_never_be_finished_is_ended_by_hand(
    sql_server_in_proof: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/by-hand.md says."""
    harness = marked(sql_server_in_proof, load="insert", load_rows=1)
    sink = harness.opened()
    commit(sink, harness.write(sink, harness.rows(range(2)), 0))
    sink.fence(RESTORING)
    monkeypatch.setattr(rewind, "failpoint", mock.Mock(side_effect=FailpointError("M01")))
    with pytest.raises(FailpointError):
        sink.rewind({}, RESTORING)
    with pytest.raises(RestoreRefusedError, match="cannot be given up") as caught:
        sink.settle_rewind({}, RESTORING)
    assert "docs/by-hand.md" in caught.value.remedy
    [left] = harness.ids()
    mine = harness.context().job, harness.context().sink
    harness.sql("DELETE FROM twophase_rewind WHERE job = %s AND sink = %s", *mine)
    sink.settle_rewind({}, RESTORING)
    sink.fence(Attempt(3, 0))
    commit(sink, harness.write(sink, harness.rows([7]), 1, Attempt(3, 1)))
    assert harness.ids() == [left, 7]
    sink.close()


@pytest.mark.proof
def test_a_rewind_goes_in_transactions_that_the_binary_log_takes() -> None:
    """All rows of the checkpoint together exceed max_binlog_cache_size, those of a task do not."""
    options = ["--log-bin=binlog", "--server-id=1", "--sync-binlog=1", "--binlog-format=ROW"]
    options += ["--binlog-cache-size=4096", "--max-binlog-cache-size=4096"]
    with MariaDbService(own=True, server_options=options) as server:
        harness = marked(server)
        sink = harness.opened()
        commit(sink, harness.write(sink, harness.rows(range(10)), 3))
        for task in range(1, 9):
            rows = harness.rows(range(20 * task, 20 * task + 20))
            commit(sink, harness.write(sink, rows, 4, subtask=Subtask(task, 0)))
        sink.check_rewind({LINEAGE: 3})
        sink.fence(RESTORING)
        sink.rewind({LINEAGE: 3}, RESTORING)
        assert harness.ids() == [*range(10)]
        assert sink.history().committed == {LINEAGE: 3}
        sink.close()
