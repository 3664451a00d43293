"""Keyed state of `transformWithState` under Flink's names: value, list, map, reducing, aggregating.

    class Sum(StatefulProcessor):
        def init(self, handle):
            self._sum = reducing_state(handle, "sum", "long", operator.add, ttl="1 h")

        def handleInputRows(self, key, rows, timerValues):
            for row in rows:
                self._sum.add(row.number)
            yield Row(key=key[0], sum=self._sum.get())

Each function declares one state of a processor, in its `init`, and returns it. The state is Spark's
own: it belongs to the key that is being processed, is part of every checkpoint and savepoint, and
needs `state.backend` `rocksdb`. It works with `transformWithState` and `transformWithStateInPandas`
alike, which have the same handle.

A schema is a type, such as `"long"` or `ArrayType(LongType())`, and the values are plain; or
columns, such as `"count long, last string"` or a `StructType`, and the values are tuples.

A `ttl` is a duration, such as `"10 min"`, a number of seconds, or a `timedelta`. The state of a
key, or an entry of a list or map, is no longer returned once nothing has written it for so long.
Spark needs `timeMode="ProcessingTime"` for it, and takes the time at which the micro-batch was
planned, so a replay sees the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from pyspark.sql.types import DataType, StructField, StructType

from twophase.errors import ConfigError
from twophase.options.parsing import parse_duration_s

if TYPE_CHECKING:
    from pyspark.sql.streaming import stateful_processor as spark
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
AccT = TypeVar("AccT")
OutT = TypeVar("OutT")
InT_contra = TypeVar("InT_contra", contravariant=True)
OutT_co = TypeVar("OutT_co", covariant=True)

Ttl = str | float | timedelta
Schema = str | DataType

_ONE_TYPE = re.compile(r"\s*\w+\s*([<(].*)?", re.DOTALL)
_declared: WeakKeyDictionary[StatefulProcessorHandle, set[str]] = WeakKeyDictionary()


class AggregateFunction(Protocol[InT_contra, AccT, OutT_co]):
    """Adds values to an accumulator, which is what the state keeps. Called on the executors."""

    def create_accumulator(self) -> AccT:
        """Return the accumulator of no values."""

    def add(self, value: InT_contra, accumulator: AccT) -> AccT:
        """Return an accumulator with one more value."""

    def get_result(self, accumulator: AccT) -> OutT_co:
        """Return the result for an accumulator."""


class ValueState(Generic[T]):
    """One value for each key. Returned by `value_state`."""

    def __init__(self, state: spark.ValueState, values: _Values) -> None:
        self._state = state
        self._values = values

    def value(self) -> T | None:
        """Return the value; None if there is none, or if it has expired."""
        found = self._state.get()
        return None if found is None else self._values.unpack(found)

    def update(self, value: T) -> None:
        """Replace the value."""
        self._state.update(self._values.pack(value))

    def clear(self) -> None:
        """Remove the value."""
        self._state.clear()


class ListState(Generic[T]):
    """A list for each key. Returned by `list_state`. With a TTL, each entry expires by itself."""

    def __init__(self, state: spark.ListState, values: _Values) -> None:
        self._state = state
        self._values = values

    def get(self) -> Iterator[T]:
        """Yield the entries, in the order in which they were added."""
        return map(self._values.unpack, self._state.get())

    def add(self, value: T) -> None:
        """Append an entry."""
        self._state.appendValue(self._values.pack(value))

    def add_all(self, values: Iterable[T]) -> None:
        """Append entries."""
        if packed := [self._values.pack(value) for value in values]:
            self._state.appendList(packed)

    def update(self, values: Iterable[T]) -> None:
        """Replace all entries."""
        if packed := [self._values.pack(value) for value in values]:
            self._state.put(packed)
        else:
            self._state.clear()

    def clear(self) -> None:
        """Remove all entries."""
        self._state.clear()


class MapState(Generic[K, V]):
    """A map for each key. Returned by `map_state`. With a TTL, each entry expires by itself."""

    def __init__(self, state: spark.MapState, keys: _Values, values: _Values) -> None:
        self._state = state
        self._keys = keys
        self._values = values

    def get(self, key: K) -> V | None:
        """Return the value of a key of the map; None if there is none."""
        found = self._state.getValue(self._keys.pack(key))
        return None if found is None else self._values.unpack(found)

    def put(self, key: K, value: V) -> None:
        """Set the value of a key of the map."""
        self._state.updateValue(self._keys.pack(key), self._values.pack(value))

    def put_all(self, entries: Iterable[tuple[K, V]]) -> None:
        """Set several values."""
        for key, value in entries:
            self.put(key, value)

    def remove(self, key: K) -> None:
        """Remove a key of the map."""
        self._state.removeKey(self._keys.pack(key))

    def contains(self, key: K) -> bool:
        """Return whether the map has a key."""
        return self._state.containsKey(self._keys.pack(key))

    def items(self) -> Iterator[tuple[K, V]]:
        """Yield the entries."""
        for key, value in self._state.iterator():
            yield self._keys.unpack(key), self._values.unpack(value)

    def keys(self) -> Iterator[K]:
        """Yield the keys."""
        return map(self._keys.unpack, self._state.keys())

    def values(self) -> Iterator[V]:
        """Yield the values."""
        return map(self._values.unpack, self._state.values())

    def is_empty(self) -> bool:
        """Return whether there is no entry."""
        return not self._state.exists()

    def clear(self) -> None:
        """Remove all entries."""
        self._state.clear()


class ReducingState(Generic[T]):
    """All values added for a key, reduced to one. Returned by `reducing_state`."""

    def __init__(self, state: ValueState[T], reduce: Callable[[T, T], T]) -> None:
        self._state = state
        self._reduce = reduce

    def add(self, value: T) -> None:
        """Reduce the state and a value to one."""
        before = self._state.value()
        self._state.update(value if before is None else self._reduce(before, value))

    def get(self) -> T | None:
        """Return what the values were reduced to; None if there was none."""
        return self._state.value()

    def clear(self) -> None:
        """Forget all values."""
        self._state.clear()


class AggregatingState(Generic[T, AccT, OutT]):
    """An aggregate of all values added for a key. Returned by `aggregating_state`."""

    def __init__(self, state: ValueState[AccT], function: AggregateFunction[T, AccT, OutT]) -> None:
        self._state = state
        self._function = function

    def add(self, value: T) -> None:
        """Add a value."""
        before = self._state.value()
        accumulator = self._function.create_accumulator() if before is None else before
        self._state.update(self._function.add(value, accumulator))

    def get(self) -> OutT | None:
        """Return the result; None if there was no value."""
        accumulator = self._state.value()
        return None if accumulator is None else self._function.get_result(accumulator)

    def clear(self) -> None:
        """Forget all values."""
        self._state.clear()


def value_state(
    handle: StatefulProcessorHandle, name: str, schema: Schema, *, ttl: Ttl | None = None
) -> ValueState[Any]:
    """Declare a state that holds one value.

    Args:
        handle: what `init` was given.
        name: of the state, once in a processor. Keep it: a restart finds the state by it.
        schema: of the value.
        ttl: how long it is kept after it was last written; None for ever.

    Raises:
        ConfigError: the processor has declared a state of this name, or the name or the TTL is
            not right.
    """
    values = _Values(schema)
    state = handle.getValueState(_declare(handle, name), values.schema, _ttl_ms(name, ttl))
    return ValueState(state, values)


def list_state(
    handle: StatefulProcessorHandle, name: str, schema: Schema, *, ttl: Ttl | None = None
) -> ListState[Any]:
    """Declare a state that holds a list; see `value_state`. `schema` is that of an entry."""
    values = _Values(schema)
    state = handle.getListState(_declare(handle, name), values.schema, _ttl_ms(name, ttl))
    return ListState(state, values)


def map_state(
    handle: StatefulProcessorHandle,
    name: str,
    key_schema: Schema,
    value_schema: Schema,
    *,
    ttl: Ttl | None = None,
) -> MapState[Any, Any]:
    """Declare a state that holds a map; see `value_state`."""
    keys, values = _Values(key_schema), _Values(value_schema)
    ttl_ms = _ttl_ms(name, ttl)
    state = handle.getMapState(_declare(handle, name), keys.schema, values.schema, ttl_ms)
    return MapState(state, keys, values)


def reducing_state(
    handle: StatefulProcessorHandle,
    name: str,
    schema: Schema,
    reduce: Callable[[T, T], T],
    *,
    ttl: Ttl | None = None,
) -> ReducingState[T]:
    """Declare a state that reduces all values to one; see `value_state`.

    Args:
        handle: as for `value_state`.
        name: as for `value_state`.
        schema: of a value, and of what they are reduced to.
        reduce: of two values makes one.
        ttl: as for `value_state`; each `add` writes.
    """
    return ReducingState(value_state(handle, name, schema, ttl=ttl), reduce)


def aggregating_state(
    handle: StatefulProcessorHandle,
    name: str,
    schema: Schema,
    function: AggregateFunction[T, AccT, OutT],
    *,
    ttl: Ttl | None = None,
) -> AggregatingState[T, AccT, OutT]:
    """Declare a state that keeps an accumulator of all values; see `value_state`.

    Args:
        handle: as for `value_state`.
        name: as for `value_state`.
        schema: of the accumulator.
        function: how values are added to it, and what the result is.
        ttl: as for `value_state`; each `add` writes.
    """
    return AggregatingState(value_state(handle, name, schema, ttl=ttl), function)


class _Values:
    """Turns values into Spark's tuples and back.

    Args:
        schema: a type or columns.

    Attributes:
        schema: columns.
    """

    def __init__(self, schema: Schema) -> None:
        if isinstance(schema, str):
            self._is_one = _ONE_TYPE.fullmatch(schema) is not None
            self.schema: str | StructType = f"value {schema.strip()}" if self._is_one else schema
        elif isinstance(schema, StructType):
            self._is_one, self.schema = False, schema
        else:
            self._is_one = True
            self.schema = StructType([StructField("value", schema)])

    def pack(self, value: Any) -> tuple[Any, ...]:
        return (value,) if self._is_one else tuple(value)

    def unpack(self, row: tuple[Any, ...]) -> Any:
        return row[0] if self._is_one else tuple(row)


def _declare(handle: StatefulProcessorHandle, name: str) -> str:
    names = _declared.setdefault(handle, set())
    if not name or name.startswith("$"):
        raise ConfigError(
            f"A state cannot be named {name!r}.", remedy="names with $ are Spark's: use another."
        )
    if name in names:
        raise ConfigError(
            f"The processor declares two states named {name!r}.", remedy="give each its own name."
        )
    names.add(name)
    return name


def _ttl_ms(name: str, ttl: Ttl | None) -> int | None:
    if ttl is None:
        return None
    try:
        found: Any = ttl.total_seconds() if isinstance(ttl, timedelta) else parse_duration_s(ttl)
        ttl_ms: int = round(found * 1000)
    except (TypeError, ValueError, OverflowError) as error:
        raise _bad_ttl(name, ttl, str(error)) from None
    if ttl_ms < 1:
        raise _bad_ttl(name, ttl, "it is less than a millisecond")
    return ttl_ms


def _bad_ttl(name: str, ttl: object, why: str) -> ConfigError:
    return ConfigError(
        f"The state {name!r} cannot have the ttl {ttl!r}: {why}.",
        remedy="give a duration, such as '10 min', or leave it out to keep the state for ever.",
    )
