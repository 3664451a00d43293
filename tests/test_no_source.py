"""What runs a job names no source: whatever it knows of one it has from the source itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "twophase"
ROOMS = ("cli", "coordinator", "engine", "operations", "spark", "state")
NAMES = "kafka", "twophase.sources."


def named(source: str) -> Iterator[tuple[int, str]]:
    """The texts of a module that name a source, each with its line. Docstrings may."""
    tree = ast.parse(source)
    documents = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value.lower()
            if id(node) not in documents and any(name in text for name in NAMES):
                yield node.lineno, node.value


@pytest.mark.parametrize("room", ROOMS)
def test_no_text_names_a_source(room: str) -> None:
    modules = sorted((ROOT / room).rglob("*.py"))
    assert len(modules) > 5
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in modules
        for line, text in named(path.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""Of Kafka."""\nfail("Kafka has lost it")', ["Kafka has lost it"]),
        ('preload("twophase.sources.ticks")', ["twophase.sources.ticks"]),
        ('entry_points(group="twophase.sources")', []),
    ],
)
def test_a_name_is_found(source: str, found: list[str]) -> None:
    assert [text for _, text in named(source)] == found
