"""A whole job without Spark that can be restored and saved: the product's engine over Spark's
folder, which is written here.

It reads the numbers from 0, ten in each micro-batch, up to a limit that may be raised.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from harness.beginning_world import BeginningWorld
from harness.folder_host import FolderHost
from harness.memory_driver import JOB, SCHEMA, rows
from harness.memory_host import InThisProcess
from harness.savepoint_world import STEP
from twophase.contract.sink import Sink
from twophase.contract.source import SourceLeg
from twophase.engine.engine import Engine
from twophase.engine.host import Plan
from twophase.events import Event, Observers
from twophase.operations.savepoint.make import JobSavepoints
from twophase.options.job_options import JobOptions
from twophase.spark.plan.operator_states import OperatorStates
from twophase.testing.plain_host import TaskRows


class Numbers:
    """See `twophase.testing.plain_host.Rows`.

    Args:
        batches: how many micro-batches there are to read.
    """

    schema: pa.Schema = SCHEMA
    parallelism = 1

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def end_after(self, start: str | None) -> str | None:
        """See `Rows.end_after`."""
        number = _next(start)
        return json.dumps({"next": number + STEP}) if number < self.batches * STEP else None

    def tasks(self, start: str | None, end: str | None) -> Sequence[TaskRows]:
        """See `Rows.tasks`."""
        read = rows(range(_next(start), _next(end)))
        batch = pa.RecordBatch.from_pylist(read, schema=self.schema)
        return [partial(iter, [batch])]


def _next(offset: str | None) -> int:
    return int(json.loads(offset)["next"]) if offset else 0


class RestorableHost(FolderHost):
    """A plan without state, over Spark's folder."""

    def __init__(
        self,
        job: str,
        options: JobOptions,
        numbers: Numbers,
        declared: Mapping[str, Sink],
        states: OperatorStates,
        *,
        forever: bool,
    ) -> None:
        super().__init__(job, options, numbers, declared, states, InThisProcess(), forever=forever)

    def plan(self) -> Plan:
        return Plan(stateful=False, keeps_state=False)


class PlainJob:
    """A job of a `BeginningWorld`, as a program holds it.

    Args:
        world: has the sinks and the folders.
        batches: how many micro-batches there are to read.
        folder: the job's.
        options: of the job.
        name: the job's.
        forever: whether it waits for more when there is nothing to read.

    Attributes:
        numbers: the source.
        engine: runs it.
        events: of the engine.
        savepoints: of it.
    """

    def __init__(
        self,
        world: BeginningWorld,
        batches: int,
        folder: str = "job",
        options: Mapping[str, Any] | None = None,
        *,
        name: str = JOB,
        forever: bool = False,
    ) -> None:
        given = {
            "checkpointLocation": str(world.root / folder),
            "restart.strategy": "none",
            "commit.backoff": "1 ms",
            "restore.allow_unproven_sources": "true",  # the numbers are always there
            **(options or {}),
        }
        parsed = JobOptions.parse(given, name)
        declared = {name: world.sink(name) for name in world.sinks}
        self.numbers = Numbers(batches)
        states = OperatorStates([SourceLeg("Numbers", {})], world.functions)
        host = RestorableHost(name, parsed, self.numbers, declared, states, forever=forever)
        self.events: list[Event] = []
        observers, listeners = Observers(self.events.append), states.listeners()
        self.engine = Engine(host, name, declared, parsed, observers, listeners=listeners)
        self.savepoints = JobSavepoints(self.engine)

    def start(self) -> None:
        """Start it; it runs on in threads of its own."""
        self.engine.start()

    def run(self) -> None:
        """Run it to its end."""
        self.start()
        assert self.engine.await_termination(60)
