"""The states of a function: named, typed by a serializer, and carried as Flink carries them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase.errors import ConfigError
from twophase.functions.operator_state import (
    BroadcastState,
    ListState,
    OperatorStateStore,
    RawStateOutput,
    Redistribution,
)


def restored(store: OperatorStateStore) -> OperatorStateStore:
    """A store as a restart has it."""
    return OperatorStateStore("dedup", store.snapshot())


def test_a_list_state_is_a_list() -> None:
    state: ListState[int] = ListState([1])
    state.add(2)
    state.add_all([3, 4])
    assert state.get() == [1, 2, 3, 4]
    state.get().append(9)
    assert state.get() == [1, 2, 3, 4], "a change of the returned list is none of the state"
    state.update([5])
    assert state.get() == [5]
    state.clear()
    assert state.get() == []


def test_a_broadcast_state_is_a_map() -> None:
    state: BroadcastState[str, int] = BroadcastState()
    assert state.is_empty()
    state.put("a", 1)
    state.put_all({"b": 2, "c": 3})
    state.remove("c")
    state.remove("none")
    assert (state.get("a"), state.get("c"), state.contains("b")) == (1, None, True)
    assert state.items() == [("a", 1), ("b", 2)]
    state.clear()
    assert state.is_empty()


@given(st.lists(st.integers()), st.lists(st.binary()), st.dictionaries(st.text(), st.floats(0, 1)))
def test_states_are_restored_as_they_were(
    numbers: list[int], blobs: list[bytes], rules: dict[str, float]
) -> None:
    store = OperatorStateStore("dedup")
    store.get_list_state("numbers").update(numbers)
    store.get_union_list_state("blobs", "bytes").update(blobs)
    store.get_broadcast_state("rules").put_all(rules)
    again = restored(store)
    assert again.get_list_state("numbers").get() == numbers
    assert again.get_union_list_state("blobs", "bytes").get() == blobs
    assert again.get_broadcast_state("rules").items() == [*rules.items()]
    assert [state.scheme for state in again.snapshot()] == [*Redistribution]


def test_asking_twice_gives_the_same_state() -> None:
    store = OperatorStateStore("dedup")
    assert store.get_list_state("a") is store.get_list_state("a")


def test_a_state_that_nobody_asks_for_is_carried_along() -> None:
    store = OperatorStateStore("dedup")
    store.get_list_state("old").update([1, 2])
    store.get_list_state("kept").update([3])
    between = restored(store)
    between.get_list_state("kept").add(4)
    last = restored(between)
    assert last.get_list_state("old").get() == [1, 2]
    assert last.get_list_state("kept").get() == [3, 4]


def test_a_state_that_is_empty_is_restored_empty() -> None:
    store = OperatorStateStore("dedup")
    store.get_list_state("a").update([1])
    between = restored(store)
    between.get_list_state("a").clear()
    assert restored(between).get_list_state("a").get() == []


@pytest.mark.parametrize("when", ["asked for before", "in the checkpoint"])
@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("get_union_list_state", ("a",)),
        ("get_list_state", ("a", "bytes")),
        ("get_broadcast_state", ("a",)),
    ],
)
def test_a_state_of_another_kind_is_refused(
    when: str, method: str, arguments: tuple[str, ...]
) -> None:
    store = OperatorStateStore("dedup")
    store.get_list_state("a").add(1)
    if when == "in the checkpoint":
        store = restored(store)
    with pytest.raises(ConfigError) as caught:
        getattr(store, method)(*arguments)
    assert "State 'a' of function 'dedup' is" in str(caught.value)
    assert f"{when} it is split state with json" in str(caught.value)
    assert store.get_list_state("a").get() == [1]
    assert getattr(store, method)("b", *arguments[1:]) is not None


@pytest.mark.parametrize("name", ["", "a/b", "a b", "x" * 65])
def test_a_name_that_cannot_be_kept_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="The state name"):
        OperatorStateStore("dedup").get_list_state(name)


def test_an_unknown_serializer_is_refused_when_it_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="State 'a' of function 'dedup': there is no serializer"):
        OperatorStateStore("dedup").get_list_state("a", "pickle")


@pytest.mark.parametrize("value", [(1,), float("nan"), b"a"])
def test_a_value_that_is_not_its_serializers_names_the_state(value: Any) -> None:
    store = OperatorStateStore("dedup")
    store.get_list_state("a").add(value)
    with pytest.raises(ValueError, match="State 'a' of function 'dedup': "):
        store.snapshot()


def test_entries_that_the_serializer_cannot_read_are_refused() -> None:
    store = OperatorStateStore("dedup")
    store.get_list_state("a", "bytes").add(b"{")
    [state] = store.snapshot()
    changed = type(state)("a", state.scheme, ("json",), state.entries)
    with pytest.raises(ConfigError, match="serializer json cannot read the restored entries"):
        OperatorStateStore("dedup", [changed]).get_list_state("a")


def test_raw_state_has_partitions() -> None:
    output = RawStateOutput()
    output.write(b"a")
    output.write(b"b")
    output.start_new_partition()
    output.write(b"c")
    assert output.partitions == [b"ab", b"c"]


@pytest.mark.parametrize("values", ["DE", b"DE", {"DE": 1}], ids=repr)
@pytest.mark.parametrize("method", ["add_all", "update"])
def test_one_value_is_not_taken_for_several(method: str, values: Any) -> None:
    state: ListState[Any] = ListState(["FR"])
    with pytest.raises(TypeError, match="is one value: give a list of values"):
        getattr(state, method)(values)
    assert state.get() == ["FR"]


@pytest.mark.parametrize("entries", [["DE"], [("DE", "Germany")], "DE", None], ids=repr)
def test_several_entries_are_a_mapping(entries: Any) -> None:
    """Text of two letters is a pair, and would become a key and its value."""
    state: BroadcastState[str, str] = BroadcastState()
    with pytest.raises(TypeError, match="put_all takes a dict"):
        state.put_all(entries)
    assert state.is_empty()


@pytest.mark.parametrize("data", [[68, 69], "DE", None], ids=repr)
def test_raw_state_is_bytes(data: Any) -> None:
    output = RawStateOutput()
    with pytest.raises(TypeError, match="write takes bytes"):
        output.write(data)
    assert output.partitions == []
