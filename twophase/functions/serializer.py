"""Serializers of operator state, chosen by name: `json`, `bytes`, `arrow`, or one that a job
registers.

The name is durable: it is in every checkpoint that has state of this serializer, and a restore
looks the serializer up by it. None of them is pickle: bytes are never turned into code (I9).
"""

from __future__ import annotations

import json
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from twophase.errors import ConfigError
from twophase.ids import check_name


@runtime_checkable
class StateSerializer(Protocol):
    """Turns the values of a state into bytes and back.

    Runs on the driver: `serialize` for every value at every checkpoint, `deserialize` for every
    value at a restore. `deserialize(serialize(value)) == value` must hold, also for bytes that an
    older version of the class has written: they are in old checkpoints.
    """

    def serialize(self, value: Any) -> bytes:
        """Return the bytes of a value.

        Raises:
            Exception: the value is none of this serializer's; the checkpoint is declined.
        """

    def deserialize(self, data: bytes) -> Any:
        """Return the value that `serialize` was given.

        Raises:
            Exception: the bytes are of no value; the job does not start.
        """


class JsonSerializer:
    """Values that JSON keeps as they are: None, bool, int, float, str, list, and dict with keys of
    text; no subclass of these.
    """

    def serialize(self, value: Any) -> bytes:
        """Return JSON, with the keys of a dict in their order.

        Raises:
            ValueError: JSON would change the value (a tuple, a key that is no text, NaN).
            TypeError: JSON has no such value.
        """
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)
        _check_same(value, json.loads(text))
        return text.encode("ascii")

    def deserialize(self, data: bytes) -> Any:
        """Return the value."""
        return json.loads(data)


class BytesSerializer:
    """Bytes as they are."""

    def serialize(self, value: Any) -> bytes:
        """Return the bytes.

        Raises:
            TypeError: the value is not bytes.
        """
        if not isinstance(value, bytes):
            raise TypeError(f"a {type(value).__name__} where bytes belong")
        return value

    def deserialize(self, data: bytes) -> bytes:
        """Return the bytes."""
        return data


class ArrowSerializer:
    """A `pyarrow.RecordBatch` of any schema, as an Arrow IPC stream."""

    def serialize(self, value: Any) -> bytes:
        """Return the stream.

        Raises:
            TypeError: the value is not a record batch.
        """
        if not isinstance(value, pa.RecordBatch):
            raise TypeError(f"a {type(value).__name__} where a pyarrow.RecordBatch belongs")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_batch(value)
        return bytes(sink.getvalue())

    def deserialize(self, data: bytes) -> pa.RecordBatch:
        """Return the record batch."""
        with pa.ipc.open_stream(data) as reader:
            return reader.read_next_batch()


_BUILT_IN: dict[str, StateSerializer] = {
    "json": JsonSerializer(),
    "bytes": BytesSerializer(),
    "arrow": ArrowSerializer(),
}
_registered: dict[str, StateSerializer] = {}


def _check_same(value: Any, back: Any) -> None:
    """Check that JSON gives back a value as it was.

    Raises:
        ValueError: it does not; also where what comes back is equal, as a number is to an enum's.
    """
    if type(value) is not type(back):
        raise _changed(value, type(back).__name__)
    if isinstance(value, list):
        for one, again in zip(value, back, strict=True):
            _check_same(one, again)
    elif isinstance(value, dict):
        for key in value:
            if type(key) is not str:
                raise _changed(key, "str")
        for entry, again in zip(value.items(), back.items(), strict=True):
            for one, part in zip(entry, again, strict=True):
                _check_same(one, part)
    elif value != back:  # text of two surrogates, which become one character
        raise _changed(value, "another")


def _changed(value: object, back: str) -> ValueError:
    return ValueError(f"JSON would give back a value of type {type(value).__name__} as {back}")


def register_serializer(name: str, serializer: type[StateSerializer]) -> None:
    """Register a class of serializers under a name, before the job starts.

    Args:
        name: durable, so keep it; a changed format needs another name.
        serializer: the class; made without arguments, once.

    Raises:
        ConfigError: the name is invalid, or another class has it.
    """
    check_name("serializer", name)
    known = _registered.get(name) or _BUILT_IN.get(name)
    if known is not None and type(known) is not serializer:
        raise ConfigError(
            f"There is a serializer named {name!r} already, {type(known).__qualname__}.",
            remedy="register the class under a name of its own.",
        )
    made = serializer()
    if not isinstance(made, StateSerializer):
        raise ConfigError(
            f"Serializer {name!r}: {serializer.__qualname__} has no serialize and deserialize."
        )
    _registered[name] = made


def serializer_of(name: str, where: str) -> StateSerializer:
    """Return the serializer with a name.

    Args:
        name: as registered.
        where: whose serializer it is, for the error, such as "State 'seen' of function 'dedup'".

    Raises:
        ConfigError: none has this name.
    """
    found = _BUILT_IN.get(name) or _registered.get(name)
    if found is None:
        known = ", ".join([*_BUILT_IN, *sorted(_registered)])
        raise ConfigError(
            f"{where}: there is no serializer named {name!r}; known: {known}.",
            remedy="register its class with twophase.register_serializer before the job starts.",
        )
    return found
