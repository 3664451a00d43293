"""Which rows are read back, and by which key they are found."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from twophase.sinks.mysql.columns import Column
from twophase.sinks.mysql.rows.read_back import SAMPLE_ROWS, ReadBack
from twophase.sinks.mysql.rows.types import ColumnPlan, plan_column
from twophase.sinks.mysql.table import Table, Trigger

ID = Column("id", "bigint", "bigint(20)", nullable=False, precision=19)
NAME = Column("name", "varchar", "varchar(9)", nullable=False, length=9)
RATIO = Column("ratio", "double", "double", nullable=False)
NOTE = Column("note", "varchar", "varchar(9)", length=9)
NUMBER = Column("k", "bigint", "bigint(20)", nullable=False, auto_increment=True, precision=19)
COLUMNS = (ID, NAME, RATIO, NOTE, NUMBER)
FIELDS = {
    "id": pa.int64(),
    "name": pa.string(),
    "ratio": pa.float64(),
    "note": pa.string(),
    "k": pa.int64(),
}
TABLE = Table("shop", "orders", "BASE TABLE", "InnoDB", COLUMNS)


def plans(*names: str) -> tuple[ColumnPlan, ...]:
    columns = {column.name: column for column in COLUMNS}
    found = [plan_column(pa.field(name, FIELDS[name]), columns[name]) for name in names]
    return tuple(plan for plan in found if isinstance(plan, ColumnPlan))


@pytest.mark.parametrize(
    ("keys", "filled", "key"),
    [
        ([("id",)], ["id", "note"], ("id",)),
        ([("id", "name")], ["id", "name"], ("id", "name")),
        ([("id", "name")], ["id"], ()),
        ([("k",), ("id",)], ["id"], ("id",)),
        ([("k",), ("id",)], ["id", "k"], ("k",)),
        ([("note",)], ["id", "note"], ()),
        ([("ratio",)], ["ratio"], ()),
        ([(None,)], ["id"], ()),
        ([], ["id"], ()),
    ],
)
def test_rows_are_found_by_the_first_key_that_they_fill_with_exact_values(
    keys: list[tuple[str | None, ...]], filled: list[str], key: tuple[str, ...]
) -> None:
    read_back = ReadBack.of(replace(TABLE, unique_keys=tuple(keys)), plans(*filled))
    assert tuple(plan.column for plan in read_back.key) == key
    assert read_back.numbered == ("" if "k" in filled else "k")


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([1], 1),
        ([SAMPLE_ROWS], SAMPLE_ROWS),
        ([3, 1, 4], 8),
        ([10_000], SAMPLE_ROWS),
        ([7, 1, 5_000], SAMPLE_ROWS),
    ],
)
def test_a_sample_is_spread_from_the_first_row_to_the_last(sizes: list[int], wanted: int) -> None:
    ids = iter(range(sum(sizes)))
    batches = [pa.record_batch({"id": pa.array([next(ids) for _ in range(n)])}) for n in sizes]
    read_back = ReadBack.of(replace(TABLE, unique_keys=(("id",),)), plans("id"))
    found = [row[0] for row in read_back._sample(batches)]
    assert len(found) == len(set(found)) == wanted
    assert found == sorted(found)
    assert (found[0], found[-1]) == (0, sum(sizes) - 1)
    before = replace(TABLE, triggers=(Trigger("shop", "t", "BEFORE", "SET NEW.note = ''"),))
    whole = ReadBack.of(replace(before, unique_keys=(("id",),)), plans("id"))
    assert [row[0] for row in whole._sample(batches)] == list(range(sum(sizes)))


def test_of_long_rows_fewer_are_read() -> None:
    batch = pa.record_batch({"name": pa.array(["x" * 30_000] * 10)})
    read_back = ReadBack.of(replace(TABLE, unique_keys=(("name",),)), plans("name"))
    assert len(list(read_back._sample([batch]))) == 2


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"columns": (*COLUMNS[1:], ID)}, ""),
        ({"definition": "with a comment"}, ""),
        ({"columns": (replace(ID, column_type="int(11)"), *COLUMNS[1:])}, "column 'id' is int(11)"),
        ({"columns": COLUMNS[1:]}, "column 'id' is missing"),
        ({"columns": (*COLUMNS, replace(ID, name="b"))}, "column 'b' is bigint(20)"),
        ({"columns": (replace(ID, generated=True), *COLUMNS[1:])}, "generated"),
        ({"engine": "MyISAM"}, "it is a BASE TABLE of MyISAM and was"),
        ({"unique_keys": (("id",),)}, "its unique keys are others"),
        ({"triggers": (Trigger("s", "t", "AFTER", ""),)}, "AFTER INSERT trigger `s`.`t`"),
    ],
)
def test_what_makes_a_table_another_one_is_named(now: dict[str, object], said: str) -> None:
    changes = "; ".join(TABLE.changes(replace(TABLE, **now)))  # type: ignore[arg-type]
    assert (said in changes) if said else not changes
