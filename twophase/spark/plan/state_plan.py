"""Describes what the stateful operators of a plan keep state of, so that none gets another's.

Spark compares operators and types. Without a word it would go on with the state of one key,
condition or aggregate for another one of the same type. So each checkpoint tells of the expressions
that an operator's state depends on, and of those that define their columns below it
(docs/decisions/0056).

A literal in them may be a secret, such as the salt of a hash. So the SQL itself stays in memory. A
checkpoint has the SQL of each operator without literals, for messages, and a digest of all of it:
salted, of many rounds, and short, so that a secret can neither be read nor be confirmed by it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from twophase.errors import ConfigError
from twophase.options.job_options import JobOptions
from twophase.spark.plan import logical_plan
from twophase.spark.plan.logical_plan import items, nodes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger("twophase")

_GROUPED = ("FlatMapGroupsInPandasWithState", "FlatMapGroupsWithState", "TransformWithState")
_AGGREGATES = ("AggregateExpression", "PythonUDAF")

_UUID = r"[0-9a-f]{8}[-_]?(?:[0-9a-f]{4}[-_]?){3}[0-9a-f]{12}"
_DIFFERENT_IN_EACH_START = (
    (re.compile(rf"`?\w*{_UUID}\w*`?\."), ""),  # a view, such as that of spark.sql(..., df=frame)
    (re.compile(r"\b(randn?)\(-?\d+\)"), r"\1()"),  # the seed, where a name holds it too
    (re.compile(r"\b(uniform|randstr|shuffle|uuid)\(([^()]*?)(, )?-?\d{9,}L?\)"), r"\1(\2)"),
    (re.compile(r"\b(_gen_alias_|lambda \w+?_)\d+"), r"\1"),
    (re.compile(r"#\d+L?"), ""),  # the id of an expression, below a Python UDF
    (re.compile(r", Some\([\w/+:-]+\)"), ""),  # the session's time zone, below a Python UDF
    # A time is written in that time zone, and both are often those of the start.
    (re.compile(r"[+-]?\d{4,}-\d\d-\d\d( \d\d:\d\d:\d\d(\.\d+)?)?"), "?"),
)
"""What Spark puts into SQL that another start of the same program would not repeat."""
_SEED = re.compile(r"-?\d{9,}L?")

_DIGEST_ROUNDS = 100_000
_DIGEST_BYTES = 4
"""What is shorter than a secret does not confirm a guess: many others have the same digest."""
_RENDERED_BY_STR = re.compile(r"#\d+")
"""The ids of expressions: text in which literals have no quotes, below a Python UDF."""
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|`[^`]*`|\w+(?=\()|[\w.]+|.", re.DOTALL)
_PUNCTUATION = frozenset(" ()+-*/%<>=!,|&^~[].:")
_KEYWORD = re.compile(
    "AND|AS|BETWEEN|BIGINT|BOOLEAN|CASE|CAST|DATE|DISTINCT|DOUBLE|ELSE|END|FILTER|FLOAT|IN|INT|"
    "INTERVAL|IS|LIKE|NOT|NULL|OR|STRING|THEN|TIMESTAMP|WHEN|WHERE|of|or"
)
_LITERAL = "?"


def describe(frame: DataFrame) -> dict[str, Any]:
    """Return a description of a plan's stateful operators; empty without any.

    It has literals, so it must not be stored: see `sealed`.
    """
    logical = logical_plan.analyzed(frame)
    stateful = [*logical_plan.stateful_nodes(logical)]
    defined = column_definitions(logical) if stateful else {}
    operators = [
        {"operator": str(node.nodeName()), **_described(node, defined)} for node in stateful
    ]
    # Another version of Spark may write an expression in another way.
    return {"spark": frame.sparkSession.version, "operators": operators} if operators else {}


def sealed(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a description without literals, as JSON values that a checkpoint may hold.

    Each call returns another one for the same plan: `check` compares it.
    """
    if not plan:
        return {}
    salt = secrets.token_hex(16)
    operators = [
        {"operator": one["operator"], "of": one["shown"], "digest": _digest(one["of"], salt)}
        for one in plan["operators"]
    ]
    return {"spark": plan["spark"], "salt": salt, "operators": operators}


def _digest(texts: Sequence[str], salt: str) -> str:
    data = json.dumps(texts).encode()
    found = hashlib.pbkdf2_hmac("sha256", data, bytes.fromhex(salt), _DIGEST_ROUNDS, _DIGEST_BYTES)
    return found.hex()


def check(known: Mapping[str, Any], plan: Mapping[str, Any], options: JobOptions) -> None:
    """Check that a plan keeps state of what a checkpoint's plan has kept it of.

    Args:
        known: the description in the checkpoint, sealed; empty if its plan kept no state.
        plan: that of the plan, not sealed.
        options: the job's options.

    Raises:
        ConfigError: it keeps state of something else, and the options do not allow that.
    """
    problem = _change(known, plan)
    if problem and options.allow_changed_plan:
        _log.warning("%s. The job goes on: state.allow_changed_plan is set.", problem)
    elif problem:
        raise ConfigError(
            f"{problem}. Spark would use the old state as if it belonged to the new plan. "
            "No rows were written.",
            remedy="restore the old expressions, names included; or start without the state in a "
            "new checkpointLocation; or set `state.allow_changed_plan=true` if the state fits the "
            "plan.",
        )


def _change(known: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    """Return how two plans differ; empty if they do not, or if that cannot be told."""
    if not known or not plan or known["spark"] != plan["spark"]:
        return ""
    for old, new in zip(known["operators"], plan["operators"], strict=False):
        # Spark itself refuses another operator, and more or fewer of them.
        if old["operator"] == new["operator"] and old["digest"] != _digest(
            new["of"], known["salt"]
        ):
            was, will_be = old["of"], new["shown"]
            now = "the same with other literals" if was == will_be else _only_in(will_be, was)
            return (
                f"The job's state belongs to another plan: {old['operator']} kept state of "
                f"{_only_in(was, will_be)}, and would now keep state of {now}. Literals are left "
                f"out, as {_LITERAL}"
            )
    return ""


def _only_in(some: Sequence[str], others: Sequence[str]) -> str:
    texts = [text for text in some if text not in others]
    return ", ".join(texts or some) or "nothing"


def _described(node: Any, defined: Mapping[int, Definition]) -> dict[str, list[str]]:
    """Return the expressions in their order, then the definitions of their columns.

    Once as they are, and once to be shown.
    """
    expressions = list(_expressions(node))
    columns: set[str] = set()
    definitions = sorted({*_definitions(expressions, defined, columns)})
    found = [*map(_sql, expressions)]
    kinds = [str(node.joinType().sql())] if node.nodeName() == "Join" else []
    shown = [without_literals(sql.text, columns, by_str=sql.by_str) for sql in found]
    for name, sql in definitions:
        column = name if name in columns else _LITERAL
        text = without_literals(sql.text, columns, by_str=sql.by_str)
        shown.append(f"{column} = {text}")
    return {
        "of": [
            *dict.fromkeys([*kinds, *(sql.text for sql in found)]),
            *(f"{name} = {sql.text}" for name, sql in definitions),
        ],
        "shown": [*dict.fromkeys([*kinds, *shown])],
    }


def without_literals(text: str, columns: Set[str], *, by_str: bool = False) -> str:
    """Return SQL in which only names of columns and functions, and keywords, are left.

    Args:
        text: the SQL.
        columns: the names of columns that may be shown.
        by_str: whether it has literals without quotes: then only columns are known to be none.
    """

    def shown(token: str, following: str) -> str:
        name = token.strip("`").rpartition(".")[2]
        if name in columns and token[0] != "'":
            return name
        if token in _PUNCTUATION:
            return token
        is_word = _KEYWORD.fullmatch(token) or (following == "(" and token.isidentifier())
        return token if is_word and not by_str else _LITERAL

    return "".join(
        shown(found.group(), text[found.end() : found.end() + 1]) for found in _TOKEN.finditer(text)
    )


def _expressions(node: Any) -> Iterator[Any]:
    """Yield the expressions that an operator's state depends on."""
    name = node.nodeName()
    if name == "Aggregate":
        yield from items(node.groupingExpressions())
        for result in items(node.aggregateExpressions()):
            yield from _aggregates(result)
    elif name.startswith("Deduplicate"):
        yield from items(node.keys())
    elif name == "Distinct":
        yield from items(node.output())
    elif name == "Join":
        yield from items(node.condition().toList())
    elif name == "TransformWithStateInPySpark":
        yield from items(node.leftAttributes())
    elif name in _GROUPED:
        yield from items(node.groupingAttributes())


def _aggregates(result: Any) -> Iterator[Any]:
    """Yield the aggregates in a result, without what is made of them."""
    if result.nodeName() in _AGGREGATES:
        yield result
    else:
        for part in items(result.children()):
            yield from _aggregates(part)


def _definitions(
    expressions: Sequence[Any], defined: Mapping[int, Definition], columns: set[str]
) -> Iterator[tuple[str, _Sql]]:
    """Yield how the columns of expressions are defined, down to the sources; each column once.

    Args:
        expressions: of an operator.
        defined: see `column_definitions`.
        columns: gets the names that may be shown. A column without a name of its own has one that
            Spark has made of its expression, with the literals in it.
    """
    waiting, seen = list(expressions), set()
    while waiting:
        for column in items(waiting.pop().references().toSeq()):
            number = id_of(column)
            if number in seen:
                continue
            seen.add(number)
            name = _stable(column.name())
            definition = defined.get(number)
            sql = _Sql(name) if definition is None else _sql_of(definition)
            if name.isidentifier() and sql.text != f"'{name}'":
                columns.add(name)
            if definition is not None:
                waiting += definition.expressions
                if sql.text != name:
                    yield name, sql


class _Sql(NamedTuple):
    """An expression as SQL.

    Attributes:
        text: the SQL.
        by_str: whether it has literals without quotes.
    """

    text: str
    by_str: bool = False


def _sql_of(definition: Definition) -> _Sql:
    found = [_sql(expression) for expression in definition.expressions]
    text = " or ".join(dict.fromkeys(one.text for one in found))
    of = f", of {definition.of}" if definition.of > 1 else ""
    return _Sql(text + of, any(one.by_str for one in found))


def _sql(expression: Any) -> _Sql:
    """Return an expression as SQL that is the same in each start of the same program."""
    rendered = expression.sql()
    text = _stable(rendered)
    if " IN (" in text:
        text = _with_sorted_lists(expression, text)
    if not expression.deterministic():
        text = _SEED.sub("", text)
    return _Sql(text, bool(_RENDERED_BY_STR.search(rendered)))


def _with_sorted_lists(expression: Any, text: str) -> str:
    """Sort the values of each IN: Python gives those of a set in another order in each start."""
    for node in reversed([*logical_plan.nodes(expression)]):  # what is within it comes first
        if node.nodeName() == "In":
            for render in (lambda part: str(part.sql()), str):  # the second one below a Python UDF
                value, *listed = [_stable(render(part)) for part in items(node.children())]
                text = text.replace(
                    _stable(render(node)), f"{value} IN ({', '.join(sorted(listed))})"
                )
    return text


def _stable(text: str) -> str:
    for pattern, replacement in _DIFFERENT_IN_EACH_START:
        text = pattern.sub(replacement, text)
    return text


@dataclass(frozen=True)
class Definition:
    """What gives a column its values: expressions of the operators below.

    An attribute of Catalyst's has an id. The operator that first has it in its output defines it;
    what is above refers to it by the id.

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
