"""Restart strategies: the delay before each restart, at the times of the failures."""

from __future__ import annotations

from typing import Any

import pytest

from twophase.engine.restart import restart_policy
from twophase.options.job_options import JobOptions


@pytest.mark.parametrize(
    ("options", "failures_s", "delays_s"),
    [
        ({"restart.strategy": "none"}, [0], [None]),
        ({"restart.strategy": "fixed", "restart.attempts": 2}, [0, 9, 99], [5, 5, None]),
        ({"restart.strategy": "exponential"}, [0, 10, 20, 30, 40], [5, 10, 20, 20, 20]),
        # a window without a failure, from the restart on: it starts over
        ({"restart.strategy": "exponential"}, [0, 10, 121], [5, 10, 5]),
        ({"restart.strategy": "exponential"}, [0, 10, 119], [5, 10, 20]),
        # a window below the longest delay: a job that fails at once reaches that all the same
        (
            {"restart.strategy": "exponential", "restart.window": "12 s"},
            [0, 6, 17, 38, 59],
            [5, 10, 20, 20, 20],
        ),
        (
            {"restart.strategy": "failure_rate", "restart.attempts": 2},
            [0, 10, 100.5, 101],
            [5, 5, 5, None],
        ),
    ],
)
def test_the_delay_before_a_restart(
    options: dict[str, Any], failures_s: list[float], delays_s: list[float | None]
) -> None:
    given = {"restart.delay": "5 s", "restart.delay_max": "20 s", "restart.window": "100 s"}
    policy = restart_policy(JobOptions.parse({"checkpointLocation": "/c", **given, **options}, "j"))
    assert [policy(at_s) for at_s in failures_s] == delays_s
