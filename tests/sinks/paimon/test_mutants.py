"""Each rule of the sink has a test that finds it missing: see `harness.rule_mutants`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.paimon_harness import PaimonHarness
from harness.rule_mutants import Mutant
from tests.sinks.paimon import others, test_other_writers, test_rows
from tests.sinks.paimon import test_protocol as protocol
from twophase.errors import ConfigError
from twophase.sinks.common.lake import orphans
from twophase.sinks.common.lake.synced_stream import SyncedStream
from twophase.sinks.paimon import (
    columns,
    driver_table,
    layout,
    private_api,
    proofs,
    writer,
)
from twophase.sinks.paimon.committer import Committer

pytestmark = [pytest.mark.part("paimon"), pytest.mark.thin(4)]
MISSING = "DID NOT RAISE"
W = test_other_writers
API = private_api.PaimonTable


@dataclass
class Given:
    """What a test is given: a folder of its own, and a patch that is undone after it."""

    folder: Path
    patch: pytest.MonkeyPatch

    def harness(self) -> PaimonHarness:
        return PaimonHarness(self.folder / "lake", others.FIELDS)


Test = Callable[[Given], object]


def with_sink(test: Callable[..., object], *args: Any, patched: bool = False) -> Test:
    """A test of a table and an open sink."""

    def run(given: Given) -> object:
        harness = given.harness()
        more = (given.patch,) if patched else ()
        return test(harness, harness.opened(), *more, *args)

    return run


def in_flight(test: Callable[..., object], *args: Any) -> Test:
    return with_sink(test, *args, patched=True)


def losing(what: others.Change, named: str) -> Test:
    return with_sink(
        W.test_a_change_that_would_lose_values_stops_by_name_and_undone_it_commits, what, named
    )


def lacking(what: others.Change, named: str) -> Test:
    return with_sink(
        protocol.test_a_table_that_lacks_what_was_committed_stops_the_job_and_restored_it_goes_on,
        what,
        named,
    )


def rows_of(test: Callable[..., object], *args: Any) -> Test:
    return lambda given: test(given.folder, *args)


def narrow(given: Given) -> None:
    """A table whose column does not hold the rows."""
    harness = given.harness()
    others.make_table(harness, fields=others.FIELDS.set(0, others.FIELDS[0].with_type(pa.int32())))
    with pytest.raises(ConfigError, match="int64 does not fit INT"):
        harness.opened()


MUTANTS = [
    Mutant(
        "a name that is taken is not taken again",
        private_api.SyncedFileIO.try_to_write_atomic,
        "rename_new(temporary, found)",
        "temporary.replace(found)",
        with_sink(protocol.test_no_name_of_a_snapshot_is_taken_twice),
        MISSING,
    ),
    Mutant(
        "a snapshot is synced before it has its name",
        SyncedStream.close,
        "                os.fsync(self._file.fileno())\n",
        "",
        in_flight(protocol.test_all_that_a_snapshot_names_is_synced_before_it),
        "not enough values to unpack|assert",
    ),
    Mutant(
        "a snapshot that continues nothing is removed",
        API._check_newest,
        "continues = later == [*range(made.id, made.id + len(later))]",
        "continues = True",
        in_flight(protocol.test_a_snapshot_whose_name_is_free_again_continues_nothing),
        "assert|DID NOT RAISE",
    ),
    Mutant(
        "a snapshot that was rolled back is not continued",
        API.is_here,
        "return all(number > latest.id for number in self.ids())",
        "return True",
        in_flight(W.test_rows_of_others_that_are_rolled_back_under_a_commit_stay_so, []),
        "assert",
    ),
    Mutant(
        "a snapshot that was replaced is not continued",
        API.is_here,
        "return bool(found.uuid == latest.uuid)",
        "return True",
        in_flight(W.test_rows_of_others_that_are_rolled_back_under_a_commit_stay_so, [11]),
        "assert",
    ),
    Mutant(
        "another table of the name has no first snapshot of the job",
        API.is_here,
        "return self._first == first_schema(self.location)",
        "return True",
        in_flight(W.test_a_table_that_is_created_again_under_the_first_commit_gets_no_snapshot),
        "assert",
    ),
    Mutant(
        "nothing is made in place of a table that was dropped",
        driver_table.DriverTable.create_area,
        "            self.load()\n",
        "            self.location.mkdir(exist_ok=True)\n",
        in_flight(W.test_a_table_that_was_dropped_gets_nothing_and_nothing_is_in_its_place, False),
        "assert|DID NOT RAISE",
    ),
    Mutant(
        "manifests of refused commits are deleted",
        API.publish,
        "commit._clean_up_tmp_manifests(made.base_manifest_list, made.delta_manifest_list, None)",
        "pass",
        in_flight(
            protocol.test_a_table_that_others_change_without_end_is_retried_later_and_no_manifest_is_left
        ),
        "assert",
    ),
    Mutant(
        "a commit is of one checkpoint",
        Committer._together,
        "return piece.name.lineage, piece.name.checkpoint",
        'return piece.name.lineage, ""',
        with_sink(protocol.test_pieces_of_two_checkpoints_in_one_call_are_two_snapshots),
        "assert",
    ),
    Mutant(
        "the snapshots are searched for a piece",
        Committer._settled,
        "if is_moved(piece.manifest, piece.folder):",
        "if False:",
        in_flight(protocol.test_a_second_commit_finds_the_first_though_nothing_was_noted),
        "RetryLater|Committed|Conflict",
    ),
    Mutant(
        "a piece whose files were not moved is in no snapshot",
        Committer._settled,
        "if is_moved(piece.manifest, piece.folder):",
        "if True:",
        with_sink(protocol.test_a_gap_does_not_matter_to_a_piece_whose_commit_has_not_begun),
        "cannot be told any more",
    ),
    Mutant(
        "a gap is noticed",
        proofs.Proofs.published,
        "return None if gap is None else self._by_files(name, manifest, gap)",
        "return None",
        in_flight(
            protocol.test_where_a_gap_hides_whether_a_piece_is_committed_nothing_is_done_with_it
        ),
        "DID NOT RAISE",
    ),
    Mutant(
        "an id below that of a piece's beginning may be its own",
        proofs.Proofs.published,
        "if number <= known:",
        "if number <= max(known, manifest.base):",
        in_flight(W.test_a_piece_begun_on_rows_that_are_rolled_back_is_committed_once, False),
        "assert",
    ),
    Mutant(
        "the files of the newest snapshot prove a piece",
        proofs.Proofs._by_files,
        "if snapshot is not None and names <= self.table.names_in(snapshot):",
        "if False:",
        in_flight(protocol.test_a_commit_whose_snapshot_has_expired_unnoted_is_proven_by_its_files),
        "cannot be told any more",
    ),
    Mutant(
        "the oldest snapshot that is left proves a piece",
        proofs.Proofs._by_files,
        "(self.newest, *self.table.ids()[:1])",
        "(self.newest,)",
        in_flight(
            protocol.test_a_commit_whose_snapshot_has_expired_unnoted_is_proven_by_the_oldest_that_is_left
        ),
        "cannot be told any more",
    ),
    Mutant(
        "a snapshot proves a piece that is gone",
        proofs.Proofs.anywhere,
        "if found is not None and found.proof.names(name):",
        "if False:",
        with_sink(protocol.test_a_piece_whose_staging_area_is_gone_is_proven_by_its_snapshot),
        "Lost",
    ),
    Mutant(
        "the predecessor may be unnoted",
        Committer._has,
        "for name in self._table.unnoted(look)",
        "for name in ()",
        in_flight(protocol.test_the_predecessor_may_be_committed_and_not_noted),
        "no proof|predecessor|Next",
    ),
    Mutant(
        "a rollback is looked for before a commit",
        Committer._check_whole,
        "if reason := look.proofs.rolled_back():",
        "if reason := '':",
        lacking(lambda harness: harness.table().rollback_to(1), "somebody has rolled the table"),
        MISSING,
    ),
    Mutant(
        "another snapshot under the name is noticed",
        proofs.Proofs.rolled_back,
        "if record is not None and str(snapshot.uuid) != record.uuid:",
        "if False:",
        lacking(others.replace_newest, "is another one now"),
        "assert",
    ),
    Mutant(
        "a snapshot that has expired is no rollback",
        proofs.Proofs.rolled_back,
        "elif note.snapshot > self.newest or note.snapshot > self.table.ids()[0]:",
        "else:",
        with_sink(protocol.test_proof_outlives_its_snapshot),
        "rolled the table back",
    ),
    Mutant(
        "a fold keeps the newest note",
        proofs.fold_notes,
        "and note != newest",
        "",
        with_sink(protocol.test_what_a_fold_removes_the_mark_stands_for),
        r"\[\]|assert",
    ),
    Mutant(
        "an abort stops commits in flight",
        driver_table.DriverTable.stop_commits,
        "look.table.publish(",
        "(lambda *_: None)(",
        in_flight(protocol.test_an_abort_beside_a_commit_in_flight_wins_or_is_refused),
        "Committed|assert",
    ),
    Mutant(
        "an abort looks for a commit that landed meanwhile",
        orphans._abort,
        "            stop_commits()\n            _check_uncommitted(table, names)\n",
        "            stop_commits()\n",
        in_flight(
            protocol.test_a_commit_that_lands_while_an_abort_has_hidden_its_piece_stops_the_abort
        ),
        MISSING,
    ),
    Mutant(
        "files are young when they are moved",
        Committer._move_file,
        "            os.utime(kept)\n",
        "",
        in_flight(protocol.test_a_file_is_as_young_as_its_commit),
        "assert",
    ),
    Mutant(
        "a file that was moved back is moved",
        Committer._move,
        "                    source.unlink(missing_ok=True)",
        "                    pass",
        in_flight(
            protocol.test_the_operator_looks_and_moves_the_piece_and_its_rows_are_in_the_table_once,
            False,
        ),
        "RetryLater",
    ),
    Mutant(
        "no link outlasts the commit",
        Committer._finish,
        "kept.unlink(missing_ok=True)",
        "pass",
        with_sink(
            protocol.test_what_a_clean_up_takes_after_a_commit_that_died_is_committed_all_the_same
        ),
        "~moved",
    ),
    Mutant(
        "no link is followed",
        Committer._make,
        "with opened_folder(self._table.location, names):",
        "with __import__('contextlib').suppress(NotImplementedError):",
        with_sink(
            protocol.test_a_link_in_the_place_of_a_folder_is_not_followed_and_replaced_it_commits
        ),
        "DID NOT RAISE",
    ),
    Mutant(
        "another table of the name is another target",
        driver_table.DriverTable.load,
        "if (now := table_id(self.location)) != self.id:",
        "if (now := '') != '':",
        with_sink(W.test_a_table_that_was_dropped_and_created_again_gets_nothing),
        MISSING,
    ),
    Mutant(
        "the columns of a piece are those of the table",
        Committer._check_layout,
        "if changes:",
        "if False:",
        losing(others.drop_a_column, "was dropped"),
        MISSING,
    ),
    Mutant(
        "a column that does not hold the values",
        layout.differences,
        "if number in now and not _holds(text_of(now[number].kind), was)",
        "if False",
        losing(others.retype_a_column, "is STRING"),
        MISSING,
    ),
    Mutant(
        "a required column that was added",
        layout.differences,
        "if now[number].required",
        "if False",
        losing(others.add_a_required_column, "is required"),
        MISSING,
    ),
    Mutant(
        "a primary key is refused",
        layout._refusals,
        "if schema.primary_keys:",
        "if False:",
        rows_of(test_rows.test_a_table_that_cannot_be_written_is_refused_by_name, "a primary key"),
        MISSING,
    ),
    Mutant(
        "options that cannot be kept are refused",
        layout._refusals,
        "if (found := schema.options.get(key, allowed)).lower() != allowed:",
        "if (found := '') != '':",
        rows_of(test_rows.test_a_table_that_cannot_be_written_is_refused_by_name, "buckets"),
        MISSING,
    ),
    Mutant(
        "too long a name of a folder is refused",
        writer.PaimonWriter._divide,
        "                self._check_folder(values)\n",
        "                pass\n",
        rows_of(
            test_rows.test_a_partition_whose_folder_would_have_too_long_a_name_is_refused_by_row,
            "x" * 300,
        ),
        MISSING,
    ),
    Mutant(
        "a length is of bytes",
        writer.PaimonWriter._check_folder,
        "max(len(name.encode()) for name in names)",
        "max(len(name) for name in names)",
        rows_of(
            test_rows.test_a_partition_whose_folder_would_have_too_long_a_name_is_refused_by_row,
            "é" * 150,
        ),
        MISSING,
    ),
    Mutant(
        "long bounds are left out",
        private_api._has_bounds,
        "len(bound.encode()) <= _BOUND_BYTES",
        "True",
        rows_of(test_rows.test_a_filter_finds_rows_beside_values_that_have_no_bounds),
        "assert",
    ),
    Mutant(
        "a column that is too narrow is refused",
        columns.check_rows,
        "elif reason := refusal(field.type, known[field.name].kind):",
        "elif reason := '':",
        narrow,
        MISSING,
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_rule_that_is_broken_is_found(mutant: Mutant, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant.is_found(Given(tmp_path, patch))
