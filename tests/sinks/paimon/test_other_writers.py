"""What others do to the table between the phases of a commit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from harness.paimon_harness import TABLE, PaimonHarness
from tests.sinks.paimon import others
from tests.sinks.paimon.others import FIELDS, before_publishing, committed, ids_of, rows
from twophase.contract.outcome import Committed
from twophase.contract.sink import SinkContext
from twophase.errors import StopJobError, TargetChangedError
from twophase.sinks.paimon import private_api
from twophase.sinks.paimon.open_sink import OpenPaimonSink
from twophase.testing.harness import JOB, SINK


@pytest.fixture
def harness(tmp_path: Path) -> PaimonHarness:
    return PaimonHarness(tmp_path / "lake", FIELDS)


@pytest.fixture
def sink(harness: PaimonHarness) -> OpenPaimonSink:
    return harness.opened()


@pytest.mark.parametrize("change", [others.add_a_column, others.rename_a_column])
def test_a_change_that_leaves_the_pieces_whole_is_committed_after(
    harness: PaimonHarness, sink: OpenPaimonSink, change: others.Change
) -> None:
    piece = harness.write(sink, rows(1))
    change(harness)
    assert committed(sink, piece) == [Committed()]
    [found] = harness.read().to_pylist()
    assert found["id"] == 1
    assert found.get("name", found.get("title")) == "row 1"
    assert found["amount"] == 0.5
    assert found.get("note") is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (others.drop_a_column, "the column of id 2 was dropped"),
        (others.retype_a_column, "column 'id' was BIGINT and is STRING"),
        (others.add_a_required_column, "column 'note' was added and is required"),
    ],
)
def test_a_change_that_would_lose_values_stops_by_name_and_undone_it_commits(
    harness: PaimonHarness, sink: OpenPaimonSink, change: others.Change, named: str
) -> None:
    piece = harness.write(sink, rows(1))
    change(harness)
    with pytest.raises(StopJobError, match=f"the table was altered.*{named}") as caught:
        committed(sink, piece)
    assert "remove the newest file in the table's folder schema" in str(caught.value)
    others.newest_schema(harness).unlink()
    assert committed(sink, piece) == [Committed()]
    assert harness.read().to_pylist() == rows(1)


def test_a_widened_column_holds_what_was_written(tmp_path: Path) -> None:
    harness = PaimonHarness(tmp_path / "lake", pa.schema([("id", pa.int32())]))
    sink = harness.opened()
    piece = harness.write(sink, [{"id": 1}])
    others.alter(SchemaChange.update_column_type("id", AtomicType("BIGINT")))(harness)
    assert committed(sink, piece) == [Committed()]
    assert harness.read().to_pylist() == [{"id": 1}]


def test_a_table_that_was_dropped_and_created_again_gets_nothing(
    harness: PaimonHarness, sink: OpenPaimonSink
) -> None:
    piece = harness.write(sink, rows(1))
    others.catalog_of(harness).drop_table(TABLE)
    others.make_table(harness)
    with pytest.raises(TargetChangedError, match="is another one than when the job started"):
        committed(sink, piece)
    assert ids_of(harness) == []


def test_a_table_that_was_dropped_gets_nothing(
    harness: PaimonHarness, sink: OpenPaimonSink
) -> None:
    piece = harness.write(sink, rows(1))
    others.catalog_of(harness).drop_table(TABLE)
    with pytest.raises(TargetChangedError, match="is gone"):
        committed(sink, piece)


def test_two_drivers_that_create_the_table_at_once_have_the_same_one(
    harness: PaimonHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = private_api.create_table

    def both(*given: object) -> None:
        create(*given)  # type: ignore[arg-type]
        create(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("twophase.sinks.paimon.sink.create_table", both)
    sink = harness.new_sink().open(SinkContext(JOB, SINK, harness.fields, parallelism=2))
    assert [path.name for path in (harness.location / "schema").iterdir()] == ["schema-0"]
    sink.close()


def test_a_schema_that_changes_while_a_commit_is_in_flight_is_read_by_the_old_one(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file says which schema it has, so a column that is added under a commit is null in it."""
    piece = harness.write(sink, rows(1))
    before_publishing(monkeypatch, lambda: others.add_a_column(harness))
    assert committed(sink, piece) == [Committed()]
    assert harness.read().to_pylist() == [row | {"note": None} for row in rows(1)]
