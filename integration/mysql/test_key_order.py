"""Rows go to the server in the order of the primary key, unless the order can be seen."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from integration.mysql.sink_harness import MySqlHarness, commit
from twophase.ids import Attempt, Subtask
from twophase.sinks.mysql.client.session import Session
from twophase.sinks.mysql.open_sink import OpenMySqlSink
from twophase.sinks.mysql.rows.loading import InsertLoader, LoadDataLoader, Loader
from twophase.testing.harness import transaction_id
from twophase.testing.services import MySqlService

pytestmark = pytest.mark.part("mysql")

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])
TABLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "number": ("a BIGINT PRIMARY KEY, b VARCHAR(9)", ("a",)),
    "text": ("a BIGINT, b VARCHAR(9) PRIMARY KEY", ("b",)),
    "both": ("a BIGINT, b VARCHAR(9), PRIMARY KEY (b, a)", ("b", "a")),
    "unique": ("a BIGINT NOT NULL UNIQUE, b VARCHAR(9)", ("a",)),
    "no key": ("a BIGINT, b VARCHAR(9)", ()),
    "null": ("a BIGINT UNIQUE, b VARCHAR(9)", ()),
    "counter": ("n BIGINT AUTO_INCREMENT PRIMARY KEY, a BIGINT, b VARCHAR(9)", ()),
    "counter beside": (
        "a BIGINT PRIMARY KEY, b VARCHAR(9), n BIGINT AUTO_INCREMENT, KEY (n)",
        (),
    ),
    "itself": (
        "a BIGINT PRIMARY KEY, b VARCHAR(9), p BIGINT, FOREIGN KEY (p) REFERENCES target (a)",
        (),
    ),
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("load", ["local", "insert"])
def test_rows_arrive_in_the_order_of_the_key(
    mysql: MySqlService, name: str, load: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ddl, order = TABLES[name]
    harness = MySqlHarness(mysql, ddl, SCHEMA, load=load)
    sink = harness.new_sink().open(harness.context())
    assert isinstance(sink, OpenMySqlSink)
    assert sink.writers().plan.key_order == order
    sink.fence(Attempt(1, 1))
    loaded: list[list[int]] = []
    for kind in (LoadDataLoader, InsertLoader):
        monkeypatch.setattr(kind, "load", _noting(kind.load, loaded))
    numbers = random.Random(7).sample(range(-500, 500), 1000)
    writer = sink.writers()(transaction_id(), Subtask(0, 1))
    for start in (0, 400):
        some = numbers[start : start + 400 if not start else None]
        batch = pa.RecordBatch.from_pydict({"a": some, "b": [f"{n:x}" for n in some]}, SCHEMA)
        writer.write(batch)
    piece = writer.pre_commit()
    assert piece is not None
    commit(sink, piece)
    keys: dict[tuple[str, ...], Callable[[int], Any]] = {
        ("a",): lambda n: n,
        ("b",): _hex,
        ("b", "a"): _hex,
    }
    expected = sorted(numbers, key=keys[order]) if order else numbers
    assert [n for run in loaded for n in run] == expected
    kept = harness.sql("SELECT a, b FROM target")
    assert sorted(kept) == sorted((n, f"{n:x}") for n in numbers)
    if "counter" in name:  # the order of the rows is that of their numbers
        assert [a for (a,) in harness.sql("SELECT a FROM target ORDER BY n")] == numbers


def _hex(number: int) -> str:
    return f"{number:x}"


def _noting(load: Callable[..., None], loaded: list[list[int]]) -> Callable[..., None]:
    def noting(self: Loader, session: Session, batches: Sequence[pa.RecordBatch]) -> None:
        loaded.extend(batch.column("a").to_pylist() for batch in batches)
        load(self, session, batches)

    return noting
