"""A plan that keeps state of something else than the checkpoint's is refused by name."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from twophase.errors import ConfigError
from twophase.options.job_options import JobOptions
from twophase.spark.plan import state_plan

COLUMNS = {"a", "b", "id", "v"}


def operator(name: str, *of: str) -> dict[str, Any]:
    shown = [state_plan.without_literals(text, COLUMNS) for text in of]
    return {"operator": name, "of": [*of], "shown": shown}


PLAN: dict[str, Any] = {
    "spark": "4.2.0",
    "operators": [
        operator("Deduplicate", "a", "a = (id % 15)"),
        operator("Aggregate", "a", "count(1)"),
    ],
}
KNOWN = state_plan.sealed(PLAN)


def options(**given: str) -> JobOptions:
    return JobOptions.parse({"checkpointLocation": "/job", **given}, "job")


def changed(number: int, *of: str, **others: Any) -> dict[str, Any]:
    operators = [*PLAN["operators"]]
    operators[number] = operator(operators[number]["operator"], *of)
    return {**PLAN, "operators": operators, **others}


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (changed(0, "b", "b = (id % 7)"), r"Deduplicate kept state of a, a = \(id % \?\), and"),
        (
            changed(0, "a", "a = (id % 7)"),
            r"of a, a = \(id % \?\), and would now keep state of the same with other literals\.",
        ),
        (changed(1, "a", "max(v)"), r"Aggregate kept state of count\(\?\), .* of max\(v\)\."),
        (changed(1, "a"), r"of count\(\?\), and would now keep state of a\."),
    ],
    ids=["another key", "another key of the same name", "another aggregate", "one less"],
)
def test_a_plan_that_keeps_state_of_something_else_is_refused(
    plan: dict[str, Any], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        state_plan.check(KNOWN, plan, options())
    with caplog.at_level(logging.WARNING, "twophase"):
        state_plan.check(KNOWN, plan, options(**{"state.allow_changed_plan": "true"}))
    [warning] = caplog.messages
    assert warning.startswith(refused.value.what.partition(". Spark")[0])


@pytest.mark.parametrize(
    ("known", "plan"),
    [
        (KNOWN, PLAN),
        ({}, PLAN),
        (KNOWN, {}),
        (KNOWN, changed(0, "b", spark="4.3.0")),
        (KNOWN, {**PLAN, "operators": PLAN["operators"][1:]}),
    ],
    ids=["same", "of a plan without state", "no state", "another Spark", "an operator less"],
)
def test_what_is_the_same_or_what_spark_refuses_passes(
    known: dict[str, Any], plan: dict[str, Any]
) -> None:
    state_plan.check(known, plan, options())


def test_what_is_stored_has_no_literal_and_is_another_one_each_time() -> None:
    assert [one["of"] for one in KNOWN["operators"]] == [["a", "a = (id % ?)"], ["a", "count(?)"]]
    again = state_plan.sealed(PLAN)
    digests = [one["digest"] for stored in (KNOWN, again) for one in stored["operators"]]
    assert len({*digests}) == 4
    state_plan.check(again, PLAN, options())
    assert state_plan.sealed({}) == {}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sha2(concat(id, 'it\\'s a (v)'), 256)", "sha2(concat(id, ?), ?)"),
        ("CAST(id AS STRING)", "CAST(id AS STRING)"),
        ("(`sha2(a, pepper)` = spark_catalog.t.v)", "(? = v)"),
        ("(v IN (1, -2.5, 'v')) OR x'4711'", "(v IN (?, -?, ?)) OR ??"),
        ("INTERVAL '1' DAY", "INTERVAL ? ?"),
    ],
)
def test_names_and_keywords_are_shown_and_nothing_else(text: str, shown: str) -> None:
    assert state_plan.without_literals(text, COLUMNS) == shown


def test_below_a_python_udf_where_literals_have_no_quotes_only_columns_are_shown() -> None:
    text = "bucket((id + 4711), v, pepper(a), AND)"
    shown = "?((id + ?), v, ?(a), ?)"
    assert state_plan.without_literals(text, COLUMNS, by_str=True) == shown
