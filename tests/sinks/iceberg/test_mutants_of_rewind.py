"""Each rule of a rewind has a test that finds it missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.rule_mutants import Mutant
from tests.sinks.iceberg import (
    others,
    test_rewind,
)
from tests.sinks.iceberg.given import (
    MISSING,
    Given,
    of_contract,
    of_deletes,
    of_rewind,
)
from twophase.sinks.iceberg import (
    proofs,
)
from twophase.sinks.iceberg.delete_files import DeleteFile
from twophase.sinks.iceberg.own_files import OwnFiles
from twophase.sinks.iceberg.rewind import Rewind
from twophase.testing.contract import RewindContract

pytestmark = [pytest.mark.part("files"), pytest.mark.thin(4)]

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
        Rewind._without,
        ", *self._table.as_read(loaded)]",
        "]",
        of_rewind(
            test_rewind.test_a_newer_driver_while_a_rewind_is_in_flight_stops_it, patched=True
        ),
        r"\[0, 1\] == ",
    ),
    Mutant(
        "main requires to be as it was read",
        Rewind._without,
        "[*made.requirements, ",
        "[",
        of_rewind(
            lambda harness, patch: (
                test_rewind.test_a_change_while_a_rewind_is_in_flight_is_exact_or_refused(
                    harness, patch, others.append, [0, 1, 100], test_rewind.IN_FLIGHT
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
        of_rewind(test_rewind.test_a_rollback_that_is_undone_as_the_message_says_is_rewound),
        "no longer leads to snapshot",
    ),
    Mutant(
        "a newer format refuses a rewind",
        Rewind.check,
        "not in VERSIONS",
        "== 0",
        of_rewind(test_rewind.test_a_table_of_a_newer_format_is_refused),
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
        Rewind._without,
        "updates, made.discard, made.snapshot)",
        "updates)",
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
        of_rewind(test_rewind.test_what_others_have_done_to_the_files_is_named, "compacted"),
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


@pytest.mark.parametrize("mutant", [*REWIND], ids=str)
def test_a_rule_that_is_broken_is_found(mutant: Mutant, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant.is_found(Given(tmp_path, patch))
