"""Describes what the stateful operators of a plan keep state of, so that none gets another's.

Spark compares operators and types. Without a word it would go on with the state of one key,
condition or aggregate for another one of the same type. So each checkpoint holds the expressions
that an operator's state depends on, and those that define their columns below it, as SQL
(docs/decisions/0056).
"""

from __future__ import annotations

import logging
import re
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
_AGGREGATES = ("AggregateExpression", "PythonUDAF")

_DIFFERENT_IN_EACH_START = (
    (re.compile(r"\b_pyspark_[0-9a-f]{32}\."), ""),  # a frame in spark.sql("... {df}", df=frame)
    (re.compile(r"\b(randn?)\(-?\d+\)"), r"\1()"),  # the seed, where a name holds it too
    (re.compile(r"\b(_gen_alias_|lambda \w+?_)\d+"), r"\1"),
    (re.compile(r"#\d+L?"), ""),  # the id of an expression, below a Python UDF
    (re.compile(r", Some\([\w/+:-]+\)"), ""),  # the session's time zone, below a Python UDF
    # A time is written in that time zone, and both are often those of the start.
    (re.compile(r"\d{4,}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d+)?)?"), "?"),
)
"""What Spark puts into SQL that another start of the same program would not repeat."""
_SEED = re.compile(r"-?\d{9,}L?")


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
    expressions = list(_expressions(node))
    texts = [_sql(expression) for expression in expressions]
    return [*dict.fromkeys(texts), *sorted({*_definitions(expressions, _aliases_below(node))})]


def _expressions(node: Any) -> Iterator[Any]:
    """Yield the expressions that an operator's state depends on."""
    name = node.nodeName()
    if name == "Aggregate":
        yield from _items(node.groupingExpressions())
        for result in _items(node.aggregateExpressions()):
            yield from (part for part in logical_plan.nodes(result) if _is_aggregate(part))
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


def _is_aggregate(expression: Any) -> bool:
    return expression.nodeName() in _AGGREGATES


def _definitions(expressions: Sequence[Any], aliases: Mapping[int, Any]) -> Iterator[str]:
    """Yield how the columns of expressions are defined, down to the sources; each column once."""
    waiting, seen = list(expressions), set()
    while waiting:
        for column in _items(waiting.pop().references().toSeq()):
            number = int(column.exprId().id())
            if number in aliases and number not in seen:
                seen.add(number)
                waiting.append(aliases[number])
                yield f"{_stable(column.name())} = {_sql(aliases[number])}"


def _aliases_below(node: Any) -> dict[int, Any]:
    """Return the expression of each column that an operator below gives a name, by its id."""
    return {
        int(expression.exprId().id()): expression.child()
        for below in logical_plan.nodes(node)
        for expression in _items(below.expressions())
        if expression.nodeName() == "Alias"
    }


def _sql(expression: Any) -> str:
    """Return an expression as SQL that is the same in each start of the same program."""
    text = _stable(expression.sql())
    return text if expression.deterministic() else _SEED.sub("", text)


def _stable(text: str) -> str:
    for pattern, replacement in _DIFFERENT_IN_EACH_START:
        text = pattern.sub(replacement, text)
    return text


def _items(sequence: Any) -> Sequence[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]
