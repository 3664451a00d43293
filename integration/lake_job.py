"""A job of Spark from files of orders to tables of lakes and others, killed in its second
checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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

Sinks = Mapping[str, tuple[str, Mapping[str, Any]]]
"""Type and options of each sink, by name."""


class LakeDriver(DriverProcess):
    """A process of `integration.lake_driver`."""

    module = "integration.lake_driver"


def kill_and_run_again(
    scratch: Path,
    form: str,
    sinks: Sinks,
    point: str = IN_COMMIT,
    hit: int = 2,
    between: Callable[[], object] = lambda: None,
) -> None:
    """Write all orders, with a driver that is killed and another one.

    Args:
        scratch: a folder for the orders, the job and the logs.
        form: one of `FORMS`.
        sinks: of the job.
        point: where it is killed.
        hit: the time that it is there.
        between: called when it is dead.
    """
    orders = scratch / "orders"
    orders.mkdir()
    for number in range(CHECKPOINTS):
        order_files.write_orders(orders, number * order_files.BATCH)
    settings = {
        "orders": str(orders),
        "location": str(scratch / "job"),
        "form": form,
        "sinks": sinks,
    }
    driver = LakeDriver(settings, scratch / "runs", held_at([point], hit))
    killed = driver.kill_when_at([point], _TIMEOUT_S)
    assert killed.killed, killed.output
    between()
    ended = LakeDriver(settings, scratch / "runs").wait(_TIMEOUT_S)
    assert ended.code == 0, ended.output
