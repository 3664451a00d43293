"""Keyed state under Flink's names, on a handle that keeps Spark's tuples in this process."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from http import HTTPStatus
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from twophase.errors import ConfigError, RejectedRowsError
from twophase.functions.keyed_state import (
    aggregating_state,
    list_state,
    map_state,
    reducing_state,
    value_state,
)


class Value:
    """Spark's value, list and map state, for one key."""

    def __init__(self) -> None:
        self.found: Any = None
        self.listed: list[tuple[Any, ...]] = []
        self.mapped: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def get(self) -> Any:
        return self.found

    def update(self, value: tuple[Any, ...]) -> None:
        assert isinstance(value, tuple)
        self.found = value

    def clear(self) -> None:
        self.__init__()  # type: ignore[misc]


class Listed(Value):
    def get(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.listed)

    def put(self, values: list[tuple[Any, ...]]) -> None:
        assert values
        self.listed = [*values]

    def appendValue(self, value: tuple[Any, ...]) -> None:
        self.listed.append(value)

    def appendList(self, values: list[tuple[Any, ...]]) -> None:
        assert values
        self.listed += values


class Mapped(Value):
    def exists(self) -> bool:
        return bool(self.mapped)

    def getValue(self, key: tuple[Any, ...]) -> Any:
        return self.mapped.get(key)

    def containsKey(self, key: tuple[Any, ...]) -> bool:
        return key in self.mapped

    def updateValue(self, key: tuple[Any, ...], value: tuple[Any, ...]) -> None:
        self.mapped[key] = value

    def removeKey(self, key: tuple[Any, ...]) -> None:
        self.mapped.pop(key, None)

    def iterator(self) -> Any:
        return iter(self.mapped.items())

    def keys(self) -> Any:
        return iter(self.mapped)

    def values(self) -> Any:
        return iter(self.mapped.values())


TYPES = {
    "long": LongType(),
    "string": StringType(),
    "double": DoubleType(),
    "binary": BinaryType(),
    "decimal(4,1)": DecimalType(4, 1),
    "timestamp": TimestampType(),
    "array<string>": ArrayType(StringType()),
    "map<string,double>": MapType(StringType(), DoubleType()),
    "struct<n:long>": StructType([StructField("n", LongType())]),
}


class Client:
    """Parses columns of these types."""

    def _parse_string_schema(self, schema: str) -> StructType:
        columns = [column.split(" ") for column in schema.split(", ")]
        return StructType([StructField(name, TYPES[kind]) for name, kind in columns])


class Handle:
    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self._statefulProcessorApiClient = Client()

    def getValueState(self, *asked: Any) -> Value:
        self.asked.append(asked)
        return Value()

    def getListState(self, *asked: Any) -> Listed:
        self.asked.append(asked)
        return Listed()

    def getMapState(self, *asked: Any) -> Mapped:
        self.asked.append(asked)
        return Mapped()


@pytest.fixture
def handle() -> Any:
    return Handle()


def test_a_value_of_one_type_is_plain_and_of_columns_a_tuple(handle: Any) -> None:
    plain, columns = value_state(handle, "a", "long"), value_state(handle, "b", "n long, s string")
    assert plain.value() is None
    plain.update(7)
    columns.update((7, "x"))
    assert (plain.value(), columns.value()) == (7, (7, "x"))
    plain.clear()
    assert plain.value() is None


@pytest.mark.parametrize(
    ("schema", "asked"),
    [
        ("long", "value long"),
        (" decimal(10, 2) ", "value decimal(10, 2)"),
        ("array<struct<a: long, b: string>>", "value array<struct<a: long, b: string>>"),
        ("count long", "count long"),
        ("a long, b map<string, long>", "a long, b map<string, long>"),
        ("a: long", "a: long"),
        ("`a b` long", "`a b` long"),
        (LongType(), StructType([StructField("value", LongType())])),
        (ArrayType(LongType()), StructType([StructField("value", ArrayType(LongType()))])),
        (StructType([StructField("n", LongType())]), StructType([StructField("n", LongType())])),
    ],
)
def test_a_schema_is_a_type_or_columns(handle: Any, schema: Any, asked: Any) -> None:
    value_state(handle, "a", schema)
    assert handle.asked == [("a", asked, None)]


def test_a_list_is_added_to_and_replaced(handle: Any) -> None:
    state = list_state(handle, "a", "long")
    state.add(1)
    state.add_all(number for number in (2, 3))
    state.add_all([])
    assert [*state.get()] == [1, 2, 3]
    state.update([4])
    assert [*state.get()] == [4]
    state.update([])
    assert [*state.get()] == []


def test_a_map_has_entries(handle: Any) -> None:
    state = map_state(handle, "a", "string", "n long, s string")
    assert state.is_empty()
    state.put("x", (1, "one"))
    state.put_all({"y": (2, "two"), "z": (3, "three")})
    state.remove("z")
    assert (state.get("x"), state.get("z")) == ((1, "one"), None)
    assert (state.contains("y"), state.contains("z"), state.is_empty()) == (True, False, False)
    assert [*state.keys()] == ["x", "y"]
    assert [*state.values()] == [(1, "one"), (2, "two")]
    assert [*state.items()] == [("x", (1, "one")), ("y", (2, "two"))]
    state.clear()
    assert state.is_empty()


def test_values_are_reduced_to_one_also_by_a_value_that_is_false(handle: Any) -> None:
    state = reducing_state(handle, "a", "long", operator.add)
    assert state.get() is None
    for number in (0, 5, -5, 2):
        state.add(number)
    assert state.get() == 2
    state.clear()
    assert state.get() is None


class Mean:
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        count, total = accumulator
        return count + 1, total + value

    def get_result(self, accumulator: tuple[int, int]) -> float:
        count, total = accumulator
        return total / count


def test_values_are_aggregated_by_an_accumulator(handle: Any) -> None:
    state = aggregating_state(handle, "a", "count long, total long", Mean())
    assert state.get() is None
    for number in (1, 2, 6):
        state.add(number)
    assert state.get() == 3.0
    state.clear()
    assert state.get() is None


# -- what Spark would keep as another value, or as none --------------------------------------------


UNFIT: list[tuple[str, Any]] = [
    ("long", 1.5),
    ("long", "7"),
    ("long", True),
    ("long", 2**63),
    ("long", HTTPStatus.OK),
    ("double", 1),
    ("string", 7),
    ("string", {"a": 1}),
    ("binary", "ab"),
    ("decimal(4,1)", 1.5),
    ("decimal(4,1)", Decimal(1000)),
    ("decimal(4,1)", Decimal("NaN")),
    ("array<string>", ["a", 1]),
    ("array<string>", "ab"),
    ("map<string,double>", {"a": 1}),
    ("map<string,double>", {1: 1.0}),
    ("struct<n:long>", (1.5,)),
    ("struct<n:long>", {"n": "1"}),
    ("a long, b string", ("x", "y")),
    ("a long, b string", (1,)),
    ("a string, b string", "DE"),
    ("a string, b string", {"a": "x", "b": "y"}),
    ("a string, b string", None),
]
FIT: list[tuple[str, Any]] = [
    ("long", None),
    ("long", 2**63 - 1),
    ("long", np.int64(7)),
    ("double", np.float32(0.5)),
    ("string", ""),
    ("binary", bytearray(b"ab")),
    ("decimal(4,1)", Decimal("-999.9")),
    ("timestamp", datetime(2026, 1, 1)),
    ("timestamp", pd.Timestamp("2026-01-01")),
    ("array<string>", ["a", None]),
    ("map<string,double>", {"a": 1.0}),
    ("struct<n:long>", (1,)),
    ("a long, b string", (1, "x")),
    ("a long, b string", [None, "x"]),
    ("a string, b array<string>", ("x", [np.str_("y")])),
]


def as_types(schema: str) -> DataType:
    """What the text of a schema says."""
    return TYPES[schema] if schema in TYPES else Client()._parse_string_schema(schema)


@pytest.mark.parametrize("form", [str, as_types])
@pytest.mark.parametrize(("schema", "value"), UNFIT, ids=repr)
def test_a_value_that_is_not_of_the_schema_is_refused(
    handle: Any, form: Any, schema: str, value: Any
) -> None:
    """Spark keeps NULL in place of most of these: a sum would begin again, and nobody is told."""
    plain, listed = value_state(handle, "a", form(schema)), list_state(handle, "b", form(schema))
    mapped = map_state(handle, "c", "long", form(schema))
    keyed = map_state(handle, "d", form(schema), "long")
    for write in (
        lambda: plain.update(value),
        lambda: listed.add(value),
        lambda: listed.add_all([value]),
        lambda: listed.update([value]),
        lambda: mapped.put(1, value),
        lambda: mapped.put_all({1: value}),
        lambda: keyed.put(value, 1),
        lambda: keyed.get(value),
    ):
        with pytest.raises(RejectedRowsError, match=r"The state '[abcd]' cannot have this value"):
            write()
    assert (plain.value(), [*listed.get()], mapped.is_empty()) == (None, [], True)


@pytest.mark.parametrize("form", [str, as_types])
@pytest.mark.parametrize(("schema", "value"), FIT, ids=repr)
def test_a_value_of_the_schema_is_kept(handle: Any, form: Any, schema: str, value: Any) -> None:
    state = value_state(handle, "a", form(schema))
    state.update(value)
    assert state.value() == (tuple(value) if ", " in schema else value)


def test_what_is_refused_is_kept_as_the_error_says(handle: Any) -> None:
    state = reducing_state(handle, "a", "double", operator.add)
    with pytest.raises(RejectedRowsError, match="cannot have this value") as caught:
        state.add(1)
    assert "a float for a double, not an int, and a tuple for columns." in caught.value.remedy
    for number in (1.0, 0.5):
        state.add(number)
    assert state.get() == 1.5
    value_state(handle, "b", "a string, b string").update(("D", "E"))


def test_one_value_is_not_taken_for_several(handle: Any) -> None:
    """`put_all({"DE": "Germany"})` made an entry of D, and `add_all("DE")` makes two."""
    mapped, listed = map_state(handle, "a", "string", "string"), list_state(handle, "b", "string")
    for entries in (["DE"], [("DE", "Germany")], "DE"):
        with pytest.raises(RejectedRowsError, match=r"'a' was given a .* as several values") as one:
            mapped.put_all(entries)  # type: ignore[arg-type]
    assert "give a map a dict, and a list a list" in one.value.remedy
    for values in ("DE", {"DE": "Germany"}):
        for write in (listed.add_all, listed.update):
            with pytest.raises(RejectedRowsError, match=r"'b' was given a .* as several values"):
                write(values)
    mapped.put_all({"DE": "Germany"})
    listed.add_all(["DE"])
    assert ([*mapped.items()], [*listed.get()]) == ([("DE", "Germany")], ["DE"])


class InPlace:
    """Adds to the accumulator itself, and forgets to return it."""

    def create_accumulator(self) -> list[str]:
        return []

    def add(self, value: str, accumulator: list[str]) -> Any:
        accumulator.append(value)

    def get_result(self, accumulator: list[str]) -> int:
        return len(accumulator)


class AlsoReturned(InPlace):
    def add(self, value: str, accumulator: list[str]) -> Any:
        accumulator.append(value)
        return accumulator


extend: Any = list.extend


def test_a_function_that_returns_nothing_forgets_nothing(handle: Any) -> None:
    """What it has changed in place was a copy: NULL was kept, and the next value began again."""
    words = aggregating_state(handle, "a", "array<string>", InPlace())
    with pytest.raises(RejectedRowsError, match="aggregates the state 'a' has returned None"):
        words.add("x")
    merged = reducing_state(handle, "b", "array<string>", extend)
    merged.add(["x"])
    with pytest.raises(RejectedRowsError, match="reduces the state 'b' has returned None") as one:
        merged.add(["y"])
    assert one.value.remedy.startswith("return the new value from it")
    assert (words.get(), merged.get()) == (None, ["x", "y"]), "Spark gives a copy, this does not"
    words = aggregating_state(handle, "c", "array<string>", AlsoReturned())
    words.add("x")
    words.add("y")
    assert words.get() == 2


@pytest.mark.parametrize(
    ("ttl", "ttl_ms"),
    [("10 min", 600_000), (1.5, 1500), (2, 2000), (timedelta(hours=1), 3_600_000), ("1 ms", 1)],
)
def test_a_ttl_is_a_duration(handle: Any, ttl: Any, ttl_ms: int) -> None:
    value_state(handle, "a", "long", ttl=ttl)
    map_state(handle, "b", "long", "long", ttl=ttl)
    assert handle.asked == [
        ("a", "value long", ttl_ms),
        ("b", "value long", "value long", ttl_ms),
    ]


@pytest.mark.parametrize("ttl", [0, -1, "soon", True, "0 s", timedelta(0), float("nan"), "0.1 ms"])
def test_a_ttl_that_is_none_is_refused_by_name(handle: Any, ttl: Any) -> None:
    with pytest.raises(ConfigError, match="state 'a' cannot have the ttl"):
        list_state(handle, "a", "long", ttl=ttl)
    for number, mended in enumerate(("10 min", None)):
        list_state(handle, f"b{number}", "long", ttl=mended)
    assert [asked[-1] for asked in handle.asked] == [600_000, None]


def test_two_states_of_one_name_are_refused_within_a_processor(handle: Any) -> None:
    value_state(handle, "a", "long")
    for declare in (value_state, list_state):
        with pytest.raises(ConfigError, match="two states named 'a'"):
            declare(handle, "a", "long")
    with pytest.raises(ConfigError, match="two states named 'a'"):
        reducing_state(handle, "a", "long", operator.add)
    reducing_state(handle, "b", "long", operator.add).add(1)
    other: Any = Handle()
    value_state(other, "a", "long")


@pytest.mark.parametrize("name", ["", "$timers"])
def test_a_name_of_spark_s_is_refused(handle: Any, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be named"):
        value_state(handle, name, "long")
    value_state(handle, "timers", "long").update(1)
