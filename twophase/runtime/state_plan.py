"""Describes what the stateful operators of a plan keep state of, so that none gets another's.

Spark compares operators and types. Without a word it would go on with the state of one key,
condition or aggregate for another one of the same type. So each checkpoint holds the expressions
that an operator's state depends on, and those that define their columns below it, as SQL
(docs/decisions/0056).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twophase.config import JobOptions
from twophase.errors import ConfigError
from twophase.runtime import logical_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger("twophase")

KEY = "state_plan"
"""Under which a checkpoint's operator states have the description."""
_GROUPED = ("FlatMapGroupsInPandasWithState", "FlatMapGroupsWithState", "TransformWithState")


def describe(frame: DataFrame) -> dict[str, Any]:
    """Return a description of a plan's stateful operators, as JSON values; empty without any."""
    logical = logical_plan.analyzed(frame)
    operators = [
        {"operator": str(node.nodeName()), "of": _described(node)}
        for node in logical_plan.stateful_nodes(logical)
    ]
    # Another version of Spark may write an expression in another way.
    return {"spark": frame.sparkSession.version, "operators": operators} if operators else {}


def check(known: Mapping[str, Any], plan: Mapping[str, Any], options: JobOptions) -> None:
    """Check that a plan keeps state of what a checkpoint's plan has kept it of.

    Args:
        known: the description in the checkpoint; empty if an older version wrote it.
        plan: that of the plan.
        options: the job's options.

    Raises:
        ConfigError: it keeps state of something else, and the options do not allow that.
    """
    problem = _change(known, plan)
    if problem and options.allow_changed_plan:
        _log.warning("%s. The job goes on: state.allow_changed_plan is set.", problem)
    elif problem:
        raise ConfigError(
            f"{problem}. Spark would take the one for the other. No rows were written.",
            remedy="go back to those expressions, names included; begin without the state, in a "
            "new checkpointLocation; or set state.allow_changed_plan if the state fits the plan.",
        )


def _change(known: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """Return how two plans differ; empty if they do not, or if that cannot be told."""
    if not known or not plan or known["spark"] != plan["spark"]:
        return ""
    for old, new in zip(known["operators"], plan["operators"], strict=False):
        # Spark itself refuses another operator, and more or fewer of them.
        if old["operator"] == new["operator"] and old["of"] != new["of"]:
            return (
                f"The job's state is of another plan: {old['operator']} has kept state of "
                f"{_only_in(old, new)}, and now would of {_only_in(new, old)}"
            )
    return ""


def _only_in(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    texts = [text for text in one["of"] if text not in other["of"]]
    return ", ".join(texts or one["of"]) or "nothing"


def _described(node: Any) -> list[str]:
    """Return the expressions in their order, then the definitions of their columns."""
    expressions, aliases = list(_expressions(node)), _aliases_below(node)
    texts = [str(expression.sql()) for expression in expressions]
    found = {text for expression in expressions for text in _definitions(expression, aliases)}
    return [*dict.fromkeys(texts), *sorted(found)]


def _expressions(node: Any) -> Iterator[Any]:
    """Yield the expressions that an operator's state depends on."""
    name = node.nodeName()
    if name == "Aggregate":
        yield from _items(node.groupingExpressions())
        yield from map(_unnamed, _items(node.aggregateExpressions()))
    elif name.startswith("Deduplicate"):
        yield from _items(node.keys())
    elif name == "Distinct":
        yield from _items(node.output())
    elif name == "Join":
        yield from _items(node.condition().toList())
    elif name == "TransformWithStateInPySpark":
        yield from _items(node.leftAttributes())
    elif name in _GROUPED:
        yield from _items(node.groupingAttributes())


def _definitions(expression: Any, aliases: Mapping[int, Any]) -> Iterator[str]:
    """Yield how the columns of an expression are defined, down to the sources."""
    for column in _items(expression.references().toSeq()):
        if (defining := aliases.get(int(column.exprId().id()))) is not None:
            yield f"{column.name()} = {defining.sql()}"
            yield from _definitions(defining, aliases)


def _aliases_below(node: Any) -> dict[int, Any]:
    """Return the expression of each column that an operator below gives a name, by its id."""
    return {
        int(expression.exprId().id()): expression.child()
        for below in logical_plan.nodes(node)
        for expression in _items(below.expressions())
        if expression.nodeName() == "Alias"
    }


def _unnamed(expression: Any) -> Any:
    """Return an expression without the name that it is given: that may change."""
    return expression.child() if expression.nodeName() == "Alias" else expression


def _items(sequence: Any) -> Sequence[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]
