"""Records that do not fit: each kind, wherever it stands and however many there are, is found with
work in proportion to the number of records, and named with what to do.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import math
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
import pytest

from tests.sources.kafka.json_oracle import row_of
from twophase.errors import BadRecordError
from twophase.sources.kafka.block import Block
from twophase.sources.kafka.json_format import JsonDecoder
from twophase.sources.kafka.json_records import RecordCheck
from twophase.sources.kafka.json_types import unfit_rows
from twophase.sources.kafka.offsets import OffsetRange
from twophase.sources.kafka.options import OnBadRecord
from twophase.sources.kafka.raw_format import RawDecoder

pytestmark = [pytest.mark.part("kafka"), pytest.mark.thin(4)]

FAIL, DROP = OnBadRecord.FAIL, OnBadRecord.DROP
ITEM = OffsetRange("kafka", "orders", "id", 3, 0, 10**6)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("v", pa.string()),
        ("n", pa.int32()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("amount", pa.decimal128(10, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        (
            "in",
            pa.list_(pa.field("element", pa.struct([("day", pa.date32()), ("s", pa.string())]))),
        ),
    ]
)
GOOD: dict[str, Any] = {
    "id": 1,
    "v": "é",
    "n": 2,
    "f": 0.5,
    "d": 0.25,
    "amount": 12.25,
    "day": "2024-02-29",
    "at": "2024-01-01T10:00:00.123456Z",
    "local": "2024-01-01T10:00:00",
    "in": [{"day": "2024-01-01", "s": "x"}],
}


def record(number: int, **changed: Any) -> bytes:
    """A record that fits but for what is changed; text in angle brackets is put in as it is."""
    text = json.dumps(GOOD | {"id": number} | changed)
    return text.replace('"<', "").replace('>"', "").encode("latin-1")


def without_id(number: int) -> bytes:
    return record(number).replace(b'"id"', b'"no"')


Make = Callable[[int], bytes | None]
BAD: dict[str, Make] = {
    "tombstone": lambda _: None,
    "empty": lambda _: b"",
    "not an object": lambda i: b"[" + record(i) + b"]",
    "truncated": lambda i: record(i)[:-20],
    "truncated after a }": lambda i: record(i)[:-2],
    "two objects": lambda i: record(i) + record(i),
    "NUL": lambda i: record(i)[:-1] + b"\0}",
    "invalid UTF-8": lambda i: record(i, v="??").replace(b"??", b"\xff"),
    "schema id": lambda i: b"\0\0\0\0\7" + record(i),
    "lone surrogate": lambda i: record(i, v="\udc00"),
    "wrong type": lambda i: record(i, n="2"),
    "integer too large": lambda i: record(i, n=2**31 + i),
    "number too large": lambda i: record(i, d="<1e400>"),
    "integer too large for DOUBLE": lambda i: record(i, d=10**400 + i),
    "integer too large for FLOAT": lambda i: record(i, f=10**400 + i),
    "FLOAT too large": lambda i: record(i, f=1e39),
    "fraction for INT": lambda i: record(i, n=i + 0.5),
    "decimal digits": lambda i: record(i, amount=i + 0.125),
    "decimal digits in quotes": lambda i: record(i, amount=f"{i}.125"),
    "words for a decimal": lambda i: record(i, amount="1 EUR"),
    "decimal too large": lambda i: record(i, amount=10**8 + i),
    "larger than any decimal": lambda i: record(i, amount="<1e50>"),
    "larger than any decimal, in quotes": lambda i: record(i, amount="1e50"),
    "more digits than any decimal": lambda i: record(i, amount=f"<1.{'0' * 40}1>"),
    "more digits than a double": lambda i: record(i, amount="<99999999.9999999999999>"),
    "Infinity for a decimal": lambda i: record(i, amount="<Infinity>"),
    "bad date": lambda i: record(i, day="2023-02-29"),
    "bad timestamp": lambda i: record(i, at=f"2024-01-01T10:00:00.{i:07}1"),
    "bad local timestamp": lambda i: record(i, local="2024-01-01T10:00:00Z"),
    "date in a list": lambda i: record(i, **{"in": [{"day": "x"}]}),
    "milliseconds": lambda i: record(i, at=1714557600000 + i),
    "null for NOT NULL": lambda i: record(i, id=None),
    "missing NOT NULL": without_id,
    "field twice": lambda i: record(i)[:-1] + b',"n":1}',
    "field twice, escaped": lambda i: record(i)[:-1] + b',"\\u006e":1}',
}
FITS: dict[str, Make] = {
    "object as text": lambda i: record(i, v={"a": [1, i]}),
    "number as text": lambda i: record(i, v="<1.50>"),
    "text in a list": lambda i: record(i, **{"in": [{"s": [True, None]}]}),
    "zeros past the sixth digit": lambda i: record(i, at="2024-01-01T10:00:00.1234560000"),
    "NaN": lambda i: record(i, d="<NaN>"),
    "Infinity": lambda i: record(i, d="<Infinity>", f="<-Infinity>"),
    "large number in another field": lambda i: record(i, other="<1e400>"),
    "decimal in quotes": lambda i: record(i, amount="1.5"),
    "decimal in quotes, exponent": lambda i: record(i, amount="+1.0e2"),
    "exponent": lambda i: record(i, amount="<1e2>"),
    "digits that are zeros": lambda i: record(i, amount="<1.5000000000000000000000000>"),
    "the largest decimal": lambda i: record(i, amount="<-99999999.99>"),
}
KINDS = BAD | FITS


def decoder(on_bad_record: OnBadRecord = DROP, *, tombstones: OnBadRecord | None = None) -> Any:
    return JsonDecoder(SCHEMA, ITEM, on_bad_record, tombstones)


def rows(found: JsonDecoder, *batches: list[bytes | None]) -> list[dict[str, Any]]:
    listed = []
    for values in batches:
        half = len(values) // 2
        for part in filter(None, (values[:half], values[half:])):
            found.take(Block(part, range(len(part))))
        batch = found.batch()
        batch.validate(full=True)
        listed += batch.to_pylist()
    return listed


PATTERNS = {
    "first": lambda i: i == 0,
    "last": lambda i: i == 59,
    "in the middle": lambda i: i == 31,
    "every tenth": lambda i: i % 10 == 3,
    "every second": lambda i: i % 2 == 1,
    "all but one": lambda i: i != 17,
    "all": lambda _: True,
}


@pytest.mark.parametrize("where", PATTERNS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_record_gives_its_row_or_none_wherever_it_stands(kind: str, where: str) -> None:
    values = [KINDS[kind](i) if PATTERNS[where](i) else record(i) for i in range(60)]
    expected = [row for value in values if (row := row_of(value, SCHEMA)) is not None]
    left = sum(map(PATTERNS[where], range(60))) if kind in BAD else 0
    assert len(expected) == 60 - left
    assert [str(row) for row in rows(decoder(), values, values)] == [
        str(row).replace("datetime.timezone.utc", "zoneinfo.ZoneInfo(key='UTC')")
        for row in expected * 2
    ]


@pytest.mark.parametrize("others", BAD)
@pytest.mark.parametrize("kind", BAD)
def test_two_kinds_in_one_block_do_not_hide_each_other(kind: str, others: str) -> None:
    values = [BAD[kind if i % 4 == 1 else others](i) if i % 2 else record(i) for i in range(20)]
    assert [row["id"] for row in rows(decoder(), values)] == list(range(0, 20, 2))
    with pytest.raises(BadRecordError, match=r"at offset 1 .*Next: "):
        rows(decoder(FAIL), values)


@pytest.mark.parametrize("kind", FITS)
def test_a_record_that_fits_fits_beside_any_that_does_not(kind: str) -> None:
    for other in BAD.values():
        values = [other(i) if i % 2 else FITS[kind](i) for i in range(10)]
        assert [row["id"] for row in rows(decoder(), values, values)] == [*range(0, 10, 2)] * 2


class Work:
    """Counts what the decoder hands to its parsers."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.bytes = self.parses = self.judged = 0
        read, judge = pj.read_json, RecordCheck.judge

        def read_json(source: pa.BufferReader, *arguments: Any) -> pa.Table:
            self.parses += 1
            self.bytes += source.size()
            return read(source, *arguments)

        def counted(check: RecordCheck, *arguments: Any) -> bytes | None:
            self.judged += 1
            return judge(check, *arguments)

        patch.setattr(pj, "read_json", read_json)
        patch.setattr(RecordCheck, "judge", counted)


RECORDS, BATCHES = 1000, 8


@pytest.mark.parametrize("every", [100, 2, 1], ids=lambda n: f"one in {n}")
@pytest.mark.parametrize("kind", KINDS)
def test_the_work_is_in_proportion_to_the_records_however_many_are_bad(
    kind: str, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [KINDS[kind](i) if i % every == 0 else record(i) for i in range(RECORDS)]
    size = sum(len(value or b"") + 1 for value in values)
    work = Work(monkeypatch)
    rows(decoder(), *[values] * BATCHES)
    suspects = RECORDS // every * BATCHES
    # the first batch finds out what the next ones look for before they parse
    assert work.bytes <= (1.5 * BATCHES + 1) * size
    assert work.parses <= 2 * BATCHES + 4
    assert work.judged <= 2 * suspects


@pytest.mark.parametrize(
    "rewritten",
    [
        {"v": {"a": 1}},
        {"v": 7},
        {"v": "<1e400>"},
        {"v": '<"a\tb">'},
        {"other": "<1e400>"},
        {"in": [{"s": True}]},
        {"amount": "<NaN>"},
    ],
    ids=str,
)
@pytest.mark.parametrize("constant", [{"d": "<NaN>"}, {"f": "<-Infinity>"}, {"more": "<NaN>"}])
def test_a_record_with_nan_is_not_rewritten_and_found_with_the_same_work(
    constant: dict[str, Any], rewritten: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    values: list[bytes | None] = [
        record(i, **constant | rewritten) if i % 2 else record(i) for i in range(200)
    ]
    work = Work(monkeypatch)
    assert [row["id"] for row in rows(decoder(), values, values)] == [*range(0, 200, 2)] * 2
    assert work.parses <= 6


NARROW = pa.schema([("id", pa.int64()), ("v", pa.string())])
NARROW_KINDS: dict[str, Make] = {
    "tombstone": lambda _: None,
    "truncated": lambda i: narrow(i)[:-3],
    "schema id": lambda i: b"\0\0\0\0\7" + narrow(i),
    "two objects": lambda i: narrow(i) * 2,
    "NUL": lambda i: narrow(i)[:-1] + b"\0}",
    "invalid UTF-8": lambda i: b'{"id":%d,"v":"\xff"}' % i,
    "lone surrogate": lambda i: b'{"id":%d,"v":"\\udc00"}' % i,
    "wrong type": lambda i: b'{"id":"%d","v":"x"}' % i,
    "field twice": lambda i: b'{"id":%d,"id":2}' % i,
    "number as text": lambda i: b'{"id":%d,"v":%d}' % (i, i),
    "object as text": lambda i: b'{"id":%d,"v":{"a":%d}}' % (i, i),
}


def narrow(number: int) -> bytes:
    return b'{"id":%d,"v":"x%d"}' % (number, number)


AIMS = {100: 2.0, 2: 5.0}
"""What records may cost of which one in so many is bad, as a multiple of clean ones."""

DEARER = {
    "larger than any decimal, in quotes": {100: 2.5},
    "more digits than any decimal": {100: 2.5},
}
"""The same of kinds that miss the aims: the digits of all records are looked at once more."""


def processor_time_s(schema: pa.Schema, values: list[bytes | None]) -> float:
    each = JsonDecoder(schema, ITEM, DROP)
    begun = time.process_time()
    for _ in range(6):
        each.take(Block(values, range(len(values))))
        each.batch()
    return time.process_time() - begun


def missed(
    schema: pa.Schema,
    clean: list[bytes | None],
    make: Make,
    bounds: dict[int, float],
) -> dict[int, float]:
    """The bounds that are not kept, with what was measured: by the least of a few times, and of
    more if that is too much, each beside that of clean records.
    """
    bad = {n: [make(i) if i % n == 0 else one for i, one in enumerate(clean)] for n in bounds}
    least = dict.fromkeys([0, *bounds], math.inf)
    found: dict[int, float] = {}
    for count in range(6):
        for every, values in {0: clean, **bad}.items():
            least[every] = min(least[every], processor_time_s(schema, values))
        found = {n: least[n] / least[0] for n in bounds if least[n] > bounds[n] * least[0]}
        if not found and count >= 2:
            break
    return found


SLACK = 1.5
"""The aims themselves are the benchmark's: what a bad record costs beside a clean one depends on
the processor, and even the least of a few times is too much where the machine has other work.
"""


def with_slack(bounds: dict[int, float]) -> dict[int, float]:
    return {every: SLACK * bound for every, bound in bounds.items()}


@pytest.mark.parametrize("kind", NARROW_KINDS)
def test_the_work_is_in_proportion_where_a_clean_record_costs_least(kind: str) -> None:
    clean: list[bytes | None] = [narrow(i) for i in range(5000)]
    assert not missed(NARROW, clean, NARROW_KINDS[kind], with_slack(AIMS))


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_record_costs_little_more_than_one_that_fits(kind: str) -> None:
    clean: list[bytes | None] = [record(i) for i in range(2000)]
    bounds = with_slack(AIMS | DEARER.get(kind, {}))
    assert not missed(SCHEMA, clean, BAD[kind], bounds)


def test_a_topic_without_bad_records_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    values: list[bytes | None] = [record(i) for i in range(RECORDS)]
    work = Work(monkeypatch)
    assert len(rows(decoder(), *[values] * BATCHES)) == RECORDS * BATCHES
    assert (work.parses, work.judged) == (BATCHES, 0)


def test_records_that_fit_though_not_as_they_are_are_tried_ever_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = FITS["zeros past the sixth digit"]
    values = [make(i) if i == 7 else record(i) for i in range(100)]
    clean: list[bytes | None] = [record(i) for i in range(100)]
    work, each = Work(monkeypatch), decoder()
    assert len(rows(each, *[values] * 64)) == 6400
    assert work.parses <= 64 + 7  # a refused try before the batches 0, 2, 6, 14, 30, 46 and 62
    rows(each, *[clean] * 16)  # as many as may pass before the next try
    work.bytes = 0
    rows(each, clean)
    strict, each = work.bytes, decoder()
    work.bytes = work.parses = 0
    rows(each, clean)
    assert (work.parses, work.bytes) == (1, strict)


@pytest.mark.parametrize("of_three", range(3))
def test_a_timestamp_that_the_cast_refuses_is_read_beside_any_other(of_three: int) -> None:
    schema = pa.schema([("at", pa.timestamp("us", tz="UTC")), ("local", pa.timestamp("us"))])
    texts = ["2024-01-01", "2024-01-01 10", "2024-01-01T10:00:00.1230000", None]
    zoned = [*texts, "2024-01-01T10:00:00.1230000Z", "2024-01-01T10:00:00+0530"]
    for at, local in itertools.product(zoned, texts):
        good = {"at": "2024-01-01T10:00:00Z", "local": "2024-01-01T10:00:00"}
        lines = [good | {"at": at, "local": local} if i == of_three else good for i in range(3)]
        values: list[bytes | None] = [json.dumps(line).encode() for line in lines]
        each = JsonDecoder(schema, ITEM, DROP)
        each.take(Block(values, range(3)))
        expected = [row_of(value, schema) for value in values]
        assert list(map(by_value, each.batch().to_pylist())) == list(map(by_value, expected))


def by_value(row: dict[str, Any] | None) -> list[str]:
    return [str(value) for value in (row or {}).values()]


@pytest.mark.parametrize("other", ["fits", "bad date", "wrong type", "tombstone", "schema id"])
@pytest.mark.parametrize("where", PATTERNS)
@pytest.mark.parametrize("place", [0, len(SCHEMA)])
def test_a_key_that_is_not_utf8_makes_its_record_bad_beside_any_other(
    where: str, other: str, place: int
) -> None:
    schema = SCHEMA.insert(place, pa.field("kafka_key", pa.string()))
    make = KINDS.get(other, record)
    values: list[bytes | None] = [make(i) if i % 3 == 0 else record(i) for i in range(60)]
    keys: list[bytes | None] = [b"\xff" if PATTERNS[where](i) else b"k" for i in range(60)]
    good = [i for i in range(60) if keys[i] == b"k" and (i % 3 or other == "fits")]
    found = JsonDecoder(schema, ITEM, DROP)
    for _ in range(2):
        found.take(Block(values, range(60), keys))
        batch = found.batch()
        batch.validate(full=True)
        assert batch.column("id").to_pylist() == good
        assert batch.column("kafka_key").to_pylist() == ["k"] * len(good)

    failing = JsonDecoder(schema, ITEM, FAIL, DROP)
    failing.take(Block([None, record(1)], range(2), [b"\xff", b"\xff"]))
    with pytest.raises(BadRecordError, match=r"at offset 1 .*kafka_key: b'\\xff' is not UTF-8"):
        failing.batch()


def test_the_pattern_of_a_date_knows_the_calendar() -> None:
    days = [f"{year}-{month:02}-{day:02}" for year in (1900, 2023, 2024)
            for month in range(14) for day in range(33)]  # fmt: skip
    days += [f"{year:04}-02-29" for year in range(1, 10_000)]
    unfit = unfit_rows(pa.array(days), pa.field("day", pa.date32()))
    assert unfit.to_pylist() == [not is_day(day) for day in days]


def is_day(text: str) -> bool:
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def test_tombstones_may_be_dropped_alone_and_are_counted_apart() -> None:
    values = [record(0), None, record(2), None]
    found = decoder(FAIL, tombstones=DROP)
    assert [row["id"] for row in rows(found, values)] == [0, 2]
    [note] = found.notes()
    assert "2 records" in note
    assert "are tombstones" in note
    with pytest.raises(BadRecordError, match=r"at offset 0 .*json\.on_error"):
        rows(found, [b"x", None])

    found = decoder(DROP)
    assert rows(found, [None, b"x", None]) == []
    unfit, tombstones = found.notes()
    assert "1 records" in unfit
    assert "2 records" in tombstones

    with pytest.raises(BadRecordError, match=r"a tombstone.*json\.on_tombstone") as caught:
        rows(decoder(DROP, tombstones=FAIL), [b"x", None])
    assert '.option("json.on_tombstone", "drop")' in str(caught.value)
    assert rows(decoder(DROP, tombstones=DROP), [b"x", None]) == []


@pytest.mark.parametrize(
    ("changed", "corrected", "column"),
    [
        ({"amount": 1.125}, {"amount": 1.12}, pa.field("amount", pa.decimal128(10, 3))),
        ({"n": 2**31}, {"n": 2**31 - 1}, pa.field("n", pa.int64())),
        ({"n": "2"}, {"n": 2}, pa.field("n", pa.string())),
        ({"id": None}, {"id": 7}, pa.field("id", pa.int64())),
    ],
    ids=str,
)
def test_a_corrected_producer_or_schema_leads_on(
    changed: dict[str, Any], corrected: dict[str, Any], column: pa.Field
) -> None:
    value = record(0, **changed)
    with pytest.raises(BadRecordError) as caught:
        rows(decoder(FAIL), [value])
    assert caught.value.remedy.startswith("correct the producer or the schema.")
    assert len(rows(decoder(FAIL), [record(0, **corrected)])) == 1
    schema = SCHEMA.set(SCHEMA.get_field_index(column.name), column)
    assert len(rows(JsonDecoder(schema, ITEM, FAIL), [value])) == 1


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            record(0, at="2024-05-01T10:00:00.1234567Z"),
            ["at: '2024-05-01T10:00:00.1234567Z' is not an ISO 8601 timestamp", "to_timestamp"],
        ),
        (record(0, at=1714557600000), ["at: b'1714557600000'", "BIGINT", "timestamp_millis"]),
        (record(0, at=[2024, 5, 1, 10, 0, 7]), ["at: b'[2024", "ARRAY<INT>", "make_timestamp"]),
        (record(0, local="2024-05-01T10:00:00Z"), ["without a zone", "to_timestamp"]),
        (record(0, day="01.05.2024"), ["day: '01.05.2024' is not a date", "to_date"]),
        (record(0, day=19000), ["day: b'19000'", "date_from_unix_date"]),
        (record(0, day=[2024, 5, 1]), ["day: b'[2024, 5, 1]'", "make_date"]),
        (
            b"\0\0\0\0\7" + record(0),
            [
                "00 00 00 00 07",
                "schema registry (Confluent's)",
                "here 7",
                '("json.skip_bytes", 5)',
            ],
        ),
        (record(0, amount=1.125), ["amount: b'1.125' does not fit decimal128(10, 2)"]),
        (record(0, **{"in": [{"day": 5}]}), ["in[].day: b'5'"]),
        (record(0)[:-1] + b',"n":1}', ["n: is given twice"]),
        (without_id(0), ["id: is null or missing", "NOT NULL"]),
        (record(0, v="??").replace(b"??", b"\xff"), ["v: b'\"\\xff\"' is not UTF-8"]),
    ],
    ids=lambda found: found[0] if isinstance(found, list) else "",
)
def test_the_message_names_the_field_the_value_and_the_way_on(
    value: bytes, words: list[str]
) -> None:
    with pytest.raises(BadRecordError) as caught:
        rows(decoder(FAIL), [record(0), value])
    for word in [*words, "Next: ", '("json.on_error", "drop")']:
        assert word in str(caught.value)


UUID = bytes(range(16))
FRAMES = {
    "Confluent's": (b"\0\0\0\0\7", ", here 7", 5),
    "Confluent's, a brace as id": (b"\0\0\0\0{", ", here 123", 5),
    "Apicurio's": (b"\0" + (2**40 + 7).to_bytes(8, "big"), ", here 1099511627783", 9),
    "Apicurio's, small": (b"\0" + (7).to_bytes(8, "big"), ", here 7", 9),
    "AWS Glue's": (b"\3\0" + UUID, "", 18),
}


@pytest.mark.parametrize("maker", FRAMES)
def test_a_registry_s_bytes_are_named_and_the_remedy_reads_what_follows(maker: str) -> None:
    head, number, size = FRAMES[maker]
    values: list[bytes | None] = [head + record(i) for i in range(3)]
    with pytest.raises(BadRecordError) as caught:
        rows(decoder(FAIL), values)
    assert f"({maker.split(',')[0]}) name the schema{number}" in str(caught.value)
    assert f'("json.skip_bytes", {size})' in str(caught.value)

    found = JsonDecoder(SCHEMA, ITEM, FAIL, skip_bytes=size)
    assert [row["id"] for row in rows(found, values, values)] == [0, 1, 2] * 2


@pytest.mark.parametrize("first", [b"\0\0\0\0\7", b"\3\5" + UUID])
def test_avro_behind_a_registry_s_bytes_is_not_taken_for_json(first: bytes) -> None:
    value = first + b"\2\16abc"
    with pytest.raises(BadRecordError, match=r"no JSON follows.*Avro and Protobuf are not read"):
        rows(decoder(FAIL), [value])
    raw = RawDecoder(pa.schema([("value", pa.binary())]), ITEM)  # value.format=raw
    raw.take(Block([value], range(1)))
    assert raw.batch().to_pylist() == [{"value": value}]
    # a serializer for JSON, which puts the schema's id before it or not
    assert len(rows(decoder(FAIL), [record(0)])) == 1
    assert (
        len(rows(JsonDecoder(SCHEMA, ITEM, FAIL, skip_bytes=5), [b"\0\0\0\0\7" + record(0)])) == 1
    )


@pytest.mark.parametrize("kind", [*KINDS, "fits"])
def test_behind_skipped_bytes_a_record_gives_the_row_that_it_gives_alone(kind: str) -> None:
    make, head = KINDS.get(kind, record), b"\0\0\0\0\7"
    alone = [make(i) if i % 3 == 1 else record(i) for i in range(20)]
    framed = [None if value is None else head + value for value in alone]
    found = JsonDecoder(SCHEMA, ITEM, DROP, skip_bytes=5)
    assert str(rows(found, framed, framed)) == str(rows(decoder(), alone, alone))


@pytest.mark.parametrize(
    "value",
    [record(1), b"", b"\0\0", b"    " + record(1), b'[1,2,{"id":1}', b"\0" * 9 + record(1)],
)
def test_nothing_but_the_bytes_before_the_json_is_skipped(value: bytes) -> None:
    found = JsonDecoder(SCHEMA, ITEM, FAIL, skip_bytes=5)
    with pytest.raises(BadRecordError, match=r"at offset 1 .* its (first )?(value|5)|5 bytes"):
        rows(found, [b"\0\0\0\0\7" + record(0), value])


def test_without_skipped_bytes_a_record_that_has_none_is_read_and_one_that_has_more_is_named() -> (
    None
):
    plain: list[bytes | None] = [record(0), record(1)]
    with pytest.raises(BadRecordError, match=r"leave json\.skip_bytes out if no record has them"):
        rows(JsonDecoder(SCHEMA, ITEM, FAIL, skip_bytes=5), plain)
    assert len(rows(decoder(FAIL), plain)) == 2

    more: list[bytes | None] = [b"\0" * 9 + record(0)]
    with pytest.raises(BadRecordError, match=r"leave json\.skip_bytes out, and the message names"):
        rows(JsonDecoder(SCHEMA, ITEM, FAIL, skip_bytes=5), more)
    with pytest.raises(BadRecordError, match=r'\("json\.skip_bytes", 9\)'):
        rows(decoder(FAIL), more)
    assert len(rows(JsonDecoder(SCHEMA, ITEM, FAIL, skip_bytes=9), more)) == 1


@pytest.mark.parametrize("again", [b"a/b", b"a\\/b", b"a\\u002fb", b"\\u0061/b"])
@pytest.mark.parametrize("text", [b'"x"', b"{}"])
def test_a_field_that_is_given_twice_is_noticed_however_it_is_written(
    again: bytes, text: bytes
) -> None:
    schema = pa.schema([("a/b", pa.int64()), ("v", pa.string())])
    found = JsonDecoder(schema, ITEM, FAIL)
    found.take(Block([b'{"a/b":1,"v":%s,"%s":2}' % (text, again)], range(1)))
    with pytest.raises(BadRecordError, match=r"a/b: is given twice|specified twice"):
        found.batch()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('{"a":[1,2]}', '{"a":[1,2]}'),
        ('{ "a" : [1, 2.50 ],\n"a":{}}', '{ "a" : [1, 2.50 ],\n"a":{}}'),
        ("[1, null]", "[1, null]"),
        ("7", "7"),
        ("12345678901234567890.10", "12345678901234567890.10"),
        ("1e400", "1e400"),
        ("true", "true"),
        ("null", None),
        ('"7"', "7"),
        ('"\\u00e9\\n"', "é\n"),
        ('{"k":"é \\u00e9"}', '{"k":"é \\u00e9"}'),
    ],
)
def test_a_string_is_its_text_and_every_other_value_is_its_raw_text(
    text: str, kept: str | None
) -> None:
    schema = pa.schema(
        [
            ("v", pa.string()),
            ("o", pa.struct([("v", pa.string())])),
            ("l", pa.list_(pa.field("element", pa.string()))),
        ]
    )
    found = JsonDecoder(schema, ITEM, FAIL)
    value = f'{{"v":{text} ,"o":{{"x":{{}},"v": {text}}}, "l":[{text},"x", {text} ]}}'.encode()
    found.take(Block([value], range(1)))
    assert found.batch().to_pylist() == [{"v": kept, "o": {"v": kept}, "l": [kept, "x", kept]}]
