"""Identities: allowed in every place they stand in, ordered where order closes attempts, never
the same twice (I5).
"""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.errors import ConfigError
from twophase.ids import Attempt, Subtask, TransactionId, check_name, new_lineage_id, short_hash

TRANSACTION = TransactionId(
    "orders", "0f0e0d0c-0b0a-4908-8706-050403020100", 7, Attempt(2, 3), "facts", "abc"
)


@pytest.mark.parametrize("name", ["a", "7", "orders", "Orders-2.daily_x", "x" * 64])
def test_a_name_of_letters_digits_dots_and_dashes_is_allowed(name: str) -> None:
    assert check_name("job", name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x" * 65,
        ".hidden",
        "-x",
        "_x",
        "a b",
        "a/b",
        "..",
        "a\n",
        "\na",
        "a\0",
        "ä",
        "a`b",
        "a'b",
        "a;b",
        "a%b",
        "٣",
    ],
)
def test_any_other_name_is_refused_with_what_is_allowed(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_name("sink", name)
    assert f"The sink name {name!r} is not allowed. Next: use 1 to 64 letters" in str(caught.value)
    mended = f"a{re.sub('[^A-Za-z0-9._-]', '-', name)}"[:64]
    assert check_name("sink", mended) == mended


@given(st.text(max_size=70))
def test_a_name_that_is_allowed_can_stand_in_a_file_name_and_in_sql(name: str) -> None:
    try:
        check_name("job", name)
    except ConfigError:
        return
    assert name.isascii()
    assert not set(name) & set("/\\`'\"\0\n *;%")
    assert name not in (".", "..")


def test_a_later_attempt_is_greater_by_generation_first() -> None:
    attempts = [
        Attempt(1, 1),
        Attempt(1, 2),
        Attempt(1, 10),
        Attempt(2, 0),
        Attempt(2, 1),
        Attempt(10, 0),
    ]
    assert all(earlier < later for earlier, later in pairwise(attempts))
    assert len({str(attempt) for attempt in attempts}) == len(attempts)


def test_a_lineage_id_is_a_random_uuid_as_spark_wants_its_query_ids() -> None:
    ids = {new_lineage_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(str(uuid.UUID(found)) == found and uuid.UUID(found).version == 4 for found in ids)


@pytest.mark.parametrize(
    "other",
    [
        {"job": "payments"},
        {"lineage": "1f0e0d0c-0b0a-4908-8706-050403020100"},
        {"checkpoint": 8},
        {"attempt": Attempt(3, 3)},
        {"attempt": Attempt(2, 4)},
        {"sink": "lake"},
        {"offsets_hash": "abd"},
    ],
)
def test_i5_a_transaction_differs_in_each_of_its_parts(other: dict[str, object]) -> None:
    assert replace(TRANSACTION, **other) != TRANSACTION  # type: ignore[arg-type]


def test_identities_read_well_in_messages() -> None:
    assert str(TRANSACTION) == "orders/0f0e0d0c/7/2.3/facts"
    assert str(Subtask(4, 17)) == "4.17"


def test_a_short_hash_is_the_head_of_the_sha_256() -> None:
    assert short_hash("abc") == "ba7816bf8f01"
    assert short_hash("ä", 64) == short_hash("ä", 64)
    assert len(short_hash("ä", 64)) == 64
