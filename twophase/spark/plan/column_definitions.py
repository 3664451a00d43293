"""How the columns of a logical plan are defined: by which expressions of the operators below.

An attribute of Catalyst's has an id. The operator that first has it in its output defines it; what
is above refers to it by the id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from twophase.spark.plan.logical_plan import items, nodes


@dataclass(frozen=True)
class Definition:
    """What gives a column its values.

    Attributes:
        expressions: one, or as many as there are ways to a value, such as the children of a union.
        of: of how many they are the first and the last, such as the windows that a record is in.
    """

    expressions: Sequence[Any]
    of: int = 1


def column_definitions(logical: Any) -> Mapping[int, Definition]:
    """Return the definition of each column of a plan, by its id; sources define none.

    Args:
        logical: an analyzed plan, as `logical_plan.analyzed` gives it.
    """
    plan = [*nodes(logical)]
    common = {node.id(): node for node in plan if node.nodeName() == "CTERelationDef"}
    found: dict[int, Definition] = {}
    for node in plan:
        for position, number in _fresh(node):
            definition = _definition(node, position, common)
            if definition is not None:
                found.setdefault(number, definition)
    for node in plan:
        if node.nodeName() == "Union":
            _add_branches(found, node)
    return found


def _add_branches(found: dict[int, Definition], union: Any) -> None:
    """Add what the other branches give to a union's columns, which are those of its first."""
    outputs = [items(child.output()) for child in items(union.children())]
    for column, *branches in zip(items(union.output()), *outputs, strict=True):
        number = id_of(column)
        others = [branch for branch in branches if id_of(branch) != number]
        known = found.get(number, Definition([column]))
        found[number] = replace(known, expressions=[*known.expressions, *others])


def _fresh(node: Any) -> Iterator[tuple[int, int]]:
    """Yield position and id of the columns that an operator is the first to have.

    New columns mostly are the last ones, and each look at one is a call to the JVM.
    """
    fresh = getattr(node.outputSet(), "$minus$minus")(node.inputSet())
    output, left = node.output(), fresh.size()
    for position in reversed(range(output.size())):
        if not left:
            return
        column = output.apply(position)
        if fresh.contains(column):
            left -= 1
            yield position, id_of(column)


def _definition(node: Any, position: int, common: Mapping[int, Any]) -> Definition | None:
    """Return the definition of the column at a position of an operator's output."""
    name = node.nodeName()
    if name == "Project":
        return Definition([_unnamed(node.projectList().apply(position))])
    if name == "Aggregate":
        return Definition([_unnamed(node.aggregateExpressions().apply(position))])
    if name == "Generate":
        return Definition([node.generator()])
    if name == "Expand":
        rows = node.projections()
        ends = [rows.apply(0).apply(position), rows.apply(rows.size() - 1).apply(position)]
        return Definition(ends, rows.size())
    if name == "CTERelationRef" and node.cteId() in common:
        return Definition([common[node.cteId()].output().apply(position)])
    return None


def _unnamed(expression: Any) -> Any:
    return expression.child() if expression.nodeName() == "Alias" else expression


def id_of(column: Any) -> int:
    """Return the id of a column."""
    return int(column.exprId().id())
