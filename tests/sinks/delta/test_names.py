"""A piece's name holds everything that tells it from others, and only its own files carry it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twophase.ids import Attempt, TransactionId, new_lineage_id
from twophase.sinks.delta.names import Owner, PieceName, data_prefix, fence_attempt, fence_version

OWNER = Owner("orders", "lake")
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
NUMBERS = st.integers(0, 2**31 - 1)
ATTEMPTS = st.builds(Attempt, NUMBERS, NUMBERS)
PIECES = st.builds(PieceName, st.uuids().map(str), st.integers(0, 10**18 - 1), ATTEMPTS)


def transaction(name: PieceName, owner: Owner = OWNER, offsets: str = "ab" * 32) -> TransactionId:
    return TransactionId(
        owner.job, name.lineage, name.checkpoint, name.attempt, owner.sink, offsets
    )


@settings(deadline=None)
@given(PIECES)
def test_a_name_is_read_back(name: PieceName) -> None:
    assert PieceName.parse(str(name)) == name
    assert PieceName.of(transaction(name)) == name


@settings(deadline=None)
@given(PIECES, PIECES)
def test_no_piece_has_files_of_another(one: PieceName, other: PieceName) -> None:
    mine = data_prefix(OWNER, transaction(one)).startswith(other.data_files(OWNER))
    assert mine == (one == other)


@pytest.mark.parametrize(
    ("one", "other"), [((1, 1, 1), (11, 1, 1)), ((1, 1, 1), (1, 1, 11)), ((1, 11, 1), (1, 1, 1))]
)
def test_numbers_that_begin_alike_are_kept_apart(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    lineage = new_lineage_id()
    names = [
        PieceName(lineage, number, Attempt(generation, counter))
        for number, generation, counter in (one, other)
    ]
    assert not names[0].data_files(OWNER).startswith(names[1].data_files(OWNER))
    assert not names[1].data_files(OWNER).startswith(names[0].data_files(OWNER))


@settings(deadline=None)
@given(st.tuples(NAMES, NAMES), st.tuples(NAMES, NAMES))
def test_no_owner_has_files_records_or_marks_of_another(
    one: tuple[str, str], other: tuple[str, str]
) -> None:
    mine, theirs = Owner(*one), Owner(*other)
    name = PieceName(new_lineage_id(), 1, Attempt(1, 1))
    same = mine == theirs
    assert (name.data_files(mine) == name.data_files(theirs)) == same
    assert (mine.folder == theirs.folder) == same
    assert (mine.fence_id == theirs.fence_id) == same
    assert (theirs.lineage_of(mine.app_id(name.lineage)) == name.lineage) == same
    assert theirs.lineage_of(mine.fence_id) is None


@pytest.mark.parametrize(
    "piece",
    ["{0}-01-1.1", "{0}-1-1.01", "{0}-1-1", "{0}-1-1.1.intent", "{0}--1-1.1", "x{0}-1-1.1", ""],
)
def test_a_name_that_is_not_quite_ours_is_nobodys(piece: str) -> None:
    lineage = new_lineage_id()
    assert PieceName.parse(f"{lineage}-1-1.1") is not None
    assert PieceName.parse(piece.format(lineage)) is None


def test_a_lineage_that_is_no_uuid_makes_no_name() -> None:
    with pytest.raises(ValueError, match="UUID"):
        PieceName.of(TransactionId("orders", "../../etc", 1, Attempt(1, 1), "lake", "ab"))


def test_the_longest_name_of_a_data_file_fits_a_file_system() -> None:
    name = PieceName(new_lineage_id(), 10**18 - 1, Attempt(2**31 - 1, 2**31 - 1))
    delta_adds = "part-100000-00000000-0000-0000-0000-000000000000.c000.snappy.parquet"
    assert len(f".{data_prefix(OWNER, transaction(name))}{delta_adds}.crc") <= 255


@given(ATTEMPTS, ATTEMPTS)
def test_a_fence_keeps_the_order_of_attempts(one: Attempt, other: Attempt) -> None:
    assert fence_attempt(fence_version(one)) == one
    assert (fence_version(one) < fence_version(other)) == (one < other)
    assert fence_version(one) < 2**63


@pytest.mark.parametrize("attempt", [Attempt(2**31, 0), Attempt(0, 2**31), Attempt(-1, 0)])
def test_a_fence_that_does_not_fit_is_refused(attempt: Attempt) -> None:
    with pytest.raises(ValueError, match="does not fit in a fence"):
        fence_version(attempt)
