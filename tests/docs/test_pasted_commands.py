"""A command in a message can be pasted into a shell, whatever the paths and names in it are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.remedies import modules

_BEGINS = (
    r"(?:\btwophase (?:run|check|checkpoints|repair|savepoint|state) |(?:\{\} -m )?pip install "
    r"|\bsudo |--[a-z-]+ (?=\{)"
    r"|\b(?:chmod|chown|chgrp|mkdir|mv|rm|cp|ln|kill|export|ls|touch|truncate) (?=[-+{A-Za-z/]))"
)
_COMMAND = re.compile(rf"{_BEGINS}[^;,.`)]*(?:\.(?! )[^;,.`)]*)*")
SAFE = {
    "checkpoint.checkpoint": "a number",
    "checkpoint.job": "a name, of letters that no shell takes for others",
    "original": "the name of a job",
    "sink": "the name of a sink",
    "extra": "our own",
    "loss.number": "a number",
    "loss.sink": "the name of a sink",
    "proof.checkpoint": "a number",
    "proof.sink": "the name of a sink",
    "name": "of an entry point, in quotes",
    "package_of(found[name])": "the name of a package, in quotes",
    "SPECIFIER": "our own, in quotes",
    "BOOTSTRAP_VARIABLE": "our own",
    "_PASSWORD_VARIABLE": "our own",
    "policy.value": "our own",
    "changes": "settings, our own",
    "variable": "our own",
    "first_sql.upper()": "our own",
}


def unquoted(source: str) -> Iterator[str]:
    """What a text puts into a command as it is."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.JoinedStr):
            continue
        text, filled = "", {}
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                filled[len(text)] = part.value
                text += "{}"
            else:
                assert isinstance(part, ast.Constant)
                text += str(part.value)
        for command in _COMMAND.finditer(text):
            for at, value in filled.items():
                if command.start() <= at < command.end() and not _is_quoted(value):
                    yield ast.unparse(value)


def _is_quoted(value: ast.expr) -> bool:
    quoting = ("shlex.quote", "shlex.join")
    return isinstance(value, ast.Call) and ast.unparse(value.func) in quoting


@pytest.mark.parametrize("module", [*modules()], ids=str)
def test_what_a_command_is_filled_with_is_quoted(module: Path) -> None:
    assert {*unquoted(module.read_text())} <= SAFE.keys()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("f'run: chmod g-w {folder}'", ["folder"]),
        ("f'run: chmod g-w {shlex.quote(folder)}'", []),
        ("f'gone: twophase run JOB.yaml --restore ' f'{a.where}'", ["a.where"]),
        ("f'twophase savepoint finish {job}.yaml {path}; {then}'", ["job", "path"]),
        ("f'{path} lists what `twophase checkpoints FOLDER` lists in {other}'", []),
        ("f'the rows of {path}'", []),
    ],
)
def test_what_is_not_quoted_is_found(text: str, found: list[str]) -> None:
    assert [*unquoted(text)] == found
