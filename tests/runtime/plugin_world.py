"""Spark, as the plugin form sees it, without Spark: its folder, its applications, and the
processes it starts.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from twophase import failpoints
from twophase.ids import Subtask
from twophase.protocol.committable import Committable
from twophase.runtime import sink_entry_points
from twophase.runtime.plugin import job as job_module
from twophase.runtime.plugin.description import Environment, PluginDescription, describe
from twophase.runtime.plugin.job import Acknowledged, Plan, PluginJob, job_of
from twophase.state.history import History
from twophase.state.log import JobLog
from twophase.state.storage import LocalStorage
from twophase.testing.folder import FolderTarget

SCHEMA = StructType().add("id", "long")
ENVIRONMENT = Environment(parallelism=2, speculation=False, timezone="UTC")
TASKS = 2
ENTRIES = [
    EntryPoint("folder", "twophase.testing.folder:FolderSink", sink_entry_points.GROUP),
    EntryPoint("whole", "tests.runtime.plugin_world:WholeFrames", sink_entry_points.GROUP),
]


class Killed(BaseException):
    """No `except Exception` may notice that a process dies."""


class World:
    """One query's folder on disk, and a target.

    Args:
        root: for everything.
        monkeypatch: of the test.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.folder = root / "chk"
        self.target = FolderTarget(root / "facts")
        self._patch = monkeypatch
        self._tasks = 0
        monkeypatch.setattr(
            sink_entry_points, "offered", lambda _: {entry.name: entry for entry in ENTRIES}
        )
        for name in ("offsets", "commits"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        self.application("first")

    # -- Spark -------------------------------------------------------------------------------------

    def application(self, name: str) -> None:
        """From here on this application calls us."""
        local = self.root / f"blockmgr-{name}"
        local.mkdir(exist_ok=True)
        self._patch.setenv("SPARK_LOCAL_DIRS", f"{local},/nowhere")
        self.new_process()

    def new_process(self) -> None:
        """What was kept in memory is gone."""
        job_module._jobs.clear()

    def freeze(self, number: int, end: int | None = None) -> None:
        """Spark writes the offsets of a micro-batch; it ends at `end`."""
        end_line = json.dumps({"next": 10 * (number + 1) if end is None else end})
        header = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}})
        (self.folder / "offsets" / str(number)).write_text(f"v1\n{header}\n{end_line}")

    def finish(self, number: int) -> None:
        """Spark notes a micro-batch as done."""
        (self.folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    def arm(self, point: str = "") -> None:
        """Let the process be killed at one failpoint, once; none without a name."""
        self._patch.setattr(failpoints, "FailpointError", Killed)
        self._patch.setattr(
            failpoints, "_rules", failpoints._parse(f"{point}=raise@1" if point else "")
        )
        self._patch.setattr(failpoints, "_hits", {})

    # -- our side, each call in a process of its own -----------------------------------------------

    def description(self, **options: str) -> PluginDescription:
        """The query."""
        given = {
            "name": "orders",
            "checkpointlocation": str(self.folder),
            "path": str(self.target.root),
            **options,
        }
        return describe("twophase-folder", "folder", given, SCHEMA, ENVIRONMENT)

    def job(self, **options: str) -> PluginJob:
        """The job in a new process."""
        self.new_process()
        return job_of(self.description(**options))

    def write(
        self, plan: Plan, number: int, tasks: Sequence[int] = range(TASKS)
    ) -> list[Acknowledged]:
        """The tasks of a micro-batch: ten rows, divided among them."""
        return [Acknowledged(plan.attempt, self._piece(plan, number, task)) for task in tasks]

    def _piece(self, plan: Plan, number: int, task: int) -> Committable | None:
        if plan.transaction is None:
            return None
        self._tasks += 1
        writer = plan.writers(plan.transaction, Subtask(task, self._tasks))
        ids = [10 * number + step for step in range(10) if step % TASKS == task]
        writer.write(pa.RecordBatch.from_pydict({"id": ids}))
        return writer.pre_commit()

    def run(self, number: int) -> None:
        """A whole micro-batch."""
        if not (self.folder / "offsets" / str(number)).exists():
            self.freeze(number)
        acknowledged = self.write(self.job().plan(), number)
        self.job().commit(number, acknowledged)
        self.finish(number)

    # -- what is there -----------------------------------------------------------------------------

    def ids(self) -> list[int]:
        """What readers see."""
        return sorted(int(row["id"]) for row in self.target.rows())

    def expected(self, batches: int) -> list[int]:
        """What they should see."""
        return list(range(10 * batches))

    def history(self) -> History:
        """What the log says."""
        return JobLog(LocalStorage(self.folder / "twophase"), "orders").read()

    def records(self) -> list[str]:
        """The names of the log's records."""
        return LocalStorage(self.folder / "twophase").names("log")


class WholeFrames:
    """A sink that is not written by tasks."""

    def __init__(self, **options: Any) -> None:
        self.options = options
