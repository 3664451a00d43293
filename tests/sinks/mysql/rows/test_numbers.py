"""A number arrives as it is, or is refused with its column, itself and the column's limits."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from twophase.errors import RejectedRowsError
from twophase.sinks.mysql.columns import Column
from twophase.sinks.mysql.rows.encoding import encode
from twophase.sinks.mysql.rows.text_formats import INSERT_VALUES, LOAD_DATA
from twophase.sinks.mysql.rows.types import ColumnPlan, plan_column

INTEGERS = {
    "tinyint": (-(2**7), 2**7 - 1),
    "tinyint unsigned": (0, 2**8 - 1),
    "smallint": (-(2**15), 2**15 - 1),
    "smallint unsigned": (0, 2**16 - 1),
    "mediumint": (-(2**23), 2**23 - 1),
    "mediumint unsigned": (0, 2**24 - 1),
    "int": (-(2**31), 2**31 - 1),
    "int unsigned zerofill": (0, 2**32 - 1),
    "bigint": (-(2**63), 2**63 - 1),
    "bigint unsigned": (0, 2**64 - 1),
    "year": (1901, 2155),
    "double": (-(2**53), 2**53),
    "float unsigned": (0, 2**24),
}
BITS = {f"bit({bits})": (0, 2**bits - 1) for bits in (1, 7, 8, 9, 63, 64)}
DECIMALS = [(1, 0), (5, 5), (10, 2), (20, 0), (38, 18), (65, 30)]
ROWS = [
    *(getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)),
    pa.decimal128(1, 0), pa.decimal128(10, 0), pa.decimal128(10, 10), pa.decimal128(20, 0),
    pa.decimal128(20, 4), pa.decimal128(38, 0), pa.decimal128(38, 38), pa.decimal128(5, -3),
    pa.decimal32(9, 3), pa.decimal64(18, 0), pa.decimal256(76, 20),
]  # fmt: skip


def columns() -> list[tuple[Column, Fraction, Fraction, int]]:
    """Each column with its smallest and largest number, and its digits after the point."""
    found = []
    for declared, (low, high) in (INTEGERS | BITS).items():
        name, _, bits = declared.split(" ")[0].rstrip(")").partition("(")
        column = Column("c", name, declared, precision=int(bits) if bits else None)
        found.append((column, Fraction(low), Fraction(high), 0))
    for precision, scale in DECIMALS:
        high = Fraction(10**precision - 1, 10**scale)
        for sign in ("", " unsigned"):
            text = f"decimal({precision},{scale}){sign}"
            column = Column("c", "decimal", text, precision=precision, scale=scale)
            found.append((column, Fraction(0) if sign else -high, high, scale))
    return found


COLUMNS = columns()


def numbers_of(kind: pa.DataType, low: Fraction, high: Fraction) -> st.SearchStrategy[Decimal]:
    """Numbers of a type, most of them near its own limits and those of a column."""
    if pa.types.is_integer(kind):
        digits, scale, signed = kind.bit_width, 0, pa.types.is_signed_integer(kind)
        first, last = (
            (-(2 ** (digits - 1)), 2 ** (digits - 1) - 1) if signed else (0, 2**digits - 1)
        )
    else:
        scale = kind.scale
        last = 10**kind.precision - 1
        first = -last
    edges = {int(edge * Fraction(10) ** scale) for edge in (low, high, Fraction(0))}
    near = {edge + off for edge in edges | {first, last} for off in (-10, -1, 0, 1, 10)}
    units = st.sampled_from(sorted(unit for unit in near if first <= unit <= last))
    return (units | st.integers(first, last)).map(
        lambda unit: Decimal((unit < 0, tuple(map(int, str(abs(unit)))), -scale))
    )


@given(
    data=st.data(),
    kind=st.sampled_from(ROWS),
    case=st.sampled_from(COLUMNS),
    text_format=st.sampled_from([LOAD_DATA, INSERT_VALUES]),
)
def test_a_number_is_written_exactly_or_refused_by_name(data, kind, case, text_format):
    column, low, high, digits = case
    assume(column.data_type not in ("float", "double") or pa.types.is_integer(kind))
    plan = plan_column(pa.field("f", kind), column)
    assert isinstance(plan, ColumnPlan)
    number = data.draw(numbers_of(kind, low, high))
    value = int(number) if pa.types.is_integer(kind) else number
    batch = pa.record_batch({"f": pa.array([None, value, None], kind).slice(1)})
    exact = Fraction(value)
    if low <= exact <= high and (exact * 10**digits).denominator == 1:
        before, _, after = text_format.row
        written = bytes(encode(batch, [plan], text_format).data).decode()
        written = written.removeprefix(before).split(after)[0]
        assert Fraction(Decimal(written)) == exact
        assert digits or written.lstrip("-").isdigit()
    else:
        limit = "" if low <= exact <= high else f"{low if digits == 0 else ''}"
        with pytest.raises(RejectedRowsError, match=f"the column keeps {limit}") as caught:
            encode(batch, [plan], text_format)
        assert "Row 1 of a batch of 2: column 'c' cannot store" in caught.value.what


EXACT = [case for case in COLUMNS if case[0].data_type not in ("float", "double")]


@pytest.mark.parametrize(
    ("column", "low", "high"),
    [pytest.param(*case[:3], id=case[0].column_type) for case in EXACT if not case[3]],
)
def test_the_last_whole_number_of_a_column_is_written_and_the_next_is_refused(column, low, high):
    kind = pa.decimal256(40, 0)
    plan = plan_column(pa.field("f", kind), column)
    assert isinstance(plan, ColumnPlan)
    numbers = [pa.record_batch({"f": pa.array([Decimal(int(one))], kind)})
               for one in (low, high, high + 1, low - 1)]  # fmt: skip
    assert [encode(batch, [plan], LOAD_DATA).rows for batch in numbers[:2]] == [1, 1]
    for batch in numbers[2:]:
        with pytest.raises(RejectedRowsError, match=f"the column keeps {low} to {high}"):
            encode(batch, [plan], LOAD_DATA)


@pytest.mark.parametrize(
    ("kind", "declared"),
    [(pa.int8(), "tinyint"), (pa.int64(), "bigint"), (pa.uint64(), "bigint unsigned"),
     (pa.int32(), "int"), (pa.int32(), "bigint"), (pa.uint8(), "int")],
)  # fmt: skip
def test_rows_that_always_fit_are_not_checked(kind, declared):
    plan = plan_column(pa.field("f", kind), Column("c", declared.split(" ")[0], declared))
    assert isinstance(plan, ColumnPlan)
    assert plan.bounds is None
