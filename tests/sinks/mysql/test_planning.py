"""What is said when rows are planned."""

from __future__ import annotations

from typing import Any

import pytest

from twophase.contract.sink import SinkContext
from twophase.sinks.mysql.client.server import Server
from twophase.sinks.mysql.columns import Column
from twophase.sinks.mysql.options import MySqlOptions
from twophase.sinks.mysql.planning import Planner
from twophase.sinks.mysql.table import Table

ID = Column("id", "bigint", "bigint(20)", nullable=False, auto_increment=True, precision=19)
TABLE = Table("shop", "orders", "BASE TABLE", "InnoDB", (ID,))
SERVER = Server("10.11.6-MariaDB", {"innodb_autoinc_lock_mode": "1", "local_infile": "ON"})
OPTIONS = MySqlOptions.parse({"url": "mysql://app@db/shop", "table": "orders"}, "MySqlSink")


def test_a_repair_is_told_nothing_about_how_tasks_load(caplog: pytest.LogCaptureFixture) -> None:
    """It does not know which columns the rows fill: perhaps they number themselves."""
    unused: Any = None
    planner = Planner(OPTIONS, SinkContext("job", "facts", None, parallelism=0), SERVER)
    assert not planner._plan(unused, TABLE).takes_turns
    assert caplog.text == ""
