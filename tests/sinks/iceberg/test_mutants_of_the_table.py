"""Each rule of fence, abort, target, branches, columns, names has a test that finds it missing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from harness.duck import duckdb_with_iceberg
from harness.rule_mutants import Mutant
from tests.sinks.iceberg import (
    others,
    test_branches,
    test_names,
    test_new_columns,
    test_other_writers,
    test_sql_catalog,
)
from tests.sinks.iceberg import test_protocol as protocol
from tests.sinks.iceberg.given import (
    MISSING,
    Given,
    dropped,
    in_flight,
    left_over,
    of_branch,
    of_new_columns,
    with_sink,
)
from twophase.contract.fencing import raised_fence
from twophase.sinks.common import mysql_replies
from twophase.sinks.common.lake import orphans
from twophase.sinks.common.lake.synced_stream import SyncedStream
from twophase.sinks.iceberg import (
    branch,
    columns,
    driver_table,
    new_columns,
    partitions,
    private_api,
    proofs,
    writer,
)
from twophase.sinks.iceberg.catalog import (
    AssertRef,
    AssertSequence,
    Catalog,
)
from twophase.sinks.iceberg.committer import Committer
from twophase.sinks.iceberg.fence import Fence

pytestmark = [pytest.mark.part("files"), pytest.mark.thin(4)]

W = test_other_writers
FENCE = [
    Mutant(
        "a driver of a lower generation is told by the property",
        raised_fence,
        "if fence.generation > attempt.generation:",
        "if False:",
        in_flight(protocol.test_a_fence_that_died_before_its_folder_closes_older_drivers),
        MISSING,
    ),
    Mutant(
        "the property is never lowered",
        raised_fence,
        "return attempt if fence < attempt else None",
        "return attempt",
        with_sink(protocol.test_a_lower_fence_of_the_same_driver_leaves_the_property),
        "Attempt",
    ),
    Mutant(
        "the folder tells the fence too",
        Fence.read,
        "return max(found, self._table.area.fence()) if self._table.area.exists() else found",
        "return found",
        with_sink(protocol.test_a_catalog_restored_from_a_backup_does_not_lower_the_fence),
        "== 5",
    ),
    Mutant(
        "a first fence requires the table's id",
        Catalog.new_property,
        "[table, before]",
        "[before]",
        lambda given: protocol.test_a_table_that_is_made_again_under_a_first_fence_is_not_fenced(
            given.harness(), given.patch
        ),
        "twophase-fence",
    ),
    Mutant(
        "an abort writes the fence again",
        Fence.write_again,
        "lambda fence: fence",
        "lambda fence: None",
        in_flight(W.test_an_abort_beside_a_commit_in_flight_wins_or_is_refused),
        "Committed",
    ),
]
ABORT = [
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
        "an abort looks for a commit",
        orphans._check_uncommitted,
        "if table.is_committed(name, look):",
        "if False:",
        left_over(protocol.test_what_only_the_mark_stands_for_is_not_in_doubt_and_never_aborted),
        MISSING,
    ),
    Mutant(
        "the mark stands for what was moved",
        driver_table.DriverTable.is_committed,
        "return proof.mark >= name.checkpoint and found is not None and is_moved(*found)",
        "return False",
        left_over(protocol.test_what_only_the_mark_stands_for_is_not_in_doubt_and_never_aborted),
        "Committable",
    ),
    Mutant(
        "the mark does not stand for a superseded attempt",
        driver_table.DriverTable.is_committed,
        "and found is not None and is_moved(*found)",
        "",
        with_sink(protocol.test_a_superseded_piece_is_in_doubt_whatever_mark_its_checkpoint_has),
        r"\[\] ==",
    ),
    Mutant(
        "what a fold removes is committed",
        orphans.forget_committed,
        "if table.is_committed(name, look):",
        "if True:",
        with_sink(protocol.test_a_superseded_piece_is_in_doubt_whatever_mark_its_checkpoint_has),
        r"\[\] ==",
    ),
    Mutant(
        "an abort deletes what a commit has moved",
        orphans._delete_data,
        "table.final_path(manifest, file).unlink(missing_ok=True)",
        "pass",
        with_sink(protocol.test_an_abort_deletes_the_files_of_its_piece_alone),
        "== 1",
    ),
    Mutant(
        "an abort deletes nothing else",
        orphans._delete_data,
        "table.final_path(manifest, file).unlink(missing_ok=True)",
        "[path.unlink() for path in table.data.iterdir()]",
        with_sink(protocol.test_an_abort_deletes_the_files_of_its_piece_alone),
        "== 1",
    ),
]
TARGET = [
    Mutant(
        "a certificate that is not trusted is refused for good",
        mysql_replies.is_tls_refused,
        "isinstance(cause, ssl.SSLError) and not hung_up",
        "False",
        lambda given: (
            test_sql_catalog.test_a_server_with_another_certificate_is_named_before_the_login(
                given.folder, "127.0.0.1", False, "is not trusted"
            )
        ),
        "cannot be used",
    ),
    Mutant(
        "another table of the name is another target",
        driver_table.DriverTable.load,
        "if found.metadata.table_uuid != self.uuid:",
        "if False:",
        with_sink(W.test_a_table_that_was_dropped_and_created_again_gets_nothing),
        MISSING,
    ),
    Mutant(
        "another location is another target",
        driver_table.DriverTable.load,
        "if found.location() != self._location:",
        "if False:",
        in_flight(
            W.test_a_table_whose_location_was_set_elsewhere_gets_nothing_until_it_is_set_back, False
        ),
        MISSING,
    ),
    Mutant(
        "an older ancestor ends the search for a rollback",
        branch._leads_to,
        "        if is_older:\n",
        "        if False:\n",
        lambda given: W.test_a_rollback_of_what_was_committed_is_refused_until_it_is_undone(
            given.harness(), 2, True
        ),
        "rolled it back",
    ),
    Mutant(
        "an expired ancestor is no rollback",
        branch._leads_to,
        "metadata.snapshot_by_id(before)\n    return True",
        "metadata.snapshot_by_id(before)\n    return False",
        lambda given: W.test_a_commit_whose_snapshot_has_expired_is_still_known(given.harness(), 2),
        "rolled it back",
    ),
    Mutant(
        "a folded mark has proof",
        proofs.LineageProof.folded,
        "mark=max([self.mark, *old])",
        "mark=max(self.mark, checkpoint)",
        with_sink(protocol.test_a_fold_in_a_later_commit_proves_no_more_than_was_committed),
        "AlreadyCommitted",
    ),
    Mutant(
        "files are synced",
        SyncedStream.close,
        "                os.fsync(self._file.fileno())\n",
        "",
        in_flight(protocol.test_all_that_a_commit_names_is_synced_before_the_catalog_names_it),
        "assert",
    ),
    Mutant(
        "folders are synced",
        SyncedStream.close,
        "            sync(self._path.parent)\n",
        "",
        in_flight(protocol.test_all_that_a_commit_names_is_synced_before_the_catalog_names_it),
        "assert",
    ),
]
BRANCHES = [
    Mutant(
        "a tag is no branch, in a commit in flight too",
        AssertRef.validate,
        "if kind != (SnapshotRefType.BRANCH if self.is_branch else None):",
        "if False:",
        dropped(True, True, test_branches.make_it_a_tag),
        MISSING,
    ),
    Mutant(
        "a snapshot of another branch makes a commit begin again",
        AssertSequence.validate,
        "base_metadata.next_sequence_number() != self.following",
        "False",
        lambda given: test_branches.test_what_leaves_the_branch_whole_is_committed_after(
            given.folder, 2, others.append, [0, 1, 50], [50, 100], True, given.patch
        ),
        "older than last sequence number",
    ),
    Mutant(
        "a missing branch is refused",
        branch.check_branch,
        "if must_exist and is_missing(metadata, branch):",
        "if False:",
        of_branch(
            test_branches.test_without_create_a_missing_branch_is_refused_and_created_by_hand_it_is_written
        ),
        MISSING,
    ),
    Mutant(
        "a tag is refused",
        branch.check_branch,
        "if ref is not None and ref.snapshot_ref_type == SnapshotRefType.TAG:",
        "if False:",
        of_branch(test_branches.test_a_tag_is_refused_by_name),
        "could not be created",
    ),
    Mutant(
        "a branch begins with what main has",
        branch._new_branch,
        "without_ref(table.branch), before]",
        "without_ref(table.branch)]",
        lambda given: (
            test_branches.test_a_branch_that_is_created_while_others_write_has_all_of_main(
                given.folder, True, test_branches.first_rows, [100], given.patch
            )
        ),
        r"== \[100\]",
    ),
    Mutant(
        "a branch that others create meanwhile is left as it is",
        branch._new_branch,
        "table.catalog.without_ref(table.branch), ",
        "",
        lambda given: (
            test_branches.test_a_branch_that_is_created_while_others_write_is_left_as_it_is(
                test_branches.audited(given.folder / "lake"), given.patch
            )
        ),
        r"== \[50, 100\]",
    ),
    Mutant(
        "a branch is created again from what was published",
        branch._missing_branch,
        "if lacks := missing_commit(loaded.metadata, table.proofs(loaded), MAIN_BRANCH):",
        'if lacks := "":',
        of_branch(
            test_branches.test_a_dropped_branch_is_created_again_where_main_has_what_was_committed,
            False,
        ),
        MISSING,
    ),
    Mutant(
        "a branch that is gone before its first commit is missed",
        Committer._check_whole,
        "if not reason and is_missing(loaded.metadata, branch):",
        "if False:",
        dropped(in_flight=False, has_committed=False),
        MISSING,
    ),
    Mutant(
        "a commit keeps a branch's retention",
        private_api._as_long_as_before,
        "if ref is None:",
        "if True:",
        lambda given: test_branches.test_a_commit_keeps_how_long_a_branch_is_kept(
            given.folder, "audit"
        ),
        "None",
    ),
    Mutant(
        "a branch is another target than main",
        driver_table.DriverTable.target.fget,  # type: ignore[attr-defined]
        'branch = "" if self.branch == MAIN_BRANCH else f"@{self.branch}"',
        'branch = ""',
        of_branch(test_branches.test_two_branches_of_a_table_are_two_targets),
        "assert",
    ),
]
COLUMNS = [
    Mutant(
        "a name that differs in case only is refused",
        new_columns._lacking,
        "    if alike:\n",
        "    if False:\n",
        of_new_columns(
            test_new_columns.test_a_column_that_cannot_be_added_is_refused_and_none_is_added,
            [pa.field("ID", pa.int64())],
            "differs from 'id' in case only",
        ),
        MISSING + "|twice",
    ),
    Mutant(
        "the other columns fit before any is added",
        new_columns._lacking,
        "    check_rows(pa.schema([field for field in rows if field.name in names]), schema)\n",
        "",
        of_new_columns(
            test_new_columns.test_rows_that_do_not_fit_otherwise_are_refused_and_nothing_is_added,
            [("id", pa.string()), ("note", pa.string())],
            "column 'id': string does not fit long",
        ),
        "assert",
    ),
    Mutant(
        "the name mapping has the new columns",
        private_api.new_columns,
        "table.transaction().update_schema()",
        "type(table.transaction().update_schema())(table.transaction())",
        of_new_columns(test_new_columns.test_the_name_mapping_of_a_table_has_the_new_columns),
        "assert",
    ),
]
NAMES = [
    Mutant(
        "fields inside a column are not looked for by their names in a file",
        writer._named,
        "column.view(field.type)",
        "column.cast(field.type)",
        lambda given: test_names.test_a_column_reads_back_by_its_name_outside_and_inside_of_others(
            given.folder, "a.b", duckdb_with_iceberg()
        ),
        "assert",
    ),
    Mutant(
        "columns have names of their own in files",
        columns.name_problems,
        "elif (other := in_files.setdefault(in_file, shown)) != shown:",
        "elif not (other := in_files.setdefault(in_file, shown)):",
        lambda given: (
            test_names.test_a_table_of_others_with_such_columns_is_refused_until_one_is_renamed(
                given.folder, duckdb_with_iceberg()
            )
        ),
        MISSING,
    ),
    Mutant(
        "partition fields have names of their own",
        partitions.check_names,
        "made.count(name) > 1",
        "False",
        lambda given: (
            test_names.test_a_partition_field_that_would_have_the_name_of_another_is_refused_before_a_table_is_created(
                given.folder, ["bucket[2](id)", "bucket[4](id)"], "id_bucket", []
            )
        ),
        MISSING,
    ),
]


@pytest.mark.parametrize("mutant", [*FENCE, *ABORT, *TARGET, *BRANCHES, *COLUMNS, *NAMES], ids=str)
def test_a_rule_that_is_broken_is_found(mutant: Mutant, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant.is_found(Given(tmp_path, patch))
