"""The JSON values of the dataclasses in durable files: every field, under its own name.

A reader accepts what a writer of this version writes and nothing else. A field too many, too few or
of another type means that another version of twophase wrote the file (docs/decisions/0041).

A class with methods `to_json` and `from_json` has JSON values of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import Field, fields, is_dataclass
from functools import cache
from types import MappingProxyType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from twophase.errors import NewerFormatError
from twophase.internals.record import NEWER_REMEDY

OMITTED: Mapping[str, Any] = MappingProxyType({"omitted": True})
"""Metadata of a field that is left out while it is empty."""
_PLAIN = (bool, int, str)


def to_json(value: Any) -> Any:
    """Return the JSON values of a dataclass, or of whatever a field holds."""
    if is_dataclass(value) and not isinstance(value, type):
        if hasattr(value, "to_json"):
            return value.to_json()
        return {
            one.name: to_json(found)
            for one in fields(value)
            if (found := getattr(value, one.name)) or not _is_omitted(one)
        }
    if isinstance(value, Mapping):
        return {key: to_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(one) for one in value]
    return value


def from_json(kind: Any, value: Any, what: str) -> Any:
    """Build a dataclass from JSON values, the inverse of `to_json`.

    Args:
        kind: the dataclass, or another type that a field may have.
        value: the JSON values.
        what: the file or record that holds them, as the beginning of a sentence.

    Raises:
        NewerFormatError: they are not those of `kind`.
    """
    try:
        return _built(kind, value)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise other_version(what, error) from None


def other_version(what: str, why: object) -> NewerFormatError:
    """Return the error for an intact file or record whose fields this version does not write."""
    return NewerFormatError(
        f"{what} is intact but has missing or unknown fields: another version of twophase wrote "
        f"it ({why}).",
        remedy=NEWER_REMEDY,
    )


def _built(kind: Any, value: Any) -> Any:
    if hasattr(kind, "from_json"):
        return kind.from_json(value)
    if is_dataclass(kind):
        return instance(kind, value)
    match get_origin(kind), get_args(kind):
        case None, _ if kind is Any or (kind in _PLAIN and type(value) is kind):
            return value
        case origin, [item, *_] if origin in (tuple, Sequence) and isinstance(value, list):
            return tuple(_built(item, one) for one in value)
        case origin, [_, item] if origin is Mapping and isinstance(value, dict):
            return {key: _built(item, one) for key, one in value.items()}
        case origin, known if origin is Literal and value in known:
            return value
        case origin, kinds if origin in (Union, UnionType):
            return _one_of(kinds, value)
        case _:
            raise ValueError(f"{value!r} in the place of {kind}")


def instance(kind: Any, value: Mapping[str, Any]) -> Any:
    """Build a dataclass from the JSON values of its fields.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: they are not those of `kind`.
    """
    known = {one.name: one for one in fields(kind)}
    missing = [name for name, one in known.items() if name not in value and not _is_omitted(one)]
    unknown = [name for name in value if name not in known]
    if missing or unknown:
        raise ValueError(f"{kind.__name__}: missing {missing}, unknown {unknown}")
    types = _types(kind)
    return kind(**{name: _built(types[name], one) for name, one in value.items()})


def _one_of(kinds: Sequence[Any], value: Any) -> Any:
    """Build an optional value, or one of several dataclasses, distinguished by their `action`."""
    if value is None and type(None) in kinds:
        return None
    kinds = [kind for kind in kinds if kind is not type(None)]
    if len(kinds) > 1:
        kinds = [kind for kind in kinds if kind.action == value["action"]]
    if not kinds:
        raise ValueError(f"the unknown action {value['action']!r}")
    return _built(kinds[0], value)


def _is_omitted(field: Field[Any]) -> bool:
    return bool(field.metadata.get("omitted"))


@cache
def _types(kind: type) -> Mapping[str, Any]:
    return get_type_hints(kind)
