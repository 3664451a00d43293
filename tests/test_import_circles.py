"""No module imports itself through others, no room another one's floor, and few modules serve only
one other.

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
KNOWN = (
    {f"verification.simulation.{name}" for name in ("oracle", "repaired", "saved")},
    {
        f"verification.simulation.{name}"
        for name in (
            *("driver", "repairs", "rewinding", "savepoints"),
            *("verdict", "world", "worlds"),
        )
    },
    {f"verification.simulation.{name}" for name in ("saving", "supervisor")},
)
"""The circles that are still there: take one out of the list once it is mended."""
SINGLE_IMPORTERS = 102
"""So many modules of the product are imported by exactly one other; the figure may only fall."""
ROOMS = {
    "state/files": "codec folder_rights json_values storage",
    "state/journal": "entries history log stats",
    "state/checkpoints": ("checkpoint copies function_state manifest savepoint state_files store"),
    "coordinator/commit": (
        "checkpoint_completion clock commit_loop commit_queue context failure_manager fan_out "
        "orphans pending proofs sink_decisions state_machine"
    ),
    "coordinator/recovery": "recovery recovery_steps release rewind validation",
    "coordinator": "attempt coordinator resumable",
    "operations/savepoint": "savepoint_finish",
    "operations/repair": "accept_loss adopt adopted_pieces adoption_plan lineage_order rewrite",
}
"""The modules of the two flat packages by room, the lowest floor first."""
FLAT = ("twophase.state.", "twophase.coordinator.")
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


def rooms() -> dict[str, str]:
    """The room of each module of the flat packages."""
    room_of = {module: room for room, modules in ROOMS.items() for module in modules.split()}
    flat = [name for name in graph() if name.startswith(FLAT)]
    return {name: room_of[name.rpartition(".")[2]] for name in flat}


def test_no_module_imports_itself_through_others() -> None:
    new = [circle for circle in circles(graph()) if not any(circle <= one for one in KNOWN)]
    assert [sorted(circle) for circle in new] == []


def test_each_known_circle_is_still_there() -> None:
    mended = [one for one in KNOWN if not any(circle <= one for circle in circles(graph()))]
    assert [sorted(one) for one in mended] == [], "take it out of KNOWN"


def test_a_room_imports_only_rooms_below_it() -> None:
    room_of, floors = rooms(), [*ROOMS]
    upwards = [
        f"{name} of {room_of[name]} imports {one} of {room_of[one]}"
        for name in room_of
        for one in graph()[name]
        if one in room_of and floors.index(room_of[one]) > floors.index(room_of[name])
    ]
    assert upwards == []


def test_every_room_has_its_modules() -> None:
    names = {name.rpartition(".")[2] for name in rooms()}
    assert names == {module for modules in ROOMS.values() for module in modules.split()}


def test_few_modules_serve_only_one_other() -> None:
    """Counted are imports from modules of the product only: twophase and sinks. A package that
    exports a name counts as a module that imports it.
    """
    product = {
        name: imports for name, imports in graph().items() if name.split(".")[0] == "twophase"
    }
    importers = {name: [one for one, found in product.items() if name in found] for name in product}
    single = {name: one for name, one in importers.items() if len(one) == 1}
    assert len(single) <= SINGLE_IMPORTERS, "join one with its importer, or drop a module"


def test_a_circle_is_found_whatever_its_length() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    found = circles({name: frozenset(ones) for name, ones in imports.items()})
    assert found == {frozenset("abc"), frozenset("de")}
