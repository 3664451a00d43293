"""Spark 4.1 does not notice by default that a shuffle gave other rows: queries start with it on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from twophase.spark.plan import shuffles
from twophase.spark.plan.shuffles import FULL_RETRY, Fault


class Conf:
    """A session's settings, with the default of some version of Spark."""

    def __init__(self, default: str, given: dict[str, str]) -> None:
        self._default, self._given = default, given

    def get(self, key: str, *default: str | None) -> str | None:
        return self._given.get(key, default[0] if default else self._default)


def session(default: str, given: dict[str, str]) -> Any:
    context = SimpleNamespace(getConf=dict)
    return SimpleNamespace(conf=Conf(default, given), sparkContext=context)


@pytest.mark.parametrize(
    ("default", "given", "starts_with", "fault"),
    [
        pytest.param("true", {}, {}, None, id="4.2"),
        pytest.param("false", {}, {FULL_RETRY: "true"}, None, id="4.1"),
        pytest.param("false", {FULL_RETRY: "true"}, {}, None, id="4.1, switched on"),
        pytest.param("true", {FULL_RETRY: "true"}, {}, None, id="4.2, switched on"),
        pytest.param(
            "false", {FULL_RETRY: "false"}, {}, Fault(FULL_RETRY, "true"), id="4.1, switched off"
        ),
        pytest.param(
            "true", {FULL_RETRY: "false"}, {}, Fault(FULL_RETRY, "true"), id="4.2, switched off"
        ),
    ],
)
def test_a_default_is_made_good_and_a_decision_is_not(
    default: str, given: dict[str, str], starts_with: dict[str, str], fault: Fault | None
) -> None:
    spark = session(default, given)
    assert shuffles.settings(spark) == starts_with
    assert shuffles.find_fault(spark) == fault
