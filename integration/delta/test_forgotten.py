"""A table that forgets application ids (delta.setTransactionRetentionDuration), after an
outage that was longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from integration.delta.sink_harness import DeltaHarness, commit
from twophase.contract.outcome import AlreadyCommitted, Committed, Lost
from twophase.contract.sink import CommitRequest, Predecessor
from twophase.errors import DeclinedError
from twophase.ids import Attempt
from twophase.sinks.delta import transaction
from twophase.sinks.delta.sink import OpenDeltaSink
from twophase.testing.harness import LINEAGE, transaction_id

pytestmark = [pytest.mark.part("delta"), pytest.mark.proof]

AGO_S = 31 * 24 * 3600
NEXT = Attempt(2, 1)


@pytest.fixture
def table(delta_spark: SparkSession, tmp_path: Path) -> DeltaHarness:
    return DeltaHarness(delta_spark, tmp_path / "orders")


@pytest.fixture
def forget(table: DeltaHarness, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Application ids are dated a month back until the table is told to forget such."""
    clock = SimpleNamespace(time=lambda: time.time() - AGO_S)
    monkeypatch.setattr(transaction, "time", clock)

    def forget() -> None:
        table.sql(
            "ALTER TABLE {table} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = "
            "'interval 30 days')"
        )
        clock.time = time.time

    return forget


def test_it_goes_on_with_what_it_finds(table: DeltaHarness, forget: Callable[[], None]) -> None:
    sink = table.opened()
    assert commit(sink, table.write(sink, [0], 0)) == [Committed()]
    piece = table.write(sink, [1], 1)
    forget()
    again = table.opened(attempt=None)
    assert (again.history().generation, again.history().committed) == (0, {})
    assert commit(again, piece) == [Committed()]
    with pytest.raises(DeclinedError, match="has no fence"):
        again.pre_commit(table.frame(table.rows([2])), transaction_id(2, NEXT))
    again.fence(NEXT)
    assert commit(again, table.write(again, [2], 2, NEXT)) == [Committed()]
    assert table.ids() == [0, 1, 2]
    assert table.records() == []


def test_a_commit_is_proven_by_the_log_or_not_at_all(
    table: DeltaHarness, forget: Callable[[], None]
) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    saved = {
        path: path.read_bytes()
        for path in (table.folder / "_twophase").rglob("*")
        if path.is_file()
    }
    assert commit(sink, piece) == [Committed()]
    forget()
    for path, content in saved.items():  # as if the driver had died before it removed the records
        path.write_bytes(content)
    assert isinstance(commit(table.opened(attempt=None), piece)[0], AlreadyCommitted)
    assert table.records() == []
    assert isinstance(commit(table.opened(attempt=None), piece)[0], Lost)
    assert table.ids() == [0, 1, 2]


def marks(table: DeltaHarness) -> list[Path]:
    return [*(table.folder / "_twophase").rglob("*.proof")]


@pytest.fixture
def forgetful(table: DeltaHarness, forget: Callable[[], None]) -> OpenDeltaSink:
    """A table that was told to forget before the first commit, and has by now: its
    proof is the mark.
    """
    sink = table.opened()
    table.sql(
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = "
        "'interval 90 days')"
    )
    assert commit(sink, table.write(sink, [0], 0)) == [Committed()]
    forget()
    return table.opened(attempt=None)


def test_the_mark_proves_what_the_table_has_forgotten(
    table: DeltaHarness, forgetful: OpenDeltaSink
) -> None:
    assert forgetful.history().committed == {LINEAGE: 0}
    forgetful.fence(NEXT)
    piece = table.write(forgetful, [1], 1, NEXT)
    assert list(forgetful.commit([CommitRequest(piece, 0, Predecessor(LINEAGE, 0))])) == [
        Committed()
    ]
    assert table.opened(attempt=None).history().committed == {LINEAGE: 1}
    [mark] = marks(table)
    assert mark.name.startswith(f"{LINEAGE}-1.")


def test_a_mark_proves_nothing_for_an_older_copy_of_the_table(
    table: DeltaHarness, forgetful: OpenDeltaSink
) -> None:
    [mark] = marks(table)
    version, rest = mark.name.split(".", 1)[1].split(".", 1)
    later = mark.with_name(f"{mark.name.split('.', 1)[0]}.{int(version) + 1000}.{rest}")
    mark.rename(later)
    assert forgetful.history().committed == {}
    later.rename(mark)
    other_table = mark.with_name(mark.name.replace(rest, "another-id.proof"))
    mark.rename(other_table)
    assert forgetful.history().committed == {}


def test_a_mark_that_a_driver_died_before_is_saved_by_the_fence_and_by_no_look(
    table: DeltaHarness,
) -> None:
    sink = table.opened()
    assert commit(sink, table.write(sink, [0], 0)) == [Committed()]
    table.sql(
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = "
        "'interval 90 days')"
    )
    before = table.contents()
    for schema in (None, table.fields):
        again = table.new_sink().open(table.context(schema=schema))
        assert again.history().committed == {LINEAGE: 0}
    assert table.contents() == before
    again.fence(NEXT)
    [mark] = marks(table)
    assert mark.name.startswith(f"{LINEAGE}-0.")
