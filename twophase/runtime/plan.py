"""What the logical plan of a DataFrame tells: its sources, and whether it keeps state or a watermark, shuffles, or is empty."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KAFKA = "twophase-kafka"

# Everything else may keep state or a watermark. Running a stateless plan once more on a replay is harmless, so a node
# that is missing here costs time only.
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
"""Nodes that give a partition for each they get, and a row only for a row."""

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
"""Nodes that keep state in Spark if their rows are streaming. A join does if both its sides are."""

_SHUFFLING = frozenset({"Repartition", "RepartitionByExpression"})


@dataclass(frozen=True)
class SourceLeg:
    """One source of the plan, at its position: the same as its line's in Spark's offset log.

    Attributes:
        name: the format's name, such as "twophase-kafka".
        options: the options it was loaded with; may hold secrets of other sources, never print them.
    """

    name: str
    options: Mapping[str, str]


def sources(frame: DataFrame) -> list[SourceLeg]:
    """The streaming sources of the plan, in plan order."""
    return [_leg(node) for node in _nodes(analyzed(frame)) if node.nodeName().startswith("StreamingRelation")]


def is_stateful(frame: DataFrame) -> bool:
    """Whether the plan may keep state or a watermark; True if in doubt."""
    return any(node.nodeName() not in _STATELESS for node in _nodes(analyzed(frame)))


def has_watermark(logical: Any) -> bool:
    """Whether records move a watermark.

    Args:
        logical: an analyzed plan, as `analyzed` gives it.
    """
    return any("Watermark" in node.nodeName() for node in _nodes(logical))


def keeps_state(logical: Any) -> bool:
    """Whether the plan is known to keep state in Spark; False if in doubt.

    Args:
        logical: as for `has_watermark`.
    """
    return any(_keeps_state(node) for node in _nodes(logical))


def may_shuffle(frame: DataFrame) -> bool:
    """Whether the plan shuffles rows; True if in doubt."""
    return any(_may_shuffle(node) for node in _nodes(analyzed(frame)))


def is_row_by_row(frame: DataFrame) -> bool:
    """Whether partition i of the rows is made of partition i of the sources, one source after the other; False if in doubt."""
    return all(node.nodeName() in _ROW_BY_ROW | _LEAVES for node in _nodes(analyzed(frame)))


def is_deterministic(frame: DataFrame) -> bool:
    """Whether the same records give the same rows, as far as Spark knows."""
    return bool(analyzed(frame).deterministic())


def is_empty(frame: DataFrame) -> bool:
    """Whether a batch DataFrame is known to have no rows, because not one task would run to compute it.

    Spark hands a micro-batch over as a set of partitions. Where there is none, nothing keeps state, counts or moves a
    watermark either, and what only looks at rows one by one has none to look at. False if in doubt.
    """
    return all(_runs_no_task(node) for node in _nodes(analyzed(frame)))


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
        return bool(node.shuffle())  # coalesce is one that does not
    return node.nodeName() not in _STATELESS - _SHUFFLING


def analyzed(frame: DataFrame) -> Any:
    """The analyzed logical plan, a node of Spark's JVM."""
    return frame._jdf.queryExecution().analyzed()


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    children = node.children()
    for index in range(children.size()):
        yield from _nodes(children.apply(index))


def _leg(node: Any) -> SourceLeg:
    if node.nodeName() != "StreamingRelationV2":
        return SourceLeg(node.sourceName(), {})
    return SourceLeg(node.sourceName(), dict(node.extraOptions().asCaseSensitiveMap()))
