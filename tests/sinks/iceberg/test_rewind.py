"""A rewind is one snapshot without exactly the files of the checkpoints, or nothing is removed and
the message names what stands in the way.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError

from harness.iceberg_harness import IcebergHarness
from harness.savepoint_world import killed
from tests.sinks.iceberg.others import (
    FIELDS,
    Change,
    add_a_column,
    after_the_swap,
    append,
    append_and_roll_back,
    arrives_twice,
    before_the_swap,
    change,
    commit,
    compact,
    create_it_again,
    delete,
    drop_a_column,
    drop_it,
    expire,
    ids_of,
    overwrite,
    partition_it,
    replace_main,
    rewrite_manifests,
    roll_back,
    rows,
    set_a_property,
    snapshots_of,
    theirs,
    upgrade,
    write_delete_file,
)
from twophase.contract.outcome import Committed, Lost
from twophase.contract.sink import CanRewind, CommitRequest, Predecessor
from twophase.errors import (
    FencedError,
    RestoreRefusedError,
    TargetChangedError,
    TargetUnreachableError,
    TwoPhaseError,
)
from twophase.ids import Attempt, Subtask
from twophase.sinks.iceberg.catalog import Catalog
from twophase.sinks.iceberg.open_sink import OpenIcebergSink
from twophase.testing.harness import FIRST, LINEAGE, OTHER_LINEAGE, transaction_id

pytestmark = pytest.mark.part("files")

RESTORING = Attempt(2, 0)
KEEP = {LINEAGE: 0}


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> IcebergHarness:
    """Three checkpoints of two rows."""
    return filled(IcebergHarness(tmp_path / "lake", FIELDS, format_version=request.param))


def filled(harness: IcebergHarness) -> IcebergHarness:
    sink = harness.opened()
    for number in range(3):
        commit(harness, sink, rows(2 * number, 2 * number + 1), number)
    return harness


def rewound(
    harness: IcebergHarness, keep: dict[str, int] | None = None, attempt: Attempt = RESTORING
) -> OpenIcebergSink:
    sink = harness.opened(attempt)
    assert isinstance(sink, CanRewind)
    keep = KEEP if keep is None else keep
    sink.check_rewind(keep)
    sink.rewind(keep, attempt)
    return sink


def refused(harness: IcebergHarness, message: str, keep: dict[str, int] | None = None) -> str:
    """Neither the check nor the rewind changes the table; return the remedy."""
    sink, keep = harness.opened(RESTORING), KEEP if keep is None else keep
    before, history = harness.contents(), sink.history()
    for call in (lambda: sink.check_rewind(keep), lambda: sink.rewind(keep, RESTORING)):
        with pytest.raises(RestoreRefusedError, match=message) as caught:
            call()
    assert harness.contents() == before
    assert sink.history() == history
    return caught.value.remedy


def snapshots(harness: IcebergHarness) -> list[int]:
    return [one.snapshot_id for one in snapshots_of(harness.table())]


@pytest.mark.parametrize("merges", [False, True], ids=["", "manifests are merged"])
def test_one_snapshot_removes_the_files_and_lowers_the_mark(
    harness: IcebergHarness, merges: bool
) -> None:
    if merges:
        change(harness, merge_manifests)
        commit(harness, harness.opened(), rows(6), 3)
    change(harness, append)
    before = snapshots(harness)
    sink = rewound(harness)
    assert ids_of(harness) == [0, 1, 100]
    assert sink.history().committed == KEEP
    table = harness.table()
    [made] = {*snapshots(harness)} - {*before}
    summary = table.metadata.snapshot_by_id(made).summary  # type: ignore[union-attr]
    assert summary is not None
    assert summary["twophase.rewind"] == str(RESTORING)
    older = table.scan(snapshot_id=before[2]).to_arrow().column("id").to_pylist()
    assert sorted(older) == [*range(6)], "snapshots of before have the rows until they expire"
    rewound(harness, attempt=Attempt(3, 0))
    assert len(snapshots(harness)) == len(before) + 1


def merge_manifests(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties(
            {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
        )


def test_the_next_lineage_goes_on_and_is_taken_back_too(harness: IcebergHarness) -> None:
    """Nothing of the first rewind is in the way of the second."""
    rewound(harness, {LINEAGE: 1})
    sink = harness.opened(Attempt(2, 1))
    writer = sink.writers()(transaction_id(2, Attempt(2, 1), OTHER_LINEAGE), Subtask(0, 2))
    writer.write(theirs(4, 5).to_batches()[0])
    piece = writer.pre_commit()
    assert piece is not None
    request = CommitRequest(piece, predecessor=Predecessor(LINEAGE, 1))
    assert sink.commit([request]) == [Committed()]
    assert ids_of(harness) == [*range(6)]
    sink = rewound(harness, attempt=Attempt(3, 0))
    assert ids_of(harness) == [0, 1]
    assert sink.history().committed == KEEP
    assert sink.history().replaced == ""


def test_all_of_a_lineage_that_is_not_kept_goes(harness: IcebergHarness) -> None:
    sink = rewound(harness, {})
    assert ids_of(harness) == []
    assert sink.history().committed == {}
    assert sink.other_names() == {}


def test_a_lineage_that_is_not_kept_needs_no_snapshot_from_before_it(tmp_path: Path) -> None:
    harness = IcebergHarness(tmp_path / "lake", FIELDS)
    harness.opened()
    change(harness, append)
    change(harness, expire)
    rewound(filled(harness), {})
    assert ids_of(harness) == [100, 100]


def test_a_mark_goes_down_to_a_checkpoint_that_has_rows(harness: IcebergHarness) -> None:
    sink = harness.opened()
    commit(harness, sink, rows(6), 7)
    sink.subsume(LINEAGE, 7)
    commit(harness, sink, rows(7), 9)
    assert rewound(harness, {LINEAGE: 5}).history().committed == {LINEAGE: 2}
    assert ids_of(harness) == [*range(6)]


def test_a_checkpoint_of_two_partition_specs_goes_whole(harness: IcebergHarness) -> None:
    sink = harness.opened()
    old = harness.write(sink, rows(6), 3, subtask=Subtask(0, 6))
    change(harness, partition_it)
    new = harness.write(sink, rows(7, 8), 3, subtask=Subtask(1, 7))
    assert sink.commit([CommitRequest(old), CommitRequest(new)]) == [Committed()] * 2
    rewound(harness, {LINEAGE: 2})
    assert ids_of(harness) == [*range(6)]


def test_pieces_of_two_checkpoints_in_one_call_are_two_snapshots(harness: IcebergHarness) -> None:
    sink = harness.opened()
    made = [harness.write(sink, rows(number), number) for number in (6, 7)]
    assert sink.commit([CommitRequest(piece) for piece in made]) == [Committed()] * 2
    rewound(harness, {LINEAGE: 6})
    assert ids_of(harness) == [*range(7)]


def test_what_was_taken_back_is_lost_to_an_older_commit(harness: IcebergHarness) -> None:
    sink = harness.opened()
    piece = harness.write(sink, rows(6), 3)
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    [outcome] = rewound(harness).commit([CommitRequest(piece)])
    assert isinstance(outcome, Lost)
    assert ids_of(harness) == [0, 1]


def test_what_a_dead_commit_has_left_is_no_orphan_of_older_snapshots(
    harness: IcebergHarness,
) -> None:
    """An abort would delete the files of a piece that was committed and taken back."""

    def dies() -> None:
        sink = harness.opened()
        sink.commit([CommitRequest(harness.write(sink, rows(6), 3))])

    assert killed("D02", dies)
    assert harness.staged() != []
    files = harness.data_files()
    sink = rewound(harness)
    sink.abort(sink.in_doubt())
    assert harness.staged() == []
    assert harness.data_files() == files


def test_snapshots_of_what_stays_may_have_expired(harness: IcebergHarness) -> None:
    def forget_the_first(table: Table) -> None:
        oldest = min(table.metadata.snapshots, key=lambda one: one.timestamp_ms)
        table.maintenance.expire_snapshots().by_ids([oldest.snapshot_id]).commit()

    change(harness, forget_the_first)
    rewound(harness, {LINEAGE: 1})
    assert ids_of(harness) == [0, 1, 2, 3]


# -- refusals --------------------------------------------------------------------------------------


def delete_rows(table: Table) -> None:
    table.delete("id = 4")


def delete_a_file(table: Table) -> None:
    table.delete("id = 4 or id = 5")


def expire_the_second(table: Table) -> None:
    """The one after it has no parent then, as if the table began there."""
    second = sorted(table.metadata.snapshots, key=lambda one: one.timestamp_ms)[1]
    table.maintenance.expire_snapshots().by_ids([second.snapshot_id]).commit()


REFUSALS: dict[str, tuple[Change, str]] = {
    "rows deleted": (delete_rows, r"\((delete|overwrite)\) has removed .* checkpoint 2 of"),
    "a file deleted": (delete_a_file, r"has removed .* checkpoint 2 of lineage"),
    "overwritten": (overwrite, r"has removed .*, a file of checkpoint [12] of lineage"),
    "compacted": (compact, r"\(replace\) has removed .*, a file of checkpoint [12] of"),
    "expired": (expire, "snapshots have expired that may have added files of lineage"),
    "one expired": (expire_the_second, "snapshots have expired that may have added"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_others_have_done_to_the_files_is_named(harness: IcebergHarness, what: str) -> None:
    """Without restore.path the job goes on, and what it has written since can be taken back."""
    does, message = REFUSALS[what]
    change(harness, does)
    assert refused(harness, message) == (
        "restore a checkpoint or savepoint from after that, or start without restore.path to go on."
    )
    left, sink = ids_of(harness), harness.opened(RESTORING)
    for number in (3, 4):
        piece = harness.write(sink, rows(3 + number), number, RESTORING)
        assert sink.commit([CommitRequest(piece)]) == [Committed()]
    assert ids_of(harness) == sorted([*left, 6, 7])
    rewound(harness, {LINEAGE: 3}, Attempt(3, 0))
    assert ids_of(harness) == sorted([*left, 6])


def test_a_rollback_that_is_undone_as_the_message_says_is_rewound(harness: IcebergHarness) -> None:
    """The job would not go on without restore.path either."""
    newest = snapshots(harness)[-1]
    change(harness, roll_back)
    assert refused(harness, "no longer leads to snapshot") == (
        "set branch main back to a snapshot that has it (CALL system.set_current_snapshot), then "
        "start the job again."
    )
    sink = harness.opened(RESTORING)
    piece = harness.write(sink, rows(6), 3, RESTORING)
    with pytest.raises(TargetChangedError, match="no longer leads to snapshot"):
        sink.commit([CommitRequest(piece)])
    change(harness, lambda table: roll_back(table, newest))
    rewound(harness)
    assert ids_of(harness) == [0, 1]


def test_rows_that_a_delete_file_may_have_deleted_are_refused(tmp_path: Path) -> None:
    """Another engine's delete by merge on read: the data file is still there."""
    harness = filled(IcebergHarness(tmp_path / "lake", FIELDS))
    change(harness, write_delete_file)
    refused(harness, r"snapshot \d+ has deleted rows, perhaps of .*, a file of checkpoint")


POSITIONS, VALUES = DataFileContent.POSITION_DELETES, DataFileContent.EQUALITY_DELETES


def file_with(table: Table, number: int) -> DataFile:
    """The data file that has a row."""
    [found] = [
        task.file
        for task in table.scan().plan_files()
        if number in pq.read_table(task.file.file_path.removeprefix("file://"))["id"].to_pylist()
    ]
    return found


@pytest.mark.parametrize(
    ("number", "names_it", "content", "partition_by", "is_refused"),
    [
        (0, "by bounds", POSITIONS, [], False),
        (0, "by reference", POSITIONS, [], False),
        (0, "", POSITIONS, [], True),
        (4, "by bounds", POSITIONS, [], True),
        (4, "by reference", POSITIONS, [], True),
        (0, "", POSITIONS, ["id"], False),
        (4, "", POSITIONS, ["id"], True),
        (0, "by bounds", POSITIONS, ["bucket[1](id)"], False),
        (0, "", VALUES, [], True),
        (0, "", VALUES, ["id"], False),
        (4, "", VALUES, ["id"], True),
        (0, "", VALUES, ["void(id)"], True),
    ],
)
def test_a_delete_file_refuses_a_rewind_if_it_can_touch_its_rows(
    tmp_path: Path,
    number: int,
    names_it: str,
    content: DataFileContent,
    partition_by: list[str],
    is_refused: bool,
) -> None:
    harness = filled(IcebergHarness(tmp_path / "lake", FIELDS, partition_by=partition_by))
    change(
        harness,
        lambda table: write_delete_file(table, file_with(table, number), names_it, content),
    )
    if is_refused:
        refused(harness, r"snapshot \d+ has deleted rows, perhaps of .*, a file of checkpoint")
        return
    assert rewound(harness).history().committed == KEEP
    if content == POSITIONS:  # pyiceberg reads no others
        assert ids_of(harness) == [1]


def test_values_deleted_before_the_table_was_partitioned_are_everywhere(tmp_path: Path) -> None:
    """A delete file without partition is one of all files, whatever theirs."""
    harness = IcebergHarness(tmp_path / "lake", FIELDS)
    commit(harness, harness.opened(), rows(50), 0)
    old = harness.table()
    change(harness, partition_it)
    commit(harness, harness.opened(), rows(60), 1)
    change(
        harness,
        lambda table: write_delete_file(
            table, file_with(table, 50), "", VALUES, old.spec().spec_id
        ),
    )
    refused(harness, r"snapshot \d+ has deleted rows, perhaps of .*, a file of checkpoint 1")


def test_deletes_of_rows_that_a_replay_has_written_since_are_not_in_the_way(
    tmp_path: Path,
) -> None:
    """By value and of the same snapshot: they are of older files only."""
    harness = filled(IcebergHarness(tmp_path / "lake", FIELDS))
    change(harness, lambda table: write_delete_file(table, None, "", VALUES))
    commit(harness, harness.opened(), rows(6), 3)
    assert rewound(harness, {LINEAGE: 2}).history().committed == {LINEAGE: 2}


def test_a_delete_file_that_is_older_than_the_checkpoints_is_not_in_the_way(
    tmp_path: Path,
) -> None:
    harness = filled(IcebergHarness(tmp_path / "lake", FIELDS))
    change(harness, write_delete_file)
    commit(harness, harness.opened(), rows(6), 3)
    rewound(harness, {LINEAGE: 2})
    assert 6 not in ids_of(harness)


def test_a_table_of_a_newer_format_is_refused(harness: IcebergHarness) -> None:
    sink = harness.opened(RESTORING)
    change(harness, upgrade)
    with pytest.raises(RestoreRefusedError, match="format version is 3"):
        sink.check_rewind(KEEP)


def test_a_snapshot_without_its_summary_is_refused(harness: IcebergHarness) -> None:
    """A tool that writes metadata again may leave it out."""

    def strip(table: Table) -> None:
        newest = table.metadata.current_snapshot()
        assert newest is not None
        assert newest.summary is not None
        newest.summary.additional_properties.pop("twophase.checkpoint")

    sink = harness.opened(RESTORING)
    load = Catalog.load

    def stripped(self: Catalog) -> Table:
        table = load(self)
        strip(table)
        return table

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Catalog, "load", stripped)
        with pytest.raises(RestoreRefusedError, match="no snapshot of main names checkpoint 2"):
            sink.check_rewind(KEEP)


# -- at the same moment ----------------------------------------------------------------------------


BETWEEN, IN_FLIGHT = "between the check and the rewind", "in flight"
REPLY_LOST = "in effect, and the reply lost"
Meant = list[int] | tuple[type[TwoPhaseError], str]
REMOVED: Meant = RestoreRefusedError, "has removed .*, a file of checkpoint"
REPLACED: Meant = RestoreRefusedError, r"\(replace\) has removed .*, a file of checkpoint"
EXPIRED: Meant = RestoreRefusedError, "snapshots have expired that may have added files"
BACK: Meant = RestoreRefusedError, "no longer leads to snapshot"
GONE: Meant = TargetChangedError, "is gone: it was dropped or renamed"
OTHER: Meant = TargetChangedError, "was dropped and created again"

MEANWHILE: list[tuple[Change, Meant, Meant]] = [
    # what others do        before it takes effect  after that
    (append,                [0, 1, 100],            [0, 1, 100]),
    (overwrite,             REMOVED,                [100]),
    (delete,                [1],                    [1]),
    (compact,               REPLACED,               [0, 1]),
    (rewrite_manifests,     [0, 1],                 [0, 1]),
    (expire,                EXPIRED,                [0, 1, 100]),
    (set_a_property,        [0, 1],                 [0, 1]),
    (add_a_column,          [0, 1],                 [0, 1]),
    (drop_a_column,         [0, 1],                 [0, 1]),
    (partition_it,          [0, 1],                 [0, 1]),
    (append_and_roll_back,  [0, 1],                 [0, 1]),
    (roll_back,             BACK,                   [0, 1]),
    (replace_main,          BACK,                   [0, 1, 100]),
    (drop_it,               GONE,                   GONE),
    (create_it_again,       OTHER,                  OTHER),
]  # fmt: skip


@pytest.mark.thin(5)
@pytest.mark.parametrize(
    ("what", "meant", "moment"),
    [
        (what, late if moment == REPLY_LOST else early, moment)
        for what, early, late in MEANWHILE
        for moment in (BETWEEN, IN_FLIGHT, REPLY_LOST)
    ],
)
def test_a_change_while_a_rewind_is_in_flight_is_exact_or_refused(
    harness: IcebergHarness,
    monkeypatch: pytest.MonkeyPatch,
    what: Change,
    meant: Meant,
    moment: str,
) -> None:
    sink = harness.opened(RESTORING)
    sink.check_rewind(KEEP)
    left: list[object] = []

    def others() -> None:
        change(harness, what)
        left.append((harness.place.listed(), harness.data_files()))

    if moment == BETWEEN:
        others()
    elif moment == IN_FLIGHT:
        before_the_swap(monkeypatch, others)
    else:
        after_the_swap(monkeypatch, others)
    if isinstance(meant, tuple):
        with pytest.raises(meant[0], match=meant[1]):
            sink.rewind(KEEP, RESTORING)
        assert [(harness.place.listed(), harness.data_files())] == left
        return
    sink.rewind(KEEP, RESTORING)
    assert ids_of(harness) == meant
    assert sink.history().committed == KEEP
    is_undone = what in (roll_back, replace_main)
    assert ("somebody has rolled it back" in sink.history().replaced) == is_undone


def test_a_refused_rewind_leaves_no_manifest(
    harness: IcebergHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = harness.opened(RESTORING)

    def refuse(*_: object) -> None:
        raise CommitFailedException("Table has been updated by another process")

    monkeypatch.setattr(Catalog, "_swap", refuse)
    before = {*harness.folder.rglob("*.avro")}
    with pytest.raises(TargetUnreachableError, match="updated by another process"):
        sink.rewind(KEEP, RESTORING)
    assert {*harness.folder.rglob("*.avro")} == before


def test_a_delete_while_a_rewind_is_in_flight_refuses_it(
    harness: IcebergHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = harness.opened(RESTORING)
    before_the_swap(monkeypatch, lambda: change(harness, delete_a_file))
    with pytest.raises(RestoreRefusedError, match="has removed"):
        sink.rewind(KEEP, RESTORING)
    assert ids_of(harness) == [0, 1, 2, 3]
    assert sink.history().committed == {LINEAGE: 2}


def test_a_newer_driver_while_a_rewind_is_in_flight_stops_it(
    harness: IcebergHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = harness.opened(RESTORING)
    before_the_swap(monkeypatch, lambda: after(harness.opened(Attempt(3, 0))))
    with pytest.raises(FencedError):
        sink.rewind(KEEP, RESTORING)
    assert ids_of(harness) == [*range(6)]
    assert sink.history().committed == {LINEAGE: 2}


def after(_: object) -> None:
    """Nothing more is done."""


def test_a_commit_while_a_rewind_is_in_flight_is_taken_back_too(
    harness: IcebergHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = harness.opened(FIRST)
    piece = harness.write(late, rows(6), 3)
    sink = harness.opened(RESTORING)
    before_the_swap(monkeypatch, lambda: after(late.commit([CommitRequest(piece)])))
    sink.rewind(KEEP, RESTORING)
    assert ids_of(harness) == [0, 1]
    assert sink.history().committed == KEEP


@pytest.mark.parametrize("lands", [True, False])
def test_a_rewind_whose_reply_is_lost_is_looked_at_again(
    harness: IcebergHarness, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    sink = harness.opened(RESTORING)
    before = len(snapshots(harness))
    commit = SqlCatalog.commit_table

    def lost(self: SqlCatalog, *given: object) -> None:
        if lands:
            commit(self, *given)  # type: ignore[arg-type]
        monkeypatch.undo()
        raise OperationalError("COMMIT", {}, ConnectionResetError("gone"))

    monkeypatch.setattr(SqlCatalog, "commit_table", lost)
    sink.rewind(KEEP, RESTORING)
    assert ids_of(harness) == [0, 1]
    assert len(snapshots(harness)) == before + 1


def test_a_rewind_that_arrives_twice_keeps_its_files(
    harness: IcebergHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = harness.opened(RESTORING)
    arrives_twice(monkeypatch)
    sink.rewind(KEEP, RESTORING)
    assert ids_of(harness) == [0, 1]
    piece = harness.write(sink, rows(6), 1, RESTORING)
    assert sink.commit([CommitRequest(piece)]) == [Committed()]
    assert ids_of(harness) == [0, 1, 6]


@pytest.mark.parametrize("point", ["D03", "D04"])
def test_a_rewind_that_dies_is_undone_or_done(harness: IcebergHarness, point: str) -> None:
    assert killed(point, lambda: rewound(harness))
    is_done = point == "D04"
    sink = harness.opened(Attempt(3, 0))
    assert ids_of(harness) == ([0, 1] if is_done else [*range(6)])
    assert sink.history().committed == (KEEP if is_done else {LINEAGE: 2})
    assert not sink.history().half_rewound
    rewound(harness, attempt=Attempt(4, 0))
    assert ids_of(harness) == [0, 1]


def test_a_rollback_of_a_rewind_is_noticed(harness: IcebergHarness) -> None:
    newest = snapshots(harness)[-1]
    sink = rewound(harness)
    change(harness, lambda table: roll_back(table, newest))
    assert ids_of(harness) == [*range(6)]
    assert "somebody has rolled it back" in sink.history().replaced
    piece = harness.write(sink, rows(6), 1, RESTORING)
    with pytest.raises(TargetChangedError, match="no longer leads to snapshot"):
        sink.commit([CommitRequest(piece)])
