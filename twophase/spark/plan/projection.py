"""Recognises rows that are columns of a source, or of a micro-batch, and nothing else.

Columns may be renamed, reordered and left out. Everything else computes rows, which is Spark's
part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twophase.spark.plan.logical_plan import analyzed, items

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PASSED = frozenset({"SubqueryAlias", "View"})
"""Nodes that output the columns of their child as they are."""

_WORDS = {
    "Aggregate": "its rows are aggregated",
    "Deduplicate": "its rows are deduplicated",
    "Filter": "its rows are filtered",
    "Generate": "its rows are exploded",
    "Join": "its rows are joined",
    "MapInArrow": "a Python function makes its rows",
    "MapInPandas": "a Python function makes its rows",
    "Repartition": "its rows are distributed again",
    "RepartitionByExpression": "its rows are distributed again",
    "Union": "its rows are a union",
}


@dataclass(frozen=True)
class Projection:
    """Rows that are columns of a leaf of their plan.

    Attributes:
        leaf: the node, in Spark's JVM.
        columns: for each column its position in the leaf.
    """

    leaf: Any
    columns: tuple[int, ...]


def projection_of(frame: DataFrame) -> Projection | str:
    """Return where the columns of a DataFrame come from, or why they are more than columns."""
    node = analyzed(frame)
    wanted = [(attribute.name(), _id(attribute)) for attribute in items(node.output())]
    while True:
        kind = str(node.nodeName())
        if kind == "Project":
            made = {_id(column): _attribute(column) for column in items(node.projectList())}
            found = [(name, made[key]) for name, key in wanted]
            if computed := [name for name, attribute in found if attribute is None]:
                return f"column {computed[0]!r} is computed"
            wanted = [(name, _id(attribute)) for name, attribute in found]
        elif kind not in _PASSED:
            break
        node = node.child()
    if not node.children().isEmpty():
        return _WORDS.get(kind, f"its plan has {kind}")
    places = {_id(attribute): place for place, attribute in enumerate(items(node.output()))}
    if any(key not in places for _, key in wanted):
        return f"its columns are not those of {kind}"
    return Projection(node, tuple(places[key] for _, key in wanted))


def is_same_leaf(one: Any, other: Any) -> bool:
    """Return whether two leaves have the same columns: of one relation, used once."""
    return [*map(_id, items(one.output()))] == [*map(_id, items(other.output()))]


def _attribute(column: Any) -> Any | None:
    """Return the column of the child that a column of a projection is; None if it is computed."""
    while str(column.nodeName()) == "Alias":
        column = column.child()
    return column if str(column.nodeName()) == "AttributeReference" else None


def _id(attribute: Any) -> str:
    return str(attribute.exprId())
