"""Each remedy that a message gives is followed by a test, or nobody can follow it in one."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
import yaml

from harness.remedies import Texts, in_product, modules

REGISTER = Path(__file__).parent / "remedies"
"""By module, how a remedy begins and who follows it: a test (`file::function`), or the reason why
no test can, in a sentence that begins with "No test:". One test may follow each row of a table.
"""
REASON = "No test:"

Register = dict[str, dict[str, str]]


@cache
def register() -> Register:
    found: Register = {}
    for path in sorted(REGISTER.glob("*.yaml")):
        found |= yaml.safe_load(path.read_text())
    return found


@pytest.mark.parametrize("module", [*modules()], ids=str)
def test_every_remedy_is_followed_by_a_test_or_says_why_not(module: Path) -> None:
    listed = register().get(str(module), {})
    assert sorted(listed) == in_product()[module].beginnings()
    for follower in listed.values():
        if not follower.startswith(REASON):
            file, _, name = follower.partition("::")
            assert name in functions(file), f"there is no {follower}"


def test_the_register_names_modules_that_exist() -> None:
    assert register().keys() <= {str(module) for module in modules()}


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse(Path(file).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def test_what_other_modules_import_for_their_remedies_is_found_where_it_is_written() -> None:
    assert Texts("WAY = 'do a.'", ["WAY"]).beginnings() == ["do a."]
    assert Texts("WAY = 'do a.'").beginnings() == []
    assert "TO_DATE" in in_product()[Path("twophase/sources/kafka/json_types.py")].wanted


@pytest.mark.parametrize(
    ("source", "remedies"),
    [
        ("fail(remedy='do it.')", ["do it."]),
        ("fail(remedy=f'do {x!r}' + ' now.')", ["do {} now."]),
        ("fail(remedy='do a.' if x else 'do b.')", ["do a.", "do b."]),
        ("fail(remedy=error.remedy or 'do a.')", ["do a."]),
        ("_WAY = 'do a.'\nfail(remedy=_WAY)", ["do a."]),
        ("remedy = 'do a.'", ["do a."]),
        ("_REMEDIES = {1: 'do a.', 2: 'do b.'}", ["do a.", "do b."]),
        ("def remedy_of(x):\n    return 'do a.'", ["do a."]),
        ("fail(remedy=f'{error.remedy} {again}')", []),
        ("fail(what='do a.')", []),
        ("_MODE = 'append'\nfail(remedy=f'use {_MODE} again.')", ["use {} again."]),
        ("def way():\n    return 'do a.'\nfail(remedy=way())", ["do a."]),
        ("def f(way):\n    fail(remedy=way)\nf('do a.')", ["do a."]),
        (
            "class A:\n way: str\n def f(self):\n  fail(remedy=self.way)\nA(way='do a.')",
            ["do a."],
        ),
        (
            "def f():\n ways = ['do a.']\n ways.append('do b.')\n fail(remedy=''.join(ways))",
            ["do a.", "do b."],
        ),
        (
            "def f():\n    ways = 'do a.'\n    ways += 'do b.'\n    fail(remedy=ways)",
            ["do a.", "do b."],
        ),
        ("error.remedy += 'do a.'", ["do a."]),
        ('fail(remedy=f\'now {"do a." if x else "do b."}\')', ["do a.", "do b.", "now {}"]),
        (
            "_WAY = 'do a thing or two, then b.'\nfail(remedy=f'{_WAY} {x}')",
            ["do a thing or two, then b."],
        ),
        ("fail(remedy='ALTER TABLE x')", ["ALTER TABLE x"]),
        ("way = 'do a.'\nfail(remedy=x.way(y))", []),
    ],
)
def test_remedies_are_found_however_they_are_given(source: str, remedies: list[str]) -> None:
    assert Texts(source).beginnings() == remedies
