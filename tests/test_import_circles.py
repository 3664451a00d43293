"""No module imports itself through others, nor does a folder, and few modules serve only one other.

Imports are read from the source, wherever they stand: at the top, in a function, under
TYPE_CHECKING.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
TREES = (
    "twophase",
    "sinks",
    "harness",
    "verification",
    "integration",
    "benchmarks",
    "demo",
    "examples",
    "tests",
)
EXAMPLE = "twophase.testing.sqlite_"
"""Modules that stand for a package of somebody else's."""
SINGLE_IMPORTERS = 76
"""So many modules of the product are imported by exactly one other; the figure may only fall, but
for a new sink, whose declared and open form, writer and committer only the sink itself imports.
"""
Graph = Mapping[str, frozenset[str]]


@cache
def graph() -> Graph:
    """For each module the modules of this repository that it imports."""
    paths = {_name(path): path for tree in TREES for path in _modules(ROOT / tree)}
    return {name: frozenset(_imported(name, path, paths)) for name, path in paths.items()}


def _modules(tree: Path) -> Iterator[Path]:
    for path in tree.rglob("*.py"):
        if "twophase/sinks" not in path.as_posix():  # a link to sinks
            yield path


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(("twophase", *parts) if parts[0] == "sinks" else parts)


def _imported(name: str, path: Path, known: Iterable[str]) -> Iterator[str]:
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        asked: list[tuple[str, ...]] = []
        if isinstance(node, ast.Import):
            asked = [(one.name,) for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            asked = [(f"{base}.{one.name}", base) for one in node.names]
        for names in asked:
            found = next((one for one in names if one in known), name)
            if found != name:
                yield found


def circles(imports: Graph) -> set[frozenset[str]]:
    """The largest sets of names that all reach each other."""
    reached = {name: _reached(name, imports) for name in imports}
    return {
        frozenset(one for one in found if name in reached[one])
        for name, found in reached.items()
        if name in found
    }


def _reached(name: str, imports: Graph) -> set[str]:
    found, waiting = set[str](), [name]
    while waiting:
        new = imports[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def rooms() -> Graph:
    """For each folder of the product, destinations apart, the folders that its modules import."""
    found: dict[str, set[str]] = {}
    for name, imports in graph().items():
        if _is_in_a_room(name):
            others = {_room(one) for one in imports if _is_in_a_room(one)}
            found.setdefault(_room(name), set()).update(others - {_room(name)})
    return {room: frozenset(imports) for room, imports in found.items()}


def _is_in_a_room(name: str) -> bool:
    return name.count(".") > 1 and name.startswith("twophase.") and ".sinks." not in name


def _room(name: str) -> str:
    """The folder of a module; a package's own module is in its folder."""
    above = name.rpartition(".")[0]
    return name if any(one.startswith(f"{name}.") for one in graph()) else above


def test_no_module_imports_itself_through_others() -> None:
    assert [sorted(circle) for circle in circles(graph())] == []


def test_no_room_imports_itself_through_others() -> None:
    assert {"twophase.coordinator.commit", "twophase.engine", "twophase.spark.batch"} < {*rooms()}
    assert [sorted(circle) for circle in circles(rooms())] == []


def test_few_modules_serve_only_one_other() -> None:
    """Counted are imports from modules of the product only: twophase and sinks. A package that
    exports a name counts as a module that imports it.
    """
    product = {
        name: imports
        for name, imports in graph().items()
        if name.split(".")[0] == "twophase" and not name.startswith(EXAMPLE)
    }
    importers = {name: [one for one, found in product.items() if name in found] for name in product}
    single = {name: one for name, one in importers.items() if len(one) == 1}
    assert len(single) <= SINGLE_IMPORTERS, "join one with its importer, or drop a module"


def test_a_circle_is_found_whatever_its_length() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    found = circles({name: frozenset(ones) for name, ones in imports.items()})
    assert found == {frozenset("abc"), frozenset("de")}
