"""The remedies that the product's messages give, read from its source."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten

KEY_LENGTH = 64


def remedies_in(source: str) -> list[str]:
    """Return how each remedy in a module begins, sorted; what an f-string fills in is `{}`."""
    found = {
        shorten(text, KEY_LENGTH, placeholder="...", break_on_hyphens=False)
        for text in texts_in(source)
    }
    return sorted(text for text in found if re.search("[a-z] ", text))


def texts_in(source: str) -> Iterator[str]:
    """Yield the remedies in a module.

    Found are the texts given as `remedy=`, the default of a parameter, those of constants and
    variables named so, or used so, and those that a function with "remedy" in its name returns;
    single words are names in one.
    """
    tree = ast.parse(source)
    used = {
        name
        for given in ast.walk(tree)
        if isinstance(given, ast.keyword) and given.arg == "remedy"
        for name in _names(given.value)
    }
    yield from _texts(tree, used)


def _texts(tree: ast.Module, used: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="remedy", value=value):
                yield from _literals(value)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if "remed" in name.lower() or name in used:
                yield from _literals(value)
            case ast.FunctionDef(name=name):
                yield from _defaults(node.args)
                for inner in ast.walk(node) if "remed" in name else ():
                    if isinstance(inner, ast.Return) and inner.value is not None:
                        yield from _literals(inner.value)
            case _:
                pass


def _names(value: ast.expr) -> Iterator[str]:
    """Yield the variables that a remedy is or has in it, or may be."""
    match value:
        case ast.Name(id=name):
            yield name
        case ast.IfExp(body=body, orelse=orelse):
            yield from (*_names(body), *_names(orelse))
        case ast.BinOp(left=left, right=right):
            yield from (*_names(left), *_names(right))
        case ast.BoolOp(values=values):
            yield from itertools.chain.from_iterable(map(_names, values))
        case ast.Subscript(value=ast.Name(id=name)):
            yield name
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name)), args=values):
            yield name
            yield from itertools.chain.from_iterable(map(_names, values[1:]))
        case ast.JoinedStr():
            yield from (node.id for node in ast.walk(value) if isinstance(node, ast.Name))
        case _:
            pass


def _defaults(arguments: ast.arguments) -> Iterator[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    from_the_last = zip(reversed(positional), reversed(arguments.defaults), strict=False)
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    for argument, value in [*from_the_last, *keywords]:
        if argument.arg == "remedy" and value is not None:
            yield from _literals(value)


def _literals(value: ast.expr) -> Iterator[str]:
    match value:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr() | ast.BinOp():
            yield _template(value)
        case ast.IfExp(body=body, orelse=orelse):
            yield from _literals(body)
            yield from _literals(orelse)
        case (
            ast.Call(args=values)
            | ast.BoolOp(values=values)
            | ast.Dict(values=values)
            | ast.Tuple(elts=values)
        ):
            for each in values:
                yield from _literals(each)
        case _:
            pass


def _template(value: ast.expr) -> str:
    match value:
        case ast.Constant(value=text):
            return str(text)
        case ast.JoinedStr(values=parts):
            return "".join(map(_template, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _template(left) + _template(right)
        case _:
            return "{}"


def modules() -> Iterator[Path]:
    """Yield the modules of the product."""
    for root in ("twophase", "sinks"):
        for path in sorted(Path(root).rglob("*.py")):
            if not path.is_relative_to("twophase/sinks"):
                yield path
