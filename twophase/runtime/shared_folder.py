"""Finds executors that do not share the job's folder, before a decision relies on their state.

Spark keeps the state of a plan below its checkpoint folder, where each executor reads and writes
its part directly. If an executor has another disk under that path, its part is lost with the
executor, and the next start finds less state, or fails. Spark does not check this.

    1. the driver creates a folder under a name that was never used before
    2. a task on each executor creates a file in it, and removes it
    3. an executor that cannot is named, and the job is refused; the folder is deleted, unless the
       driver dies: then by a start a day later

All executors are asked at the start, after recovery, which commits decided checkpoints whatever the
folder. Executors come and go: new ones are asked in each micro-batch of a plan with state, after
the tasks that keep the state and before any sink has rows. One that has no free slot is asked the
next time. In local mode the executor is the driver, and nothing is checked.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from twophase.errors import PreflightError

_PROBE = ".probe-"
_NAMED = 3
_ABANDONED_S = 86_400.0
"""Age at which a probe folder counts as abandoned, however two machines' clocks differ: a
probe takes seconds.
"""

_log = logging.getLogger("twophase")


class SharedFolder:
    """A folder that all executors must share with the driver.

    Args:
        job: the job's name.
        context: Spark's context.
        path: the folder; holds Spark's folders of the job's lineages.
    """

    def __init__(self, job: str, context: SparkContext, path: Path) -> None:
        self._job = job
        self._context = context
        self._path = path
        self._asked: set[str] = set()
        master = str(context.master)
        self._is_local = master == "local" or master.startswith("local[")

    def check(self) -> None:
        """Check the executors that have not been checked yet.

        Raises:
            PreflightError: an executor does not share the folder.
        """
        if self._is_local or (self._asked and self._executors() <= self._asked):
            return
        probe = self._path / f"{_PROBE}{uuid.uuid4().hex}"
        probe.mkdir(mode=0o700, parents=True)
        try:
            problems = self._ask(probe)
        finally:
            shutil.rmtree(probe)
        ran = {index: (executor, host) for index, executor, host in self._ran(probe.name)}
        unknown = ("", "an executor")
        if refusals := {
            ran.get(index, unknown)[1]: problem for index, problem in enumerate(problems) if problem
        }:
            raise self._refusal(refusals)
        self._asked |= {executor for executor, _ in ran.values()}

    def delete_abandoned(self) -> None:
        """Delete the probe folders of drivers that died, as far as that is possible."""
        for probe in self._path.glob(f"{_PROBE}*"):
            try:
                if time.time() - probe.stat().st_mtime > _ABANDONED_S:
                    shutil.rmtree(probe)
            except FileNotFoundError:  # another process was quicker
                continue
            except OSError as error:
                _log.warning(
                    "The probe folder %s of an earlier start cannot be deleted: %s", probe, error
                )

    def _executors(self) -> set[str]:
        found = str(self._context._jsc.sc().getExecutorIds().mkString(","))
        return set(found.split(",")) if found else set()

    def _ask(self, probe: Path) -> list[str]:
        """Run so many tasks that every executor gets one; return why each cannot write."""
        tasks = max(self._context.defaultParallelism, len(self._executors()))
        self._context.addJobTag(probe.name)
        try:
            ask = partial(_write, str(probe))
            return (
                self._context.parallelize(range(tasks), tasks).mapPartitionsWithIndex(ask).collect()
            )
        finally:
            self._context.removeJobTag(probe.name)

    def _ran(self, tag: str) -> Iterator[tuple[int, str, str]]:
        """Yield the index, executor and host of each task with a tag that has succeeded."""
        context: Any = self._context._jsc.sc()
        context.listenerBus().waitUntilEmpty()
        tracker, store = context.statusTracker(), context.statusStore()
        for job in tracker.getJobIdsForTag(tag):
            for stage in tracker.getJobInfo(job).get().stageIds():
                found = store.taskList(stage, 0, 1 << 20).iterator()
                while found.hasNext():
                    task = found.next()
                    if task.status() == "SUCCESS":
                        yield int(task.index()), str(task.executorId()), str(task.host())

    def _refusal(self, refusals: dict[str, str]) -> PreflightError:
        named = "; ".join(
            f"{host}: {problem}" for host, problem in sorted(refusals.items())[:_NAMED]
        )
        more = f"; and {len(refusals) - _NAMED} more" if len(refusals) > _NAMED else ""
        return PreflightError(
            f"Job {self._job!r}: its plan keeps state, which each executor writes below "
            f"{self._path}, but not every executor shares that folder with the driver "
            f"({named}{more}): the state would be lost. No sink has rows of an undecided "
            "checkpoint.",
            remedy="put checkpointLocation on a file system that the driver and all executors "
            "mount at the same path and may write to; or run the job in local mode.",
        )


def _write(probe: str, _: int, __: Iterable[int]) -> Iterator[str]:
    """Run on an executor: yield why it cannot write, empty if it can."""
    path = Path(probe, secrets.token_hex(16))
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        path.unlink()
    except OSError as error:
        yield f"{type(error).__name__}: {error.strerror}"
    else:
        yield ""
