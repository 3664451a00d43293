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
columns, such as `"count long, last string"` or a `StructType`, and the values are tuples. A value
that is not of the schema is refused: Spark would keep NULL instead of it.

A `ttl` is a duration, such as `"10 min"`, a number of seconds, or a `timedelta`. The state of a
key, or an entry of a list or map, is no longer returned once nothing has written it for so long.
Spark needs `timeMode="ProcessingTime"` for it, and takes the time at which the micro-batch was
planned, so a replay sees the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from pyspark.sql.types import (
    ArrayType,
    CharType,
    DataType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
    VarcharType,
    _make_type_verifier,
)

from twophase.errors import ConfigError, RejectedRowsError
from twophase.internals.redaction import shown
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
        """Return an accumulator with one more value; never None, also if it is the same one."""

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
        if packed := self._values.pack_all(values):
            self._state.appendList(packed)

    def update(self, values: Iterable[T]) -> None:
        """Replace all entries."""
        if packed := self._values.pack_all(values):
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

    def put_all(self, entries: Mapping[K, V]) -> None:
        """Set the values of several keys of the map."""
        if not isinstance(entries, Mapping):  # a text of two letters is a pair, too
            raise _not_several(self._keys.name, entries)
        for key, value in entries.items():
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

    def __init__(self, name: str, state: ValueState[T], reduce: Callable[[T, T], T]) -> None:
        self._name = name
        self._state = state
        self._reduce = reduce

    def add(self, value: T) -> None:
        """Reduce the state and a value to one."""
        before = self._state.value()
        if before is not None:
            value = _returned(self._name, "reduces", self._reduce(before, value))
        self._state.update(value)

    def get(self) -> T | None:
        """Return what the values were reduced to; None if there was none."""
        return self._state.value()

    def clear(self) -> None:
        """Forget all values."""
        self._state.clear()


class AggregatingState(Generic[T, AccT, OutT]):
    """An aggregate of all values added for a key. Returned by `aggregating_state`."""

    def __init__(
        self, name: str, state: ValueState[AccT], function: AggregateFunction[T, AccT, OutT]
    ) -> None:
        self._name = name
        self._state = state
        self._function = function

    def add(self, value: T) -> None:
        """Add a value."""
        before = self._state.value()
        accumulator = self._function.create_accumulator() if before is None else before
        after = self._function.add(value, accumulator)
        self._state.update(_returned(self._name, "aggregates", after))

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
    values = _Values(handle, name, schema)
    state = handle.getValueState(_declare(handle, name), values.schema, _ttl_ms(name, ttl))
    return ValueState(state, values)


def list_state(
    handle: StatefulProcessorHandle, name: str, schema: Schema, *, ttl: Ttl | None = None
) -> ListState[Any]:
    """Declare a state that holds a list; see `value_state`. `schema` is that of an entry."""
    values = _Values(handle, name, schema)
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
    keys, values = _Values(handle, name, key_schema), _Values(handle, name, value_schema)
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
    return ReducingState(name, value_state(handle, name, schema, ttl=ttl), reduce)


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
    return AggregatingState(name, value_state(handle, name, schema, ttl=ttl), function)


class _Values:
    """Turns values into Spark's tuples and back.

    Args:
        handle: parses a schema that is text.
        name: of the state.
        schema: a type or columns.

    Attributes:
        name: as given.
        schema: columns.
    """

    def __init__(self, handle: StatefulProcessorHandle, name: str, schema: Schema) -> None:
        self.name = name
        self._handle = handle
        if isinstance(schema, str):
            self._is_one = _ONE_TYPE.fullmatch(schema) is not None
            self.schema: str | StructType = f"value {schema.strip()}" if self._is_one else schema
        elif isinstance(schema, StructType):
            self._is_one, self.schema = False, schema
        else:
            self._is_one = True
            self.schema = StructType([StructField("value", schema)])

    def pack(self, value: Any) -> tuple[Any, ...]:
        """Return Spark's tuple.

        Raises:
            RejectedRowsError: the value is not of the schema. Spark would keep NULL, or wait for
                ever where columns are missing.
        """
        if not self._is_one and not isinstance(value, tuple | list):
            raise self._unfit(f"it has columns, and a {type(value).__name__} is no tuple")
        row = (value,) if self._is_one else tuple(value)
        plain = _plain(row)
        try:
            self._verify(plain)
            for kind, leaf in _leaves(self._columns, plain):
                _check_leaf(kind, leaf)
        except (TypeError, ValueError) as error:
            raise self._unfit(shown(str(error))) from None
        return row

    def pack_all(self, values: Iterable[Any]) -> list[tuple[Any, ...]]:
        """Return Spark's tuples.

        Raises:
            RejectedRowsError: these are no several values, or one is not of the schema.
        """
        if isinstance(values, str | bytes | Mapping):
            raise _not_several(self.name, values)
        return [self.pack(value) for value in values]

    def unpack(self, row: tuple[Any, ...]) -> Any:
        return row[0] if self._is_one else tuple(row)

    @cached_property
    def _columns(self) -> StructType:
        """The schema, parsed by Spark: no parser is in a worker."""
        if isinstance(self.schema, StructType):
            return self.schema
        client: Any = self._handle._statefulProcessorApiClient
        parsed: StructType = client._parse_string_schema(self.schema)
        return parsed

    @cached_property
    def _verify(self) -> Callable[[Any], None]:
        verify: Callable[[Any], None] = _make_type_verifier(self._columns)
        return verify

    def _unfit(self, why: str) -> RejectedRowsError:
        return RejectedRowsError(
            f"The state {self.name!r} cannot have this value: {why}.",
            remedy="give the state values of its schema: a float for a double, not an int, and a "
            "tuple for columns. Then start the job again.",
        )


def _plain(value: Any) -> Any:
    """Return a value as Spark keeps it: Python's own numbers and times in place of others'."""
    if type(value).__module__ == "numpy" and hasattr(value, "dtype") and not value.shape:
        return value.tolist()
    for convert in ("to_pydatetime", "to_pytimedelta"):  # of pandas
        if hasattr(value, convert):
            return getattr(value, convert)()
    if isinstance(value, tuple | list):
        parts = map(_plain, value)
        return [*parts] if isinstance(value, list) else (*parts,)
    if isinstance(value, dict):
        return {_plain(key): _plain(one) for key, one in value.items()}
    return value


def _leaves(kind: DataType, value: Any) -> Iterator[tuple[DataType, Any]]:
    """Yield what is in a value, each with its type."""
    if value is None:
        return
    match kind:
        case ArrayType():
            parts = [(kind.elementType, one) for one in value]
        case MapType():
            keys = [(kind.keyType, key) for key in value]
            parts = keys + [(kind.valueType, one) for one in value.values()]
        case StructType():
            ordered = map(value.get, kind.names) if isinstance(value, dict) else value
            parts = [(one.dataType, part) for one, part in zip(kind.fields, ordered, strict=True)]
        case _:
            yield kind, value
            return
    for part in parts:
        yield from _leaves(*part)


def _check_leaf(kind: DataType, value: Any) -> None:
    """Check what Spark's verifier lets pass.

    Raises:
        TypeError: Spark would write any object as text.
        ValueError: the decimal has more digits than its type, or is no number.
    """
    if isinstance(kind, StringType | CharType | VarcharType) and type(value) is not str:
        raise TypeError(f"a {type(value).__name__} where text belongs")
    if isinstance(kind, DecimalType):
        limit = Decimal(10) ** (kind.precision - kind.scale)
        if not value.is_finite() or abs(value) >= limit:
            raise ValueError(f"{value} is no {kind.simpleString()}")


def _not_several(name: str, given: object) -> RejectedRowsError:
    return RejectedRowsError(
        f"The state {name!r} was given a {type(given).__name__} as several values.",
        remedy="give a map a dict, and a list a list, such as ['DE'] instead of 'DE'. Then start "
        "the job again.",
    )


def _returned(name: str, does: str, value: T) -> T:
    """Return what a function has returned.

    Raises:
        RejectedRowsError: it is None, which is no value: the state would begin again.
    """
    if value is None:
        raise RejectedRowsError(
            f"The function that {does} the state {name!r} has returned None: what was added before "
            "would be forgotten.",
            remedy="return the new value from it, also if it has changed the old one in place, "
            "then start the job again.",
        )
    return value


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
