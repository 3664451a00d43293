"""Serializers of operator state: what goes in comes out, and what would not is refused."""

from __future__ import annotations

import math
import signal
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.errors import ConfigError
from twophase.functions import serializer as module
from twophase.functions.operator_state import OperatorStateStore, Redistribution, SerializedState
from twophase.functions.serializer import (
    ArrowSerializer,
    BytesSerializer,
    JsonSerializer,
    register_serializer,
    serializer_of,
)
from twophase.internals.json_values import from_json, to_json
from twophase.options.job_options import CheckpointMode
from twophase.state.checkpoints.function_state import FunctionState

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # lone surrogates too: a key of Kafka may be any text that somebody decoded
    | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
COLUMNS = st.sampled_from(
    [
        (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
        (pa.string(), st.text()),
        (pa.binary(), st.binary()),
        (pa.float64(), st.floats(allow_nan=False)),
        (pa.list_(pa.int32()), st.lists(st.integers(-5, 5), max_size=3)),
        (pa.timestamp("us", "UTC"), st.integers(0, 2**50)),
    ]
)


@st.composite
def record_batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = draw(st.integers(0, 5))
    arrays = []
    for kind, values in draw(st.lists(COLUMNS, min_size=1, max_size=4)):
        cells = st.lists(st.none() | values, min_size=rows, max_size=rows)
        arrays.append(pa.array(draw(cells), kind))
    return pa.record_batch(arrays, names=[f"c{index}" for index in range(len(arrays))])


@given(JSON)
def test_json_values_come_back_as_they_were(value: Any) -> None:
    serializer = JsonSerializer()
    back = serializer.deserialize(serializer.serialize(value))
    assert back == value
    assert repr(back) == repr(value), "with the types in it, and the order of keys"


@given(st.binary())
def test_bytes_come_back_as_they_were(value: bytes) -> None:
    serializer = BytesSerializer()
    assert serializer.deserialize(serializer.serialize(value)) == value


@given(record_batches())
def test_record_batches_come_back_with_their_schema(value: pa.RecordBatch) -> None:
    serializer = ArrowSerializer()
    back = serializer.deserialize(serializer.serialize(value))
    assert back.schema.equals(value.schema, check_metadata=True)
    assert back.equals(value)


@pytest.mark.parametrize(
    "value", [(1, 2), {1: "a"}, [(1,)], {"a": {None: 1}}, math.nan, math.inf, b"a", {1}, object()]
)
def test_what_json_would_change_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        JsonSerializer().serialize(value)


class Text(str):
    """Equal to what comes back."""


@pytest.mark.parametrize(
    ("value", "kinds"),
    [
        (Counter("aab"), "Counter as dict"),
        ({"seen": defaultdict(list)}, "defaultdict as dict"),
        ([signal.SIGTERM], "Signals as int"),
        (CheckpointMode.EXACTLY_ONCE, "CheckpointMode as str"),
        (Text("a"), "Text as str"),
        ({Text("a"): 1}, "Text as str"),
        ([np.float64(1.5)], "float64 as float"),
        ({"1": 0, 1: 0}, "int as str"),
        (("a",), "tuple as list"),
        ("\ud800\udc00", "str as another"),
    ],
    ids=repr,
)
def test_what_json_would_give_back_as_an_equal_value_of_another_type_is_refused(
    value: Any, kinds: str
) -> None:
    """A function that counts in a `Counter` would find a dict after a restart, and fail there."""
    with pytest.raises(ValueError, match=f"JSON would give back a value of type {kinds}"):
        JsonSerializer().serialize(value)


@pytest.mark.parametrize("value", ["text", bytearray(b"a"), memoryview(b"a"), None])
def test_what_is_not_bytes_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="where bytes belong"):
        BytesSerializer().serialize(value)


def test_what_is_no_record_batch_is_refused() -> None:
    with pytest.raises(TypeError, match=r"a Table where a pyarrow\.RecordBatch belongs"):
        ArrowSerializer().serialize(pa.table({"a": [1]}))


# -- own serializers -------------------------------------------------------------------------------


class Point:
    """Two numbers as text."""

    def serialize(self, value: tuple[int, int]) -> bytes:
        return "{} {}".format(*value).encode()

    def deserialize(self, data: bytes) -> tuple[int, int]:
        x, y = data.split()
        return int(x), int(y)


class Nothing:
    """No serializer."""


@pytest.fixture(autouse=True)
def none_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_registered", {})


def test_an_own_class_serves_under_its_name() -> None:
    register_serializer("point", Point)
    register_serializer("point", Point)  # a notebook cell that runs twice
    store = OperatorStateStore("dedup")
    store.get_list_state("corners", "point").update([(1, 2), (-3, 4)])
    [snapshotted] = store.snapshot()
    assert snapshotted.serializers == ("point",)
    again = OperatorStateStore("dedup", [snapshotted])
    assert again.get_list_state("corners", "point").get() == [(1, 2), (-3, 4)]


@pytest.mark.parametrize("name", ["json", "bytes", "arrow"])
def test_a_built_in_name_is_taken(name: str) -> None:
    with pytest.raises(ConfigError, match=f"a serializer named '{name}' already"):
        register_serializer(name, Point)


def test_two_classes_do_not_share_a_name() -> None:
    class Other(Point):
        pass

    register_serializer("point", Point)
    with pytest.raises(ConfigError, match="already, Point"):
        register_serializer("point", Other)
    register_serializer("other", Other)
    assert type(serializer_of("other", "State 'a'")) is Other


def test_entries_of_an_older_version_of_a_serializer_are_read_by_that_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Newer(Point):
        def deserialize(self, data: bytes) -> tuple[int, int]:
            x, y, _ = data.split()
            return int(x), int(y)

    register_serializer("point", Point)
    store = OperatorStateStore("dedup")
    store.get_list_state("corners", "point").add((1, 2))
    snapshotted = store.snapshot()
    monkeypatch.setattr(module, "_registered", {"point": Newer()})
    with pytest.raises(ConfigError, match="cannot read the restored entries") as caught:
        OperatorStateStore("dedup", snapshotted).get_list_state("corners", "point")
    assert caught.value.remedy == "restore the version of the serializer that wrote them."
    monkeypatch.setattr(module, "_registered", {"point": Point()})
    again = OperatorStateStore("dedup", snapshotted)
    assert again.get_list_state("corners", "point").get() == [(1, 2)]


@pytest.mark.parametrize("returned", [None, "text", bytearray(b"1"), 7, [1]], ids=repr)
@pytest.mark.parametrize("form", ["list", "broadcast"])
def test_what_a_serializer_returns_is_bytes_or_refused(form: str, returned: Any) -> None:
    class Forgetful(Point):
        def serialize(self, value: Any) -> Any:
            return returned

    register_serializer("point", Forgetful)
    store = OperatorStateStore("dedup")
    if form == "list":
        store.get_list_state("corners", "point").add((1, 2))
    else:
        store.get_broadcast_state("corners", "json", "point").put("a", (1, 2))
    with pytest.raises(ValueError, match=r"State 'corners' of function 'dedup': .*Forget") as one:
        store.snapshot()
    assert f"returned a {type(returned).__name__} where bytes belong" in str(one.value)


def test_a_class_without_the_methods_is_refused() -> None:
    with pytest.raises(ConfigError, match="Nothing has no serialize and deserialize"):
        register_serializer("nothing", Nothing)  # type: ignore[arg-type]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    register_serializer("point", Point)
    with pytest.raises(
        ConfigError, match="no serializer named 'pickle'; known: json, bytes, arrow, point"
    ):
        serializer_of("pickle", "State 'a'")
    register_serializer("pickle", Point)
    assert type(serializer_of("pickle", "State 'a'")) is Point


# -- in a checkpoint -------------------------------------------------------------------------------

ENTRIES = st.lists(st.binary(max_size=40), max_size=8).map(tuple)
STATES = st.builds(
    SerializedState,
    st.sampled_from(["", "seen", "ä"]),
    st.sampled_from(Redistribution),
    st.sampled_from([("json",), ("json", "bytes")]),
    ENTRIES,
)


@given(st.dictionaries(st.text(max_size=5), st.lists(STATES, max_size=3).map(tuple), max_size=3))
def test_states_come_back_from_the_values_of_a_body(
    states: dict[str, tuple[SerializedState, ...]],
) -> None:
    made = {uid: tuple(FunctionState.of(one) for one in listed) for uid, listed in states.items()}
    form: Any = Mapping[str, tuple[FunctionState, ...]]
    back = from_json(form, to_json(made), "here")
    assert back == made
    assert {
        uid: tuple(one.serialized() for one in listed) for uid, listed in back.items()
    } == states
