"""An XA id holds everything that tells one piece from another, and nothing else
gets into a statement.
"""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from twophase.errors import ConfigError, CorruptRecordError
from twophase.ids import Attempt, Subtask, TransactionId, new_lineage_id
from twophase.sinks.mysql.xid import FORMAT_ID, Owner, Xid

OWNER = Owner("0a1b2c3d-0000-4000-8000-000000000000", "orders", "facts")
TRANSACTION = TransactionId("orders", new_lineage_id(), 7, Attempt(2, 3), "facts", "ab" * 32)


def recovered(xid: Xid) -> tuple[int, int, int, bytes]:
    return FORMAT_ID, len(xid.gtrid), len(xid.bqual), (xid.gtrid + xid.bqual).encode()


numbers = st.integers(0, 10**6)


@settings(deadline=None)
@given(
    st.uuids(),
    st.integers(0, 10**15),
    numbers,
    numbers,
    numbers,
    st.integers(0, 10**9),
    st.integers(0, 2**32 - 1),
)
def test_all_but_the_full_offsets_hash_can_be_read_back(
    lineage, checkpoint, generation, counter, index, attempt, session
):
    transaction = dataclasses.replace(
        TRANSACTION,
        lineage=str(lineage),
        checkpoint=checkpoint,
        attempt=Attempt(generation, counter),
    )
    xid = Xid.of(OWNER, transaction, Subtask(index, attempt), session)
    assert len(xid.gtrid) <= 64
    assert len(xid.bqual) <= 64
    found = Xid.from_recover(recovered(xid))
    assert found == xid
    assert found.session == session
    short = dataclasses.replace(transaction, offsets_hash=transaction.offsets_hash[:8])
    assert found.identify(OWNER) == (short, Subtask(index, attempt))


@pytest.mark.parametrize(
    "other",
    [
        Owner(OWNER.namespace, "orders", "other"),
        Owner(OWNER.namespace, "other", "facts"),
        Owner("another-schema", "orders", "facts"),
    ],
    ids=["sink", "job", "bookkeeping schema"],
)
def test_branches_of_another_owner_are_not_ours(other):
    xid = Xid.of(OWNER, TRANSACTION, Subtask(0, 0), 1)
    assert xid.belongs_to(OWNER)
    assert not xid.belongs_to(other)


def test_every_part_of_the_identity_changes_the_id():
    base = Xid.of(OWNER, TRANSACTION, Subtask(0, 0), 1)
    changed = [
        Xid.of(OWNER, dataclasses.replace(TRANSACTION, **change), Subtask(0, 0), 1)
        for change in (
            {"lineage": new_lineage_id()},
            {"checkpoint": 8},
            {"attempt": Attempt(2, 4)},
            {"attempt": Attempt(3, 3)},
            {"offsets_hash": "cd" * 32},
        )
    ]
    changed += [
        Xid.of(OWNER, TRANSACTION, subtask, 1) for subtask in (Subtask(1, 0), Subtask(0, 1))
    ]
    assert len({base, *changed}) == 8


def test_attempts_do_not_run_together():
    one = Xid.of(OWNER, dataclasses.replace(TRANSACTION, attempt=Attempt(1, 11)), Subtask(1, 11), 1)
    two = Xid.of(OWNER, dataclasses.replace(TRANSACTION, attempt=Attempt(11, 1)), Subtask(11, 1), 1)
    assert one != two


@pytest.mark.parametrize(
    "row",
    [
        (1, 1, 1, b"ab"),
        (FORMAT_ID, 3, 3, b"abcdef"),
        (FORMAT_ID, 64, 64, bytes(range(128))),
        (FORMAT_ID, 0, 0, b""),
    ],
    ids=["another application", "not our form", "binary", "empty"],
)
def test_foreign_branches_are_passed_over(row):
    assert Xid.from_recover(row) is None


@pytest.mark.parametrize(
    ("gtrid", "bqual"),
    [
        ("', 'x', 1; DROP TABLE t; -- ", "1.1-000000000000-0.0-00000000-1"),
        ("000000000000-" + "0" * 32 + "-1", "1.1-000000000000-0.0-00000000-1' OR '"),
        ("000000000000-" + "0" * 32 + "-1\n", "1.1-000000000000-0.0-00000000-1"),
        ("000000000000-" + "0" * 32 + "-\u0661", "1.1-000000000000-0.0-00000000-1"),
        ("000000000000-" + "0" * 32 + "-" + "1" * 19, "1.1-000000000000-0.0-00000000-1"),
        ("000000000000-" + "0" * 32 + "-1", "1.1-000000000000-0.0-00000000-" + "1" * 35),
    ],
)
def test_a_changed_committable_never_reaches_a_statement(gtrid, bqual):
    with pytest.raises(CorruptRecordError):
        Xid(gtrid, bqual)


@pytest.mark.parametrize(
    "change",
    [{"lineage": "nonsense"}, {"lineage": new_lineage_id().upper()}, {"offsets_hash": "?"}],
)
def test_an_identity_that_does_not_fit_is_refused(change):
    with pytest.raises(ConfigError):
        Xid.of(OWNER, dataclasses.replace(TRANSACTION, **change), Subtask(0, 0), 1)
