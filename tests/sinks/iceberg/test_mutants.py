"""Each rule of the sink has a test that finds it missing: the rule is taken out of the code of one
function, and that test goes red for the reason it should.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.iceberg_harness import IcebergHarness
from harness.rule_mutants import Mutant
from tests.sinks.iceberg import (
    others,
    test_branches,
    test_new_columns,
    test_other_writers,
    test_rewind,
    test_rows,
    test_sort_order,
)
from tests.sinks.iceberg import test_protocol as protocol
from twophase.sinks.common.lake import orphans, rows
from twophase.sinks.iceberg import (
    branch,
    committer,
    driver_table,
    layout,
    new_columns,
    private_api,
    proofs,
    sorting,
    synced_io,
)
from twophase.sinks.iceberg.catalog import AssertProperties, AssertRef, AssertSequence
from twophase.sinks.iceberg.committer import Committer
from twophase.sinks.iceberg.delete_files import DeleteFile
from twophase.sinks.iceberg.fence import Fence
from twophase.sinks.iceberg.own_files import OwnFiles
from twophase.sinks.iceberg.rewind import Rewind
from twophase.sinks.iceberg.writer import IcebergWriter
from twophase.testing.contract import ArrowSinkContract, RewindContract
from twophase.testing.harness import FIRST

pytestmark = [pytest.mark.part("files"), pytest.mark.thin(4)]


@dataclass
class Given:
    """What a test is given: a table of its own, and a patch that is undone after it."""

    folder: Path
    patch: pytest.MonkeyPatch

    def harness(self, **options: Any) -> IcebergHarness:
        return IcebergHarness(self.folder / "lake", others.FIELDS, **options)

    def filled(self, version: int = 2) -> IcebergHarness:
        return test_rewind.filled(self.harness(format_version=version))


Test = Callable[[Given], object]


def with_sink(test: Callable[..., object], *args: Any, patched: bool = False) -> Test:
    """A test of a table and an open sink."""

    def run(given: Given) -> object:
        harness = given.harness()
        more = (given.patch,) if patched else ()
        return test(harness, harness.opened(), *args, *more)

    return run


def in_flight(test: Callable[..., object], *args: Any) -> Test:
    """The same, of something that happens while a commit is in flight."""
    return with_sink(test, *args, patched=True)


def of_rewind(
    test: Callable[..., object], *args: Any, patched: bool = False, version: int = 2
) -> Test:
    """A test of a table with three checkpoints."""
    return lambda given: test(given.filled(version), *((given.patch,) if patched else ()), *args)


def of_contract(suite: type[ArrowSinkContract | RewindContract], name: str, *args: Any) -> Test:
    """A test of the contract."""

    def run(given: Given) -> object:
        made = suite()
        made.use(given.harness())
        made.harness_in_use = IcebergHarness(given.folder / "contract")
        sink = made.opened()
        sink.fence(FIRST)
        return getattr(made, name)(sink, *args)

    return run


def of_branch(test: Callable[..., object], *args: Any, patched: bool = False) -> Test:
    """A test of a table whose branch is audited."""

    def run(given: Given) -> object:
        harness = test_branches.audited(given.folder / "lake")
        return test(harness, *args, *((given.patch,) if patched else ()))

    return run


def dropped(in_flight: bool, has_committed: bool, what: others.Change = test_branches.drop) -> Test:
    test = (
        test_branches.test_a_branch_that_is_gone_or_replaced_stops_by_name_and_set_back_it_commits
    )
    named = "branch audit is gone"
    return lambda given: test(given.folder, 2, has_committed, what, named, in_flight, given.patch)


def of_new_columns(test: Callable[..., object], *args: Any, patched: bool = False) -> Test:
    """A test of a table that lacks columns."""

    def run(given: Given) -> object:
        harness = given.harness(schema_change="add_columns")
        others.commit(harness, harness.opened(), others.rows(0), 0)
        harness.fields = test_new_columns.MORE
        return test(harness, *args, *((given.patch,) if patched else ()))

    return run


def of_deletes(*args: Any) -> Test:
    test = test_rewind.test_a_delete_file_refuses_a_rewind_if_it_can_touch_its_rows
    return lambda given: test(given.folder, *args)


def left_over(test: Callable[..., object]) -> Test:
    def run(given: Given) -> object:
        harness = given.harness()
        made = inspect.unwrap(protocol.left_over)
        return test(harness, getattr(made, "__wrapped__", made)(harness))

    return run


W = test_other_writers
no_longer = W.test_a_table_that_no_longer_takes_the_files_stops_the_job_by_name
MISSING = "DID NOT RAISE"


def losing(what: others.Change, named: str, is_late: bool = False) -> Test:
    test = W.test_a_change_that_would_lose_values_stops_by_name_and_undone_it_commits
    return in_flight(test, what, named, is_late)


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
        driver_table.DriverTable.as_read,
        "            AssertProperties(expected={key: properties.get(key) for key in keys}),\n",
        "            AssertProperties(expected={key: properties.get(key) for key in [fence_key("
        "self.owner)]}),\n",
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
        losing(others.drop_a_column, "was dropped", is_late=True),
        MISSING,
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
        losing(others.drop_a_column, "was dropped"),
        MISSING,
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
            protocol.change_manifest,
            "its SHA-256 differs",
        ),
        "its SHA-256 differs",
    ),
    Mutant(
        "a file has the size that was pre-committed",
        Committer._missing,
        "if size != file.size:",
        "if False:",
        with_sink(
            protocol.test_a_piece_that_somebody_has_damaged_is_lost_by_name_and_none_of_it_is_committed,
            protocol.cut,
            "has 10 bytes",
        ),
        "Committed",
    ),
    Mutant(
        "a file that is gone is missed",
        Committer._missing,
        "if size is None:\n                return",
        "if size is None:\n                continue\n                return",
        with_sink(
            protocol.test_a_piece_that_somebody_has_damaged_is_lost_by_name_and_none_of_it_is_committed,
            protocol.drop_file,
            "is gone",
        ),
        "RetryLater",
    ),
    Mutant(
        "a file of another is not taken for ours",
        Committer._move_file,
        "if source.exists() or digest(final) != file.sha256:",
        "if False:",
        with_sink(
            protocol.test_a_file_of_another_in_its_place_is_not_overwritten_and_moved_away_it_commits,
            True,
        ),
        MISSING,
    ),
    Mutant(
        "a lost piece is kept for the operator",
        Committer._try,
        "            if not isinstance(outcome, Lost)\n",
        "",
        with_sink(
            protocol.test_a_piece_that_somebody_has_damaged_is_lost_by_name_and_none_of_it_is_committed,
            protocol.cut,
            "has 10 bytes",
        ),
        "FileNotFoundError|No such file",
    ),
    Mutant(
        "manifests of refused commits are deleted",
        Committer._append,
        "            made.discard()\n",
        "",
        in_flight(W.test_a_table_that_others_change_without_end_is_retried_later),
        "manifests of refused commits are deleted",
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
        losing(others.replace_a_column, "was dropped"),
    ),
    not_seen(
        "a column that does not hold the values",
        "if number in now and not _holds(now[number], was)",
        "if False",
        losing(others.retype_a_column, "is string"),
    ),
    not_seen(
        "a required column that was added",
        'if now[number].endswith(" required")',
        "if False",
        losing(others.add_a_required_column, "is required"),
    ),
    not_seen(
        "a newer format",
        "if metadata.format_version not in VERSIONS:",
        "if False:",
        in_flight(no_longer, True, "format version is 3 now"),
        "Cannot write manifest for table version: 3",
    ),
]
FENCE = [
    Mutant(
        "a driver of a lower generation is told by the property",
        Fence.raise_to,
        "if fence.generation > attempt.generation:",
        "if False:",
        in_flight(protocol.test_a_fence_that_died_before_its_folder_closes_older_drivers),
        MISSING,
    ),
    Mutant(
        "the property is never lowered",
        Fence.raise_to,
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
        Fence._write,
        "[self._table.unchanged(), before]",
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
        with_sink(
            W.test_a_table_whose_location_was_set_elsewhere_gets_nothing_until_it_is_set_back
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
        synced_io._Stream.close,
        "                os.fsync(self._file.fileno())\n",
        "",
        in_flight(protocol.test_all_that_a_commit_names_is_synced_before_the_catalog_names_it),
        "assert",
    ),
    Mutant(
        "folders are synced",
        synced_io._Stream.close,
        "            sync(self._path.parent)\n",
        "",
        in_flight(protocol.test_all_that_a_commit_names_is_synced_before_the_catalog_names_it),
        "assert",
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
        branch._create,
        "is_branch=False), before]",
        "is_branch=False)]",
        lambda given: (
            test_branches.test_a_branch_that_is_created_while_others_write_has_all_of_main(
                given.folder, True, test_branches.first_rows, [100], given.patch
            )
        ),
        r"== \[100\]",
    ),
    Mutant(
        "a branch that others create meanwhile is left as it is",
        branch._create,
        "AssertRef(ref=table.branch, is_branch=False), ",
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
        branch.create_branch,
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
REWIND = [
    Mutant(
        "a newer driver ends a rewind",
        Rewind._check_fence,
        "if attempt.is_closed_by(fence):",
        "if False:",
        of_contract(RewindContract, "test_a_driver_that_was_fenced_rewinds_nothing"),
        MISSING,
    ),
    Mutant(
        "a rewind in flight requires the fence",
        Rewind._commit,
        ", *self._table.as_read(loaded)]",
        "]",
        of_rewind(
            test_rewind.test_a_newer_driver_while_a_rewind_is_in_flight_stops_it, patched=True
        ),
        r"\[0, 1\] == ",
    ),
    Mutant(
        "main requires to be as it was read",
        Rewind._commit,
        "[*made.requirements, ",
        "[",
        of_rewind(
            lambda harness, patch: (
                test_rewind.test_a_change_while_a_rewind_is_in_flight_is_exact_or_refused(
                    harness, patch, others.append, [0, 1, 100]
                )
            ),
            patched=True,
            version=1,
        ),
        r"== \[0, 1, 100\]",
    ),
    Mutant(
        "a rollback refuses a rewind",
        Rewind.check,
        "if why := rolled_back(loaded.metadata, proofs, branch):",
        'if why := "":',
        of_rewind(test_rewind.test_what_others_have_done_to_the_files_is_named, "rolled back"),
        "no longer leads to snapshot",
    ),
    Mutant(
        "a newer format refuses a rewind",
        Rewind.check,
        "not in VERSIONS",
        "== 0",
        of_rewind(test_rewind.test_a_table_of_a_newer_format_is_refused, patched=True),
        MISSING,
    ),
    Mutant(
        "what a dead commit has left is removed before a rewind",
        Rewind._forget_pieces,
        "if self._table.area.exists():",
        "if False:",
        of_rewind(test_rewind.test_what_a_dead_commit_has_left_is_no_orphan_of_older_snapshots),
        "one more item",
    ),
    Mutant(
        "refused manifests of a rewind are deleted",
        Rewind._commit,
        "            made.discard()\n",
        "",
        of_rewind(test_rewind.test_a_refused_rewind_leaves_no_manifest, patched=True),
        r"\.avro",
    ),
    Mutant(
        "expired snapshots refuse a rewind",
        OwnFiles._read_back,
        "        if missing:\n            raise",
        "        if False:\n            raise",
        of_rewind(test_rewind.test_what_others_have_done_to_the_files_is_named, "one expired"),
        MISSING,
    ),
    Mutant(
        "each checkpoint is found in a snapshot",
        OwnFiles.find,
        "if self._seen.get(lineage) != proof.highest:",
        "if False:",
        of_rewind(test_rewind.test_a_snapshot_without_its_summary_is_refused),
        MISSING,
    ),
    Mutant(
        "files that were taken back are not looked for again",
        OwnFiles._note,
        "if is_rewind(self.owner, snapshot):",
        "if False:",
        of_rewind(test_rewind.test_the_next_lineage_goes_on_and_is_taken_back_too),
        "no snapshot of main names checkpoint 1",
    ),
    Mutant(
        "a file has to be there",
        OwnFiles._whole,
        "            if path not in live:\n",
        "            if False:\n",
        of_rewind(test_rewind.test_what_others_have_done_to_the_files_is_named, "rewritten"),
        "twophase-",
    ),
    Mutant(
        "rows that a delete file may have deleted refuse a rewind",
        OwnFiles._whole,
        "if delete.may_touch(added, specs):",
        "if False:",
        lambda given: test_rewind.test_rows_that_a_delete_file_may_have_deleted_are_refused(
            given.folder
        ),
        MISSING,
    ),
    Mutant(
        "a delete file of another partition does not",
        DeleteFile.may_touch,
        "is_near = _partition(file) == _partition(data.data_file)",
        "is_near = True",
        of_deletes(0, "", test_rewind.POSITIONS, ["id"], False),
        "has deleted rows",
    ),
    Mutant(
        "values are deleted in all partitions if the delete file has none",
        DeleteFile.may_touch,
        "is_near or _is_global(specs[file.spec_id])",
        "is_near",
        lambda given: (
            test_rewind.test_values_deleted_before_the_table_was_partitioned_are_everywhere(
                given.folder
            )
        ),
        MISSING,
    ),
    Mutant(
        "a delete file of another data file does not",
        DeleteFile._may_name,
        "if self.only is not None:",
        "if False:",
        of_deletes(0, "by reference", test_rewind.POSITIONS, [], False),
        "has deleted rows",
    ),
    Mutant(
        "nor one whose bounds do not have our path",
        DeleteFile._may_name,
        "return (lower is None or lower <= text) and (upper is None or text <= upper)",
        "return True",
        of_deletes(0, "by bounds", test_rewind.POSITIONS, [], False),
        "has deleted rows",
    ),
    Mutant(
        "an older delete file does not",
        DeleteFile.may_touch,
        "return written <= deleted and is_near",
        "return is_near",
        lambda given: (
            test_rewind.test_a_delete_file_that_is_older_than_the_checkpoints_is_not_in_the_way(
                given.folder
            )
        ),
        "has deleted rows",
    ),
    Mutant(
        "the first snapshot of a lineage ends the search",
        OwnFiles._read_back,
        "ahead[lineage].first == snapshot.snapshot_id",
        "False",
        lambda given: test_rewind.test_a_lineage_that_is_not_kept_needs_no_snapshot_from_before_it(
            given.folder
        ),
        "have expired",
    ),
    Mutant(
        "what stays ends the search",
        OwnFiles._is_before,
        "and self.point.keeps(*of)",
        "and False",
        of_rewind(test_rewind.test_snapshots_of_what_stays_may_have_expired),
        "have expired",
    ),
    Mutant(
        "a mark goes down to what has rows",
        proofs.LineageProof.lowered,
        "self.mark if self.mark <= checkpoint else kept",
        "min(self.mark, checkpoint)",
        of_rewind(test_rewind.test_a_mark_goes_down_to_a_checkpoint_that_has_rows),
        "5",
    ),
]


@pytest.mark.parametrize(
    "mutant",
    [*COMMIT, *LAYOUT, *FENCE, *ABORT, *TARGET, *ROWS, *BRANCHES, *COLUMNS, *REWIND],
    ids=str,
)
def test_a_rule_that_is_broken_is_found(mutant: Mutant, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant.is_found(Given(tmp_path, patch))
