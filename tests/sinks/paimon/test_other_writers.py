"""What others do to the table between the phases of a commit, and under one in flight; all of it at
every moment of a checkpoint is in `test_moments`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.paimon_harness import PaimonHarness
from tests.sinks.paimon import others
from tests.sinks.paimon.others import FIELDS, before_publishing, committed, ids_of, rows
from twophase.contract.outcome import AlreadyCommitted, Committed, RetryLater
from twophase.contract.sink import SinkContext
from twophase.errors import StopJobError, TargetChangedError
from twophase.ids import Attempt
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


def test_a_table_that_was_dropped_and_created_again_gets_nothing(
    harness: PaimonHarness, sink: OpenPaimonSink
) -> None:
    piece = harness.write(sink, rows(1))
    others.create_it_again(harness)
    before = harness.contents()
    with pytest.raises(TargetChangedError, match="is not the one that the job started with"):
        committed(sink, piece)
    assert harness.contents() == before


def test_a_table_that_is_created_again_under_the_first_commit_gets_no_snapshot(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would name files that went with the old table."""
    piece = harness.write(sink, rows(1))
    before_publishing(monkeypatch, lambda: others.create_it_again(harness))
    with pytest.raises(TargetChangedError, match="the table was dropped"):
        committed(sink, piece)
    assert others.snapshots(harness) == []
    harness.append(rows(10))
    assert ids_of(harness) == [10]


@pytest.mark.parametrize("in_flight", [False, True])
def test_a_table_that_was_dropped_gets_nothing_and_nothing_is_in_its_place(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch, in_flight: bool
) -> None:
    """What is restored from a backup would end up below it."""
    piece = harness.write(sink, rows(1))
    if in_flight:
        before_publishing(monkeypatch, lambda: others.drop_it(harness))
    else:
        others.drop_it(harness)
    with pytest.raises(TargetChangedError, match="is gone"):
        committed(sink, piece)
    with pytest.raises(TargetChangedError, match="is gone"):
        sink.fence(Attempt(2, 1))
    assert not harness.location.exists()


@pytest.mark.parametrize("later", [[], [11]], ids=["rolled back", "and written again"])
def test_rows_of_others_that_are_rolled_back_under_a_commit_stay_so(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch, later: list[int]
) -> None:
    """The commit has looked at their snapshot, whose name is free again, or another's."""
    committed(sink, harness.write(sink, rows(0)))
    harness.append(rows(10))
    piece = harness.write(sink, rows(1), 1)

    def roll_back() -> None:
        others.roll_back(harness)
        if later:
            harness.append(rows(*later))

    before_publishing(monkeypatch, roll_back)
    assert committed(sink, piece) == [Committed()]
    assert ids_of(harness) == [0, 1, *later]


@pytest.mark.parametrize("reply_is_lost", [False, True])
def test_a_piece_begun_on_rows_that_are_rolled_back_is_committed_once(
    harness: PaimonHarness,
    sink: OpenPaimonSink,
    monkeypatch: pytest.MonkeyPatch,
    reply_is_lost: bool,
) -> None:
    """Its snapshot has an id that theirs had when it was begun."""
    committed(sink, harness.write(sink, rows(0)))
    for number in (10, 11):
        harness.append(rows(number))
    piece = harness.write(sink, rows(1), 1)
    others.roll_back(harness)
    if reply_is_lost:
        others.dying_after_publishing(monkeypatch)
        committed(sink, piece)
        sink = harness.opened(Attempt(2, 1))
    [outcome] = committed(sink, piece)
    assert outcome == (AlreadyCommitted("snapshot 2") if reply_is_lost else Committed())
    assert ids_of(harness) == [0, 1]
    assert others.snapshots(harness) == [1, 2]


def test_a_snapshot_that_was_replaced_before_it_was_noted_is_made_again(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that does not look has taken its name."""
    harness.append(rows(10))
    piece = harness.write(sink, rows(1))

    def replace() -> None:
        others.roll_back(harness)
        harness.append(rows(11))

    others.dying_after_publishing(monkeypatch, replace)
    assert isinstance(committed(sink, piece)[0], RetryLater)
    assert ids_of(harness) == [10, 11]
    assert committed(sink, piece) == [Committed()]
    assert ids_of(harness) == [1, 10, 11]


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
