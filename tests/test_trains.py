"""No train of more than three names: who asks a neighbour's neighbour's neighbour knows too much.

`self` does not count, and a call ends a train: what it returns is asked again. Nor does a module
import what another one keeps to itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted([*(ROOT / "twophase").rglob("*.py"), *(ROOT / "sinks").rglob("*.py")])
NAMES_AT_MOST = 3
FOREIGN = {"_jvm", "jvm", "gateway", "sparkContext", "writeStream"}
"""Names behind which Spark or py4j begins, whose trains are not ours."""


@cache
def parsed() -> dict[str, ast.Module]:
    """The modules of the product, by path."""
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in SOURCES}


def trains(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The trains that are too long, each with its line."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            names = names_of(node)
            if len(names) > NAMES_AT_MOST and not FOREIGN.intersection(names):
                yield node.lineno, ".".join(names)


def names_of(node: ast.expr) -> list[str]:
    match node:
        case ast.Attribute(value=value, attr=name):
            return [*names_of(value), name]
        case ast.Name(id="self"):
            return []
        case ast.Name(id=name):
            return [name]
        case _:
            return []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("coordinator.context.log.history", ["coordinator.context.log.history"]),
        ("self._run.context.log.history.lineage", ["_run.context.log.history.lineage"]),
        ("piece.intent.transaction.hash[:12]", ["piece.intent.transaction.hash"]),
        ("self.context.history.newest()", []),
        ("one.two.three().four.five.six", []),
        ("frame.sparkSession.sparkContext.environment", []),
        ("jvm.org.apache.spark.sql", []),
    ],
)
def test_a_train_is_found(source: str, found: list[str]) -> None:
    assert [train for _, train in trains(ast.parse(source))] == found


def test_there_is_none() -> None:
    assert len(SOURCES) > 300
    found = [
        f"{path}:{line}: {train}" for path, tree in parsed().items() for line, train in trains(tree)
    ]
    assert not found, "\n".join(found)


def private(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What a module imports of the private names of our others, each with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("twophase"):
            yield from ((node.lineno, one.name) for one in node.names if one.name.startswith("_"))


def test_a_private_name_is_found() -> None:
    tree = ast.parse("from twophase.ids import _a, b\nfrom pyiceberg.table import _c")
    assert [*private(tree)] == [(1, "_a")]


def test_no_private_name_is_imported() -> None:
    found = [
        f"{path}:{line}: {name}" for path, tree in parsed().items() for line, name in private(tree)
    ]
    assert not found, "\n".join(found)
