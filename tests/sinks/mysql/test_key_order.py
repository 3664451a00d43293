"""By which columns rows are sorted, and where their order is left alone."""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from twophase.sinks.mysql.columns import Column
from twophase.sinks.mysql.rows.column_types import Encoding
from twophase.sinks.mysql.rows.key_order import in_order, key_order
from twophase.sinks.mysql.rows.types import ColumnPlan
from twophase.sinks.mysql.table import Table, Trigger

ID = Column("id", "bigint", "bigint", nullable=False)
NAME = Column("name", "varchar", "varchar(9)", nullable=False)
MAYBE = Column("maybe", "int", "int")
COUNTER = Column("n", "bigint", "bigint", nullable=False, auto_increment=True)
SEQUENCE = Column("s", "bigint", "bigint", default="nextval(`shop`.`s`)")
RANDOM = Column("r", "double", "double", default="rand()", default_is_expression=True)
RATIO = Column("ratio", "double", "double", nullable=False)

TYPES = {"id": pa.int64(), "name": pa.string(), "maybe": pa.int32(), "ratio": pa.float64()}
DEFINITION = "CREATE TABLE `orders` (`id` bigint, PRIMARY KEY (`id`))"
ITSELF = "CREATE TABLE `orders` (`id` bigint, FOREIGN KEY (`of`) REFERENCES `orders` (`id`))"
TEXTS = ["", "a", "B", "\u00e9"]
TRIGGER = Trigger("shop", "t", "BEFORE", None)


def plan(column: str) -> ColumnPlan:
    return ColumnPlan(f"its_{column}", column, TYPES[column], Encoding.PLAIN, nullable=True)


def table(
    *columns: Column,
    keys: tuple[tuple[str | None, ...], ...] = (("id",),),
    triggers: tuple[Trigger, ...] = (),
) -> Table:
    return Table("shop", "orders", "BASE TABLE", "InnoDB", columns, keys, triggers, DEFINITION)


ORDERS: dict[str, tuple[Table, tuple[str, ...]]] = {
    "the primary key": (table(ID, NAME), ("its_id",)),
    "several columns": (table(ID, NAME, keys=(("name", "id"),)), ("its_name", "its_id")),
    "the first key": (table(ID, NAME, keys=(("id",), ("name",))), ("its_id",)),
    "a default that draws": (table(ID, NAME, RANDOM), ("its_id",)),
    "no key": (table(ID, NAME, keys=()), ()),
    "a key that may be NULL": (table(ID, MAYBE, keys=(("maybe",),)), ()),
    "a key of an expression": (table(ID, NAME, keys=((None, "id"),)), ()),
    "a key that rows do not fill": (table(ID, COUNTER, keys=(("n",),)), ()),
    "a counter beside the key": (table(ID, NAME, COUNTER), ()),
    "a sequence beside the key": (table(ID, NAME, SEQUENCE), ()),
    "a key of floats": (table(ID, RATIO, keys=(("ratio",),)), ()),
    "a trigger": (table(ID, NAME, triggers=(TRIGGER,)), ()),
}


@pytest.mark.parametrize("name", ORDERS)
def test_rows_are_sorted_by_what_the_table_is_stored_by(name: str) -> None:
    target, order = ORDERS[name]
    plans = [plan(column.name) for column in target.columns if column.name in TYPES]
    assert key_order(target, plans) == order
    assert key_order(replace(target, definition=""), plans) == ()
    assert key_order(replace(target, definition=ITSELF), plans) == ()


REFERENCES = {
    "`orders` (`id`)": True,
    "`Orders` (`id`)": True,
    '"orders" ("id")': True,
    "`shop`.`orders` (`id`)": True,
    "`orders2` (`id`)": False,
    "`other`.`orders` (`id`)": False,
    "`customers` (`orders`)": False,
}


@pytest.mark.parametrize("text", REFERENCES)
def test_a_table_may_refer_to_itself(text: str) -> None:
    found = replace(
        table(ID), definition=f"CREATE TABLE `orders` (FOREIGN KEY (a) REFERENCES {text})"
    )
    assert found.refers_to_itself is REFERENCES[text]


@pytest.mark.parametrize("order", [(), ("a",), ("b",), ("b", "a"), ("c",), ("d",)], ids=str)
def test_no_row_is_lost_by_the_order(order: tuple[str, ...]) -> None:
    draw = random.Random(3)
    schema = pa.schema(
        [("a", pa.int64()), ("b", pa.string()), ("c", pa.binary()), ("d", pa.decimal128(9, 2))]
    )
    rows = [
        {
            "a": draw.randrange(99),
            "b": draw.choice(["", "a", "B", "\u00e9"]),
            "c": b"%d" % i,
            "d": i,
        }
        for i in range(500)
    ]
    batches = [pa.RecordBatch.from_pylist(rows[i : i + 70], schema) for i in range(0, 500, 70)]
    found = [row for batch in in_order(batches, order) for row in batch.to_pylist()]
    given = [row for batch in batches for row in batch.to_pylist()]
    assert sorted(map(repr, found)) == sorted(map(repr, given))
    if order:
        keys = [tuple(_comparable(row[name]) for name in order) for row in found]
        assert keys == sorted(keys)
    else:
        assert found == given


def _comparable(value: object) -> object:
    return value.encode() if isinstance(value, str) else value


KEY = pa.schema([("a", pa.int64()), ("b", pa.string())])
Rows = list[tuple[int | None, str]]
RUNS: dict[str, tuple[list[Rows], bool]] = {
    "one row": ([[(1, "b")]], True),
    "rises": ([[(1, "b"), (2, "a")], [(3, "a")]], True),
    "stays": ([[(1, "b"), (1, "b")], [(1, "b"), (1, "c")]], True),
    "falls in a batch": ([[(2, "a"), (1, "b")]], False),
    "falls after a batch": ([[(1, "a"), (3, "a")], [(2, "b"), (4, "a")]], False),
    "falls in the second field": ([[(1, "b"), (1, "a"), (2, "a")]], False),
    "NULL": ([[(1, "a"), (None, "b")]], False),
}


@pytest.mark.parametrize("name", RUNS)
def test_rows_that_come_in_order_are_not_copied(name: str) -> None:
    runs, in_place = RUNS[name]
    batches = [pa.RecordBatch.from_pylist([{"a": a, "b": b} for a, b in run], KEY) for run in runs]
    found = in_order(batches, ("a", "b"))
    assert ([*map(id, found)] == [*map(id, batches)]) is in_place
    rows = [(row["a"], row["b"]) for batch in found for row in batch.to_pylist()]
    given = [row for run in runs for row in run]
    assert rows == sorted(given, key=lambda row: (row[0] is None, row))
