"""A job without Spark that keeps state, for savepoints: its folder, its target, processes that die.

Real: coordinator, log, store, recovery, `LineageStart`, `SparkFolder`, and a sink on a folder.
Each checkpoint reads ten numbers; the state is the sum of all read so far, kept as Spark keeps
versions: after micro-batch n in `state/0/0/<n + 1>.delta`.
"""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from harness.memory_driver import (
    JOB,
    SCHEMA,
    Driver,
    ManualClock,
    open_sinks,
)
from twophase import failpoints
from twophase.config import JobOptions
from twophase.coordinator.coordinator import Replay
from twophase.coordinator.pending import PendingCheckpoint
from twophase.coordinator.savepoint_finish import finish_savepoint
from twophase.engine.host import Plan
from twophase.events import Event
from twophase.protocol.sink import ArrowSink
from twophase.protocol.source import SourceLeg
from twophase.runtime.abandoned_folders import delete_abandoned
from twophase.runtime.claimed_savepoint import ClaimedSavepoint
from twophase.runtime.lineage_start import LineageStart
from twophase.runtime.operator_states import OperatorStates
from twophase.runtime.savepoint_restore import verified
from twophase.runtime.savepoints import SavepointMaker
from twophase.runtime.spark_folder import SparkFolder
from twophase.state import savepoint as format_module
from twophase.state.history import History
from twophase.state.log import JobLog
from twophase.state.storage import LocalStorage
from twophase.testing.folder import FolderSink, FolderTarget

STEP = 10
_SOURCE = "Numbers"


class World:
    """One job, with folders that outlive its drivers.

    Args:
        root: for everything.

    Attributes:
        schema: of the rows.
        driver: writes them.
    """

    schema: pa.Schema = SCHEMA
    driver: type[Driver] = Driver

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sinks = ("facts", "lake")
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
        given = {"commit.backoff": "1 ms", **options}
        driver = self._driver(folder, given, job)
        coordinator = driver.coordinator
        states = OperatorStates([SourceLeg(_SOURCE, {})], {})
        coordinator._snapshot = states.snapshot
        start = LineageStart(
            coordinator.context,
            LocalStorage(self.root / folder),
            states,
            Plan(stateful=True, keeps_state=True),
            {name: self.sink(name) for name in self.sinks},
        )
        try:
            coordinator.recover(None, start.restore)
        finally:
            start.close()
        start.begin(coordinator)
        spark = SparkFolder(self.spark(folder, job), coordinator.lineage)
        spark.prepare(coordinator.newest())
        delete_abandoned(spark.path.parent, coordinator.context.log.history, 1)
        if spark.planned() > spark.finished():
            self._batch(driver, spark, spark.planned())
        while (read := next_of(spark.path, spark.planned())) < STEP * until:
            number = spark.planned() + 1
            line = json.dumps({"next": read + STEP})
            header = self.header(spark.path)
            self.note(spark.path / "offsets" / str(number), f"v1\n{header}\n{line}")
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

    def _driver(self, folder: str, options: Mapping[str, Any], job: str = JOB) -> Driver:
        sinks = open_sinks({name: self.sink(name) for name in self.sinks}, job, self.schema)
        location = {"checkpointLocation": str(self.root / folder)}
        parsed = JobOptions.parse({**location, **options}, job)
        claimed = ClaimedSavepoint(job, LocalStorage(self.root / folder), parsed)
        driver = self.driver(
            self.root / folder,
            {},
            options,
            sinks=sinks,
            listeners=(claimed,),
            job=job,
            schema=self.schema,
        )
        self.events = driver.events
        return driver

    def sink(self, name: str) -> ArrowSink:
        """A sink of a name, as a job declares it."""
        return FolderSink(self.root / name)

    def _batch(self, driver: Driver, spark: SparkFolder, number: int) -> None:
        offsets = spark.offsets(number)
        found = driver.coordinator.classify(number, offsets)
        if isinstance(found, Replay):
            driver.coordinator.replay(found.decision, lambda: self.keep(spark.path, number))
        else:

            def pre_commit(pending: PendingCheckpoint) -> None:
                self.keep(spark.path, number)
                driver.write_rows(pending, next_of(spark.path, number - 1))

            driver.coordinator.checkpoint(number, offsets, pre_commit)
        self.note(spark.path / "commits" / str(number), 'v1\n{"nextBatchWatermarkMs":0}')

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
