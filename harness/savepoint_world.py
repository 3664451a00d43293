"""A job without Spark that keeps state, for savepoints: its folder, its target, processes that die.

Real: the engine's driver, log, store, recovery, `LineageStart`, `SparkFolder`, and a sink on a
folder.
Each checkpoint reads ten numbers; the state is the sum of all read so far, kept as Spark keeps
versions: after micro-batch n in `state/0/0/<n + 1>.delta`.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.folder_host import FolderHost
from harness.folder_sink import FolderSink, FolderTarget
from harness.memory_driver import (
    JOB,
    SCHEMA,
    Driver,
    ManualClock,
    open_sinks,
)
from harness.memory_host import NO_ROWS
from harness.query_folder import QueryFolder
from twophase.contract.sink import ArrowSink
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.engine.host import Plan
from twophase.events import Event
from twophase.internals import failpoints
from twophase.operations.savepoint import format as format_module
from twophase.operations.savepoint.finish import finish_savepoint
from twophase.operations.savepoint.make import SavepointMaker
from twophase.operations.savepoint.savepoint_restore import verified
from twophase.spark.plan.operator_states import OperatorStates
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Decision
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog

STEP = 10


class StatefulHost(FolderHost):
    """A plan that keeps state, over Spark's folder."""

    def __init__(
        self, declared: Mapping[str, ArrowSink], context: JobContext, states: OperatorStates
    ) -> None:
        super().__init__(context.job, context.options, NO_ROWS, declared, states)

    def plan(self) -> Plan:
        return Plan(stateful=True, keeps_state=True, has_watermark=True)


class World:
    """One job, with folders that outlive its drivers.

    Args:
        root: for everything.

    Attributes:
        schema: of the rows.
        driver: writes them.
        host: runs the plan.
    """

    schema: pa.Schema = SCHEMA
    driver: type[Driver] = Driver
    host: type[StatefulHost] = StatefulHost

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sinks: tuple[str, ...] = ("facts", "lake")
        self.events: list[Event] = []

    # -- what there is -----------------------------------------------------------------------------

    def ids(self) -> list[list[int]]:
        """The rows of each sink."""
        return [sorted(self.numbers(name)) for name in self.sinks]

    def numbers(self, name: str) -> list[int]:
        """The numbers in the target of a sink."""
        return [row["id"] for row in FolderTarget(self.root / name).rows()]

    def prepared(self) -> int:
        """How many pieces wait in all sinks."""
        return sum(map(self.waiting, self.sinks))

    def waiting(self, name: str) -> int:
        """How many pieces wait in the target of a sink."""
        return len(FolderTarget(self.root / name).prepared())

    def history(self, folder: str = "job", job: str = JOB) -> History:
        return JobLog(LocalStorage(self.root / folder), job).read()

    def spark(self, folder: str = "job", job: str = JOB) -> Path:
        lineage = self.history(folder, job).lineage
        assert lineage is not None
        return self.root / folder / "spark" / lineage.id

    def state(self, folder: str = "job", job: str = JOB) -> int:
        """The newest sum."""
        files = (self.spark(folder, job) / "state" / "0" / "0").glob("*.delta")
        return int(max(files, key=lambda path: int(path.stem)).read_text())

    def is_exact(self, folder: str, batches: int) -> None:
        """Each sink has every number once, nothing waits, and the sum is right."""
        numbers = [*range(batches * STEP)]
        assert self.ids() == [numbers for _ in self.sinks]
        assert self.prepared() == 0
        assert self.state(folder) == sum(numbers)

    # -- what is done ------------------------------------------------------------------------------

    def drive(self, until: int, folder: str = "job", job: str = JOB, **options: Any) -> None:
        """Run a driver until so many micro-batches have been read."""
        driver = self._driver(folder, {"commit.backoff": "1 ms", **options}, job).recover()
        spark = driver.driver.folder
        assert isinstance(spark, QueryFolder)
        if spark.planned() > spark.finished():
            self._batch(driver, spark, spark.planned())
        while (read := next_of(spark.path, spark.planned())) < STEP * until:
            spark.header = self.header(spark.path)
            number = spark.plan(json.dumps({"next": read + STEP}))
            self._batch(driver, spark, number)
            self.finished(number)

    def header(self, spark: Path) -> str:
        """What Spark notes with the offsets of the next micro-batch."""
        return '{"batchWatermarkMs":0}'

    def finished(self, number: int) -> None:
        """A new micro-batch has been finished; for a world that looks on."""

    def finish(self, path: Path) -> None:
        """`twophase savepoint finish`."""
        context = self._driver("job", {"commit.backoff": "1 ms"}).coordinator.context
        finish_savepoint(context, verified(JOB, str(path)), LocalStorage(path))

    @property
    def declared(self) -> dict[str, ArrowSink]:
        """The sinks of the job, not open."""
        return {name: self.sink(name) for name in self.sinks}

    def _driver(self, folder: str, options: Mapping[str, Any], job: str = JOB) -> Driver:
        declared = self.declared
        driver = self.driver(
            self.root / folder,
            {},
            options,
            sinks=open_sinks(declared, job, self.schema),
            job=job,
            schema=self.schema,
            source="Numbers",
            new_host=partial(self.host, declared),
        )
        self.events = driver.events
        return driver

    def sink(self, name: str) -> ArrowSink:
        """A sink of a name, as a job declares it."""
        return FolderSink(self.root / name)

    def _batch(self, driver: Driver, spark: QueryFolder, number: int) -> None:
        driver.driver.handle(number, _Batch(self, driver, spark, number))
        spark.note_finished(number)

    @staticmethod
    def keep(spark: Path, number: int) -> None:
        """The task of the micro-batch writes its version of the state."""
        store = spark / "state" / "0" / "0"
        before = int((store / f"{number}.delta").read_text()) if number else 0
        read = range(next_of(spark, number - 1), next_of(spark, number))
        World.note(spark / "state" / "0" / "_metadata" / "metadata", 'v1\n{"stateStoreInfo":[]}')
        World.note(
            store / f"{number + 1}.delta",
            str(before + sum(read)),
        )

    @staticmethod
    def note(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_text(text)
        temporary.rename(path)

    def maker(self, folder: str = "job") -> SavepointMaker:
        return SavepointMaker(JOB, self.root / folder, ManualClock())

    def make(self, name: str = "saved", folder: str = "job") -> Path:
        """Make a savepoint of the stopped job."""
        self.maker(folder).make(str(self.root / name), still_waiting=lambda: False)
        return self.root / name


class _Batch:
    """A micro-batch: its task writes its version of the state, then each sink its rows."""

    def __init__(self, world: World, driver: Driver, spark: QueryFolder, number: int) -> None:
        self._world = world
        self._driver = driver
        self._spark = spark.path
        self._number = number

    def begin(self, decided: Decision | None) -> None:
        """Nothing is read yet."""

    def execute(self) -> None:
        self._world.keep(self._spark, self._number)

    def pre_commit(self, pending: PendingCheckpoint) -> None:
        self.execute()
        self._driver.write_rows(pending, next_of(self._spark, self._number - 1))


def next_of(spark: Path, number: int) -> int:
    """Where a micro-batch has ended: the next number to read."""
    if number < 0:
        return 0
    line = (spark / "offsets" / str(number)).read_text().split("\n")[2]
    return int(json.loads(line)["next"])


def restoring(path: Path, policy: str) -> dict[str, str]:
    """Options of a restore, with what it does if a sink is ahead."""
    return {"restore.path": str(path), "restore.sink_ahead": policy}


def older(world: World) -> Path:
    """Make a savepoint of checkpoint 1, from which the job has gone on to 3."""
    world.drive(2)
    path = world.make()
    world.drive(4)
    return path


def killed(point: str, run: Callable[[], object]) -> bool:
    """Run an action in a process that kills itself at a crash point, such as S02 or S02@3.

    Returns:
        Whether it did; False if it came to its end.
    """
    child = os.fork()
    if child == 0:
        gc.freeze()  # a client that is garbage would wait for threads that are not here
        code = 1
        try:
            name, _, hit = point.partition("@")
            failpoints.arm(f"{name}=kill@{hit or 1}" if name else "")
            format_module.PART_BYTES = 64  # several parts
            run()
            code = 0
        except BaseException:  # noqa: BLE001 printed; nobody is above
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the process failed"
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
