"""The kill tests that a sink inherits: SIGKILL at failpoints, and at lines of its methods.

    class TestMySinkIsKilled(SinkKillContract):
        @pytest.fixture
        def harness(self, tmp_path) -> MyHarness:
            return MyHarness(tmp_path)

They need neither Kafka nor Spark: a driver runs a job on the plain host (`kill_driver`), which
forks its writers. The target has to outlive the process, and the sink has to be an `ArrowSink`.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from twophase.contract.sink import ArrowSink
from twophase.testing.contract.base import ContractBase
from twophase.testing.contract.kill_driver import (
    ARMED_IN,
    FIRST_CHECKPOINT,
    Doom,
    Job,
    drive,
    repair,
)
from twophase.testing.contract.stepping import LINES_AT_MOST, spread
from twophase.testing.harness import FIRST, SinkHarness, transaction_id

_CHECKPOINTS, _TASKS, _ROWS = 3, 2, 3
_STARTS = 4
_DRIVER_TIMEOUT_S = 120

_processes = multiprocessing.get_context("forkserver")
_imported_early = {"twophase.testing.contract.kill_driver": None}


def _import_early(modules: Sequence[str]) -> None:
    """Let the server of processes import modules before it forks a driver.

    It is one for all suites of a process, has one list, and reads it when it starts, with the first
    driver: so every suite adds to the list as soon as it is defined.
    """
    _imported_early.update(dict.fromkeys(modules))
    _processes.set_forkserver_preload([*_imported_early])


_import_early(())


def run_driver(run: Callable[..., None], *given: Any) -> tuple[int | None, Any]:
    """Run one driver and its workers, including late ones, to their end."""
    ours, reports = _processes.Pipe(duplex=False)
    process = _processes.Process(target=run, args=(*given, reports), daemon=True)
    process.start()
    reports.close()
    found: Any = None
    with ours:
        try:
            while ours.poll(_DRIVER_TIMEOUT_S):
                found = ours.recv()
            process.kill()
            found = f"it hung for {_DRIVER_TIMEOUT_S} s"
        except EOFError:
            pass  # the driver and all workers have ended
    process.join()
    return process.exitcode, found


class SinkKillContract(ContractBase):
    """Whichever process dies, and wherever: each row exists once, and nothing is left in doubt.

    Attributes:
        points: the failpoints of the sink, armed as `TWOPHASE_FAILPOINTS` has them. Workers are
            killed by `kill` at a point of the writer, drivers by `kill_driver` there and by `kill`
            at their own points. Add the sink's own points.
        methods: the methods that the driver calls; it is killed before each of their lines.
        lines_at_most: the number of lines to test in each method; longer methods are
            sampled in even steps.
        preload: modules that drivers have imported before they are forked, by name: those of the
            sink that take long. A module that cannot be imported is left out.
    """

    points: ClassVar[Sequence[Any]] = (
        *(
            f"{point}={action}"
            for point in ("E01", "C04", "C05", "C03")
            for action in ("kill", "kill_driver")
        ),
        *(f"{point}=kill" for point in ("C12", "C13", "C14", "C15")),
        "C05=kill,C20=kill",
    )
    methods: ClassVar[Sequence[Any]] = ("commit", "subsume", "abort", "fence")
    lines_at_most: ClassVar[int] = LINES_AT_MOST
    preload: ClassVar[Sequence[str]] = ()

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        _import_early(cls.preload)

    @classmethod
    def pytest_generate_tests(cls, metafunc: pytest.Metafunc) -> None:
        """Make each point and each method a separate test."""
        suite: type[SinkKillContract] = metafunc.cls or cls
        for name, values in (("points_armed", suite.points), ("method", suite.methods)):
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, values)

    def test_a_kill_at_a_failpoint_neither_loses_nor_repeats(
        self, tmp_path: Path, points_armed: str
    ) -> None:
        job = self._job(tmp_path / "job")
        _, killed = self._run(job, Doom(failpoints=points_armed))
        reached = job.failpoints_log.read_text() if job.failpoints_log.exists() else ""
        for point in points_armed.split(","):
            assert f"{point.partition('=')[0]} " in reached, (
                f"{point} was not reached: put failpoint() there"
            )
        assert killed or "kill_driver" not in points_armed, f"{points_armed}: the driver lived on"
        self._check(job)

    def test_a_kill_at_any_line_neither_loses_nor_repeats(
        self, harness: SinkHarness, tmp_path: Path, method: str
    ) -> None:
        declines = method in ("abort", "fence")
        doom = Doom(method=method, declines=declines, packages=self.packages)
        lines, _ = self._run(self._job(tmp_path / "counted"), doom)
        assert lines, f"{method} is not Python code that can be stopped at a line"
        for place, line in enumerate(spread(lines, self.lines_at_most)):
            self.use(harness.elsewhere())
            # every other time in the last checkpoint, so that no later one makes it good
            job = self._job(tmp_path / f"line-{line}", ends=place % 2 == 1)
            self._run(job, replace(doom, line=line))
            self._check(job, f"killed before line {line} of {lines} of {method}")

    def test_a_repair_commits_without_spark_unless_the_sink_needs_it(
        self, harness: SinkHarness
    ) -> None:
        declared, sink = harness.new_sink(), self.opened()
        sink.fence(FIRST)
        made = self.prepare(sink, [0, 1], transaction_id(4))
        sink.close()
        if not declared.needs_spark:
            code, found = run_driver(repair, declared, made, dict(os.environ))
            assert code == 0, f"needs_spark is False, and without Spark: {found}"
            assert self.ids_visible() == [0, 1]

    def _job(self, folder: Path, *, ends: bool = False) -> Job:
        """Return a job of three checkpoints, or one that ends with the faulty one."""
        folder.mkdir()
        sink = self.harness_in_use.new_sink()
        assert isinstance(sink, ArrowSink), (
            "a BatchSink is killed with its Spark, in tests of its own"
        )
        first = [n * _ROWS for n in range(_CHECKPOINTS * _TASKS)]
        tasks = [self.batch(range(start, start + _ROWS)) for start in first]
        batches = [tasks[n : n + _TASKS] for n in range(0, len(tasks), _TASKS)]
        if ends:
            del batches[ARMED_IN - FIRST_CHECKPOINT + 1 :]
        return Job(folder, sink, batches, dict(os.environ))

    def _check(self, job: Job, after: str = "") -> None:
        checkpoints = len(job.batches)
        assert self.ids_visible() == list(range(checkpoints * _TASKS * _ROWS)), after
        sink = self.opened()
        assert sink.in_doubt() == [], after
        assert [*sink.history().committed.values()] == [FIRST_CHECKPOINT + checkpoints - 1], after
        sink.close()

    @staticmethod
    def _run(job: Job, doom: Doom) -> tuple[int, bool]:
        """Start drivers until one has finished; only the first is to be killed.

        Returns:
            The report of the last one, and whether the first was killed.
        """
        for start in range(_STARTS):
            code, report = run_driver(drive, job, doom if start == 0 else Doom())
            if code == 0:
                return int(report), start > 0
            assert code == -signal.SIGKILL, f"driver {start + 1} ended with {code}: {report}"
        raise AssertionError(f"{_STARTS} drivers were killed, and one at most was meant to be")
