"""Each rule of a commit has a test that finds it missing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from harness import damaged_pieces
from harness.rule_mutants import Mutant
from tests.sinks.iceberg import (
    others,
    test_merged_manifests,
    test_moments,
    test_other_writers,
    test_rewind,
    test_rows,
    test_sort_order,
)
from tests.sinks.iceberg import test_protocol as protocol
from tests.sinks.iceberg.given import (
    MISSING,
    Given,
    Test,
    at,
    in_flight,
    left_over,
    of_contract,
    of_rewind,
    with_sink,
)
from twophase.sinks.common.lake import rows
from twophase.sinks.iceberg import (
    committer,
    driver_table,
    layout,
    private_api,
    sorting,
)
from twophase.sinks.iceberg.catalog import (
    AssertLayout,
    AssertProperties,
    Catalog,
)
from twophase.sinks.iceberg.committer import Committer
from twophase.sinks.iceberg.writer import IcebergWriter
from twophase.testing.contract import ArrowSinkContract

pytestmark = [pytest.mark.part("files"), pytest.mark.thin(4)]

W = test_other_writers
few = test_merged_manifests.test_what_stays_few_is_not_what_tells_what_is_committed
elsewhere = W.test_a_table_whose_location_was_set_elsewhere_gets_nothing_until_it_is_set_back
no_longer = W.test_a_table_that_no_longer_takes_the_files_stops_the_job_by_name


def not_seen(difference: str, old: str, new: str, test: Test, red: str = MISSING) -> Mutant:
    return Mutant(difference, layout.differences, old, new, test, red)


COMMIT = [
    Mutant(
        "a commit requires the fence",
        driver_table.DriverTable.as_read,
        "            fence_key(self.owner),\n",
        "",
        in_flight(W.test_an_abort_beside_a_commit_in_flight_wins_or_is_refused),
        "Committed",
    ),
    Mutant(
        "a commit requires the proofs of other lineages",
        driver_table.DriverTable.as_read,
        "            *self.proofs(loaded).keys(),\n",
        "",
        in_flight(protocol.test_the_proof_of_a_predecessor_that_vanishes_in_flight_is_missed),
        MISSING,
    ),
    Mutant(
        "a commit requires the proof of its lineage",
        Catalog.as_read,
        "for key in keys}",
        "for key in keys if 'fence' in key}",
        lambda given: (
            protocol.test_a_commit_of_another_driver_that_was_rolled_back_meanwhile_is_not_made_again(
                (harness := given.harness(format_version=1)), harness.opened(), given.patch
            )
        ),
        "Committed",
    ),
    Mutant(
        "a requirement is looked at",
        AssertProperties.validate,
        "if found.get(key) != value:",
        "if False:",
        in_flight(W.test_an_abort_beside_a_commit_in_flight_wins_or_is_refused),
        "Committed",
    ),
    Mutant(
        "a commit requires the columns",
        Committer._append,
        "            AssertCurrentSchemaId(current_schema_id=loaded.metadata.current_schema_id),\n",
        "",
        at(test_moments.IN_FLIGHT, others.drop_a_column),
        "'amount' is not in the table",
    ),
    Mutant(
        "a piece of another table is not committed",
        Committer._check_target,
        "if committable.target != self._lake.target:",
        "if False:",
        of_contract(ArrowSinkContract, "test_a_piece_of_another_target_is_never_committed"),
        MISSING,
    ),
    Mutant(
        "the predecessor is looked for",
        Committer._check_target,
        "if before is not None and not",
        "if False and not",
        with_sink(W.test_a_catalog_restored_from_a_backup_gets_nothing_more),
        MISSING,
    ),
    Mutant(
        "a commit requires the location",
        AssertLayout.validate,
        "if found != (self.location, self.format_version):",
        "if found and found[1] != self.format_version:",
        in_flight(elsewhere, True),
        "assert",
    ),
    Mutant(
        "a commit requires the format version",
        AssertLayout.validate,
        "if found != (self.location, self.format_version):",
        "if found and found[0] != self.location:",
        in_flight(no_longer, others.upgrade, "format version is 3 now", True),
        MISSING,
    ),
    Mutant(
        "a commit requires the partition specs",
        AssertLayout.validate,
        "not self.specs <= base_metadata.specs().keys()",
        "False",
        in_flight(no_longer, others.replace_the_spec, "partition spec 0 was removed", True),
        MISSING,
    ),
    Mutant(
        "metadata that cannot be written leaves the outcome unclear",
        Catalog._swap,
        "except self.failures + _NAMELESS as error:",
        "except self.failures as error:",
        in_flight(protocol.test_what_pyiceberg_cannot_write_is_tried_again),
        "V4 is not yet supported",
    ),
    Mutant(
        "a rollback is looked for",
        Committer._check_whole,
        "reason = rolled_back(loaded.metadata, proofs, branch)",
        'reason = ""',
        lambda given: W.test_a_rollback_of_what_was_committed_is_refused_until_it_is_undone(
            given.harness(), 2, False
        ),
        MISSING,
    ),
    Mutant(
        "the columns of a piece are those of the table",
        Committer._check_layout,
        "if changes:",
        "if False:",
        at(test_moments.STAGED, others.drop_a_column),
        "'amount' is not in the table",
    ),
    Mutant(
        "the proof of a piece is looked for",
        Committer._proven,
        "if not look.proofs.lineage(name.lineage).names(name):",
        "if True:",
        in_flight(W.test_the_first_commit_of_two_drivers_wins_and_the_other_finds_its_proof),
        "RetryLater",
    ),
    Mutant(
        "a commit of unclear outcome is looked for",
        Committer._later,
        "self._proven(name, look) or RetryLater(reason)",
        "RetryLater(reason)",
        lambda given: W.test_a_commit_whose_reply_is_lost_is_neither_repeated_nor_forgotten(
            (harness := given.harness()), harness.opened(), given.patch, True
        ),
        "RetryLater",
    ),
    Mutant(
        "OK is not believed",
        Committer._try,
        "            return None\n        failpoint",
        "            return [Committed() for _ in requests]\n        failpoint",
        in_flight(protocol.test_an_answer_of_ok_is_not_believed),
        r"\[\] == \[0\]",
    ),
    Mutant(
        "a piece that is missing is looked for below the newest fence",
        Committer.commit,
        "isinstance(outcome, Lost) for outcome in outcomes) and not stage.exists()",
        "isinstance(outcome, Lost) for outcome in outcomes) and False",
        in_flight(protocol.test_a_fence_that_is_raised_between_two_looks_loses_no_piece),
        "Lost",
    ),
    Mutant(
        "the mark is proof of a piece that is gone",
        Committer._find,
        "            if mark >= name.checkpoint:\n",
        "            if False:\n",
        with_sink(protocol.test_a_folded_piece_is_committed_still),
        "Lost",
    ),
    Mutant(
        "the mark stands for a piece that was moved",
        Committer._find,
        "if mark >= name.checkpoint and is_moved(manifest, folder):",
        "if False:",
        left_over(protocol.test_what_only_the_mark_stands_for_is_committed),
        "Committed",
    ),
    Mutant(
        "the mark stands for no piece that was not moved",
        Committer._find,
        "if mark >= name.checkpoint and is_moved(manifest, folder):",
        "if mark >= name.checkpoint:",
        with_sink(protocol.test_a_late_piece_of_a_folded_checkpoint_is_not_called_committed),
        "AlreadyCommitted",
    ),
    Mutant(
        "a manifest has the digest that was decided",
        Committer._find,
        'if hashlib.sha256(data).hexdigest() != committable.handle["manifest_sha256"]:',
        "if False:",
        with_sink(
            protocol.test_a_piece_that_somebody_has_damaged_is_lost_by_name_and_none_of_it_is_committed,
            damaged_pieces.change_manifest,
            "its SHA-256 differs",
        ),
        "its SHA-256 differs",
    ),
    Mutant(
        "a file has the size that was pre-committed",
        Committer._missing,
        "if (size := _size(found)) != file.size:",
        "if False:",
        with_sink(
            protocol.test_a_piece_that_somebody_has_damaged_is_lost_by_name_and_none_of_it_is_committed,
            damaged_pieces.cut,
            "has 10 bytes",
        ),
        "Committed",
    ),
    Mutant(
        "a file that is gone is missed",
        Committer._missing,
        "if found is None:\n                return",
        "if found is None:\n                continue\n                return",
        with_sink(
            protocol.test_a_piece_that_somebody_has_damaged_is_lost_by_name_and_none_of_it_is_committed,
            damaged_pieces.drop_file,
            "is gone",
        ),
        "RetryLater",
    ),
    Mutant(
        "a file of another is not taken for ours",
        Committer._move_file,
        "and digest(final) != file.sha256:",
        "and False:",
        with_sink(
            protocol.test_a_file_of_another_in_its_place_is_not_overwritten_and_moved_away_it_commits,
            True,
        ),
        MISSING,
    ),
    Mutant(
        "nor one that came there after ours",
        Committer._move_file,
        "if self._moved.get(final) != _version(final) and",
        "if final not in self._moved and",
        in_flight(
            protocol.test_a_file_that_somebody_puts_in_place_of_a_moved_one_in_flight_is_not_committed
        ),
        MISSING,
    ),
    Mutant(
        "a file is read once in a commit",
        Committer._move_file,
        "        self._moved[final] = _version(final)\n",
        "",
        in_flight(
            protocol.test_what_a_driver_has_moved_or_read_is_not_read_again_after_a_lost_race,
            True,
            True,
        ),
        "assert",
    ),
    Mutant(
        "files are young when they are moved",
        Committer._move_file,
        "            os.utime(kept)\n",
        "",
        in_flight(protocol.test_a_file_is_as_young_as_its_commit, False),
        "assert",
    ),
    Mutant(
        "and once more after a commit that died",
        Committer._move_file,
        "        os.utime(final)\n",
        "",
        in_flight(protocol.test_a_file_is_as_young_as_its_commit, True),
        "assert",
    ),
    Mutant(
        "a file that was taken away is committed as it was written",
        Committer._missing,
        "if found == kept and not final.exists() and digest(kept) != file.sha256:",
        "if False:",
        with_sink(protocol.test_what_was_changed_before_a_clean_up_took_it_is_lost_by_name),
        "Committed",
    ),
    Mutant(
        "a lost piece is kept for the operator",
        Committer._try,
        "            if not isinstance(outcome, Lost)\n",
        "",
        with_sink(
            protocol.test_a_piece_that_somebody_has_damaged_is_lost_by_name_and_none_of_it_is_committed,
            damaged_pieces.cut,
            "has 10 bytes",
        ),
        "FileNotFoundError|No such file",
    ),
    Mutant(
        "manifests of refused commits are deleted",
        Catalog.commit,
        "            change.discard()\n",
        "",
        in_flight(W.test_a_table_that_others_change_without_end_is_retried_later),
        "manifests of refused commits are deleted",
    ),
    Mutant(
        "manifests of a commit that was made are kept, though it was refused",
        Catalog._has,
        "return change.snapshot in",
        "return change.snapshot in () and change.snapshot in",
        in_flight(W.test_a_commit_that_arrives_twice_keeps_its_files),
        "No such file|does not exist|FileNotFound",
    ),
    Mutant(
        "manifests of failed commits are deleted",
        private_api._written,
        "        producer._clean_all_uncommitted()\n        raise",
        "        raise",
        in_flight(W.test_a_commit_that_dies_of_a_full_disk_leaves_no_manifest),
        r"\.avro",
    ),
    Mutant(
        "files keep their partition spec",
        private_api.append,
        'update={"default_spec_id": spec}',
        "update={}",
        with_sink(W.test_rows_of_an_older_partition_spec_are_read_by_a_filter_of_the_new_one),
        "list index out of range",
    ),
    Mutant(
        "manifests are merged if the table says so",
        private_api.append,
        "snapshot.merge_append() if merges else snapshot.fast_append()",
        "snapshot.fast_append()",
        lambda given: few(given.harness(), 24, 5),
        "manifests are merged",
    ),
    Mutant(
        "metadata files are deleted if the table says so",
        private_api.delete_old_metadata,
        "catalog._delete_old_metadata(table.io, table.metadata, now)",
        "assert catalog",
        lambda given: few(given.harness(), 24, 5),
        "metadata files are deleted",
    ),
    Mutant(
        "a snapshot is of one checkpoint",
        Committer._try,
        "[piece for piece in whole if self._together(piece) == one]",
        "[piece for piece in whole if self._together(piece)[2] == one[2]]",
        of_rewind(test_rewind.test_pieces_of_two_checkpoints_in_one_call_are_two_snapshots),
        "no snapshot of main names checkpoint 7",
    ),
]
LAYOUT = [
    not_seen(
        "a dropped column",
        "for number in manifest.fields if number not in now",
        "for number in manifest.fields if False",
        at(test_moments.STAGED, others.replace_a_column),
        "float does not fit long",
    ),
    not_seen(
        "a column that does not hold the values",
        "if number in now and not _holds(now[number], was)",
        "if False",
        at(test_moments.STAGED, others.retype_a_column),
        "float does not fit string",
    ),
    not_seen(
        "a required column that was added",
        'if now[number].endswith(" required")',
        "if False",
        at(test_moments.STAGED, others.add_a_required_column),
        "'note' is required, and the rows lack it",
    ),
    not_seen(
        "a newer format",
        "if metadata.format_version not in VERSIONS:",
        "if False:",
        in_flight(no_longer, others.upgrade, "format version is 3 now", False),
        "Cannot write manifest for table version: 3",
    ),
]
ROWS = [
    Mutant(
        "a NULL in a required column is refused",
        rows.in_table_order,
        "if wanted.required and column.null_count:",
        "if False:",
        lambda given: test_rows.test_a_null_in_a_required_column_is_refused_by_row(given.folder),
        MISSING,
    ),
    Mutant(
        "values are looked at",
        rows.in_table_order,
        "        check_values(wanted.name, column)\n",
        "",
        lambda given: test_rows.test_bytes_that_are_no_text_are_refused(given.folder, pa.string()),
        MISSING,
    ),
    Mutant(
        "a sort order that cannot be kept is refused",
        sorting.refusals,
        "        if reason\n",
        "        if False\n",
        lambda given: test_sort_order.test_a_sort_order_that_cannot_be_kept_is_refused_by_name(
            given.folder
        ),
        MISSING,
    ),
    Mutant(
        "a file is sorted",
        IcebergWriter._new_file,
        "if self._table.sorting:",
        "if False:",
        lambda given: test_sort_order.test_each_file_of_a_partition_is_sorted(given.folder),
        "assert",
    ),
    Mutant(
        "numbers have Iceberg's order",
        sorting._sortable,
        "if not pa.types.is_floating(values.type):",
        "if True:",
        lambda given: test_sort_order.test_values_lie_in_the_order_that_iceberg_defines(
            given.folder,
            pa.float64(),
            [-1.0, -0.0, 0.0, 1.0, float("nan")],
            test_sort_order.DESC,
            test_sort_order.LAST,
        ),
        "nan",
    ),
    Mutant(
        "a file names its own sort order",
        committer._sort_order_id,
        "if order.model_dump_json() == manifest.order",
        "if order.order_id == metadata.default_sort_order_id",
        lambda given: (
            test_sort_order.test_a_sort_order_that_changes_is_that_of_files_written_from_then_on(
                given.folder, test_sort_order.REVERSED, (2, [4, 3]), False, given.patch
            )
        ),
        r"\(2, \[1, 2\]\)",
    ),
    Mutant(
        "a file names no sort order that the table lacks",
        committer._sort_order_id,
        "if order.model_dump_json() == manifest.order",
        "if f'\"order-id\":{order.order_id},' in manifest.order",
        lambda given: test_sort_order.test_a_file_names_no_sort_order_that_the_table_has_no_more(
            given.folder
        ),
        r"\(1, \[1, 2\]\)",
    ),
]


@pytest.mark.parametrize("mutant", [*COMMIT, *LAYOUT, *ROWS], ids=str)
def test_a_rule_that_is_broken_is_found(mutant: Mutant, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant.is_found(Given(tmp_path, patch))
