"""Every type of column takes the rows of the table in docs/sinks/mysql.md, by each way of loading,
and what a column would store as another value is refused with the column, before it is sent.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from integration.mysql.sink_harness import MySqlHarness, Server, commit
from twophase.contract.outcome import Committed
from twophase.errors import ConfigError, RejectedRowsError
from twophase.ids import Subtask
from twophase.sinks.mysql.lock_conflicts import Key
from twophase.testing.harness import transaction_id
from twophase.testing.services import MariaDbService, MySqlService

pytestmark = [pytest.mark.part("mysql"), pytest.mark.thin(2)]

WHOLE, TEXT = pa.decimal128(20, 0), pa.string()
Case = tuple[str, pa.DataType, list[Any], list[Any]]
"""The definition of a column, the type of its rows, values that it keeps, and others."""

CASES: dict[str, Case] = {
    "big": ("BIGINT UNSIGNED", WHOLE, [Decimal(2**64 - 1), Decimal(0)], [Decimal(2**64)]),
    "medium": ("MEDIUMINT", pa.int64(), [2**23 - 1, -(2**23)], [2**23]),
    "tiny": ("TINYINT UNSIGNED", pa.decimal128(10, 2), [Decimal("255.00")], [Decimal("0.50")]),
    "price": ("DECIMAL(4,1)", pa.decimal128(10, 2), [Decimal("-999.90")], [Decimal("1.25")]),
    "exact": ("DOUBLE", pa.int64(), [2**53], [2**53 + 1]),
    "year": ("YEAR", pa.int32(), [1901, 2155], [0, 24]),
    "bits": ("BIT(64)", WHOLE, [Decimal(2**64 - 1), Decimal(5)], [Decimal(-1)]),
    "state": ("ENUM('new', 'paid', 'x,y', 'it''s', '', '2', 'caf\u00e9') NOT NULL", TEXT,
              ["paid", "x,y", "it's", "", "2", "caf\u00e9"], ["1", "0", "PAID", "paid ", "cafe"]),
    "flags": ("SET('a', 'b', '1')", TEXT, ["", "a", "a,b", "1"], ["b,a", "3", "A", "a,a"]),
}  # fmt: skip
MARIADB: dict[str, Case] = {
    "uuid": ("UUID", TEXT, ["123e4567-e89b-12d3-a456-426614174000"],
             ["123E4567-E89B-12D3-A456-426614174000"]),
    "four": ("INET4", TEXT, ["10.0.0.1"], ["10.0.0.01"]),
    "six": ("INET6", TEXT, ["2001:db8::1", "::ffff:1.2.3.4"], ["2001:DB8::1", "::0.0.1.2"]),
}  # fmt: skip


def cases_of(server: Server) -> dict[str, Case]:
    return CASES | MARIADB if isinstance(server, MariaDbService) else CASES


def harness_of(server: Server, load: str) -> MySqlHarness:
    cases = cases_of(server)
    ddl = ", ".join(f"`{name}` {declared}" for name, (declared, *_) in cases.items())
    fields = [(name, kind) for name, (_, kind, *_) in cases.items()]
    schema = pa.schema([("k", pa.int64()), *fields])
    return MySqlHarness(server, f"k BIGINT PRIMARY KEY, {ddl}", schema, load=load)


def row_of(cases: dict[str, Case], number: int) -> dict[str, Any]:
    return {name: kept[number % len(kept)] for name, (_, _, kept, _) in cases.items()}


@pytest.mark.parametrize("load", ["local", "insert"])
class TestEveryColumn:
    def test_gives_back_what_it_took(self, sql_server: Server, load: str) -> None:
        harness, cases = harness_of(sql_server, load), cases_of(sql_server)
        sent = [{"k": number, **row_of(cases, number)} for number in range(6)]
        sent.append({"k": 6, **dict.fromkeys(cases), "state": "new"})
        sink = harness.opened()
        assert commit(sink, harness.write(sink, sent)) == [Committed()]
        found = sorted(harness.rows_visible(), key=lambda row: row["k"])
        bits = [row["bits"] and int.from_bytes(row["bits"]) for row in found]
        assert [{**row, "bits": number} for row, number in zip(found, bits, strict=True)] == sent

    def test_is_not_sent_what_it_would_change(self, sql_server: Server, load: str) -> None:
        harness, cases = harness_of(sql_server, load), cases_of(sql_server)
        sink, task = harness.opened(), 0
        good = {"k": 1, **row_of(cases, 0)}
        for name, (*_, others) in cases.items():
            for value in others:
                task += 1
                rows = [good, {**good, "k": 2, name: value}]
                with pytest.raises(RejectedRowsError, match="Row 2 of a batch of 2") as caught:
                    harness.write(sink, rows, subtask=Subtask(0, task))
                assert f"column '{name}' cannot store" in caught.value.what
                assert str(value) in caught.value.what


@pytest.mark.parametrize("load", ["local", "insert"])
def test_rows_are_found_by_a_key_of_such_columns(sql_server: Server, load: str) -> None:
    """When they are read back, and when two tasks wait for each other."""
    cases = {name: one for name, one in cases_of(sql_server).items() if name != "exact"}
    ddl = ", ".join(f"`{name}` {declared}" for name, (declared, *_) in cases.items())
    schema = pa.schema([(name, kind) for name, (_, kind, *_) in cases.items()])
    ddl = f"{ddl}, PRIMARY KEY ({', '.join(f'`{name}`' for name in cases)})"
    harness = MySqlHarness(sql_server, ddl, schema, load=load)
    sink, rows = harness.opened(), [row_of(cases, number) for number in range(6)]
    assert commit(sink, harness.write(sink, rows)) == [Committed()]
    writers = sink._writers
    plans = writers.plan.loader.plans
    assert {plan.column for plan in writers.plan.loader.read_back.key} == {*cases}
    key = Key("PRIMARY", "target", plans, tuple(f"`{name}`" for name in cases))
    for row in rows:
        [query] = key.queries([harness.batch([row])])
        assert len(harness.sql(query)) == 1


def test_a_geometry_is_made_of_its_text_as_the_refusal_says(sql_server: Server) -> None:
    schema = pa.schema([("k", pa.int64()), ("place", TEXT)])
    harness = MySqlHarness(sql_server, "k BIGINT PRIMARY KEY, place POINT", schema)
    with pytest.raises(ConfigError, match="place: string cannot be stored in point") as caught:
        harness.opened()
    [made] = re.findall(r"make this one of it: (.+ STORED)", caught.value.what)
    made = made.replace("...", "place_text")
    harness.sql(f"ALTER TABLE target DROP place, ADD place_text TEXT, ADD place {made}")
    harness.fields = pa.schema([("k", pa.int64()), ("place_text", TEXT)])
    sink = harness.opened()
    piece = harness.write(sink, [{"k": 1, "place_text": "POINT(1 2)"}])
    assert commit(sink, piece) == [Committed()]
    assert harness.sql("SELECT ST_X(place), ST_Y(place) FROM target") == [(1.0, 2.0)]


def test_a_geometry_that_takes_no_null_is_loaded_as_the_refusal_says(
    own_mysql: MySqlService,
) -> None:
    """As an index of places needs it. LOAD DATA of MySQL takes it for a column without a value."""
    schema = pa.schema([("k", pa.int64()), ("place_text", TEXT)])
    place = "place POINT AS (ST_GeomFromText(place_text)) STORED NOT NULL, SPATIAL INDEX (place)"
    harness = MySqlHarness(own_mysql, f"k BIGINT PRIMARY KEY, place_text TEXT, {place}", schema)
    rows = [{"k": 1, "place_text": "POINT(1 2)"}]
    with pytest.raises(RejectedRowsError, match="'place' doesn't have a default") as caught:
        harness.write(harness.opened(), rows)
    [load] = re.findall("`load=(.+?)`", caught.value.remedy)
    sink = harness.opened(load=load)
    assert commit(sink, harness.write(sink, rows, subtask=Subtask(0, 1))) == [Committed()]
    assert harness.sql("SELECT ST_X(place), ST_Y(place) FROM target") == [(1.0, 2.0)]


YEARS = {"DATE": (1000, 9999), "DATETIME(6)": (1000, 9999), "TIMESTAMP(6)": (1971, 2037)}
MARKS = (-290_307, -1, 0, 1, 999, 1000, 1901, 1971, 2037, 2040, 9999, 10_000, 294_246)


@pytest.mark.parametrize("declared", YEARS)
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_a_year_is_kept_or_refused_by_name(
    sql_server: Server, declared: str, zone: str | None
) -> None:
    """Spark has years that neither MySQL nor Python has: as numbers, they reach the sink."""
    is_date = declared == "DATE"
    kind = pa.date32() if is_date else pa.timestamp("us", zone)
    schema = pa.schema([("k", pa.int64()), ("at", kind)])
    harness = MySqlHarness(sql_server, f"k BIGINT PRIMARY KEY, at {declared} NULL", schema)
    sink = harness.opened()
    first, last = YEARS[declared]
    for task, year in enumerate(MARKS):
        day = math.floor((year - 1970) * 365.2425) + 100
        numbers = pa.array([day if is_date else day * 86_400_000_000])
        at = numbers.cast(pa.int32()).cast(kind) if is_date else numbers.cast(kind)
        batch = pa.record_batch([pa.array([task]), at], schema=schema)
        subtask = Subtask(0, task)
        if first <= year <= last:
            [piece] = harness.pre_commit(sink, transaction_id(task), batch, subtask)
            assert commit(sink, piece) == [Committed()]
            assert harness.sql("SELECT YEAR(at) FROM target WHERE k = %s", task) == [(year,)]
            continue
        with pytest.raises(RejectedRowsError, match="at") as caught:
            harness.pre_commit(sink, transaction_id(task), batch, subtask)
        assert "Row 1 of a batch of 1" in caught.value.what or "'at'" in caught.value.what
