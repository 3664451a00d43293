"""The remedies that the product's messages give, read from its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from textwrap import shorten

KEY_LENGTH = 64
_Scope = ast.Module | ast.FunctionDef
_ADDS = ("append", "extend", "insert")
_PASS_ON = ("filter", "map", "next", "sorted", "str", "worded")
_FILLED_IN = 4
"""As many words are still a name."""


class Texts:
    """The remedies in a module.

    Found are the texts given as `remedy=`, the default of a parameter, those of constants and
    variables named so, and those that a function with "remedy" in its name returns; and what any of
    them is put together of: variables, with what is appended to them, constants, fields of a class,
    what functions return and are given, and each alternative. Single words are names in one, and so
    are a few that an f-string is filled with from elsewhere.

    Args:
        source: of the module.
        wanted: what other modules import from it for their remedies.

    Attributes:
        wanted: as given.
        texts: as they are found.
        used: the names that remedies use.
    """

    def __init__(self, source: str, wanted: Collection[str] = ()) -> None:
        self.wanted = frozenset(wanted)
        self.texts: list[str] = []
        self.used: set[str] = set()
        self._module = _Module(source)
        self._seen: set[tuple[int, str, bool]] = set()
        for scope in self._module.scopes:
            for value in _seeds(scope):
                self._read(scope, value)
        for name in wanted:
            self._follow(self._module.tree, name)

    def beginnings(self) -> list[str]:
        """Return how each remedy begins, sorted; what an f-string fills in is `{}`."""
        found = {
            shorten(text, KEY_LENGTH, placeholder="...", break_on_hyphens=False)
            for text in self.texts
        }
        return sorted(text for text in found if re.search("[A-Za-z] ", text))

    def _read(self, scope: _Scope, value: ast.expr, *, is_filled_in: bool = False) -> None:
        """Note the texts that a value is or may be, and follow what it names."""
        texts = _literals(value)
        self.texts += filter(_is_advice, texts) if is_filled_in else texts
        for name, is_inside in _names(value):
            self._follow(scope, name, is_filled_in=is_filled_in or is_inside)

    def _follow(self, scope: _Scope, name: str, *, is_filled_in: bool = False) -> None:
        if (id(scope), name, is_filled_in) in self._seen:
            return
        self._seen.add((id(scope), name, is_filled_in))
        self.used.add(name)
        module = self._module
        if values := module.given(scope, name):
            for value in values:
                self._read(scope, value)
            return
        for caller, value in module.passed(scope, name):
            self._read(caller, value, is_filled_in=is_filled_in)
        for value in [*module.given(module.tree, name), *module.fields.get(name, ())]:
            self._read(module.tree, value, is_filled_in=is_filled_in)
        for function in module.functions.get(name, ()):
            for value in _returned(function):
                self._read(function, value, is_filled_in=is_filled_in)


class _Module:
    """What the names in a module stand for.

    Attributes:
        tree: of its source.
        scopes: the module, and its functions.
        functions: by name, methods too.
        fields: what the fields of its classes are given by keyword.
    """

    def __init__(self, source: str) -> None:
        self.tree = ast.parse(source)
        found = [node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)]
        self.scopes: list[_Scope] = [self.tree, *found]
        self.functions: dict[str, list[ast.FunctionDef]] = {}
        for function in found:
            self.functions.setdefault(function.name, []).append(function)
        self._given = {id(scope): _given(scope) for scope in self.scopes}
        self._calls: dict[str, list[tuple[_Scope, ast.Call]]] = {}
        for scope in self.scopes:
            for node in _own(scope):
                if isinstance(node, ast.Call):
                    self._calls.setdefault(_called(node), []).append((scope, node))
        self.fields = self._fields()

    def given(self, scope: _Scope, name: str) -> list[ast.expr]:
        """Return what a variable of a scope is, or has in it."""
        return self._given[id(scope)].get(name, [])

    def passed(self, scope: _Scope, name: str) -> Iterator[tuple[_Scope, ast.expr]]:
        """Yield what a parameter of a function is in the module's own calls, with the caller."""
        if not isinstance(scope, ast.FunctionDef):
            return
        places = [one.arg for one in scope.args.args if one.arg not in ("self", "cls")]
        for caller, call in self._calls.get(scope.name, ()):
            named = {given.arg: given.value for given in call.keywords}
            if name in named:
                yield caller, named[name]
            elif name in places and places.index(name) < len(call.args):
                yield caller, call.args[places.index(name)]

    def _fields(self) -> dict[str, list[ast.expr]]:
        names = {
            node.target.id
            for kind in ast.walk(self.tree)
            if isinstance(kind, ast.ClassDef)
            for node in kind.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        }
        fields: dict[str, list[ast.expr]] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.keyword) and node.arg in names:
                fields.setdefault(node.arg, []).append(node.value)
        return fields


def _is_advice(text: str) -> bool:
    return len(re.findall(r"\b[a-z]+\b", text)) > _FILLED_IN


def _seeds(scope: _Scope) -> Iterator[ast.expr]:
    if isinstance(scope, ast.FunctionDef):
        yield from _defaults(scope.args)
        if "remed" in scope.name:
            yield from _returned(scope)
    for node in _own(scope):
        match node:
            case (
                ast.keyword(arg="remedy", value=value)
                | ast.AugAssign(target=ast.Attribute(attr="remedy"), value=value)
                | ast.Assign(targets=[ast.Attribute(attr="remedy")], value=value)
            ):
                yield value
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ) if "remed" in name.lower():
                yield value
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr), args=values) if (
                attr in _ADDS and "remed" in name.lower()
            ):
                yield from values
            case _:
                pass


def _given(scope: _Scope) -> dict[str, list[ast.expr]]:
    """Return what each variable of a scope is, or has in it."""
    found: dict[str, list[ast.expr]] = {}
    for node in _own(scope):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                | ast.AugAssign(target=ast.Name(id=name), value=value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
            ):
                found.setdefault(name, []).append(value)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr), args=values) if (
                attr in _ADDS
            ):
                found.setdefault(name, []).extend(values)
            case _:
                pass
    return found


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _names(value: ast.AST, *, is_filled_in: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield each name that a text is put together of, and whether it fills in an f-string."""
    match value:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name):
            yield name, is_filled_in
        case ast.Call(func=ast.Name(id=name)) if name not in _PASS_ON:
            yield name, is_filled_in
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
            yield name, is_filled_in
        case ast.Call(func=ast.Attribute(value=inner), args=values):
            for each in (inner, *values):
                yield from _names(each, is_filled_in=is_filled_in)
        case ast.IfExp(body=body, orelse=orelse):
            yield from _names(body, is_filled_in=is_filled_in)
            yield from _names(orelse, is_filled_in=is_filled_in)
        case ast.Subscript(value=inner):
            yield from _names(inner, is_filled_in=is_filled_in)
        case ast.Attribute(value=ast.Name()):
            pass
        case ast.FormattedValue(value=inner):
            yield from _names(inner, is_filled_in=True)
        case _:
            for child in ast.iter_child_nodes(value):
                yield from _names(child, is_filled_in=is_filled_in)


def _returned(function: ast.FunctionDef) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Return | ast.Yield) and node.value is not None:
            yield node.value


def _own(scope: _Scope) -> Iterator[ast.AST]:
    """Yield the nodes of a scope that are in no function within it."""
    waiting: list[ast.AST] = [*ast.iter_child_nodes(scope)]
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef):
            waiting += ast.iter_child_nodes(node)


def _defaults(arguments: ast.arguments) -> Iterator[ast.expr]:
    positional = [*arguments.posonlyargs, *arguments.args]
    from_the_last = zip(reversed(positional), reversed(arguments.defaults), strict=False)
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    for argument, value in [*from_the_last, *keywords]:
        if argument.arg == "remedy" and value is not None:
            yield value


def _literals(value: ast.expr) -> Iterator[str]:
    match value:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr() | ast.BinOp():
            yield _template(value)
            yield from _alternatives(value)
        case ast.IfExp(body=body, orelse=orelse):
            yield from _literals(body)
            yield from _literals(orelse)
        case (
            ast.Call(args=values)
            | ast.BoolOp(values=values)
            | ast.Dict(values=values)
            | ast.Tuple(elts=values)
            | ast.List(elts=values)
        ):
            for each in values:
                yield from _literals(each)
        case ast.GeneratorExp(elt=each) | ast.ListComp(elt=each) | ast.Starred(value=each):
            yield from _literals(each)
        case _:
            pass


def _alternatives(value: ast.expr) -> Iterator[str]:
    """Yield the texts of which a text has one in it."""
    match value:
        case ast.JoinedStr(values=parts):
            for part in parts:
                if isinstance(part, ast.FormattedValue):
                    yield from _alternatives(part.value)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            yield from (*_alternatives(left), *_alternatives(right))
        case ast.IfExp() | ast.BoolOp():
            yield from _literals(value)
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


@cache
def in_product() -> dict[Path, Texts]:
    """Return the remedies in each module of the product, with what others import from it for
    theirs.
    """
    found: dict[Path, Texts] = {}
    wanted: dict[Path, frozenset[str]] = {path: frozenset() for path in modules()}
    waiting = {*wanted}
    while waiting:
        path = waiting.pop()
        source = path.read_text()
        found[path] = Texts(source, wanted[path])
        for other, name, known_as in _imports(source):
            if known_as in found[path].used and name not in wanted.get(other, {name}):
                wanted[other] |= {name}
                waiting.add(other)
    return found


def _imports(source: str) -> Iterable[tuple[Path, str, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            dotted = node.module.replace("twophase.sinks.", "sinks.", 1)
            for one in node.names:
                yield Path(dotted.replace(".", "/") + ".py"), one.name, one.asname or one.name
