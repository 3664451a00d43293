"""A plan that keeps state of something else than the checkpoint's is refused by name."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from twophase.config import JobOptions
from twophase.errors import ConfigError
from twophase.runtime import state_plan

KNOWN: dict[str, Any] = {
    "spark": "4.2.0",
    "operators": [
        {"operator": "Deduplicate", "of": ["a", "a = (id % 15)"]},
        {"operator": "Aggregate", "of": ["a", "count(1)"]},
    ],
}


def options(**given: str) -> JobOptions:
    return JobOptions.parse({"checkpointLocation": "/job", **given}, "job")


def changed(number: int, *of: str, **others: Any) -> dict[str, Any]:
    operators = [dict(one) for one in KNOWN["operators"]]
    operators[number]["of"] = list(of)
    return {**KNOWN, "operators": operators, **others}


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (changed(0, "b", "b = (id % 7)"), r"Deduplicate kept state of a, a = \(id % 15\), and"),
        (
            changed(0, "a", "a = (id % 7)"),
            r"of a = \(id % 15\), and would now keep state of a = \(id % 7\)\.",
        ),
        (changed(1, "a", "max(v)"), r"Aggregate kept state of count\(1\), .* of max\(v\)\."),
        (changed(1, "a"), r"of count\(1\), and would now keep state of a\."),
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
        (KNOWN, KNOWN),
        ({}, KNOWN),
        (KNOWN, {}),
        (KNOWN, changed(0, "b", spark="4.3.0")),
        (KNOWN, {**KNOWN, "operators": KNOWN["operators"][1:]}),
    ],
    ids=["same", "of a plan without state", "no state", "another Spark", "an operator less"],
)
def test_what_is_the_same_or_what_spark_refuses_passes(
    known: dict[str, Any], plan: dict[str, Any]
) -> None:
    state_plan.check(known, plan, options())
