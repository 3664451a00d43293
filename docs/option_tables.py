"""Tables of options, from the models that check them and the tables of other keys; of types of
columns, from the table that plans them, or from what the checks say.

<!-- options: MODULE.CLASS -->             every option of a group
<!-- options: MODULE.CLASS: PREFIX ... --> those whose keys begin so
<!-- options: refused -->                  keys that are refused, with what to do instead
<!-- columns: MODULE.NAME -->              types of columns, the rows that they take
<!-- types: SINK -->                       types that a sink takes (type_tables.py)
<!-- versions: pyspark -->                 what not every version of PySpark has
<!-- versions: tried -->                   what was tried with which release (harness/versions.py)

A marker is followed by its table and by `<!-- end -->`. What is around them is written by hand.
"""

from __future__ import annotations

import datetime
import posixpath
import re
import types
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from importlib import import_module
from typing import Any, Union, get_args, get_origin

from type_tables import type_rows

_MARKER = re.compile(
    r"(<!-- (options|columns|types|versions): (\S+?)(?:: ([^\n]+?))? -->\n).*?(<!-- end -->)",
    flags=re.DOTALL,
)
_UNITS = ((3600, "h"), (60, "min"), (1, "s"), (0.001, "ms"))
_TYPES = {
    "bool": "boolean",
    "int": "integer",
    "str": "text",
    "tuple": "names",
    "Mapping": "mapping",
    "Callable": "function",
}


def filled(text: str, page: str) -> str:
    """Return the text of a page, its tables as the code has them; links in them
    lead from that page.
    """

    def table(found: re.Match[str]) -> str:
        start, kind, name, prefixes, end = found.groups()
        if kind == "columns":
            made = column_table(name)
        elif kind == "types":
            made = _table(*type_rows(name))
        elif kind == "versions":
            made = _features() if name == "pyspark" else _tried()
        elif name == "refused":
            made = _refused()
        else:
            made = option_table(name, tuple((prefixes or "").split()))
        return f"{start}\n{_relinked(made, page)}\n{end}"

    return _MARKER.sub(table, text)


def column_table(name: str) -> str:
    """Return the table of types of columns."""
    module, _, types_of_columns = name.rpartition(".")
    rows = [
        [", ".join(one.columns).upper(), ", ".join(one.rows), one.refused]
        for one in getattr(import_module(module), types_of_columns)
    ]
    return _table(["column", "rows", "refused values"], rows)


def option_table(name: str, prefixes: tuple[str, ...] = ()) -> str:
    """Return the table of a group of options; with a column for Flink's keys where one has any."""
    module, _, group = name.rpartition(".")
    options = getattr(import_module(module), group)
    fields = [(field.alias or key, field) for key, field in options.model_fields.items()]
    chosen = [(key, field) for key, field in fields if not prefixes or key.startswith(prefixes)]
    known = _flink_keys()
    with_flink = any(key in known for key, _ in chosen)
    heads = ["key", "type", "default", "meaning", *(["Flink's key"] if with_flink else [])]
    rows = [
        [
            f"`{key}`",
            _type(field),
            _default(field),
            field.description,
            *([known.get(key, "-")] if with_flink else []),
        ]
        for key, field in chosen
    ]
    return _table(heads, rows)


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "|" + " -- |" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def _type(field: Any) -> str:
    if shown := (field.json_schema_extra or {}).get("type"):
        return str(shown)
    bare, metadata = bare_type(field.annotation, list(field.metadata))
    if isinstance(bare, type) and issubclass(bare, StrEnum):
        return ", ".join(f"`{member.value}`" for member in bare)
    parsers = {getattr(getattr(one, "func", None), "__name__", "") for one in metadata}
    is_duration, is_size = "parse_duration_s" in parsers, "parse_bytes" in parsers
    name = (
        "duration"
        if is_duration
        else "size"
        if is_size
        else _TYPES[(get_origin(bare) or bare).__name__]
    )
    kinds = {
        kind: [getattr(one, kind) for one in metadata if hasattr(one, kind)]
        for kind in ("ge", "gt", "le")
    }
    limit = {
        kind: min(found) if kind == "le" else max(found) for kind, found in kinds.items() if found
    }
    shown = _duration if is_duration else _bytes if is_size else (lambda number: f"{number:,}")
    return name + _limits(limit, shown)


def _limits(limit: Mapping[str, float], shown: Callable[[float], str]) -> str:
    if "le" in limit:
        if limit.get("gt") == 0:
            return f", above 0, up to {shown(limit['le'])}"
        return f", {shown(limit['ge'])} to {shown(limit['le'])}"
    if "gt" in limit:
        return f", above {shown(limit['gt'])}" if limit["gt"] else ", above 0"
    return f", at least {shown(limit['ge'])}" if limit.get("ge") else ""


def bare_type(annotation: Any, metadata: list[Any]) -> tuple[Any, list[Any]]:
    """Return a type without None and without what it is annotated with, and the latter."""
    if get_origin(annotation) in (Union, types.UnionType):
        [annotation] = [one for one in get_args(annotation) if one is not type(None)]
    if hasattr(annotation, "__metadata__"):
        limits = [
            inner
            for one in annotation.__metadata__
            for inner in (one, *getattr(one, "metadata", ()))
        ]
        return bare_type(annotation.__origin__, limits + metadata)
    return annotation, metadata


def _default(field: Any) -> str:
    if shown := (field.json_schema_extra or {}).get("default"):
        return str(shown)
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if _type(field).startswith("size"):
        return f"`{_bytes(value)}`"
    if value is None or value in ((), {}, ""):
        return "-"
    if isinstance(value, tuple):
        return f"`{','.join(value)}`"
    if isinstance(value, float):
        return f"`{_duration(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _duration(seconds: float) -> str:
    number, unit = next(
        ((seconds / size, unit) for size, unit in _UNITS if seconds >= size), (0, "s")
    )
    number, unit = (seconds, "s") if number != round(number) else (number, unit)
    return f"{number:g} {unit}"


def _bytes(number: float) -> str:
    size, unit = next(
        (size, unit)
        for size, unit in ((1024**2, "mb"), (1024, "kb"), (1, "b"))
        if number >= size or size == 1
    )
    return f"{number / size:g} {unit}"


def _flink_keys() -> dict[str, str]:
    keys: dict[str, list[str]] = {}
    for key in import_module("twophase.options.other_keys").KEYS:
        keys.setdefault(key.ours, []).append(f"`{key.name}`")
    return {ours: ", ".join(names) for ours, names in keys.items()}


def _refused() -> str:
    names: dict[str, list[str]] = {}
    for name, text in import_module("twophase.options.other_keys").REFUSED.items():
        names.setdefault(text, []).append(f"`{name}`")
    return _table(["key", "instead"], [[", ".join(listed), text] for text, listed in names.items()])


def _features() -> str:
    """Return what not every supported version of PySpark has, and what to do instead."""
    module = import_module("twophase.spark_versions")
    range_ = import_module("twophase.internals.pyspark_version")
    (major, oldest), (_, newest) = range_.OLDEST, range_.NEWEST
    versions = [(major, minor) for minor in range(oldest, newest + 1)]
    rows = [
        [
            one.name,
            *("yes" if one.is_in(version) else "refused" for version in versions),
            f"{one.way_on.rstrip(',') or 'nothing'}",
        ]
        for one in module.FEATURES
    ]
    named = [f"{major}.{minor}" for major, minor in versions]
    return _table(["with PySpark", *named, "instead"], rows)


def _tried() -> str:
    """Return how each subject of `make versions` ended with each release, and the oldest runs."""
    versions = import_module("harness.versions")
    recorded = versions.recorded()
    columns = [recorded.get(release, {}) for release in versions.RELEASES]
    rows = [
        [trial.subject, *(_end(cells.get(trial.subject)) for cells in columns)]
        for trial in versions.TRIALS
    ]
    rows.append(["the oldest of these runs", *(_oldest(cells.values()) for cells in columns)])
    named = [
        name.replace("-python", ", Python ").replace("-java", ", Java ")
        for name in versions.RELEASES
    ]
    return _table(["with PySpark", *named], rows)


def _end(cell: Any) -> str:
    return "not tried" if cell is None else str(cell.end)


def _oldest(cells: Collection[Any]) -> str:
    """Return the day of the oldest runs, and the commits that were tried on it."""
    if not cells:
        return "-"
    day = min(cell.day for cell in cells)
    commits = {cell.commit for cell in cells if cell.day == day} - {""}
    shown = datetime.date.fromisoformat(day)
    return ", ".join([f"{shown.day} {shown:%B %Y}", *sorted(commits)])


def _relinked(table: str, page: str) -> str:
    """Return a table whose links, which lead from docs/, lead from a page in a folder below it."""
    folder = posixpath.dirname(page) or "."
    return re.sub(r"\]\(([^)#:]+)", lambda found: f"]({posixpath.relpath(found[1], folder)}", table)
