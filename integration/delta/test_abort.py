"""An abort beside a commit of another folder's driver, beside a second abort, and after one that
died: the log never names a file that is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from integration.delta.sink_harness import DeltaHarness, acting_at, commit
from twophase.contract.outcome import AlreadyCommitted, Committed, Lost, RetryLater
from twophase.errors import StopJobError
from twophase.internals.failpoints import FailpointError
from twophase.sinks.delta import committer, staging
from twophase.sinks.delta.fence import Fence
from twophase.sinks.delta.pieces import Pieces
from twophase.sinks.delta.sink import OpenDeltaSink

pytestmark = pytest.mark.part("delta")

_TIMEOUT_S = 60
STEPS = {
    "before the fence": (Fence, "write_again"),
    "before the look at the log": (Pieces, "named_by"),
    "before the deletion": (Pieces, "delete_data"),
    "before the records are removed": (Pieces, "forget"),
}


@pytest.fixture
def table(delta_spark: SparkSession, tmp_path: Path) -> DeltaHarness:
    return DeltaHarness(delta_spark, tmp_path / "orders")


def dying(*_: object) -> None:
    raise FailpointError("the driver died here")


def abort_and_die(table: DeltaHarness, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    owner, name = STEPS[step]
    sink = table.opened(attempt=None)
    found = sink.in_doubt()
    with monkeypatch.context() as dies:
        dies.setattr(owner, name, dying)
        with pytest.raises(FailpointError):
            sink.abort(found)


def abort_all(sink: OpenDeltaSink) -> None:
    sink.abort(sink.in_doubt())


def assert_gone(table: DeltaHarness) -> None:
    assert (table.ids(), table.records(), table.data_files()) == ([], [], [])


@pytest.mark.parametrize("step", STEPS)
def test_a_commit_in_flight_fails_although_a_first_abort_died(
    table: DeltaHarness, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))

    def abort_twice() -> None:
        abort_and_die(table, monkeypatch, step)
        abort_all(table.opened(attempt=None))

    acting_at(monkeypatch, committer)("D01", abort_twice)
    [ours] = commit(sink, piece)
    assert isinstance(ours, RetryLater)
    assert "ConcurrentTransaction" in ours.reason
    assert isinstance(commit(sink, piece, retries=1)[0], Lost)
    assert_gone(table)


@pytest.mark.parametrize("step", STEPS)
def test_no_commit_begins_after_an_abort_that_died(
    table: DeltaHarness, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    abort_and_die(table, monkeypatch, step)
    [outcome] = commit(sink, piece)
    assert isinstance(outcome, Lost)
    assert table.ids() == []
    assert [found.handle for found in sink.in_doubt()] == [{}]
    abort_all(sink)
    assert_gone(table)


def test_a_commit_in_flight_fails_while_two_drivers_abort_the_piece(
    table: DeltaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one does all of it before the first one has written its fence; that one dies."""
    sink, first, second = table.opened(), *(table.opened(attempt=None) for _ in range(2))
    piece = table.write(sink, range(3))
    write_again = Fence.write_again

    def abort_meanwhile(_: Fence) -> None:
        monkeypatch.setattr(Fence, "write_again", write_again)
        second.abort([piece])
        dying()

    def abort() -> None:
        monkeypatch.setattr(Fence, "write_again", abort_meanwhile)
        with pytest.raises(FailpointError):
            first.abort([piece])

    acting_at(monkeypatch, committer)("D01", abort)
    assert isinstance(commit(sink, piece)[0], RetryLater)
    assert isinstance(commit(sink, piece, retries=1)[0], Lost)
    assert_gone(table)


def test_a_writer_that_finishes_while_its_piece_is_deleted_is_not_committed(
    table: DeltaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, other = table.opened(), table.opened(attempt=None)
    written, go_on = threading.Event(), threading.Event()
    outcomes: list[Any] = []

    def wait() -> None:
        written.set()
        assert go_on.wait(_TIMEOUT_S)

    acting_at(monkeypatch, staging)("C05", wait)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(table.write, sink, range(3))
        assert written.wait(_TIMEOUT_S)
        delete_data: Callable[..., None] = Pieces.delete_data

        def commit_first(*arguments: Any) -> None:
            go_on.set()
            outcomes.extend(commit(sink, writing.result(_TIMEOUT_S)))
            delete_data(*arguments)

        monkeypatch.setattr(Pieces, "delete_data", commit_first)
        abort_all(other)
    assert isinstance(outcomes[0], Lost)
    assert_gone(table)


def test_a_piece_that_its_writer_did_not_finish_costs_no_commit(
    table: DeltaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = table.opened()
    acting_at(monkeypatch, staging)("C05", dying)
    with pytest.raises(FailpointError):
        table.write(sink, range(3))
    before = len(table.commits())
    abort_all(sink)
    assert_gone(table)
    assert len(table.commits()) == before


def test_an_abort_that_is_refused_leaves_a_piece_that_is_found_as_committed(
    table: DeltaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver died after the commit, before it removed the records."""
    sink, other = table.opened(), table.opened(attempt=None)
    piece = table.write(sink, range(3))
    acting_at(monkeypatch, committer)("F04", dying)
    with pytest.raises(FailpointError):
        commit(sink, piece)
    before = table.records()
    for _ in range(2):
        with pytest.raises(StopJobError, match="was decided in another folder") as caught:
            other.abort([piece])
        assert "with the folder (checkpointLocation) that decided it" in caught.value.remedy
        assert table.records() == before
    assert isinstance(commit(sink, piece, retries=1)[0], AlreadyCommitted)
    assert (table.ids(), table.records()) == ([0, 1, 2], [])


def test_an_abort_that_died_before_it_was_refused_hides_no_commit(
    table: DeltaHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    acting_at(monkeypatch, committer)(
        "D01", lambda: abort_and_die(table, monkeypatch, "before the fence")
    )
    assert commit(sink, piece) == [Committed()]
    assert (sink.in_doubt(), table.ids(), table.records()) == ([], [0, 1, 2], [])
