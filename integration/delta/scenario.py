"""Delta jobs under test: their topic, their tables, and an independent look at
what is in the tables.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from harness import checker, delta_lake, workload
from harness.delta_settings import delta_settings
from harness.nemesis import DriverProcess, Ended, held_at
from twophase.testing.services import KafkaService

BATCH = 200
_TIMEOUT_S = 1500
# So many jobs in one driver keep a small machine busy when they start.
_PATIENT = {"spark.python.authenticate.socketTimeout": "120s"}


class DeltaDriver(DriverProcess):
    """A process of `integration.delta.driver`, killed like any other driver."""

    module = "integration.delta.driver"


class DeltaScenario:
    """A topic of orders, and jobs that each write all of it into a table of their own.

    Args:
        kafka: where the orders come from.
        scratch: a folder for the jobs' folders, the tables and the logs.
        jobs: their names.
        controls: names of jobs without the protocol.
    """

    def __init__(
        self, kafka: KafkaService, scratch: Path, jobs: Sequence[str], controls: Sequence[str] = ()
    ) -> None:
        self.jobs = jobs
        self.produced = 0
        self.tables = {name: scratch / "lake" / name for name in (*jobs, *controls)}
        self._kafka = kafka
        self._topic = f"orders-{uuid.uuid4().hex[:8]}"
        self._scratch = scratch
        workload.create_topic(kafka.bootstrap_servers, self._topic)
        self._settings = {
            "servers": kafka.bootstrap_servers,
            "topic": self._topic,
            "location": str(scratch / "jobs"),
            "lake": str(scratch / "lake"),
            "jobs": list(jobs),
            "controls": list(controls),
            "records_per_batch": BATCH,
        }

    def produce(self, count: int) -> None:
        """Write the next `count` orders."""
        workload.produce(self._kafka.bootstrap_servers, self._topic, self.produced, count)
        self.produced += count

    def finish(self, arm: str = "") -> Ended:
        """A driver ends cleanly, every job having written everything."""
        ended = self._driver(arm).wait(_TIMEOUT_S)
        assert ended.code == 0, ended.output
        return ended

    def kill_at(self, points: Sequence[str], before: Callable[[], None]) -> Ended:
        """Wait until a job is held at each of the points, call `before`, then
        kill them all at once.
        """
        return self._driver(held_at(points)).kill_when_at(points, _TIMEOUT_S, before)

    def verdict(self, job: str) -> checker.Verdict:
        """What the independent checker says of one table."""
        produced = checker.read_topic(self._kafka.bootstrap_servers, self._topic)
        return checker.compare(produced, delta_lake.orders(self.tables[job]))

    def records(self, job: str) -> list[str]:
        """Records of pieces beside a table."""
        folder = self.tables[job] / "_twophase"
        kinds = (".intent", ".manifest", ".aborted")
        return [path.name for path in folder.rglob("*") if path.suffix in kinds]

    def _driver(self, arm: str) -> DeltaDriver:
        return DeltaDriver(self._settings, self._scratch, arm, {**delta_settings(), **_PATIENT})
