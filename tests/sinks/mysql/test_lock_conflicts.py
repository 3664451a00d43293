"""Which rows of other tasks are found: the answers of a server are written here."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pymysql

from twophase.errors import DeclinedError
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.sinks.mysql.columns import Column
from twophase.sinks.mysql.lock_conflicts import REFERRING_KEYS, LockConflicts
from twophase.sinks.mysql.metadata_tables import MetadataTables
from twophase.sinks.mysql.rows.types import ColumnPlan, plan_column
from twophase.sinks.mysql.table import Table
from twophase.sinks.mysql.xid import Owner

LINEAGE = "aaaaaaaa-0000-4000-8000-000000000000"


class Server:
    """Has the orders 1 to 50, and 99, which another task of the attempt has written."""

    def __init__(self) -> None:
        self.is_uncommitted_shown = False

    def run(self, sql: str) -> None:
        self.is_uncommitted_shown = sql.endswith("READ UNCOMMITTED")

    def rows(self, sql: str, _: object = ()) -> list[tuple[Any, ...]]:
        if sql == REFERRING_KEYS:
            return [("orders_fk", "shop", "orders", "parent", "id")]
        if "twophase_ledger" in sql:
            return [(1, 1, 0, 0)]
        if "IS_USED_LOCK" in sql:
            return [(None,)]
        if "IN (" not in sql:
            return []
        there = [*range(1, 51), *([99] if self.is_uncommitted_shown else [])]
        asked = {int(number) for number in re.findall(r"\((\d+)\)", sql)}
        limit = re.search(r"LIMIT (\d+)", sql)
        return [(None, one) for one in there if one in asked][: int(limit[1]) if limit else None]


class Denies(Server):
    """Shows nobody the rows of another table."""

    def rows(self, sql: str, _: object = ()) -> list[tuple[Any, ...]]:
        if sql == REFERRING_KEYS:
            return [("orders_fk", "shop", "customers", "parent", "id")]
        if "`customers`" in sql:
            raise pymysql.OperationalError(1142, "denied")
        return super().rows(sql)


def found_by(session: Any) -> DeclinedError:
    plan = plan_column(pa.field("parent", pa.int64()), Column("parent", "bigint", "bigint(20)"))
    assert isinstance(plan, ColumnPlan)
    owner = Owner("n", "job", "facts")
    table = Table("shop", "orders", "BASE TABLE", "InnoDB", ())
    conflicts = LockConflicts(table, (plan,), owner, MetadataTables("shop"))
    transaction = TransactionId("job", LINEAGE, 1, Attempt(1, 1), "facts", "h")
    waited = [pa.record_batch({"parent": pa.array([*range(1, 21), 99])})]
    return conflicts.find(session, transaction, Subtask(1, 1), waited, (), DeclinedError("waited"))


def test_the_row_of_another_task_is_found_behind_any_number_of_committed_ones() -> None:
    assert "key `orders_fk`: [99]" in found_by(Server()).what


def test_a_table_that_the_account_may_not_read_is_named() -> None:
    error = found_by(Denies())
    assert error.what == "waited"
    assert "the foreign key `orders_fk` to `shop`.`customers`" in error.remedy
