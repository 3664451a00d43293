"""The steps of a commit and of an abort, and what a crash or another driver does between them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.damaged_pieces import DAMAGES
from harness.paimon_harness import PaimonHarness
from harness.rights import permissions_checked
from harness.savepoint_world import killed
from tests.sinks.paimon.others import (
    FIELDS,
    add_a_column,
    before_publishing,
    committed,
    dying_after_publishing,
    expire,
    ids_of,
    replace_newest,
    rewrite,
    rival_of,
    rows,
    snapshots,
)
from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, Committed, Lost, RetryLater
from twophase.contract.sink import Predecessor
from twophase.errors import StopJobError, TargetChangedError, TargetUnreachableError
from twophase.ids import Attempt, Subtask
from twophase.sinks.common.lake import orphans
from twophase.sinks.common.staging.names import PieceName
from twophase.sinks.paimon import driver_table, private_api
from twophase.sinks.paimon.open_sink import OpenPaimonSink
from twophase.sinks.paimon.private_api import PaimonTable
from twophase.sinks.paimon.proofs import Proofs
from twophase.testing.harness import LINEAGE


@pytest.fixture
def harness(tmp_path: Path) -> PaimonHarness:
    return PaimonHarness(tmp_path / "lake", FIELDS)


@pytest.fixture
def sink(harness: PaimonHarness) -> OpenPaimonSink:
    return harness.opened()


# -- one commit ------------------------------------------------------------------------------------


def test_all_pieces_of_a_checkpoint_are_one_snapshot(
    harness: PaimonHarness, sink: OpenPaimonSink
) -> None:
    pieces = [harness.write(sink, rows(number), 0, subtask=Subtask(number, 0)) for number in (1, 2)]
    assert committed(sink, *pieces) == [Committed(), Committed()]
    assert snapshots(harness) == [1]
    assert ids_of(harness) == [1, 2]


def test_pieces_of_two_checkpoints_in_one_call_are_two_snapshots(
    harness: PaimonHarness, sink: OpenPaimonSink
) -> None:
    pieces = [harness.write(sink, rows(number), number) for number in (1, 2)]
    assert committed(sink, *pieces) == [Committed(), Committed()]
    assert snapshots(harness) == [1, 2]
    assert ids_of(harness) == [1, 2]


def test_a_snapshot_has_the_job_as_its_user_and_the_checkpoint_as_its_identifier(
    harness: PaimonHarness, sink: OpenPaimonSink
) -> None:
    """What other engines look for too."""
    committed(sink, harness.write(sink, rows(1), 7))
    found = harness.table().snapshot_manager().get_latest_snapshot()
    assert (found.commit_user, found.commit_identifier) == (
        f"twophase~contract~facts~{LINEAGE}",
        7,
    )


def test_a_second_commit_finds_the_first_though_nothing_was_noted(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = harness.write(sink, rows(1))
    dying_after_publishing(monkeypatch)
    assert [type(outcome) for outcome in committed(sink, piece)] == [RetryLater]
    again = harness.opened(Attempt(2, 1))
    assert again.history().committed == {LINEAGE: 0}
    assert again.committed_pieces(LINEAGE, 0) == ["1.1/0.0"]
    assert [*again.in_doubt()] == []
    assert committed(again, piece) == [AlreadyCommitted("snapshot 1")]
    assert committed(again, piece) == [AlreadyCommitted("done marker")]
    assert ids_of(harness) == [1]


def test_an_answer_of_ok_is_not_believed(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = list[bool]()
    publish = PaimonTable.publish

    def forgets(self: PaimonTable, *given: Any) -> None:
        if done:
            publish(self, *given)
        done.append(True)

    monkeypatch.setattr(PaimonTable, "publish", forgets)
    assert committed(sink, harness.write(sink, rows(0))) == [Committed()]
    assert ids_of(harness) == [0]


def test_the_predecessor_may_be_committed_and_not_noted(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (harness.write(sink, rows(number), number) for number in (0, 1))
    dying_after_publishing(monkeypatch)
    committed(sink, first)
    assert committed(sink, second, predecessor=Predecessor(LINEAGE, 0)) == [Committed()]
    assert ids_of(harness) == [0, 1]


# -- others beside it ------------------------------------------------------------------------------


def test_rows_that_another_application_appends_meanwhile_stay(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = harness.write(sink, rows(1))
    before_publishing(monkeypatch, lambda: harness.append(rows(10)))
    assert committed(sink, piece) == [Committed()]
    assert ids_of(harness) == [1, 10]
    assert snapshots(harness) == [1, 2]


def test_a_table_that_others_change_without_end_is_retried_later_and_no_manifest_is_left(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = harness.write(sink, rows(1))
    before_publishing(monkeypatch, lambda: harness.append(rows(10)), always=True)
    [outcome] = committed(sink, piece)
    assert isinstance(outcome, RetryLater)
    assert "was made by somebody else" in outcome.reason
    assert ids_of(harness) == [10] * 10
    manifests = [*(harness.location / "manifest").iterdir()]
    assert len(manifests) == 3 * len(snapshots(harness))  # two lists and a manifest of each
    monkeypatch.undo()
    assert committed(sink, piece) == [Committed()]
    assert ids_of(harness) == [1] + [10] * 10


def test_the_first_commit_of_two_drivers_wins_and_the_other_finds_its_proof(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = harness.write(sink, rows(1))
    rival = rival_of(harness)
    before_publishing(monkeypatch, lambda: committed(rival, piece))
    [outcome] = committed(sink, piece)
    assert isinstance(outcome, AlreadyCommitted)
    assert ids_of(harness) == [1]
    assert snapshots(harness) == [1]


def test_no_name_of_a_snapshot_is_taken_twice(harness: PaimonHarness, sink: OpenPaimonSink) -> None:
    """pypaimon's own rename looks first and replaces then."""
    look = sink.table.look()
    look.table.publish(look.latest, [], "first", 1, {})
    with pytest.raises(private_api.ConflictError):
        look.table.publish(look.latest, [], "second", 1, {})
    assert harness.table().snapshot_manager().get_latest_snapshot().commit_user == "first"


def test_a_snapshot_whose_name_is_free_again_continues_nothing(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver is paused until the snapshots after the one that it has looked at have expired."""
    committed(sink, harness.write(sink, rows(0)))
    piece = harness.write(sink, rows(1), 1)

    def paused() -> None:
        for number in range(3):
            harness.append(rows(10 + number))
        expire(harness, 3)

    before_publishing(monkeypatch, paused)
    with pytest.raises(StopJobError, match=r"snapshot 2 of .* is gone"):
        committed(sink, piece)
    assert ids_of(harness) == [0, 10, 11, 12]
    assert snapshots(harness) == [4]
    assert (harness.location / "snapshot" / "LATEST").read_text() == "4"


# -- proofs and what takes them away ---------------------------------------------------------------


def test_proof_outlives_its_snapshot(harness: PaimonHarness, sink: OpenPaimonSink) -> None:
    piece = harness.write(sink, rows(1))
    committed(sink, piece)
    harness.append(rows(10))
    expire(harness, 1)
    assert committed(sink, piece) == [AlreadyCommitted("done marker")]
    assert sink.history().replaced == ""
    later = harness.write(sink, rows(2), 1)
    assert committed(sink, later, predecessor=Predecessor(LINEAGE, 0)) == [Committed()]
    assert ids_of(harness) == [1, 2, 10]


def test_a_commit_whose_snapshot_has_expired_unnoted_is_proven_by_its_files(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = harness.write(sink, rows(1))
    dying_after_publishing(monkeypatch)
    committed(sink, piece)
    harness.append(rows(10))
    expire(harness, 1)
    assert committed(sink, piece) == [AlreadyCommitted("snapshot 2")]
    assert ids_of(harness) == [1, 10]


def hidden_by_a_gap(
    harness: PaimonHarness,
    sink: OpenPaimonSink,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_committed: bool,
) -> Committable:
    """A piece of which nothing tells any more whether it is committed."""
    piece = harness.write(sink, rows(1))
    if is_committed:
        dying_after_publishing(monkeypatch)
    else:
        monkeypatch.setattr(PaimonTable, "publish", no_space)
    committed(sink, piece)
    monkeypatch.undo()
    harness.append(rows(10))
    rewrite(harness)
    expire(harness, snapshots(harness)[-2])
    with pytest.raises(StopJobError, match=r"cannot be told any more.*snapshot 1 .* is gone"):
        committed(sink, piece)
    return piece


def no_space(self: PaimonTable, *given: Any) -> None:
    raise OSError("no space")


def test_a_commit_whose_snapshot_has_expired_unnoted_is_proven_by_the_oldest_that_is_left(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = harness.write(sink, rows(1))
    dying_after_publishing(monkeypatch)
    committed(sink, piece)
    harness.append(rows(10))
    rewrite(harness)
    expire(harness, 1)
    assert committed(sink, piece) == [AlreadyCommitted("snapshot 2")]
    assert ids_of(harness) == [1, 10]


def test_where_a_gap_hides_whether_a_piece_is_committed_nothing_is_done_with_it(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = hidden_by_a_gap(harness, sink, monkeypatch, is_committed=True)
    with pytest.raises(StopJobError, match="cannot be told any more"):
        sink.abort([piece])
    with pytest.raises(StopJobError, match="cannot be told any more"):
        sink.in_doubt()
    assert ids_of(harness) == [1, 10]


@pytest.mark.parametrize("is_committed", [True, False])
def test_the_operator_looks_and_moves_the_piece_and_its_rows_are_in_the_table_once(
    harness: PaimonHarness,
    sink: OpenPaimonSink,
    monkeypatch: pytest.MonkeyPatch,
    is_committed: bool,
) -> None:
    piece = hidden_by_a_gap(harness, sink, monkeypatch, is_committed=is_committed)
    [staged] = harness.staged()
    if 1 in ids_of(harness):
        staged.rename(staged.parents[1] / "done" / staged.name)
        assert committed(sink, piece) == [AlreadyCommitted("done marker")]
    else:
        [data] = harness.location.rglob("bucket-0/twophase-*.parquet")
        data.rename(staged / data.stem.rpartition("-")[2])
        assert committed(sink, piece) == [Committed()]
    assert ids_of(harness) == [1, 10]


def test_a_gap_does_not_matter_to_a_piece_whose_commit_has_not_begun(
    harness: PaimonHarness, sink: OpenPaimonSink
) -> None:
    piece = harness.write(sink, rows(1))
    for number in range(3):
        harness.append(rows(10 + number))
    expire(harness, 2)
    assert committed(sink, piece) == [Committed()]
    assert ids_of(harness) == [1, 10, 11, 12]


def test_a_piece_whose_staging_area_is_gone_is_proven_by_its_snapshot(
    harness: PaimonHarness, sink: OpenPaimonSink
) -> None:
    piece = harness.write(sink, rows(1))
    committed(sink, piece)
    shutil.rmtree(harness.location / "_twophase")
    again = harness.opened(Attempt(2, 1))
    assert committed(again, piece) == [AlreadyCommitted("snapshot 1")]
    assert ids_of(harness) == [1]


@pytest.mark.parametrize(
    ("what", "named"),
    [
        (lambda harness: harness.table().rollback_to(1), "somebody has rolled the table back"),
        (replace_newest, "or a writer that does not look has replaced it"),
    ],
    ids=["rolled back", "replaced"],
)
def test_a_table_that_lacks_what_was_committed_stops_the_job_and_restored_it_goes_on(
    harness: PaimonHarness,
    sink: OpenPaimonSink,
    what: Callable[[PaimonHarness], None],
    named: str,
) -> None:
    harness.append(rows(10))
    committed(sink, harness.write(sink, rows(1)))
    kept = harness.folder.parent / "backup"
    shutil.copytree(harness.location, kept)
    what(harness)
    assert named in sink.history().replaced
    piece = harness.write(sink, rows(2), 1)
    with pytest.raises(TargetChangedError, match=f"decided and cannot be committed.*{named}") as no:
        committed(sink, piece)
    assert "restore the table's folder, but for _twophase in it" in no.value.remedy
    for folder in kept.iterdir():
        if folder.name != "_twophase":
            shutil.rmtree(harness.location / folder.name)
            folder.rename(harness.location / folder.name)
    again = harness.opened(Attempt(2, 1))
    assert again.history().replaced == ""
    assert committed(again, piece) == [Committed()]
    assert ids_of(harness) == [1, 2, 10]


def test_a_rollback_whose_snapshots_have_expired_is_not_noticed(
    harness: PaimonHarness, sink: OpenPaimonSink
) -> None:
    harness.append(rows(10))
    committed(sink, harness.write(sink, rows(1)))
    harness.table().rollback_to(1)
    for number in (11, 12):
        harness.append(rows(number))
    assert "is another one now" in sink.history().replaced
    expire(harness, 2)
    assert sink.history().replaced == ""
    assert ids_of(harness) == [10, 11, 12]


def test_what_a_fold_removes_the_mark_stands_for(
    harness: PaimonHarness, sink: OpenPaimonSink
) -> None:
    pieces = [harness.write(sink, rows(number), number) for number in range(3)]
    for piece in pieces:
        committed(sink, piece)
    sink.subsume(LINEAGE, 1)
    notes = [path.name for path in harness.folder.rglob("commits/*")]
    assert sorted(notes) == [f"{LINEAGE}~2~3"]
    sink.subsume(LINEAGE, 2)
    assert [path.name for path in harness.folder.rglob("commits/*")] == notes
    assert committed(sink, *pieces) == [AlreadyCommitted("high-water mark")] * 2 + [
        AlreadyCommitted("snapshot 3")
    ]


def test_a_note_that_another_driver_folds_between_two_looks_is_no_error(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [harness.write(sink, rows(number), number) for number in range(2)]
    for piece in pieces:
        committed(sink, piece)
    listed = sink.table.look().proofs.notes()
    assert len(listed) == 2
    rival_of(harness).subsume(LINEAGE, 1)
    monkeypatch.setattr(Proofs, "notes", lambda _: listed)
    assert committed(sink, pieces[0]) == [AlreadyCommitted("high-water mark")]
    assert [*sink.committed_pieces(LINEAGE, 1)] == ["1.1/0.1"]
    assert sink.history().replaced == ""


def changed(path: Path) -> Callable[[], None]:
    """Change one byte in the middle of a file, and return what restores it."""
    before = path.read_bytes()
    at = before.index(b"1.1/0.0")
    path.write_bytes(before[:at] + b"7" + before[at + 1 :])

    def restore() -> None:
        path.write_bytes(before)

    return restore


def test_a_snapshot_whose_proof_was_changed_stops_the_job_and_restored_it_is_found(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = harness.write(sink, rows(1))
    dying_after_publishing(monkeypatch)
    committed(sink, piece)
    snapshot = harness.location / "snapshot" / "snapshot-1"
    restore = changed(snapshot)
    with pytest.raises(StopJobError, match=r"of snapshot 1 .* is damaged") as caught:
        committed(sink, piece)
    assert caught.value.remedy == f"restore {snapshot} from a backup."
    restore()
    assert committed(sink, piece) == [AlreadyCommitted("snapshot 1")]
    assert ids_of(harness) == [1]


def test_a_note_that_was_changed_stops_the_job_and_restored_it_goes_on(
    harness: PaimonHarness, sink: OpenPaimonSink
) -> None:
    committed(sink, harness.write(sink, rows(0)))
    piece = harness.write(sink, rows(1), 1)
    [note] = harness.folder.rglob("commits/*")
    restore = changed(note)
    with pytest.raises(StopJobError, match=r"damaged.*restore"):
        committed(sink, piece)
    restore()
    assert committed(sink, piece, predecessor=Predecessor(LINEAGE, 0)) == [Committed()]
    assert ids_of(harness) == [0, 1]


def test_a_table_without_its_first_schema_gets_nothing_and_restored_it_commits(
    harness: PaimonHarness, sink: OpenPaimonSink
) -> None:
    piece = harness.write(sink, rows(1))
    add_a_column(harness)
    first = harness.location / "schema" / "schema-0"
    kept = first.rename(harness.folder / "backup")
    with pytest.raises(TargetChangedError, match=r"schema-0 is gone.*restore it from a backup"):
        committed(sink, piece)
    kept.rename(first)
    assert committed(sink, piece) == [Committed()]
    assert ids_of(harness) == [1]


# -- abort beside a commit -------------------------------------------------------------------------


def test_an_abort_beside_a_commit_in_flight_wins_or_is_refused(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = harness.write(sink, rows(1))
    rival = rival_of(harness)
    before_publishing(monkeypatch, lambda: rival.abort([piece]))
    [outcome] = committed(sink, piece)
    assert isinstance(outcome, Lost)
    assert ids_of(harness) == []
    assert harness.data_files() == []
    assert harness.staged() == []


def test_a_commit_that_lands_while_an_abort_has_hidden_its_piece_stops_the_abort(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = harness.write(sink, rows(1))
    publish = PaimonTable.publish

    def late(self: PaimonTable, *given: Any) -> None:
        monkeypatch.setattr(PaimonTable, "publish", publish)
        monkeypatch.setattr(orphans, "failpoint", lambda _: publish(self, *given))
        rival_of(harness).abort([piece])

    monkeypatch.setattr(PaimonTable, "publish", late)
    with pytest.raises(StopJobError, match="is in no decision of this job's folder"):
        committed(sink, piece)
    monkeypatch.undo()
    assert committed(sink, piece) == [AlreadyCommitted("snapshot 1")]
    assert ids_of(harness) == [1]


def test_an_abort_that_cannot_stop_commits_keeps_the_piece_until_it_can(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    piece = harness.write(sink, rows(1))
    monkeypatch.setattr(driver_table, "_TRIES", 2)
    (harness.location / "snapshot").mkdir(mode=0o555)
    with (
        permissions_checked(),
        pytest.raises(TargetUnreachableError, match=r"2 tries.*the table's folder can be written"),
    ):
        sink.abort([piece])
    assert len(harness.staged()) == 1
    (harness.location / "snapshot").chmod(0o755)
    sink.abort([piece])
    assert harness.staged() == []
    assert ids_of(harness) == []


def test_an_abort_deletes_the_files_of_its_piece_alone(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = [harness.write(sink, rows(n), 0, subtask=Subtask(n, 0)) for n in (1, 2)]

    monkeypatch.setattr(PaimonTable, "publish", no_space)
    committed(sink, *pieces)  # both are moved
    monkeypatch.undo()
    assert len(harness.data_files()) == 2
    sink.abort([pieces[0]])
    assert len(harness.data_files()) == 1
    assert committed(sink, pieces[1]) == [Committed()]
    assert ids_of(harness) == [2]


# -- the disk --------------------------------------------------------------------------------------


def test_all_that_a_snapshot_names_is_synced_before_it(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[str]()
    fsync = os.fsync

    def noted(file: int) -> None:
        fsync(file)
        synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))

    monkeypatch.setattr(os, "fsync", noted)
    committed(sink, harness.write(sink, rows(0)))
    [at] = [at for at, name in enumerate(synced) if ".snapshot-1." in name]
    before = {*synced[:at]}
    manifests = {str(path) for path in (harness.location / "manifest").iterdir()}
    [data] = harness.location.rglob("bucket-0/*.parquet")
    assert len(manifests) == 3
    assert manifests | {str(data.parent), str(harness.location / "manifest")} <= before
    assert str(harness.location) in before
    assert any("/staged/" in name and name.endswith("/0") for name in before)
    assert str(harness.location / "snapshot") in synced[at:]


def test_a_file_is_as_young_as_its_commit(
    harness: PaimonHarness, sink: OpenPaimonSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paimon's clean-up deletes files older than a day that no snapshot names."""
    piece = harness.write(sink, rows(1))
    [staged] = [*harness.folder.rglob("staged/*/0")]
    old = time.time() - 10 * 86_400
    os.utime(staged, (old, old))
    ages = list[float]()

    def looked() -> None:
        [data] = harness.location.rglob("bucket-0/*.parquet")
        ages.append(data.stat().st_mtime - old)

    before_publishing(monkeypatch, looked)
    assert committed(sink, piece) == [Committed()]
    assert ages[0] > 9 * 86_400


def test_what_a_clean_up_takes_after_a_commit_that_died_is_committed_all_the_same(
    harness: PaimonHarness, sink: OpenPaimonSink
) -> None:
    piece = harness.write(sink, rows(1, 2))
    assert killed("D01", lambda: committed(rival_of(harness), piece))
    [data] = harness.location.rglob("bucket-0/*.parquet")
    data.unlink()
    assert committed(harness.opened(Attempt(2, 1)), piece) == [Committed()]
    assert ids_of(harness) == [1, 2]
    assert [*harness.location.rglob("_twophase/**/*~moved")] == []


def test_a_link_in_the_place_of_a_folder_is_not_followed_and_replaced_it_commits(
    harness: PaimonHarness, sink: OpenPaimonSink
) -> None:
    piece = harness.write(sink, rows(1))
    elsewhere = harness.folder / "elsewhere"
    elsewhere.mkdir()
    (harness.location / "bucket-0").symlink_to(elsewhere)
    with pytest.raises(StopJobError, match=r"is a link or a file.*replace it with a plain folder"):
        committed(sink, piece)
    assert [*elsewhere.iterdir()] == []
    (harness.location / "bucket-0").unlink()
    (harness.location / "bucket-0").mkdir()
    assert committed(harness.opened(Attempt(2, 1)), piece) == [Committed()]
    assert ids_of(harness) == [1]


@pytest.mark.parametrize(("does", "named"), DAMAGES)
def test_a_piece_that_somebody_has_damaged_is_lost_by_name_and_none_of_it_is_committed(
    harness: PaimonHarness, sink: OpenPaimonSink, does: Callable[[Path], None], named: str
) -> None:
    piece = harness.write(sink, rows(1, 2))
    [folder] = harness.staged()
    does(folder)
    [outcome] = committed(sink, piece)
    assert isinstance(outcome, Lost)
    assert named in outcome.evidence
    assert ids_of(harness) == []
    assert folder.exists(), "what is left of it stays"


def test_a_file_of_another_in_its_place_is_not_overwritten_and_moved_away_it_commits(
    harness: PaimonHarness, sink: OpenPaimonSink
) -> None:
    piece = harness.write(sink, rows(1))
    found = sink.table.manifest(PieceName.of(piece.transaction, piece.subtask))
    assert found is not None
    final = sink.table.final_path(found[0], found[0].files[0])
    final.parent.mkdir()
    final.write_bytes(b"theirs")
    with pytest.raises(StopJobError, match="is not the file that was pre-committed"):
        committed(sink, piece)
    assert final.read_bytes() == b"theirs"
    final.rename(harness.folder / "away")
    assert committed(sink, piece) == [Committed()]
    assert ids_of(harness) == [1]
