"""A number for a DECIMAL is stored exactly or is a bad record, whatever its type, form and company.

pyarrow multiplies without a look at the size of the product, and reads past the end of a table for
small exponents: neither may be seen here.
"""

from __future__ import annotations

import decimal
import random
from typing import Any

import pyarrow as pa
import pytest

from tests.sources.kafka.json_oracle import row_of
from twophase.errors import BadRecordError
from twophase.sources.kafka.block import Block
from twophase.sources.kafka.json_format import JsonDecoder
from twophase.sources.kafka.json_records import is_too_fine
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import OnBadRecord

pytestmark = [pytest.mark.part("kafka"), pytest.mark.thin(3)]

ITEM = OffsetRange("kafka", "orders", "id", 3, 0, 10**6)
TYPES = [
    *((38, scale) for scale in (0, 1, 6, 10, 18, 19, 37, 38)),
    *((20, 19), (19, 19), (20, 18), (12, 2), (5, 5), (1, 0)),
]
EDGES = [
    *("0", "-0", "0.0", "1.50", "99", "0.5", "-0.05", "1e0", "1E+2", "12.5e1", "1e-2"),
    *("9" * 38, "-" + "9" * 38, "1" + "0" * 38, "9" * 77, "0." + "9" * 38, "0." + "9" * 39),
    *("1e30", "1e37", "1e38", "1e39", "1e76", "1e77", "1e400", "1e999999999999", "-1e100000000"),
    *("1e-38", "1e-39", "1e-77", "1e-141", "1e-1000", "1e-100000000", "5e-000000039"),
    *("0e100", "0e-39", "0e-141", "0e-100000000", "-0e-9999", "0." + "0" * 80, "1." + "0" * 120),
    *("0." + "0" * 37 + "1", "0." + "0" * 38 + "1", "0." + "0" * 20 + "1e-30", "100e-40"),
    *(
        "1" * 38 + "e-38",
        "1" * 38 + "e-39",
        "1" * 30 + "." + "1" * 8,
        "123456789012345678901234567890",
    ),
]
IN_QUOTES = [
    *("0" * 300 + "1", "0" * 300 + "1e-99", "+1", ".5", "5.", "", " 1", "1 ", "0x1", "1e", "NaN"),
    *("1\\u0065-99", "1e\\u002d99", "\\u0031", "1\\u0030", "\\u00e9", "12e-3-45", "8dde-99"),
]


def numbers(seed: tuple[int, int]) -> list[str]:
    """Numbers of up to 45 digits, with a point and an exponent somewhere."""
    noise = random.Random(str(seed))
    found = []
    for _ in range(40):
        digits = "".join(noise.choices("0123456789", k=noise.randint(1, 45))).lstrip("0") or "0"
        place = noise.randint(0, len(digits))
        text = f"{digits[:place] or '0'}.{digits[place:] or '0'}"
        exponent = f"e{noise.randint(-60, 60)}" if noise.random() < 0.5 else ""
        found.append(
            f"{noise.choice(['', '-'])}{text.lstrip('0') if text[1] != '.' else text}{exponent}"
        )
    return found


def shapes(number: str) -> list[bytes]:
    """Records with a number in a column, in a struct and in a list."""
    return [
        text.encode()
        for text in (f'{{"a":{number}}}', f'{{"o":{{"x":{number}}}}}', f'{{"l":[null,{number}]}}')
    ]


def decoded(schema: pa.Schema, values: list[bytes]) -> list[dict[str, Any]]:
    decoder = JsonDecoder(schema, ITEM, OnBadRecord.DROP)
    decoder.take(Block([*values], range(len(values))))
    batch = decoder.batch()
    batch.validate(full=True)
    found: list[dict[str, Any]] = batch.to_pylist()
    return found


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_a_number_is_the_same_alone_and_beside_others_or_bad(type_: tuple[int, int]) -> None:
    target = pa.decimal128(*type_)
    schema = pa.schema(
        [
            ("a", target),
            ("o", pa.struct([pa.field("x", target)])),
            ("l", pa.list_(pa.field("element", target))),
        ]
    )
    bare = [*EDGES, *numbers(type_)]
    values = [
        value
        for number in [*bare, *(f'"{one}"' for one in (*bare, *IN_QUOTES))]
        for value in shapes(number)
    ]
    expected = [row_of(value, schema) for value in values]
    fitting = [row for row in expected if row is not None]
    assert 0 < len(fitting) < len(values)
    assert decoded(schema, values) == fitting
    assert decoded(schema, [b"x", *values]) == fitting
    for value, row in [*zip(values, expected, strict=True)][::3]:
        kept = [] if row is None else [row]
        assert decoded(schema, [value]) == kept, value
        assert decoded(schema, [b"x", value]) == kept, value


@pytest.mark.parametrize("other", ["", ',"d":1e-300', ',"d":NaN', ',"d":-1e-300,"f":Infinity'])
def test_small_numbers_elsewhere_leave_a_decimal_as_it_is(other: str) -> None:
    schema = pa.schema([("a", pa.decimal128(10, 2)), ("d", pa.float64()), ("f", pa.float64())])
    values = [b'{"a":%s%s}' % (number, other.encode()) for number in (b"1.5", b"1.555", b"2")]
    assert [row["a"] for row in decoded(schema, values)] == [
        decimal.Decimal("1.50"),
        decimal.Decimal("2.00"),
    ]


def test_the_message_has_the_number_as_it_was_given() -> None:
    schema = pa.schema([("a", pa.decimal128(38, 18))])
    decoder = JsonDecoder(schema, ITEM, OnBadRecord.FAIL)
    for number in (b"123456789012345678901234567890", b"1e-100000000"):
        decoder.take(Block([b'{"a":1}', b'{"a":%s}' % number], range(2)))
        with pytest.raises(BadRecordError, match=rf"offset 1 .*a: b'{number.decode()}' does not"):
            decoder.batch()


@pytest.mark.parametrize("given", ["NaN", "Infinity", "-Infinity"])
def test_the_message_has_what_python_writes_for_numbers_that_json_does_not_have(given: str) -> None:
    schema = pa.schema([("f", pa.float64()), ("a", pa.int64()), ("s", pa.string())])
    decoder = JsonDecoder(schema, ITEM, OnBadRecord.FAIL)
    decoder.take(Block([b'{"f":%s}' % given.encode()], range(1)))
    assert decoder.batch().num_rows == 1
    for column, says in (("a", f"a: b'{given}' does not fit int64"), ("s", "NaN or Infinity")):
        value = f'{{"f":NaN,"{column}":{given}}}'.encode()
        decoder.take(Block([b'{"a":1}', value], range(2)))
        with pytest.raises(BadRecordError, match=f"offset 1 .*{says}"):
            decoder.batch()


@pytest.mark.parametrize(
    ("text", "is_it"),
    [
        ('{"a":1e-39}', True),
        ('{"a":1.5e-38}', True),
        ('{"a":1.5e-37}', False),
        ('{"a":"1E-0039"}', True),
        ('{"a": -1e-39 }', True),
        ("[1e-39,2]", True),
        ("1e-39", True),
        ('{"id":"1b4e28ba-2fa1-11d2-883e-123456789012"}', False),
        ('{"id":"00000000-0000-4000-800e-123456789012"}', False),
        ('{"v":"see-99"}', False),
        ('{"v":"caf\\u00e9"}', False),
        ('{"v":"\\u0031e"}', True),
        ('{"v":"' + "1" * 300 + 'e-1"}', True),
    ],
)
def test_what_is_looked_at_closely(text: str, is_it: bool) -> None:
    assert is_too_fine(text.encode()) is is_it
    for more in (20_000, 20_001):  # a long one is searched in another way
        assert is_too_fine(b" " * more + text.encode()) is is_it
        assert is_too_fine(text.encode() + b" " * more) is is_it
