"""What is said when rows are planned."""

from __future__ import annotations

from typing import Any

import pytest

from twophase.contract.sink import SinkContext
from twophase.errors import PreflightError
from twophase.sinks.mysql.client.server import Server
from twophase.sinks.mysql.columns import Column
from twophase.sinks.mysql.options import MySqlOptions
from twophase.sinks.mysql.planning import Planner
from twophase.sinks.mysql.preflight import check_server
from twophase.sinks.mysql.table import Table

ID = Column("id", "bigint", "bigint(20)", nullable=False, auto_increment=True, precision=19)
TABLE = Table("shop", "orders", "BASE TABLE", "InnoDB", (ID,))
SERVER = Server("10.11.6-MariaDB", {"innodb_autoinc_lock_mode": "1", "local_infile": "ON"})
OPTIONS = MySqlOptions.parse({"url": "mysql://app@db/shop", "table": "orders"}, "MySqlSink")

SAFE = {"innodb_flush_log_at_trx_commit": "1", "max_connections": "151"}


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({}, ""),
        ({"innodb_flush_log_at_trx_commit": "2"}, "innodb_flush_log_at_trx_commit"),
        ({"innodb_flush_method": "nosync"}, "innodb_flush_method"),
        ({"innodb_flush_method": "littlesync"}, "innodb_flush_method"),
        ({"innodb_flush_method": "O_DIRECT_NO_FSYNC"}, ""),
        ({"innodb_flush_method": "fsync"}, ""),
        ({"log_bin": "ON", "sync_binlog": "0"}, "sync_binlog"),
        ({"log_bin": "ON", "sync_binlog": "1"}, ""),
    ],
)
def test_a_server_that_may_lose_what_it_has_acknowledged_is_refused_unless_it_is_accepted(
    settings: dict[str, str], refused: str
) -> None:
    server = Server("8.0.35", SAFE | settings)
    if refused:
        with pytest.raises(PreflightError, match=refused):
            check_server(server, OPTIONS)
    accepting = OPTIONS.model_copy(update={"allow_unsafe_durability": bool(refused)})
    check_server(server, accepting)


@pytest.mark.parametrize(
    ("parallelism", "beside", "fits"),
    [(148, 0, True), (149, 0, False), (48, 100, True), (49, 100, False), (8, 200, False)],
)
def test_a_server_needs_connections_for_all_sinks_that_a_task_writes_to(
    parallelism: int, beside: int, *, fits: bool
) -> None:
    server = Server("10.11.6-MariaDB", SAFE)
    context = SinkContext("job", "facts", None, parallelism, beside=beside)
    if fits:
        check_server(server, OPTIONS, context)
        return
    with pytest.raises(PreflightError, match="connections allowed") as caught:
        check_server(server, OPTIONS, context)
    assert (f"beside {beside} writers of chained sinks" in str(caught.value)) is (beside > 0)
    check_server(server, OPTIONS)  # without a job nobody knows how many


def test_a_repair_is_told_nothing_about_how_tasks_load(caplog: pytest.LogCaptureFixture) -> None:
    """It does not know which columns the rows fill: perhaps they number themselves."""
    unused: Any = None
    planner = Planner(OPTIONS, SinkContext("job", "facts", None, parallelism=0), SERVER)
    assert not planner._plan(unused, TABLE).takes_turns
    assert caplog.text == ""
