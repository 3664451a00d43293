"""A sink written from the docs alone passes the whole suite, and loses nothing
wherever it is killed.
"""

from __future__ import annotations

import ast
import math
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from harness.selection import representatives
from twophase.cli.jobfile.checked_job import load_job
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest, SinkContext
from twophase.errors import RejectedRowsError, TargetUnreachableError
from twophase.ids import Subtask
from twophase.testing import sqlite_sink
from twophase.testing.contract import (
    ArrowSinkContract,
    NamesPiecesContract,
    RewindContract,
    RewindKillContract,
    SinkKillContract,
)
from twophase.testing.harness import FIRST, JOB, LINEAGE, SINK, transaction_id
from twophase.testing.plain_host import ListedRows, plain_engine
from twophase.testing.sqlite_harness import SqliteHarness
from twophase.testing.sqlite_sink import SqliteSink

pytestmark = pytest.mark.part("contract")


@pytest.mark.proof
class TestSqliteSinkIsKilledInARewind(RewindKillContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        return SqliteHarness(tmp_path)


class TestSqliteSink(ArrowSinkContract, NamesPiecesContract, RewindContract):
    killed_by = TestSqliteSinkIsKilledInARewind

    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        return SqliteHarness(tmp_path)

    def test_a_row_that_takes_the_place_of_a_deleted_one_is_committed(self, harness, sink):
        self.commit(sink, self.prepare(sink, range(3), transaction_id(0)))
        with closing(sqlite3.connect(harness.path)) as connection, connection:
            connection.execute("DELETE FROM orders")
        self.commit(sink, self.prepare(sink, [7], transaction_id(1)))
        assert self.ids_visible() == [7]
        sink.rewind({LINEAGE: 0}, FIRST)
        assert self.ids_visible() == []

    def test_a_database_may_have_several_tables_with_sinks(self, harness, sink):
        with closing(sqlite3.connect(harness.path)) as connection:
            connection.execute("CREATE TABLE items AS SELECT * FROM orders")
        other = SqliteSink(harness.path, "items").open(self.context(sink="other"))
        other.fence(FIRST)
        self.commit(sink, self.prepare(sink, range(3)))
        self.commit(other, self.prepare(other, [5], transaction_id(sink="other")))
        other.rewind({}, FIRST)
        assert self.ids_visible() == [0, 1, 2]

    @pytest.mark.proof
    def test_a_fence_between_any_two_lines_of_pre_commit_counts(self, arrow):
        super().test_a_fence_between_any_two_lines_of_pre_commit_counts(arrow)


class TestSqliteSinkIsKilled(SinkKillContract):
    methods = representatives(SinkKillContract.methods, set())

    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        return SqliteHarness(tmp_path)


def test_a_file_that_is_not_there_is_not_made_and_is_named(tmp_path: Path) -> None:
    harness = SqliteHarness(tmp_path)
    context = SinkContext(JOB, SINK, harness.schema, parallelism=1)
    wrong = tmp_path / "ordrs.db"
    with pytest.raises(TargetUnreachableError, match=r"ordrs\.db cannot be opened") as caught:
        SqliteSink(wrong, "orders").open(context)
    assert caught.value.remedy == "correct path, or make it."
    assert not wrong.exists()
    for path in (harness.path, shutil.copy(harness.path, wrong)):
        SqliteSink(path, "orders").open(context).fence(FIRST)


def test_a_value_that_sqlite_would_change_is_refused_until_it_is_corrected(tmp_path: Path) -> None:
    path, schema = tmp_path / "prices.db", pa.schema([("price", pa.float64())])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE prices (price REAL)")
    sink = SqliteSink(path, "prices").open(SinkContext(JOB, SINK, schema, parallelism=1))
    sink.fence(FIRST)
    writer = sink.writers()(transaction_id(), Subtask(0, 0))
    with pytest.raises(RejectedRowsError, match="Row 2 of a batch of 2: column 'price'") as caught:
        writer.write(pa.record_batch([pa.array([1.5, math.nan])], schema=schema))
    assert caught.value.remedy == "correct the rows."
    writer.write(pa.record_batch([pa.array([1.5, 2.5])], schema=schema))
    piece = writer.pre_commit()
    assert piece is not None
    assert sink.commit([CommitRequest(piece)]) == [Committed()]


def test_it_runs_from_a_job_file_and_its_rows_are_there_once(tmp_path: Path) -> None:
    harness = SqliteHarness(tmp_path)
    path = tmp_path / "job.yaml"
    options = {"path": str(harness.path), "table": "orders"}
    sinks = {"facts": {"type": "twophase.testing.sqlite_sink:SqliteSink", "options": options}}
    folder = {"checkpointLocation": str(tmp_path / "job")}
    source = {"format": "rate"}
    path.write_text(
        yaml.safe_dump({"name": "orders", "source": source, "sinks": sinks, "options": folder})
    )
    _, made = load_job(path, {})
    batches = [pa.RecordBatch.from_pylist(harness.rows(ids)) for ids in (range(3), [7])]
    rows = ListedRows([[batch] for batch in batches])
    engine = plain_engine("orders", made, rows, folder)
    engine.start()
    engine.await_termination()
    assert sorted(row["id"] for row in harness.rows_visible()) == [0, 1, 2, 7]


def test_an_author_of_a_sink_imports_from_the_package_alone() -> None:
    tree = ast.parse(Path(sqlite_sink.__file__).read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name for name in imported if name and name.startswith("twophase")} == {"twophase"}
