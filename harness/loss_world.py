"""A job without Spark that has lost pieces in one of its sinks, and what repairs it.

1. lost         checkpoint 0 is committed, 1 is decided, pieces of it are gone
2. repaired     in a process of its own, which a crash point may kill
3. goes on      another checkpoint; nothing is left in doubt
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.memory_driver import (
    JOB,
    NOTE,
    SCHEMA,
    Driver,
    ManualClock,
    completed_of,
    decided,
    open_sinks,
    rows,
)
from twophase.contract.committable import Committable
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest, OpenArrowSink
from twophase.coordinator.commit.context import JobContext
from twophase.errors import DeclinedError, LostCommittableError
from twophase.events import Observers
from twophase.ids import Subtask, TransactionId
from twophase.internals.failpoints import arm
from twophase.operations.repair.accept_loss import LossRepair
from twophase.operations.repair.rewrite import Lost, RewriteRepair
from twophase.options.job_options import JobOptions
from twophase.sinks.file.sink import FileSink
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import AcceptedLoss, Rewrite
from twophase.state.journal.log import JobLog
from twophase.testing.contract.kill import run_driver
from twophase.testing.harness import SinkHarness

FIRST = 1000
"""Of the task attempts of a rewrite."""


@dataclass
class RereadRows:
    """A plan that reads ids: subtask i of checkpoint n has the ids from 10 n + 5 i
    to 10 n + 5 i + 4.
    """

    sinks: Mapping[str, OpenArrowSink] = field(default_factory=dict)
    fewer: int = 0
    others: int = 0
    fails: bool = False
    gone: frozenset[int] = frozenset()
    meanwhile: Callable[[TransactionId, list[Committable]], None] = lambda _, __: None

    def ranges(self, lost: Lost) -> Sequence[str]:
        return [str(piece.subtask.index) for piece in lost.pieces]

    def write(self, lost: Lost, transaction: TransactionId) -> Mapping[int, Sequence[Committable]]:
        self.gone = lost.gone
        found: dict[int, list[Committable]] = {}
        indices = (0, 1) if lost.whole else [piece.subtask.index for piece in lost.pieces]
        for index in indices:
            begin = self.others + 10 * transaction.checkpoint + 5 * index
            ids = range(begin, begin + 5 - self.fewer)
            subtask = Subtask(2 + index, FIRST + index)
            writer = self.sinks[lost.sink].writers()(transaction, subtask)
            writer.write(pa.RecordBatch.from_pylist(rows(ids), schema=SCHEMA))
            piece = writer.pre_commit()
            assert piece is not None
            found.setdefault(-1 if lost.whole else index, []).append(piece)
            if self.fails:
                raise DeclinedError("a task failed.")
        self.meanwhile(transaction, [piece for pieces in found.values() for piece in pieces])
        return found


@dataclass(frozen=True)
class LossJob:
    """A job with a sink under test, `facts`, and files.

    Attributes:
        root: a folder for the job's own, and for the files.
        facts: the sink under test, as a job declares it.
    """

    root: Path
    facts: Any

    @property
    def folder(self) -> Path:
        return self.root / "job"

    @contextmanager
    def sinks(self) -> Iterator[dict[str, Any]]:
        """All sinks, open for rows."""
        lake = FileSink(path=str(self.root / "files"), format="json")
        with ExitStack() as left:
            opened = open_sinks({"facts": self.facts, "lake": lake})
            for sink in opened.values():
                left.callback(sink.close)
            yield opened

    @contextmanager
    def driver(self) -> Iterator[Driver]:
        """A driver that has not recovered."""
        with self.sinks() as sinks:
            yield Driver(self.folder, {}, sinks=sinks)

    @contextmanager
    def context(self) -> Iterator[JobContext]:
        """As a repair has it."""
        options = JobOptions.parse({"checkpointLocation": str(self.folder)}, "job")
        storage, clock = LocalStorage(self.folder), ManualClock()
        with self.sinks() as sinks:
            yield JobContext(JOB, storage, sinks, options, Observers(), clock)

    def decide(self) -> Sequence[Committable]:
        """Commit checkpoint 0, and die when 1 is decided; returns the pieces of 1 in `facts`."""
        with self.driver() as driver:
            driver.recover().run(0)
            decided(driver, 1)
        return completed_of(self.folder, 1).committables["facts"]


def rewrite(job: LossJob) -> None:
    """Write what is lost again."""
    with job.context() as context:
        repairing = RewriteRepair(context, RereadRows(context.sinks))  # type: ignore[arg-type]
        repairing.rewrite(repairing.plan(1, "facts"), NOTE)


def accept_loss(job: LossJob) -> None:
    """Give up what is lost."""
    with job.context() as context:
        repairing = LossRepair(context)
        repairing.accept(repairing.plan(1, "facts"), NOTE)


REPAIRS = {"rewrite": rewrite, "accept-loss": accept_loss}


def _repair(job: LossJob, name: str, armed: str, reports: Connection) -> None:
    arm(armed)
    REPAIRS[name](job)
    reports.send(f"{armed} was not reached")


CASES: dict[str, tuple[tuple[int, ...], bool]] = {
    "all pieces": ((0, 1), False),
    "one, the other waits": ((1,), False),
    "one, the other is committed": ((1,), True),
}
"""Which of two pieces are lost, and whether the driver commits the others before it dies."""

Lose = Callable[[Any, Committable], None]


class LossWorld:
    """What an operator finds and does.

    Args:
        root: a folder for the job.
        harness: of the sink that loses pieces; its rows are ids.
    """

    def __init__(self, root: Path, harness: SinkHarness) -> None:
        self.harness = harness
        self.job = LossJob(root, harness.new_sink())

    def loses(self, lose: Lose, case: str) -> None:
        """Step 1.

        Args:
            lose: loses one piece.
            case: one of `CASES`.
        """
        indices, commits = CASES[case]
        pieces = self.job.decide()
        kept = [CommitRequest(piece) for at, piece in enumerate(pieces) if at not in indices]
        if commits:
            with self.job.sinks() as sinks:
                assert sinks["facts"].commit(kept) == [Committed()]
        for index in indices:
            lose(self.harness, pieces[index])
        with (
            pytest.raises(LostCommittableError, match="twophase repair rewrite"),
            self.job.driver() as driver,
        ):
            driver.recover()

    def repair(self, name: str, armed: str = "") -> None:
        """Step 2, again if it is killed before it is recorded."""
        if armed:
            code, found = run_driver(_repair, self.job, name, armed)
            assert code == -signal.SIGKILL, found
        if not self.repairs():
            REPAIRS[name](self.job)

    def repairs(self) -> Sequence[object]:
        """Those in the job's log."""
        return JobLog(LocalStorage(self.job.folder), JOB).read().repairs

    def goes_on(self, name: str, case: str) -> None:
        """Step 3.

        Args:
            name: of the repair.
            case: as `loses` takes it.
        """
        given_up = 5 * len(CASES[case][0]) if name == "accept-loss" else 0
        with self.job.driver() as driver:
            driver.recover().run(2)
        with self.job.driver() as driver:
            driver.recover()
            assert [[*sink.in_doubt()] for sink in driver.sinks.values()] == [[], []]
        found = sorted(row["id"] for row in self.harness.rows_visible())
        assert found == [*range(20 - given_up), *range(20, 30)]
        (repair,) = self.repairs()
        assert isinstance(repair, AcceptedLoss if given_up else Rewrite)
