"""Inspects the logical plan of a DataFrame: sources, columns, state, watermark, shuffles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from twophase.contract.source import SourceLeg

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Everything else may keep state or a watermark. Running a stateless plan once more on a replay is
# harmless, so a node that is missing here costs time only.
_STATELESS = frozenset(
    {
        "ArrowEvalPython",
        "BatchEvalPython",
        "Expand",
        "Filter",
        "Generate",
        "LocalRelation",
        "MapInArrow",
        "MapInPandas",
        "Project",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "StreamingRelation",
        "StreamingRelationV2",
        "SubqueryAlias",
        "TypedFilter",
        "Union",
        "View",
    }
)

_ROW_BY_ROW = frozenset(
    {
        "ArrowEvalPython",
        "BatchEvalPython",
        "Expand",
        "Filter",
        "Generate",
        "MapInArrow",
        "MapInPandas",
        "Project",
        "SubqueryAlias",
        "TypedFilter",
        "Union",
    }
)
"""Nodes that output one partition for each input partition, and rows only for input rows."""

_LEAVES = frozenset({"ResolvedHint", "StreamingRelation", "StreamingRelationV2", "View"})

_KEEPS_STATE = frozenset(
    {
        "Aggregate",
        "Deduplicate",
        "DeduplicateWithinWatermark",
        "Distinct",
        "Except",
        "FlatMapGroupsInPandasWithState",
        "FlatMapGroupsWithState",
        "GlobalLimit",
        "Intersect",
        "TransformWithState",
        "TransformWithStateInPySpark",
    }
)
"""Nodes that keep state in Spark if their rows are streaming. A join does if
both of its sides are.
"""

_SHUFFLING = frozenset({"Repartition", "RepartitionByExpression"})

_PASSED = frozenset({"SubqueryAlias", "View"})
"""Nodes that output the columns of their child as they are."""

_WORDS = {
    "Aggregate": "its rows are aggregated",
    "Deduplicate": "its rows are deduplicated",
    "EventTimeWatermark": "it has a watermark",
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


def sources(frame: DataFrame) -> list[SourceLeg]:
    """Return the streaming sources of the plan, in plan order."""
    return [leg for leg, _ in source_nodes(frame)]


def source_nodes(frame: DataFrame) -> Iterator[tuple[SourceLeg, Any]]:
    """Yield the streaming sources of the plan, each with its node, in plan order."""
    for node in nodes(analyzed(frame)):
        if node.nodeName().startswith("StreamingRelation"):
            yield leg_of(node), node


def is_stateful(frame: DataFrame) -> bool:
    """Return whether the plan may keep state or a watermark; True if in doubt."""
    return any(node.nodeName() not in _STATELESS for node in nodes(analyzed(frame)))


def has_watermark(logical: Any) -> bool:
    """Return whether the plan has a watermark, which records move.

    Args:
        logical: an analyzed plan, as `analyzed` gives it.
    """
    return any("Watermark" in node.nodeName() for node in nodes(logical))


def keeps_state(logical: Any) -> bool:
    """Return whether the plan is known to keep state in Spark; False if in doubt.

    Args:
        logical: as for `has_watermark`.
    """
    return any(True for _ in stateful_nodes(logical))


def stateful_nodes(logical: Any) -> Iterator[Any]:
    """Yield the operators that are known to keep state in Spark, in plan order.

    Args:
        logical: as for `has_watermark`.
    """
    return (node for node in nodes(logical) if _keeps_state(node))


def may_shuffle(frame: DataFrame) -> bool:
    """Return whether the plan shuffles rows; True if in doubt."""
    return any(_may_shuffle(node) for node in nodes(analyzed(frame)))


def is_row_by_row(frame: DataFrame) -> bool:
    """Return whether partition i of the rows comes from partition i of the sources.

    The sources are taken in turn. False if in doubt.
    """
    return all(node.nodeName() in _ROW_BY_ROW | _LEAVES for node in nodes(analyzed(frame)))


def is_deterministic(frame: DataFrame) -> bool:
    """Return whether the same records give the same rows, as far as Spark knows."""
    return bool(analyzed(frame).deterministic())


def is_empty(frame: DataFrame) -> bool:
    """Return whether a batch DataFrame is known to have no rows: no task would run to compute it.

    Spark passes a micro-batch as a set of partitions. If there are none, nothing keeps state,
    counts or moves a watermark either, and nodes that work row by row have nothing to do.
    False if in doubt.
    """
    return all(_runs_no_task(node) for node in nodes(analyzed(frame)))


def partitions(batch: DataFrame) -> int:
    """Return how many tasks read a micro-batch, as Spark passes it."""
    return int(analyzed(batch).rdd().getNumPartitions())


def _runs_no_task(node: Any) -> bool:
    if node.nodeName() == "LogicalRDD":
        return int(node.rdd().getNumPartitions()) == 0
    return node.nodeName() in _ROW_BY_ROW


def _keeps_state(node: Any) -> bool:
    if node.nodeName() == "Join":
        return bool(node.left().isStreaming() and node.right().isStreaming())
    return node.nodeName() in _KEEPS_STATE and bool(node.isStreaming())


def _may_shuffle(node: Any) -> bool:
    if node.nodeName() == "Repartition":
        return bool(node.shuffle())  # False for coalesce
    return node.nodeName() not in _STATELESS - _SHUFFLING


def projection_of(frame: DataFrame) -> Projection | str:
    """Return where the columns of a DataFrame come from, or why they are more than columns."""
    node = analyzed(frame)
    wanted = [(attribute.name(), _id(attribute)) for attribute in items(node.output())]
    while True:
        kind = str(node.nodeName())
        if kind == "Project":
            made = {_id(column): _attribute(column) for column in items(node.projectList())}
            if any(key not in made for _, key in wanted):
                return f"its columns are not those of {kind}"
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
    """Return whether two leaves are of the same rows: one relation, used once.

    A copy of rows that were filtered and then materialised has the columns of the original.
    """
    same = [*map(_id, items(one.output()))] == [*map(_id, items(other.output()))]
    return same and _rdd(one) == _rdd(other) is not None


def _rdd(leaf: Any) -> int | None:
    return int(leaf.rdd().id()) if leaf.nodeName() == "LogicalRDD" else None


def _attribute(column: Any) -> Any | None:
    """Return the column of the child that a column of a projection is; None if it is computed."""
    while str(column.nodeName()) == "Alias":
        column = column.child()
    return column if str(column.nodeName()) == "AttributeReference" else None


def _id(attribute: Any) -> str:
    return str(attribute.exprId())


def analyzed(frame: DataFrame) -> Any:
    """Return the analyzed logical plan, a node in Spark's JVM."""
    return frame._jdf.queryExecution().analyzed()


def nodes(node: Any) -> Iterator[Any]:
    """Yield a node of a plan or of an expression, and all that are below it."""
    yield node
    for child in items(node.children()):
        yield from nodes(child)


def items(sequence: Any) -> Sequence[Any]:
    """Return the elements of a Scala sequence."""
    return [sequence.apply(index) for index in range(sequence.size())]


def leg_of(node: Any) -> SourceLeg:
    """Return the source that a streaming relation of a plan reads."""
    if node.nodeName() != "StreamingRelationV2":
        pairs = items(node.dataSource().options().toSeq())
        return SourceLeg(node.sourceName(), {pair._1(): pair._2() for pair in pairs})
    return SourceLeg(node.sourceName(), dict(node.extraOptions().asCaseSensitiveMap()))
