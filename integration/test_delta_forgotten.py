"""A table that forgets application ids (delta.setTransactionRetentionDuration), after an outage that was longer."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from integration.delta_harness import DeltaHarness, commit
from sinks.delta import log
from twophase.errors import DeclinedError
from twophase.ids import Attempt
from twophase.protocol.outcome import AlreadyCommitted, Committed, Lost
from twophase.testing.harness import transaction_id

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
    monkeypatch.setattr(log, "time", clock)

    def forget() -> None:
        table.sql(
            "ALTER TABLE {table} SET TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 30 days')"
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


def test_a_commit_is_proven_by_the_log_or_not_at_all(table: DeltaHarness, forget: Callable[[], None]) -> None:
    sink = table.opened()
    piece = table.write(sink, range(3))
    saved = {path: path.read_bytes() for path in (table.folder / "_twophase").rglob("*") if path.is_file()}
    assert commit(sink, piece) == [Committed()]
    forget()
    for path, content in saved.items():  # as if the driver had died before it removed the records
        path.write_bytes(content)
    assert isinstance(commit(table.opened(attempt=None), piece)[0], AlreadyCommitted)
    assert table.records() == []
    assert isinstance(commit(table.opened(attempt=None), piece)[0], Lost)
    assert table.ids() == [0, 1, 2]
