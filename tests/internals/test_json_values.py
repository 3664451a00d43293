"""The JSON values of dataclasses: what was written is read, and nothing else."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import repeat
from pathlib import Path
from typing import Any, Literal

import pytest

from twophase.errors import NewerFormatError
from twophase.internals.json_values import from_json, to_json

ROOT = Path(__file__).parents[2]


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Stored:
    content: bytes
    colour: Colour
    version: Literal[1] = 1


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
        ({"done": 1}, "1 instead of"),
        ({"done": None}, "None instead of"),
        ({"parts": {}}, "{} instead of"),
        ({"parts": ["a"]}, "missing"),
        ({"parts": [{"name": 1, "size": None}]}, "1 instead of"),
        ({"parts": [{"name": "a", "size": True}]}, "True instead of"),
        ({"parts": [{"name": "a"}]}, r"missing \['size'\]"),
        ({"sizes": {"a": "1"}}, "'1' instead of"),
        ({"action": "paste"}, "'paste' instead of"),
    ],
)
def test_anything_else_is_of_another_version(change: dict[str, Any], why: str) -> None:
    with pytest.raises(NewerFormatError, match=f"^It is intact but .*{why}"):
        from_json(Cut, to_json(CUT) | change, "It")


STORED = {"content": "AP8=", "colour": "red", "version": 1}


def test_bytes_and_enums_come_back() -> None:
    value = Stored(b"\x00\xff", Colour.RED)
    assert to_json(value) == STORED
    assert from_json(Stored, STORED, "It") == value


@pytest.mark.parametrize(
    "change",
    [
        *zip(repeat("content"), ["AP8", "A P8=", "ä", 1, None, [0]]),
        *zip(repeat("colour"), ["blue", "RED", None, 1, []]),
        *zip(repeat("version"), [True, 1.0, 2, "1", None]),
    ],
    ids=str,
)
def test_no_value_is_converted(change: tuple[str, Any]) -> None:
    with pytest.raises(NewerFormatError, match=r"^It is intact but "):
        from_json(Stored, dict([*STORED.items(), change]), "It")


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


@pytest.mark.parametrize("part", [Part("a", 5.0), Part("a", True), Part(None)], ids=str)  # type: ignore[arg-type]
def test_what_could_not_be_read_is_not_written(part: Part) -> None:
    with pytest.raises(ValueError, match="instead of"):
        to_json(Cut((part,)))


@pytest.mark.parametrize("tree", ["twophase", "sinks"])
def test_no_class_has_a_codec_of_its_own(tree: str) -> None:
    """Two codecs accept two things (docs/decisions/0061)."""
    found = [
        f"{path}: {one.name}.{method.name}"
        for path in sorted((ROOT / tree).rglob("*.py"))
        for one in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(one, ast.ClassDef)
        for method in one.body
        if isinstance(method, ast.FunctionDef) and method.name in ("to_json", "from_json")
    ]
    assert not found


def test_a_type_without_json_values_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="has no JSON values"):
        from_json(set[int], [], "It")
