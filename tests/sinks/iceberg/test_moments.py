"""What other applications do to the table, at each moment of a checkpoint. Each pair is exact, or
it stops the job by name, and undone as the message says it is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import SetCurrentSchemaUpdate

from harness.iceberg_harness import IcebergHarness
from harness.undone_steps import Step, Verdict, take
from tests.sinks.iceberg.others import (
    Change,
    add_a_column,
    add_a_required_column,
    after_the_swap,
    append,
    append_and_roll_back,
    before_the_swap,
    change,
    compact,
    create_it_again,
    delete,
    drop_a_column,
    drop_it,
    expire,
    ids_of,
    move,
    overwrite,
    partition_it,
    remove_the_spec,
    rename_a_column,
    replace_a_column,
    replace_main,
    require_a_column,
    restore,
    retype_a_column,
    rewrite_manifests,
    roll_back,
    rows,
    set_a_property,
    set_main,
    theirs,
    upgrade,
    widen_a_column,
)
from tests.sinks.iceberg.test_sort_order import by, sort_by
from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, Committed
from twophase.contract.sink import CommitRequest, Predecessor
from twophase.errors import ConfigError, StopJobError, TargetChangedError
from twophase.ids import Attempt
from twophase.testing.harness import LINEAGE

pytestmark = [pytest.mark.part("files"), pytest.mark.thin(5)]

Undo = Callable[[IcebergHarness, Table], object]

BEFORE, STAGED, DECIDED = "before the pre-commit", "pre-committed", "decided, and the driver died"
IN_FLIGHT, REPLY_LOST, COMMITTED = "in flight", "in effect, and the reply lost", "committed"
MOMENTS = (BEFORE, STAGED, DECIDED, IN_FLIGHT, REPLY_LOST, COMMITTED)


def sort_it(table: Table) -> None:
    sort_by(by(1))(table)


def write_orc(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"write.format.default": "orc"})


def nothing(harness: IcebergHarness, was: Table) -> None:
    """It is not in the way."""


def schema(harness: IcebergHarness, was: Table) -> None:
    update = SetCurrentSchemaUpdate(schema_id=was.metadata.current_schema_id)
    change(harness, lambda table: table.catalog.commit_table(table, (), (update,)))


def main(harness: IcebergHarness, was: Table) -> None:
    change(harness, lambda table: set_main(table, was.metadata.refs["main"].snapshot_id))


def orc(harness: IcebergHarness, was: Table) -> None:
    def parquet(table: Table) -> None:
        with table.transaction() as transaction:
            transaction.remove_properties("write.format.default")

    change(harness, parquet)


OK: Verdict = None
NAME: Verdict = ConfigError, "column 'name' is not in the table"
AMOUNT: Verdict = ConfigError, "column 'amount'"
NOTE: Verdict = ConfigError, "column 'note' is required, and the rows lack it"
ORC: Verdict = ConfigError, "write.format.default is orc, not parquet"
DROPPED: Verdict = StopJobError, "the column of id 3 was dropped"
NULLS: Verdict = StopJobError, "column 'id' was long and is long required"
RETYPED: Verdict = StopJobError, "column 'amount' was float and is string"
ADDED: Verdict = StopJobError, "column 'note' was added and is required"
BACK: Verdict = TargetChangedError, "no longer leads to snapshot"
GONE: Verdict = TargetChangedError, "is gone: it was dropped or renamed"
OTHER: Verdict = TargetChangedError, "was dropped and created again"
ELSE: Verdict = TargetChangedError, "was written to"
SPEC: Verdict = StopJobError, "partition spec 0 was removed"
NEWER: Verdict = ConfigError, "its format version is 3, and 1 and 2 are supported"
RAISED: Verdict = StopJobError, "its format version is 3 now"
MOVED: Verdict = TargetChangedError, "where pieces wait, and is at"


class Row(NamedTuple):
    """What others do, what undoes it, and what it means to the job at each moment."""

    what: Change
    undo: Undo
    before: Verdict
    staged: Verdict
    decided: Verdict
    in_flight: Verdict
    reply_lost: Verdict
    committed: Verdict

    def at(self, moment: str) -> Verdict:
        return self[2:][MOMENTS.index(moment)]


TABLE = [
    # what others do           undone    before  staged  decided in flight lost  committed
    Row(append,                nothing,  OK,     OK,      OK,     OK,      OK,     OK),
    Row(overwrite,             nothing,  OK,     OK,      OK,     OK,      OK,     OK),
    Row(delete,                nothing,  OK,     OK,      OK,     OK,      OK,     OK),
    Row(compact,               nothing,  OK,     OK,      OK,     OK,      OK,     OK),
    Row(rewrite_manifests,     nothing,  OK,     OK,      OK,     OK,      OK,     OK),
    Row(expire,                nothing,  OK,     OK,      OK,     OK,      OK,     OK),
    Row(set_a_property,        nothing,  OK,     OK,      OK,     OK,      OK,     OK),
    Row(write_orc,             orc,      ORC,    ORC,     ORC,    ORC,     ORC,    ORC),
    Row(add_a_column,          nothing,  OK,     OK,      OK,     OK,      OK,     OK),
    Row(widen_a_column,        nothing,  OK,     OK,      OK,     OK,      OK,     OK),
    Row(rename_a_column,       schema,   NAME,   NAME,    NAME,   NAME,    NAME,   NAME),
    Row(drop_a_column,         schema,   AMOUNT, DROPPED, AMOUNT, DROPPED, AMOUNT, AMOUNT),
    Row(replace_a_column,      schema,   AMOUNT, DROPPED, AMOUNT, DROPPED, AMOUNT, AMOUNT),
    Row(retype_a_column,       schema,   AMOUNT, RETYPED, AMOUNT, RETYPED, AMOUNT, AMOUNT),
    Row(require_a_column,      schema,   OK,     NULLS,   NULLS,  NULLS,   OK,     OK),
    Row(add_a_required_column, schema,   NOTE,   ADDED,   NOTE,   ADDED,   NOTE,   NOTE),
    Row(partition_it,          nothing,  OK,     OK,      OK,     OK,      OK,     OK),
    Row(remove_the_spec,       restore,  OK,     SPEC,    SPEC,   SPEC,    OK,     OK),
    Row(sort_it,               nothing,  OK,     OK,      OK,     OK,      OK,     OK),
    Row(append_and_roll_back,  nothing,  OK,     OK,      OK,     OK,      OK,     OK),
    Row(roll_back,             main,     BACK,   BACK,    BACK,   BACK,    BACK,   BACK),
    Row(replace_main,          main,     BACK,   BACK,    BACK,   BACK,    BACK,   BACK),
    Row(upgrade,               restore,  NEWER,  RAISED,  NEWER,  RAISED,  NEWER,  NEWER),
    Row(move,                  restore,  MOVED,  MOVED,   ELSE,   MOVED,   MOVED,  MOVED),
    Row(drop_it,               restore,  GONE,   GONE,    ELSE,   GONE,    GONE,   GONE),
    Row(create_it_again,       restore,  OTHER,  OTHER,   ELSE,   OTHER,   OTHER,  OTHER),
]  # fmt: skip


class Job:
    """A job that writes a checkpoint of two rows after the other."""

    def __init__(self, harness: IcebergHarness) -> None:
        self.harness = harness
        self.pieces: list[Committable] = []
        self.generation = 0
        self.start()

    def start(self) -> None:
        """Start again, as a new driver."""
        self.generation += 1
        self.sink = self.harness.opened(Attempt(self.generation, 0))

    def write(self) -> None:
        """Pre-commit the next checkpoint."""
        number, attempt = len(self.pieces), Attempt(self.generation, 0)
        made = rows(2 * number, 2 * number + 1)
        self.pieces.append(self.harness.write(self.sink, made, number, attempt))

    def commit(self) -> None:
        """Commit the newest checkpoint, or find that it is committed."""
        before = Predecessor(LINEAGE, len(self.pieces) - 2) if len(self.pieces) > 1 else None
        [outcome] = self.sink.commit([CommitRequest(self.pieces[-1], predecessor=before)])
        assert isinstance(outcome, Committed | AlreadyCommitted), outcome


class Others:
    """Another application, which does something once.

    Attributes:
        was: the table before it.
        left: the rows that the job goes on from.
    """

    was: Table
    left: list[int]

    def __init__(self, harness: IcebergHarness, what: Change, *, is_undone: bool) -> None:
        self.harness, self.what, self.is_undone = harness, what, is_undone

    def __call__(self) -> None:
        self.was, self.before = self.harness.table(), ids_of(self.harness)
        change(self.harness, self.what)
        self.left = self.before if self.is_undone else ids_of(self.harness)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.what.__name__)
def test_what_others_do_is_exact_or_stops_the_job_by_name_until_it_is_undone(
    harness: IcebergHarness, row: Row, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = row.at(moment)
    job, others = Job(harness), Others(harness, row.what, is_undone=verdict is not None)
    change(harness, lambda table: table.append(theirs(50)))
    job.write()
    job.commit()

    each: dict[str, list[Step]] = {
        BEFORE: [others, job.write, job.commit],
        STAGED: [job.write, others, job.commit],
        DECIDED: [job.write, others, job.start, job.commit],
        IN_FLIGHT: [job.write, lambda: before_the_swap(monkeypatch, others), job.commit],
        REPLY_LOST: [job.write, lambda: after_the_swap(monkeypatch, others), job.commit],
        COMMITTED: [job.write, job.commit, others],
    }
    steps = [*each[moment], job.commit, job.write, job.commit]  # once more, and the next one
    take(steps, verdict, lambda: row.undo(harness, others.was), job.start)
    ours = [number for number in range(6) if number not in others.before]
    assert ids_of(harness) == sorted([*others.left, *ours])
    assert job.sink.history().committed == {LINEAGE: 2}
    assert job.sink.history().replaced == ""
    assert harness.staged() == []
