"""The JSON values of dataclasses: what was written is read, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from twophase.errors import NewerFormatError
from twophase.internals.json_values import from_json, to_json


@dataclass(frozen=True)
class Part:
    name: str
    size: int | None = None


@dataclass(frozen=True)
class Cut:
    parts: tuple[Part, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    done: bool = False
    more: tuple[Part, ...] = ()
    action: Literal["cut"] = "cut"


@dataclass(frozen=True)
class Paste:
    text: Any
    action: Literal["paste"] = "paste"


@dataclass(frozen=True)
class Edits:
    edits: tuple[Cut | Paste, ...]


CUT = Cut((Part("a", 1), Part("b")), {"a": 1}, more=(Part("c"),))


@pytest.mark.parametrize("value", [CUT, Cut(()), Edits((CUT, Paste([1, {"b": None}])))], ids=str)
def test_what_was_written_is_read(value: Any) -> None:
    assert from_json(type(value), json.loads(json.dumps(to_json(value))), "It") == value


def test_an_empty_field_is_written_too() -> None:
    empty = {"parts": [], "sizes": {}, "done": False, "more": [], "action": "cut"}
    assert to_json(Cut(())) == empty
    assert from_json(Cut, empty, "It") == Cut(())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"size": 1}, r"missing \[\], unknown \['size'\]"),
        ({"done": 1}, "1 in the place of"),
        ({"done": None}, "None in the place of"),
        ({"parts": {}}, "{} in the place of"),
        ({"parts": ["a"]}, "missing"),
        ({"parts": [{"name": 1, "size": None}]}, "1 in the place of"),
        ({"parts": [{"name": "a", "size": True}]}, "True in the place of"),
        ({"parts": [{"name": "a"}]}, r"missing \['size'\]"),
        ({"sizes": {"a": "1"}}, "'1' in the place of"),
        ({"action": "paste"}, "'paste' in the place of"),
    ],
)
def test_anything_else_is_of_another_version(change: dict[str, Any], why: str) -> None:
    with pytest.raises(NewerFormatError, match=f"^It is intact but .*{why}"):
        from_json(Cut, to_json(CUT) | change, "It")


@pytest.mark.parametrize("value", [None, [], "cut", 1, {}])
def test_what_is_no_dataclass_at_all_is_of_another_version(value: Any) -> None:
    with pytest.raises(NewerFormatError):
        from_json(Cut, value, "It")


def test_an_unknown_one_of_several_is_named() -> None:
    with pytest.raises(NewerFormatError, match="the unknown action 'copy'"):
        from_json(Edits, {"edits": [{"action": "copy"}]}, "It")


def test_a_class_or_an_object_of_the_users_stays_what_it_is() -> None:
    """A function may return anything as its state; the JSON encoder refuses it by its type."""

    class Frame:
        def to_json(self) -> str:
            return "{}"

    frame = Frame()
    assert to_json({"state": [frame, Part]}) == {"state": [frame, Part]}
