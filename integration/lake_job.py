"""A job of Spark from files of orders to a table of a lake, killed in its second commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness import order_files
from harness.nemesis import DriverProcess, held_at

CHECKPOINTS = 3
COUNT = CHECKPOINTS * order_files.BATCH
IN_COMMIT = "D02"
"""Behind the commit of the table, before the coordinator knows of it."""
FORMS = ("write_stream", "plugin")
_TIMEOUT_S = 600


class LakeDriver(DriverProcess):
    """A process of `integration.lake_driver`."""

    module = "integration.lake_driver"


def kill_and_run_again(scratch: Path, form: str, kind: str, sink: dict[str, Any]) -> None:
    """Write all orders, with a driver that is killed and another one.

    Args:
        scratch: a folder for the orders, the job and the logs.
        form: one of `FORMS`.
        kind: the sink's type.
        sink: its options.
    """
    orders = scratch / "orders"
    orders.mkdir()
    for number in range(CHECKPOINTS):
        order_files.write_orders(orders, number * order_files.BATCH)
    settings = {
        "orders": str(orders),
        "location": str(scratch / "job"),
        "form": form,
        "type": kind,
        "sink": sink,
    }
    driver = LakeDriver(settings, scratch / "runs", held_at([IN_COMMIT], 2))
    killed = driver.kill_when_at([IN_COMMIT], _TIMEOUT_S)
    assert killed.killed, killed.output
    ended = LakeDriver(settings, scratch / "runs").wait(_TIMEOUT_S)
    assert ended.code == 0, ended.output
