"""A rewind takes back the files of checkpoints; it refuses if it cannot prove which they are."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from harness.rights import permissions_checked
from harness.savepoint_world import killed
from harness.staged_sink_harness import FileHarness, commit, orders
from twophase.contract.outcome import Committed, Lost
from twophase.contract.sink import CanRewind, CommitRequest, Predecessor
from twophase.errors import FencedError, NewerFormatError, RestoreRefusedError, StopJobError
from twophase.ids import Attempt, Subtask
from twophase.internals.record import frame
from twophase.sinks.common.staging import disk, rewound
from twophase.sinks.common.staging.manifest import FILE
from twophase.sinks.common.staging.names import file_name
from twophase.sinks.common.staging.open_sink import OpenStagedSink
from twophase.testing.harness import LINEAGE, OTHER_LINEAGE, transaction_id

pytestmark = pytest.mark.part("files")

RESTORING = Attempt(2, 0)
KEEP = {LINEAGE: 0}


def ids(table: FileHarness) -> list[int]:
    return sorted(row["id"] for row in table.rows_visible())


def fill(table: FileHarness, sink: OpenStagedSink, checkpoints: int = 3) -> None:
    """Commit checkpoints of three rows, each in three partitions; some are in all of them."""
    for number in range(checkpoints):
        numbers = range(3 * number, 3 * number + 3)
        rows = [row | {"name": f"row {row['id'] % 3}"} for row in orders(numbers)]
        assert commit(sink, table.write(sink, rows, number)) == [Committed()]


def path_of(table: FileHarness, checkpoint: int, number: int = 0) -> Path:
    name = file_name(transaction_id(checkpoint), Subtask(0, checkpoint), number, ".parquet")
    return table.path / f"name=row {number}" / name


def stage(table: FileHarness) -> Path:
    return next(table.path.glob("_twophase~*/fence-*"))


def rewind(
    table: FileHarness, keep: dict[str, int], attempt: Attempt = RESTORING
) -> OpenStagedSink:
    sink = table.opened(attempt)
    sink.check_rewind(keep)
    sink.rewind(keep, attempt)
    return sink


def left_over(table: FileHarness) -> list[Path]:
    return [*(stage(table) / "rewound").glob("*")]


@pytest.fixture(params=["by manifest", "by name"])
def by(request: pytest.FixtureRequest, table: FileHarness, sink: OpenStagedSink) -> str:
    """Three checkpoints, with their manifests or with a mark that has replaced these."""
    fill(table, sink)
    if request.param == "by name":
        sink.subsume(LINEAGE, 2)
    return str(request.param)


def test_the_files_of_kept_checkpoints_are_not_touched(table: FileHarness, by: str) -> None:
    before = {path: path.stat().st_ino for path in table.files()}
    sink = rewind(table, {LINEAGE: 1})
    assert isinstance(sink, CanRewind)
    assert ids(table) == list(range(6))
    assert all(path.stat().st_ino == before[path] for path in table.files())
    assert sink.history().committed == {LINEAGE: 1}
    assert left_over(table) == []


def test_a_rewind_behind_the_first_checkpoint_leaves_nothing(table: FileHarness, by: str) -> None:
    sink = rewind(table, {})
    assert table.files() == []
    assert sink.history().committed == {}


def test_the_next_lineage_goes_on(table: FileHarness, by: str) -> None:
    sink = rewind(table, KEEP)
    named = transaction_id(1, Attempt(2, 1), OTHER_LINEAGE)
    writer = sink.writers()(named, Subtask(0, 7))
    writer.write(table_batch(table, range(3, 6)))
    piece = writer.pre_commit()
    assert piece is not None
    assert sink.commit([CommitRequest(piece, 0, Predecessor(LINEAGE, 0))]) == [Committed()]
    assert ids(table) == list(range(6))
    sink.subsume(LINEAGE, 0)
    sink.subsume(OTHER_LINEAGE, 1)
    assert sink.history().committed == {LINEAGE: 0, OTHER_LINEAGE: 1}


def table_batch(table: FileHarness, numbers: range) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(orders(numbers), schema=table.fields)


def test_others_keep_their_files_where_manifests_tell_ours(
    table: FileHarness, sink: OpenStagedSink
) -> None:
    """Also those of a job with other names, and those of no sink."""
    fill(table, sink)
    theirs = path_of(table, 0).with_name("part-00000.parquet")
    shutil.copy(path_of(table, 2), theirs)
    rewind(table, KEEP)
    assert ids(table) == [0, 1, 2, 6]


# -- refusals --------------------------------------------------------------------------------------


def swapped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)


def moved(path: Path) -> None:
    path.rename(path.parent.parent / path.name)


def copied(path: Path) -> None:
    shutil.copy(path, path.parent.parent)


def linked(path: Path) -> None:
    path.rename(path.parent / ".hidden")
    path.symlink_to(path.parent / ".hidden")


def linked_folder(path: Path) -> None:
    outside = path.parent.parent.parent / "outside"
    path.parent.rename(outside)
    path.parent.symlink_to(outside)


def more(path: Path) -> None:
    shutil.copy(path, path.with_name(path.name.replace("-0.parquet", "-9.parquet")))


CHANGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "removed": (Path.unlink, "is no longer in the table", "are missing from the table"),
    "changed": (swapped, "was changed", ""),
    "moved": (moved, "is no longer in the folder of its partition", ""),
    "copied": (copied, "is in the table twice", "is in the table twice"),
    "linked": (linked, "is a link", "is a link"),
    "folder linked": (linked_folder, "is a link", "is a link"),
    "one more": (more, "is not in the manifest of its piece", "are missing from the table"),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_file_that_somebody_has_changed_is_refused_until_that_is_undone(
    table: FileHarness, by: str, how: str, tmp_path: Path
) -> None:
    shutil.copytree(table.path, tmp_path / "as it was", copy_function=shutil.copy2)
    change, *messages = CHANGES[how]
    sink = table.opened(RESTORING)
    change(path_of(table, 2))
    message = messages[by == "by name"]
    if not message:  # a name says nothing about the content, nor about the folder
        sink.rewind(KEEP, RESTORING)
        assert ids(table) == [0, 1, 2]
        return
    before = table.files()
    for call in (lambda: sink.check_rewind(KEEP), lambda: sink.rewind(KEEP, RESTORING)):
        with pytest.raises(RestoreRefusedError, match=message):
            call()
    assert table.files() == before
    assert sink.history().committed == {LINEAGE: 2}
    assert left_over(table) == []
    sink.check_rewind({LINEAGE: 2})
    shutil.rmtree(table.path)
    shutil.copytree(tmp_path / "as it was", table.path)
    rewind(table, KEEP, Attempt(3, 0))
    assert ids(table) == [0, 1, 2]


def test_a_compacted_folder_is_refused(table: FileHarness, by: str) -> None:
    """The rows of all checkpoints of a partition, in a file of another name."""
    shutil.copy(path_of(table, 0), path_of(table, 0).with_name("part-00000.parquet"))
    for number in range(3):
        path_of(table, number).unlink()
    message = "no longer in the table" if by == "by manifest" else "missing from the table"
    with pytest.raises(RestoreRefusedError, match=message):
        table.opened(RESTORING).check_rewind(KEEP)


def test_files_of_others_are_refused_where_only_names_tell_ours(
    table: FileHarness, sink: OpenStagedSink
) -> None:
    """Somebody may have compacted a whole piece into it."""
    fill(table, sink)
    sink.subsume(LINEAGE, 2)
    for path in table.files():
        path.rename(path.with_name(f"part-{path.name[-9:]}"))
    with pytest.raises(RestoreRefusedError, match="was created by someone else"):
        table.opened(RESTORING).check_rewind(KEEP)
    assert len(table.files()) == 3


def test_a_mark_that_stays_says_nothing_of_files_of_others(
    table: FileHarness, sink: OpenStagedSink
) -> None:
    fill(table, sink)
    sink.subsume(LINEAGE, 0)
    shutil.copy(path_of(table, 0), path_of(table, 0).with_name("part-00000.parquet"))
    rewind(table, KEEP)
    assert ids(table) == [0, 0, 1, 2]


@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_manifest_that_is_missing_or_damaged_is_refused(
    table: FileHarness, sink: OpenStagedSink, how: str
) -> None:
    fill(table, sink)
    [manifest] = (stage(table) / "done").glob(f"{LINEAGE}-2-*/{FILE}")
    if how == "missing":
        manifest.unlink()
    else:
        swapped(manifest)
    with pytest.raises(RestoreRefusedError, match=f"the manifest of checkpoint 2 .* is {how}"):
        table.opened(RESTORING).check_rewind(KEEP)


def test_a_manifest_of_a_newer_version_is_left_to_it(
    table: FileHarness, sink: OpenStagedSink
) -> None:
    fill(table, sink)
    [manifest] = (stage(table) / "done").glob(f"{LINEAGE}-2-*/{FILE}")
    manifest.write_bytes(frame("twophase-files/2", FILE, b"{}"))
    with pytest.raises(NewerFormatError):
        table.opened(RESTORING).check_rewind(KEEP)


def test_a_file_without_a_proof_is_refused(table: FileHarness, sink: OpenStagedSink) -> None:
    fill(table, sink)
    [proof] = (stage(table) / "done").glob(f"{LINEAGE}-2-*")
    shutil.rmtree(proof)
    with pytest.raises(RestoreRefusedError, match="but no proof of its commit"):
        table.opened(RESTORING).check_rewind(KEEP)


def test_a_folder_that_cannot_be_searched_is_refused(table: FileHarness, by: str) -> None:
    closed = table.path / "lost+found"
    closed.mkdir()
    sink = table.opened(RESTORING)
    closed.chmod(0)
    with permissions_checked(), pytest.raises(RestoreRefusedError, match="cannot be searched"):
        sink.check_rewind(KEEP)
    closed.chmod(0o700)


# -- deaths, and other drivers ---------------------------------------------------------------------


def dies(table: FileHarness, point: str) -> None:
    """A driver that takes back all but the first checkpoint is killed at a point."""
    assert killed(point, lambda: rewind(table, KEEP))


@pytest.mark.parametrize("point", ["F07", "F07@4", "F08", "F09", "F09@2", "F10"])
def test_a_driver_that_dies_is_followed_by_one_that_ends_the_rewind(
    table: FileHarness, by: str, point: str
) -> None:
    # A mark is the only proof of pieces that are known by name: F09 lies between no two of them.
    is_reached = by == "by manifest" or not point.startswith("F09")
    assert killed(point, lambda: rewind(table, KEEP)) is is_reached
    if is_reached and point != "F10":
        assert table.opened(Attempt(3, 0)).history().committed[LINEAGE] > 0
    for generation in (3, 4):
        sink = rewind(table, KEEP, Attempt(generation, 0))
        assert ids(table) == [0, 1, 2]
        assert sink.history().committed == {LINEAGE: 0}
    sink.subsume(LINEAGE, 0)
    assert left_over(table) == []


@pytest.mark.parametrize(
    ("point", "left"),
    [("F07", 9), ("F07@4", 9), ("F08", 3), ("F09", 3), ("F09@2", 3), ("F10", 3)],
)
def test_a_rewind_that_died_is_given_up(table: FileHarness, by: str, point: str, left: int) -> None:
    """While a file is left in the table, the others come back to where they were."""
    files = table.files()
    killed(point, lambda: rewind(table, KEEP))
    for generation in (3, 4):
        attempt = Attempt(generation, 0)
        sink = table.opened(attempt)
        sink.settle_rewind(KEEP, attempt)
        assert ids(table) == [*range(left)]
        assert sink.history().committed == {LINEAGE: left // 3 - 1}
        assert left_over(table) == []
    if left == 9:
        assert table.files() == files
    piece = table.write(sink, orders(range(9, 12)), 3, Attempt(4, 1))
    assert commit(sink, piece) == [Committed()]
    assert ids(table) == [*range(left), 9, 10, 11]


@pytest.mark.parametrize("then", ["given up", "rewound"])
def test_giving_up_may_die_too(table: FileHarness, by: str, then: str) -> None:
    """The next driver gives the rest up as well, or rewinds after all."""
    files, attempt = table.files(), Attempt(3, 0)
    dies(table, "F07@4")
    assert killed("F11@2", lambda: table.opened(attempt).settle_rewind(KEEP, attempt))
    assert len(table.files()) == len(files) - 2
    if then == "given up":
        table.opened(Attempt(4, 0)).settle_rewind(KEEP, Attempt(4, 0))
        assert table.files() == files
    rewind(table, KEEP, Attempt(5, 0))
    assert ids(table) == [0, 1, 2]
    assert left_over(table) == []


@pytest.mark.parametrize(("way", "left"), [("restored", 9), ("finished", 3)])
def test_a_damaged_note_of_where_files_were_is_named_and_either_way_leads_on(
    table: FileHarness, by: str, way: str, left: int
) -> None:
    dies(table, "F07")
    [places] = (stage(table) / "rewound").glob("*/places")
    whole, before = places.read_bytes(), table.files()
    places.write_bytes(b'{"0": "orders-0.json"}')
    sink = table.opened(Attempt(3, 0))
    with pytest.raises(RestoreRefusedError, match=r"the note of where .* is damaged: rewound/"):
        sink.settle_rewind(KEEP, Attempt(3, 0))
    assert table.files() == before
    if way == "restored":
        [places] = (stage(table) / "rewound").glob("*/places")
        places.write_bytes(whole)
        sink.settle_rewind(KEEP, Attempt(3, 0))
    else:
        rewind(table, KEEP, Attempt(4, 0))
    assert ids(table) == [*range(left)]
    assert left_over(table) == []


def test_a_note_of_where_files_were_of_a_newer_version_is_left_to_it(
    table: FileHarness, sink: OpenStagedSink
) -> None:
    fill(table, sink)
    dies(table, "F07")
    [places] = (stage(table) / "rewound").glob("*/places")
    places.write_bytes(frame("twophase-files/2", "places", b"{}"))
    with pytest.raises(NewerFormatError):
        table.opened(Attempt(3, 0)).settle_rewind(KEEP, Attempt(3, 0))


def brought_back(table: FileHarness) -> Path:
    """A rewind dies, and somebody copies a file back; return where it is."""
    files = table.files()
    dies(table, "F08")
    [taken] = (stage(table) / "rewound").glob(f"{LINEAGE}-2-*")
    [path] = [path for path in files if path.name == path_of(table, 2).name]
    return Path(shutil.copy(taken / "0", path))


def test_a_file_that_somebody_has_brought_back_is_not_moved_over(
    table: FileHarness, by: str
) -> None:
    path = brought_back(table)
    with pytest.raises(RestoreRefusedError, match="is in the table twice"):
        table.opened(Attempt(3, 0)).settle_rewind(KEEP, Attempt(3, 0))
    path.unlink()
    sink = table.opened(Attempt(3, 0))
    assert sink.history().half_rewound
    sink.settle_rewind(KEEP, Attempt(3, 0))
    assert ids(table) == [0, 1, 2]
    assert not sink.history().half_rewound


@pytest.mark.parametrize(("way", "left"), [("repeated", 3), ("given up", 9)])
def test_nothing_is_committed_while_a_rewind_has_not_ended(
    table: FileHarness, by: str, way: str, left: int
) -> None:
    """By a start without the restore: it would go on in a table that lacks rows."""
    dies(table, "F07")
    sink = table.opened(Attempt(3, 1))
    assert sink.history().half_rewound
    piece = table.write(sink, orders(range(9, 12)), 3, Attempt(3, 1))
    with pytest.raises(StopJobError, match="has not finished"):
        commit(sink, piece)
    again = table.opened(Attempt(4, 0))
    (again.rewind if way == "repeated" else again.settle_rewind)(KEEP, Attempt(4, 0))
    assert commit(again, piece) == [Committed()]
    assert ids(table) == [*range(left), 9, 10, 11]


def test_a_rewind_that_has_begun_is_not_ended_by_one_that_keeps_more(
    table: FileHarness, by: str
) -> None:
    dies(table, "F08")
    sink = table.opened(Attempt(3, 0))
    with pytest.raises(RestoreRefusedError, match="an earlier rewind") as caught:
        sink.check_rewind({LINEAGE: 1})
    assert caught.value.remedy.startswith("repeat the restore")
    rewind(table, KEEP, Attempt(3, 0))
    rewind(table, {}, Attempt(4, 0))
    assert table.files() == []


def test_a_file_that_somebody_has_brought_back_is_refused(table: FileHarness, by: str) -> None:
    brought_back(table)
    with pytest.raises(RestoreRefusedError, match="is in the table twice"):
        table.opened(Attempt(3, 0)).check_rewind(KEEP)


def test_a_fold_in_the_middle_of_a_rewind_changes_nothing(
    table: FileHarness, sink: OpenStagedSink
) -> None:
    """The next start may fold the proofs before it takes the checkpoints back."""
    fill(table, sink)
    dies(table, "F07@4")
    table.opened(Attempt(3, 0)).subsume(LINEAGE, 2)
    assert len(left_over(table)) > 0
    rewind(table, KEEP, Attempt(3, 0))
    assert ids(table) == [0, 1, 2]
    assert left_over(table) == []


@pytest.mark.parametrize("after", range(7))
def test_a_driver_that_is_fenced_in_the_middle_takes_nothing_more_out(
    table: FileHarness, by: str, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """It was paused, and the newer driver has gone on without the restore."""
    sink = table.opened(RESTORING)
    rename, moves = disk.rename_new, iter(range(after + 1))

    def fence_before(source: Path, target: Path) -> None:
        if next(moves, None) == after:
            table.opened(Attempt(3, 0))
        rename(source, target)

    monkeypatch.setattr(rewound, "rename_new", fence_before)
    if by == "by name" and after == 6:
        return  # there is no seventh rename
    with pytest.raises(FencedError):
        sink.rewind(KEEP, RESTORING)
    assert len(table.files()) == 9 - after
    assert table.opened(Attempt(3, 1)).history().committed == {LINEAGE: 2}


def test_what_was_taken_back_is_lost_to_an_older_commit(
    table: FileHarness, sink: OpenStagedSink
) -> None:
    piece = table.write(sink, orders(range(3)), 1)
    assert commit(sink, piece) == [Committed()]
    again = rewind(table, KEEP)
    assert isinstance(commit(again, piece)[0], Lost)
