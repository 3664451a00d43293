"""Records in a form that pyarrow's JSON reader reads, where a schema has more than it knows.

    MAP<STRING, V>          {"a": 1} becomes [{"key": "a", "value": 1}], an ARRAY of STRUCTs
    a field named a"b       becomes a%22b

The rows are read by the schema of that form, and then their columns get the types of the real one.
No value is read on the way: each stays the text that it is in the record.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec
import pyarrow as pa

from twophase.errors import ConfigError
from twophase.sources.kafka.json_records import (
    Render,
    Text,
    is_framed,
    list_renderer,
    names_in,
    path_to,
    repeated_in,
    with_constants,
    without_constants,
)
from twophase.sources.kafka.json_types import UnfitError
from twophase.sources.kafka.offsets import WHERE

_ODD: Final = re.compile(r'["\\\x00-\x1f]')
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f%]')
_STRINGS: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"([ \t\r\n]*+:)?', re.DOTALL)

_members = msgspec.json.Decoder(dict[str, msgspec.Raw] | None).decode
_encode = msgspec.json.Encoder().encode


class Reshaping:
    """Brings records into the other form, and their columns back.

    Args:
        payload: the columns that come from the value.

    Attributes:
        fields: the columns of the other form.

    Raises:
        ConfigError: a MAP has other keys than STRING.
    """

    def __init__(self, payload: Sequence[pa.Field]) -> None:
        self._target = pa.struct(list(payload))
        self._has_odd_names = any(map(_ODD.search, names_in(self._target)))
        self.fields = list(self._type("", self._target))
        self._render = self._struct_renderer("", self._target)

    def is_needed(self) -> bool:
        """Return whether the form differs from that of the records."""
        return self.fields != list(self._target)

    def text(self, value: bytes) -> bytes:
        """Return a value in the other form; what is no object stays as it is.

        Raises:
            UnfitError: it is not JSON, a field or a key is given twice, or a MAP is no object.
        """
        if not is_framed(value):
            return value
        try:
            try:
                return bytes(self._render(value))
            except msgspec.DecodeError:
                return with_constants(bytes(self._render(without_constants(value))))
        except UnicodeDecodeError:
            raise UnfitError("its value is not UTF-8") from None
        except msgspec.DecodeError as error:
            raise UnfitError(f"its value is not well-formed JSON ({error})") from None
        except RecursionError:
            raise UnfitError("its value is nested too deeply") from None

    def back(self, columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
        """Return the columns with the names and types of the schema."""
        return {
            real.name: _back(columns[field.name], real.type)
            for real, field in zip(self._target, self.fields, strict=True)
        }

    def _name(self, name: str) -> str:
        if not self._has_odd_names:
            return name
        return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", name)

    def _type(self, path: str, target: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(target):
            return pa.struct(
                child.with_name(self._name(child.name)).with_type(
                    self._type(path_to(path, child.name), child.type)
                )
                for child in target
            )
        if pa.types.is_list(target):
            item = target.value_field
            return pa.list_(item.with_type(self._type(f"{path}[]", item.type)))
        if not pa.types.is_map(target):
            return target
        if not pa.types.is_string(target.key_type):
            raise ConfigError(
                f"{WHERE}: column {path!r} has the type {target}, and names in JSON are text.",
                remedy="give the keys the type STRING, and convert them with transform_keys.",
            )
        value = target.item_field.with_name("value")
        value = value.with_type(self._type(f"{path}[]", value.type))
        pair = pa.struct([pa.field("key", pa.string(), nullable=False), value])
        return pa.list_(pa.field("item", pair, nullable=False))

    def _renderer(self, path: str, target: pa.DataType) -> Render:
        """Return what renders the JSON of a value."""
        if self._type(path, target) == target:
            return bytes
        if pa.types.is_struct(target):
            return self._struct_renderer(path, target)
        if pa.types.is_list(target):
            return list_renderer(path, self._renderer(f"{path}[]", target.value_type))
        return self._map_renderer(path, target)

    def _struct_renderer(self, path: str, target: pa.StructType) -> Render:
        children = [
            (
                child.name,
                _encode(self._name(child.name)) + b":",
                self._renderer(path_to(path, child.name), child.type),
            )
            for child in target
        ]

        def render(text: Text) -> Text:
            found = _object(path, text, target)
            if found is None:
                return text
            given = (key + each(found[name]) for name, key, each in children if name in found)
            return b"{" + b",".join(given) + b"}"

        return render

    def _map_renderer(self, path: str, target: pa.MapType) -> Render:
        each = self._renderer(f"{path}[]", target.item_type)

        def render(text: Text) -> Text:
            found = _object(path, text, target)
            if found is None:
                return text
            pairs = (
                b'{"key":%b,"value":%b}' % (_encode(key), each(raw)) for key, raw in found.items()
            )
            return b"[" + b",".join(pairs) + b"]"

        return render


def _object(path: str, text: Text, target: pa.DataType) -> dict[str, msgspec.Raw] | None:
    """Return the members of an object, of which none that the schema has is given twice."""
    try:
        found: dict[str, msgspec.Raw] | None = _members(text)
    except msgspec.ValidationError:
        raise UnfitError("is not a JSON object", path, bytes(text)) from None
    if found is None:
        return None
    inside = sum(_names_given(raw) for raw in found.values() if b"{" in bytes(raw))
    is_short = len(found) + inside < _names_given(text)  # a name is missing: it was there before
    if is_short and (twice := repeated_in(bytes(text), target, path)):
        raise UnfitError("is given twice", twice)
    return found


def _names_given(text: Text) -> int:
    """Return the number of names in all objects of a text, each as often as it is given."""
    strings = _STRINGS.findall(text)
    return len(strings) - strings.count(b"")


def _back(array: pa.Array, target: pa.DataType) -> pa.Array:
    if array.type == target:
        return array
    absent = array.is_null()
    if pa.types.is_struct(target):
        children = [_back(array.field(index), child.type) for index, child in enumerate(target)]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=absent)
    if pa.types.is_list(target):
        items = _back(array.values, target.value_type)
        return pa.ListArray.from_arrays(array.offsets, items, type=target, mask=absent)
    keys, items = array.values.field(0), _back(array.values.field(1), target.item_type)
    return pa.MapArray.from_arrays(array.offsets, keys, items, type=target, mask=absent)
