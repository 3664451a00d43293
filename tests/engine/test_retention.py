"""When a job that has ended gives its checkpoints up."""

from __future__ import annotations

import pytest

from twophase.engine.retention import is_due
from twophase.errors import DeclinedError, FencedError, SparkLostError
from twophase.options.job_options import ExternalizedRetention as Retention

KEEP, DELETE, NONE = Retention
FAILED, FENCED = DeclinedError("no"), FencedError("other")


@pytest.mark.parametrize(
    ("policy", "error", "stopped", "expected"),
    [
        (KEEP, None, True, False),
        (KEEP, FAILED, False, False),
        (DELETE, None, True, True),
        (DELETE, None, False, False),
        (DELETE, FAILED, False, False),
        (DELETE, FAILED, True, False),
        (NONE, None, True, True),
        (NONE, None, False, False),
        (NONE, FAILED, False, True),
        (NONE, FENCED, False, False),
        (NONE, FENCED, True, False),
        (NONE, SparkLostError("gone"), False, False),
    ],
)
def test_checkpoints_are_given_up_when_the_policy_says_so(
    policy: Retention, error: BaseException | None, stopped: bool, expected: bool
) -> None:
    assert is_due(policy, error, stopped=stopped) is expected
