"""The one codec of durable JSON: every field of a dataclass, under its own name.

What is written and read follows from the types alone (docs/decisions/0061). A reader accepts what a
writer of this version writes and nothing else: a field too many, too few or of another type means
that another version of twophase wrote the file (docs/decisions/0041). Neither a default nor a
conversion ever fills a gap.

    bool, int, str, None    themselves
    bytes                   base64
    an enum                 its value
    a tuple, a sequence     a list
    a mapping               an object with any keys
    a dataclass             an object with exactly its fields
    one of several          told apart by `action`, a `Literal` field of each of these dataclasses
    Any                     whatever JSON holds
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from types import UnionType
from typing import (
    Any,
    Literal,
    NamedTuple,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from twophase.errors import NewerFormatError
from twophase.internals.record import NEWER_REMEDY, DamagedRecordError, frame, unframe

T = TypeVar("T")
_PLAIN = (bool, int, str, dict)


class _Form(NamedTuple):
    """Both directions of one type; `read` raises what `from_json` catches."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def encode(magic: str, kind: str, value: Any) -> bytes:
    """Return a value as a durable record.

    Args:
        magic: the format and its version, such as `twophase-files/1`.
        kind: the kind of the record.
        value: a dataclass, or a mapping of JSON values.

    Raises:
        TypeError, ValueError: as `canonical_json`.
    """
    return frame(magic, kind, canonical_json(value))


def decode(magic: str, kind: str, data: bytes, where: str, form: type[T]) -> T:
    """Return the value of a record, the inverse of `encode`.

    Args:
        magic: the format and its version.
        kind: the kind that the record must be of; "" accepts any.
        data: the whole file.
        where: the file's name, for the error.
        form: the type of the value.

    Raises:
        NewerFormatError: another version of twophase has written the record.
        DamagedRecordError: the bytes are not what `encode` wrote for this kind.
    """
    payload = unframe(magic, kind, data, where)
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise DamagedRecordError(f"its content is not JSON ({type(error).__name__})") from None
    if not isinstance(value, dict):
        raise DamagedRecordError("its content is not a JSON object")
    return from_json(form, value, f"The durable file {where} ({kind})")


def canonical_json(value: Any) -> bytes:
    """Return the canonical JSON of a value: ASCII, sorted keys, no spaces, no NaN.

    Raises:
        ValueError: the value holds NaN or infinity, or a field another type than it says.
        TypeError: the value holds something that JSON cannot represent.
    """
    values = to_json(value)
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def to_json(value: Any) -> Any:
    """Return the JSON values of a dataclass, or of whatever holds some.

    Raises:
        ValueError: a field holds another type than it says, and could not be read back.
    """
    if value is None or type(value) in (str, int, bool):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return _form(type(value)).write(value)
    if isinstance(value, Mapping):
        return {key: to_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(one) for one in value]
    return value


def from_json(form: type[T], value: Any, what: str) -> T:
    """Build a dataclass from JSON values, the inverse of `to_json`.

    Args:
        form: the dataclass, or another type that a field may have.
        value: the JSON values.
        what: the file or record that holds them, as the beginning of a sentence.

    Raises:
        NewerFormatError: they are not those of `form`.
    """
    try:
        return read(form, value)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NewerFormatError(
            f"{what} is intact but has missing or unknown fields: another version of twophase "
            f"wrote it ({error}).",
            remedy=NEWER_REMEDY,
        ) from None


def read(form: type[T], value: Any) -> T:
    """Build a value as `from_json` does, for a caller with an error of its own.

    Raises:
        AttributeError, KeyError, TypeError, ValueError: these are not the JSON values of `form`.
    """
    known: Any = form  # a hashable one, which mypy does not see
    built: T = _form(known).read(value)
    return built


@cache
def _form(kind: Any) -> _Form:
    match get_origin(kind), get_args(kind):
        case None, _ if kind is Any:
            return _Form(to_json, _same)
        case None, _ if kind in _PLAIN:
            exact = _checked(kind, kind, _same)  # also written only if it can be read
            return _Form(exact, exact)
        case None, _ if kind is bytes:
            return _Form(
                lambda data: b64encode(data).decode(),
                _checked(kind, str, lambda text: b64decode(text, validate=True)),
            )
        case None, _ if is_dataclass(kind):
            return _dataclass_form(kind)
        case None, _ if issubclass(kind, Enum):
            return _Form(lambda member: member.value, kind)
        case origin, [item, *_] if origin in (tuple, Sequence):
            write, read = _form(item)
            return _Form(
                lambda values: [write(one) for one in values],
                _checked(kind, list, lambda values: tuple([read(one) for one in values])),
            )
        case origin, [_, item] if origin is Mapping:
            write, read = _form(item)
            return _Form(
                lambda values: {key: write(one) for key, one in values.items()},
                _checked(kind, dict, lambda found: {key: read(one) for key, one in found.items()}),
            )
        case origin, [known] if origin is Literal:
            read = _checked(
                kind, type(known), lambda value: value if value == known else _refuse(kind, value)
            )
            return _Form(_same, read)
        case origin, kinds if origin in (Union, UnionType):
            return _union_form(kinds)
        case _:
            raise AssertionError(f"{kind} has no JSON values")


def _dataclass_form(kind: Any) -> _Form:
    types = get_type_hints(kind)
    forms = {one.name: _form(types[one.name]) for one in fields(kind)}

    def write(value: Any) -> dict[str, Any]:
        return {name: form.write(getattr(value, name)) for name, form in forms.items()}

    def read(value: Any) -> Any:
        if value.keys() != forms.keys():
            missing, unknown = (
                sorted(one.keys() - other.keys()) for one, other in ((forms, value), (value, forms))
            )
            raise ValueError(f"{kind.__name__}: missing {missing}, unknown {unknown}")
        return kind(**{name: form.read(value[name]) for name, form in forms.items()})

    return _Form(write, read)


def _union_form(kinds: Sequence[Any]) -> _Form:
    """Return the form of an optional type, or of several dataclasses."""
    several = [one for one in kinds if one is not type(None)]
    forms = {one.action: _form(one) for one in several} if len(several) > 1 else {}
    only = None if forms else _form(several[0])

    def write(value: Any) -> Any:
        return None if value is None else (only or forms[value.action]).write(value)

    def read(value: Any) -> Any:
        if value is None and len(several) < len(kinds):
            return None
        if only:
            return only.read(value)
        if value["action"] not in forms:
            raise ValueError(f"the unknown action {value['action']!r}")
        return forms[value["action"]].read(value)

    return _Form(write, read)


def _same(value: Any) -> Any:
    return value


def _checked(kind: Any, stored: type, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `read` for values that JSON has as exactly this type."""

    def checked(value: Any) -> Any:
        return read(value) if type(value) is stored else _refuse(kind, value)

    return checked


def _refuse(kind: Any, value: Any) -> NoReturn:
    raise ValueError(f"{value!r} instead of {kind}")
