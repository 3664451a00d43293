"""Names of pieces, fences, marks and files: each reads back as what it was made of, and no
two owners share one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.ids import Attempt, Subtask
from twophase.sinks.common.staging.names import (
    Owner,
    PieceName,
    fence_name,
    file_name,
    mark_name,
    parse_fence,
    parse_mark,
)
from twophase.sinks.common.staging.staging_area import StagingArea
from twophase.testing.harness import LINEAGE, transaction_id

NUMBERS = st.integers(0, 2**31)
ATTEMPTS = st.builds(Attempt, NUMBERS, NUMBERS)
SUBTASKS = st.builds(Subtask, NUMBERS, st.integers(0, 2**62))
PIECES = st.builds(PieceName, st.just(LINEAGE), NUMBERS, ATTEMPTS, SUBTASKS)


@given(PIECES)
def test_a_piece_reads_back(name: PieceName) -> None:
    assert PieceName.parse(str(name)) == name


@given(ATTEMPTS, NUMBERS)
def test_a_fence_and_a_mark_read_back(attempt: Attempt, checkpoint: int) -> None:
    assert parse_fence(fence_name(attempt)) == attempt
    assert parse_mark(mark_name(LINEAGE, checkpoint)) == (LINEAGE, checkpoint)


@pytest.mark.parametrize(
    "form", ["", "manifest", ".", "..", "{}-1-1.1-0.0/x", "{}-01-1.1-0.0", "{}-1-1.1"]
)
def test_what_is_not_of_this_form_is_nobody_s(form: str) -> None:
    text = form.format(LINEAGE)
    assert (PieceName.parse(text), parse_fence(text), parse_mark(text)) == (None, None, None)


def test_a_lineage_that_is_no_uuid_makes_no_name() -> None:
    with pytest.raises(ValueError, match="UUID"):
        PieceName.of(transaction_id(lineage="../../x"), Subtask(0, 0))


@given(PIECES, PIECES, NUMBERS, NUMBERS)
def test_two_files_have_one_name_only_if_they_are_one(
    one: PieceName, other: PieceName, first: int, second: int
) -> None:
    owner = Owner("job", "sink")
    names = [
        file_name(piece.transaction(owner, "0" * 64), piece.subtask, number, ".parquet")
        for piece, number in ((one, first), (other, second))
    ]
    assert (names[0] == names[1]) == ((one, first) == (other, second))
    assert max(map(len, names)) <= 255


def test_no_owner_has_the_name_under_which_another_one_s_folder_is_made(tmp_path: Path) -> None:
    """`lake` and `lake.new` are both names of sinks."""
    owners = [Owner("job", sink) for sink in ("lake", "lake.new", "lake-new")]
    folders = [name for owner in owners for name in (owner.folder, owner.new_folder)]
    assert len(set(folders)) == len(folders)
    for owner in owners:
        StagingArea(tmp_path, owner).create()
        StagingArea(tmp_path, owner).create()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        owner.folder for owner in owners
    )
