"""Jobs that write files, under test: their input, their tables, and an independent look at
what is in the tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import checker
from harness.nemesis import DriverProcess, Ended, held_at
from harness.order_files import BATCH, orders, staged, write_orders, written
from integration.files.driver import CONTROL

_TIMEOUT_S = 540


class FilesDriver(DriverProcess):
    """A process of `integration.files.driver`, killed like any other driver."""

    module = "integration.files.driver"


class FilesScenario:
    """A folder of orders, and jobs that each write all of it into a table of their own.

    Args:
        scratch: a folder for the jobs' folders, the tables and the logs.
        jobs: for each its sink's type and options.
        tables: for each job, where its files are.
        controls: names of jobs without the protocol.
        conf: of Spark.
    """

    def __init__(
        self,
        scratch: Path,
        jobs: Mapping[str, Mapping[str, Any]],
        tables: Mapping[str, Path],
        controls: Sequence[str] = (),
        conf: Mapping[str, str] | None = None,
    ) -> None:
        self.produced = 0
        self.jobs = [*jobs]
        self.hit: set[str] = set()
        self.controls = controls
        self._tables = {**tables, **{name: scratch / name for name in controls}}
        self._scratch = scratch
        self._orders = scratch / "orders"
        self._orders.mkdir()
        self._settings = {
            "orders": str(self._orders),
            "location": str(scratch / "jobs"),
            "jobs": {name: dict(options) for name, options in jobs.items()},
            "controls": {name: str(self._tables[name]) for name in controls},
            "master": "local[4]",
            "counts": str(scratch / "counts"),
        }
        self._conf = conf or {}

    def produce(self, batches: int) -> None:
        """Write the orders of the next micro-batches."""
        for _ in range(batches):
            write_orders(self._orders, self.produced)
            self.produced += BATCH

    def finish(self, arm: str = "", **settings: Any) -> Ended:
        """A driver ends cleanly, every job having written everything."""
        ended = FilesDriver(self._settings | settings, self._scratch, arm, self._conf).wait(
            _TIMEOUT_S
        )
        assert ended.code == 0, ended.output
        return ended

    def kill_at(self, points: Sequence[str], controls: bool = False, **settings: Any) -> None:
        """Wait until a job is held at each of the points, then kill them all at once."""
        held = [*points, *(CONTROL.format(name) for name in self.controls)] if controls else points
        driver = FilesDriver(self._settings | settings, self._scratch, held_at(held), self._conf)
        ended = driver.kill_when_at(held, _TIMEOUT_S)
        assert ended.killed, ended.output
        assert {*ended.points} == {*held}
        self.hit.update(points)

    def verdict(self, job: str) -> checker.Verdict:
        """What the independent checker says of one table."""
        return checker.compare(written(self.produced), orders(self._tables[job]))

    def counts(self) -> dict[str, int]:
        """How many rows Spark SQL has seen in each table of the metastore, when the
        last driver ended.
        """
        return dict(json.loads((self._scratch / "counts").read_text()))

    def staged(self, job: str) -> list[str]:
        """What lies hidden and is not committed."""
        return staged(self._tables[job])
