"""Documents that MySQL would store as other documents; of long numbers it has to be asked."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from twophase.errors import RejectedRowsError
from twophase.sinks.mysql.columns import Column
from twophase.sinks.mysql.rows.json_documents import _is_same, _long_numbers, check_documents
from twophase.sinks.mysql.rows.types import ColumnPlan, plan_column

NOBODY: Any = None
"""The session: nothing is asked where no number is long."""


def check(*documents: str | None) -> None:
    plan = plan_column(pa.field("f", pa.string()), Column("c", "json", "json"))
    assert isinstance(plan, ColumnPlan)
    check_documents(NOBODY, [pa.record_batch({"f": pa.array(documents, pa.string())})], [plan])


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ('{"a":1,"a":2}', "keep one of the values of its key 'a'"),
        ('[{"b":{"a":1,"\\u0061":1}}]', "keep one of the values of its key 'a'"),
        ('{"a":"\\ud800"}', "a lone surrogate"),
        ('{"\\uDC00":1}', "a lone surrogate"),
        (f"[{'1' * 401}]", "a number in it has 401 characters"),
    ],
)
def test_a_document_that_would_read_back_as_another_is_refused(document: str, why: str) -> None:
    with pytest.raises(RejectedRowsError, match=why) as caught:
        check(None, "{}", document)
    assert caught.value.what.startswith("Row 3 of a batch of 3: column 'c' cannot store")


def test_other_documents_are_left_to_the_server() -> None:
    check('{"a":{"a":1},"b":[0.125,123456789012345]}', '"\\ud83d\\ude00"', "no JSON", '{"a":', None)


def test_long_numbers_are_asked_about_one_by_one() -> None:
    texts = pa.array(['{"1e400":"1e400"}', None, "[1, 1E2, -0.12345678901234567]"])
    assert [*_long_numbers(texts)] == [(2, "1E2"), (2, "-0.12345678901234567")]


@pytest.mark.parametrize(
    ("number", "answer", "is_same"),
    [
        ("1E2", "100.0", True),
        ("18446744073709551615", "18446744073709551615", True),
        ("18446744073709551617", "1.8446744073709552e19", False),
        ("0.12345678901234567", "0.12345678901234568", False),
        ("1e400", "null", False),
    ],
)
def test_a_number_is_stored_exactly_or_not(number: str, answer: str, is_same: bool) -> None:
    assert _is_same(number, answer) is is_same
