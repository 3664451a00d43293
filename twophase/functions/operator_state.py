"""Operator state of driver-side functions, with the names and rules of Flink's OperatorStateStore.

A function asks for its states by name in `initialize_state`, changes them in memory, and every
checkpoint has them as they are after `snapshot_state`. The driver runs a function once, so each
state has all entries, whatever its scheme (docs/decisions/0046).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar, cast

from twophase.errors import ConfigError
from twophase.functions.serializer import StateSerializer, serializer_of
from twophase.ids import check_name

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Redistribution(StrEnum):
    """Scheme by which the entries of a state reach the subtasks after a change of parallelism."""

    SPLIT = "split"
    UNION = "union"
    BROADCAST = "broadcast"


class ListState(Generic[T]):
    """A list of values.

    Change it in `snapshot_state` and in notifications, which never run at the same time; other
    threads need a lock of their own.
    """

    def __init__(self, values: Iterable[T] = ()) -> None:
        self._values = list(values)

    def get(self) -> list[T]:
        """Return the values, in order; a new list of the same values."""
        return list(self._values)

    def add(self, value: T) -> None:
        """Add a value at the end."""
        self._values.append(value)

    def add_all(self, values: Iterable[T]) -> None:
        """Add values at the end."""
        self._values.extend(_several(values))

    def update(self, values: Iterable[T]) -> None:
        """Replace all values."""
        self._values = _several(values)

    def clear(self) -> None:
        """Remove all values."""
        self._values = []


class BroadcastState(Generic[K, V]):
    """A map, the same in every subtask. See `ListState` for when to change it."""

    def __init__(self, entries: Iterable[tuple[K, V]] = ()) -> None:
        self._entries = dict(entries)

    def get(self, key: K) -> V | None:
        """Return the value of a key; None without one."""
        return self._entries.get(key)

    def contains(self, key: K) -> bool:
        """Return whether the key has a value."""
        return key in self._entries

    def put(self, key: K, value: V) -> None:
        """Set the value of a key."""
        self._entries[key] = value

    def put_all(self, entries: Mapping[K, V]) -> None:
        """Set the values of several keys."""
        if not isinstance(entries, Mapping):  # a text of two letters is a pair, too
            raise TypeError(f"put_all takes a dict, not a {type(entries).__name__}")
        self._entries.update(entries)

    def remove(self, key: K) -> None:
        """Remove a key, if it has a value."""
        self._entries.pop(key, None)

    def items(self) -> list[tuple[K, V]]:
        """Return keys and values; a new list."""
        return list(self._entries.items())

    def is_empty(self) -> bool:
        """Return whether no key has a value."""
        return not self._entries

    def clear(self) -> None:
        """Remove all keys."""
        self._entries = {}


class RawStateOutput:
    """Raw state of a snapshot: bytes, in partitions. Without a write there is none."""

    def __init__(self) -> None:
        self.partitions: list[bytearray] = []

    def start_new_partition(self) -> None:
        """Begin a partition: what is written from here on is one entry at a restore."""
        self.partitions.append(bytearray())

    def write(self, data: bytes) -> None:
        """Append bytes to the current partition; the first begins by itself."""
        if not isinstance(data, bytes | bytearray | memoryview):  # a list of numbers is taken, too
            raise TypeError(f"write takes bytes, not a {type(data).__name__}")
        if not self.partitions:
            self.start_new_partition()
        self.partitions[-1] += data


@dataclass(frozen=True)
class SerializedState:
    """A state as checkpoints have it.

    Attributes:
        name: given by the function; empty for raw state.
        scheme: how it is redistributed.
        serializers: the name of that of its values; for broadcast state those of
            keys and values.
        entries: the bytes of its values; for broadcast state of a key and its value in turn.
    """

    name: str
    scheme: Redistribution
    serializers: tuple[str, ...]
    entries: tuple[bytes, ...]


@dataclass
class _Registered:
    scheme: Redistribution
    serializers: tuple[str, ...]
    state: ListState[Any] | BroadcastState[Any, Any] = field(default_factory=ListState)

    def values(self) -> Iterator[Any]:
        """Return what is serialized: a broadcast state's keys and values in turn."""
        if isinstance(self.state, BroadcastState):
            return (part for entry in self.state.items() for part in entry)
        return iter(self.state.get())


class OperatorStateStore:
    """The states of one function, by name.

    Asking twice for a state gives the same object. A state of the restored checkpoint that the
    function does not ask for is carried from checkpoint to checkpoint unchanged, as in Flink.

    Args:
        function: the function's uid, for errors.
        restored: the states of the restored checkpoint.
    """

    def __init__(self, function: str = "", restored: Iterable[SerializedState] = ()) -> None:
        self._function = function
        self._restored = {state.name: state for state in restored}
        self._states: dict[str, _Registered] = {}

    def get_list_state(self, name: str, serializer: str = "json") -> ListState[Any]:
        """Return list state: after a change of parallelism every entry is in one subtask.

        Args:
            name: unique in the function; keep it.
            serializer: `json`, `bytes`, `arrow`, or a registered one.

        Raises:
            ConfigError: the name is invalid; or the state exists, in this job or in the checkpoint,
                with another scheme or serializer.
        """
        return self._list(name, Redistribution.SPLIT, serializer)

    def get_union_list_state(self, name: str, serializer: str = "json") -> ListState[Any]:
        """Return union list state: after a change of parallelism every subtask has all entries.

        See `get_list_state`.
        """
        return self._list(name, Redistribution.UNION, serializer)

    def get_broadcast_state(
        self, name: str, key_serializer: str = "json", value_serializer: str = "json"
    ) -> BroadcastState[Any, Any]:
        """Return broadcast state: a map that is the same in every subtask.

        See `get_list_state`. Keys have to be hashable when they are restored: text or numbers
        with `json`.
        """
        serializers = (key_serializer, value_serializer)
        return cast(
            BroadcastState[Any, Any], self._get(name, Redistribution.BROADCAST, serializers)
        )

    def snapshot(self) -> list[SerializedState]:
        """Serialize all states, with those of the restored checkpoint that nobody asked for.

        Raises:
            ValueError: a value is none of its serializer's.
        """
        unclaimed = [state for name, state in self._restored.items() if name not in self._states]
        return [*(self._serialized(name) for name in self._states), *unclaimed]

    def _list(self, name: str, scheme: Redistribution, serializer: str) -> ListState[Any]:
        return cast(ListState[Any], self._get(name, scheme, (serializer,)))

    def _get(
        self, name: str, scheme: Redistribution, serializers: tuple[str, ...]
    ) -> ListState[Any] | BroadcastState[Any, Any]:
        where = self._where(check_name("state", name))
        asked = _Registered(scheme, serializers)
        before = self._states.get(name) or self._restored.get(name)
        if before is not None:
            _check_same(where, asked, before)
        if name not in self._states:
            asked.state = self._made(where, asked, self._restored.get(name))
            self._states[name] = asked
        return self._states[name].state

    def _made(
        self, where: str, asked: _Registered, restored: SerializedState | None
    ) -> ListState[Any] | BroadcastState[Any, Any]:
        """Make a state, with the restored entries."""
        serializers = [serializer_of(name, where) for name in asked.serializers]
        entries = restored.entries if restored else ()
        try:
            values = [
                serializers[index % len(serializers)].deserialize(entry)
                for index, entry in enumerate(entries)
            ]
            if asked.scheme is Redistribution.BROADCAST:
                return BroadcastState(zip(values[::2], values[1::2], strict=True))
        except Exception as error:
            raise ConfigError(
                f"{where}: serializer {'/'.join(asked.serializers)} cannot read the restored "
                f"entries: {type(error).__name__}: {error}.",
                remedy="restore the version of the serializer that wrote them.",
            ) from error
        return ListState(values)

    def _serialized(self, name: str) -> SerializedState:
        found, where = self._states[name], self._where(name)
        serializers = [serializer_of(one, where) for one in found.serializers]
        entries = []
        for index, value in enumerate(found.values()):
            try:
                entries.append(_bytes_of(serializers[index % len(serializers)], value))
            except Exception as error:
                raise ValueError(f"{where}: {error}") from error
        return SerializedState(name, found.scheme, found.serializers, tuple(entries))

    def _where(self, name: str) -> str:
        return f"State {name!r} of function {self._function!r}"


def _bytes_of(serializer: StateSerializer, value: Any) -> bytes:
    """Serialize a value.

    Raises:
        TypeError: the serializer returns something else, which no restart could read.
    """
    data: Any = serializer.serialize(value)
    if not isinstance(data, bytes):
        kind = type(serializer).__qualname__
        raise TypeError(f"{kind}.serialize returned a {type(data).__name__} where bytes belong")
    return data


def _several(values: Iterable[T]) -> list[T]:
    """Return values as a list.

    Raises:
        TypeError: it is one value, whose letters or keys would be taken.
    """
    if isinstance(values, str | bytes | Mapping):
        raise TypeError(f"a {type(values).__name__} is one value: give a list of values")
    return list(values)


def _check_same(where: str, asked: _Registered, before: _Registered | SerializedState) -> None:
    """Raise unless a state was asked for, or snapshotted, with this scheme and these
    serializers.
    """
    if (asked.scheme, asked.serializers) == (before.scheme, before.serializers):
        return
    when = "in the checkpoint" if isinstance(before, SerializedState) else "asked for before"
    raise ConfigError(
        f"{where} is {asked.scheme.value} state with serializer {'/'.join(asked.serializers)}, and "
        f"{when} it is {before.scheme.value} state with {'/'.join(before.serializers)}.",
        remedy="ask for it as it is, and keep values of another kind under another name.",
    )
