"""What other applications do to the table, at each moment of a checkpoint. Each pair is exact, or
it stops the job by name, and undone as the message says it is exact.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from harness.paimon_harness import PaimonHarness
from harness.undone_steps import Step, Verdict, take
from tests.sinks.paimon import others as other
from tests.sinks.paimon.others import Change, committed, ids_of, parted
from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, Committed, RetryLater
from twophase.contract.sink import Predecessor
from twophase.errors import (
    ConfigError,
    DeclinedError,
    StopJobError,
    TargetChangedError,
)
from twophase.ids import Attempt, Subtask
from twophase.testing.harness import LINEAGE, transaction_id

pytestmark = [pytest.mark.part("paimon"), pytest.mark.thin(5)]

Undo = Callable[[PaimonHarness, Path], None]

WRITTEN, STAGED = "while it is written", "pre-committed"
DIED = "its files moved, and the driver died"
IN_FLIGHT, REPLY_LOST, COMMITTED = "in flight", "in effect, and the reply lost", "committed"
MOMENTS = (WRITTEN, STAGED, DIED, IN_FLIGHT, REPLY_LOST, COMMITTED)


def nothing(harness: PaimonHarness, was: Path) -> None:
    """It is not in the way."""


def schema(harness: PaimonHarness, was: Path) -> None:
    """Remove the newest files in the table's folder `schema`."""
    before = {path.name for path in (was / "schema").iterdir()}
    while (newest := other.newest_schema(harness)).name not in before:
        newest.unlink()


def restore(harness: PaimonHarness, was: Path) -> None:
    """Restore the table's folder, which is gone or another table's."""
    assert not harness.location.exists() or other.newest_schema(harness).exists()
    shutil.rmtree(harness.location, ignore_errors=True)
    shutil.copytree(was, harness.location)


def recover(harness: PaimonHarness, was: Path) -> None:
    """Restore the table's folder but for `_twophase`, where newer pieces may wait."""
    for folder in was.iterdir():
        if folder.name != "_twophase":
            shutil.rmtree(harness.location / folder.name, ignore_errors=True)
            shutil.copytree(folder, harness.location / folder.name)


OK: Verdict = None
NAME: Verdict = ConfigError, "column 'name' is not in the table"
AMOUNT: Verdict = ConfigError, "column 'amount'"
ID: Verdict = ConfigError, "column 'id': int64 does not fit STRING"
NOTE: Verdict = ConfigError, "column 'note' is required, and the rows lack it"
ORC: Verdict = ConfigError, "file.format is orc, not parquet"
DROPPED: Verdict = StopJobError, "the column of id 2 was dropped"
RETYPED: Verdict = StopJobError, "column 'id' was BIGINT and is STRING"
NULLS: Verdict = StopJobError, "column 'name' was STRING and is STRING required"
ADDED: Verdict = StopJobError, "column 'note' was added and is required"
BACK: Verdict = TargetChangedError, "somebody has rolled the table back"
TWICE: Verdict = DeclinedError, "is gone: someone deleted it, or the table"
GONE: Verdict = TargetChangedError, "is gone: it was dropped or renamed"
AGAIN: Verdict = TargetChangedError, "was dropped and created again"
ELSE: Verdict = TargetChangedError, "was written to"


class Row(NamedTuple):
    """What others do, what undoes it, and what it means to the job at each moment."""

    name: str
    undo: Undo
    written: Verdict
    staged: Verdict
    died: Verdict
    in_flight: Verdict
    reply_lost: Verdict
    committed: Verdict

    @property
    def what(self) -> Change:
        found: Change = getattr(other, self.name)
        return found

    def at(self, moment: str) -> Verdict:
        verdicts = (self.written, self.staged, self.died)
        return (*verdicts, self.in_flight, self.reply_lost, self.committed)[MOMENTS.index(moment)]


TABLE = {
    row.name: row
    for row in [
        # what others do            undone   written  staged   died    in flight lost  committed
        Row("append",                nothing, OK,      OK,      OK,     OK,      OK,     OK),
        Row("overwrite",             nothing, OK,      OK,      OK,     OK,      OK,     OK),
        Row("overwrite_a_partition", nothing, OK,      OK,      OK,     OK,      OK,     OK),
        Row("truncate",              nothing, OK,      OK,      OK,     OK,      OK,     OK),
        Row("delete_a_partition",    nothing, OK,      OK,      OK,     OK,      OK,     OK),
        Row("delete_a_row",          nothing, OK,      OK,      OK,     OK,      OK,     OK),
        Row("rewrite",               nothing, OK,      OK,      OK,     OK,      OK,     OK),
        Row("append_and_expire",     nothing, OK,      OK,      OK,     OK,      OK,     OK),
        Row("make_a_tag",            nothing, OK,      OK,      OK,     OK,      OK,     OK),
        Row("delete_a_tag",          nothing, OK,      OK,      OK,     OK,      OK,     OK),
        Row("set_an_option",         nothing, OK,      OK,      OK,     OK,      OK,     OK),
        Row("write_orc",             schema,  ORC,     ORC,     ORC,    ORC,     ORC,    ORC),
        Row("add_a_column",          nothing, OK,      OK,      OK,     OK,      OK,     OK),
        Row("widen_a_column",        nothing, OK,      OK,      OK,     OK,      OK,     OK),
        Row("rename_a_column",       schema,  NAME,    NAME,    NAME,   NAME,    NAME,   NAME),
        Row("drop_a_column",         schema,  DROPPED, DROPPED, AMOUNT, AMOUNT,  AMOUNT, AMOUNT),
        Row("replace_a_column",      schema,  DROPPED, DROPPED, DROPPED, OK,     OK,     OK),
        Row("retype_a_column",       schema,  RETYPED, RETYPED, ID,     ID,      ID,     ID),
        Row("require_a_column",      schema,  NULLS,   NULLS,   NULLS,  OK,      OK,     OK),
        Row("add_a_required_column", schema,  ADDED,   ADDED,   NOTE,   NOTE,    NOTE,   NOTE),
        Row("append_and_roll_back",  nothing, OK,      OK,      OK,     OK,      OK,     OK),
        Row("roll_back",             recover, BACK,    BACK,    BACK,   BACK,    BACK,   BACK),
        Row("roll_back_and_append",  recover, BACK,    BACK,    BACK,   BACK,    BACK,   BACK),
        Row("drop_it",               restore, TWICE,   GONE,    ELSE,   GONE,    GONE,   GONE),
        Row("create_it_again",       restore, TWICE,   AGAIN,   ELSE,   AGAIN,   AGAIN,  AGAIN),
    ]
}  # fmt: skip


class Job:
    """A job that writes a checkpoint of two rows after the other."""

    def __init__(self, harness: PaimonHarness) -> None:
        self.harness = harness
        self.pieces: list[Committable] = []
        self.generation = 0
        self.start()

    def start(self) -> None:
        """Start again, as a new driver."""
        self.generation += 1
        self.sink = self.harness.opened(Attempt(self.generation, 0))
        decided = {piece.transaction for piece in self.pieces}
        self.sink.abort([one for one in self.sink.in_doubt() if one.transaction not in decided])

    def write(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Pre-commit the next checkpoint."""
        number = len(self.pieces)
        transaction = transaction_id(number, Attempt(self.generation, 0))
        writer = self.sink.writers()(transaction, Subtask(0, number))
        made = parted(2 * number, 2 * number + 1)
        writer.write(pa.RecordBatch.from_pylist(made, schema=self.harness.fields))
        meanwhile()
        piece = writer.pre_commit()
        assert piece is not None
        self.pieces.append(piece)

    def try_to_commit(self) -> None:
        """Commit the newest checkpoint; the reply may be lost."""
        before = Predecessor(LINEAGE, len(self.pieces) - 2) if len(self.pieces) > 1 else None
        [self.outcome] = committed(self.sink, self.pieces[-1], predecessor=before)

    def commit(self) -> None:
        """Commit the newest checkpoint, or find that it is committed."""
        self.try_to_commit()
        assert isinstance(self.outcome, Committed | AlreadyCommitted), self.outcome

    def commit_in_vain(self) -> None:
        """A commit of which this driver does not hear."""
        self.try_to_commit()
        assert isinstance(self.outcome, RetryLater | AlreadyCommitted), self.outcome


class Others:
    """Another application, which does something once.

    Attributes:
        was: the table's folder as it was before.
        before: its rows.
        left: the rows that the job goes on from.
    """

    left: list[int]

    def __init__(self, harness: PaimonHarness, what: Change, *, is_undone: bool) -> None:
        self.harness, self.what, self.is_undone = harness, what, is_undone
        self.was = harness.folder.parent / "was"

    def __call__(self) -> None:
        if self.was.exists():
            return
        shutil.copytree(self.harness.location, self.was)
        self.before = ids_of(self.harness)
        self.what(self.harness)
        self.left = self.before if self.is_undone else ids_of(self.harness)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("name", TABLE)
def test_what_others_do_is_exact_or_stops_the_job_by_name_until_it_is_undone(
    tmp_path: Path, name: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = PaimonHarness(tmp_path / "lake", other.PARTED, partition_by=["part"])
    row, verdict = TABLE[name], TABLE[name].at(moment)
    other.make_table(harness, partition_keys=["part"], options={"deletion-vectors.enabled": "true"})
    harness.append(parted(50))
    job, others = Job(harness), Others(harness, row.what, is_undone=verdict is not None)
    job.write()
    job.commit()

    def die() -> None:
        other.dying_before_publishing(monkeypatch)
        job.commit_in_vain()

    ways: dict[str, list[Step]] = {
        WRITTEN: [lambda: job.write(others), job.commit],
        STAGED: [job.write, others, job.commit],
        DIED: [job.write, die, others, job.start, job.commit],
        IN_FLIGHT: [
            job.write, lambda: other.before_publishing(monkeypatch, others), job.commit
        ],
        REPLY_LOST: [
            job.write,
            lambda: other.dying_after_publishing(monkeypatch, others),
            job.commit_in_vain,
            job.start,
            job.commit,
        ],
        COMMITTED: [job.write, job.commit, others],
    }  # fmt: skip
    # once more, and the next checkpoint
    steps = [*ways[moment], job.commit, job.write, job.commit]

    def undo() -> None:
        monkeypatch.undo()
        row.undo(harness, others.was)

    take(steps, verdict, undo, job.start)
    ours = [number for number in range(6) if number not in others.before]
    left = sorted([*others.left, *ours])
    found = sorted(harness.read().to_pylist(), key=lambda one: int(one["id"]))
    names = [{"id": one["id"], "name": one["name"], "part": one["part"]} for one in found]
    assert names == [{key: one[key] for key in names[0]} for one in parted(*left)]
    if name != "replace_a_column":  # of which the old values are gone
        assert [one["amount"] for one in found] == [one["amount"] for one in parted(*left)]
    assert job.sink.history().committed == {LINEAGE: 2}
    assert job.sink.history().replaced == ""
    assert harness.staged() == []
    first, *_ = all_of_them = other.snapshots(harness)
    assert all_of_them == [*range(first, first + len(all_of_them))]
