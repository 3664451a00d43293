"""Every mistake in the plan of a start is found: by a world of the model, or by a test of the
product, which passes without it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness.selection import representatives
from verification.model.mutants import described
from verification.model.plan_mistakes import MISTAKES

ROOT = Path(__file__).parents[2]
BY_THE_MODEL = {name: one for name, one in MISTAKES.items() if one.world}
BY_A_TEST = {name: one for name, one in MISTAKES.items() if not one.world}

# They explore worlds of the model, tens of seconds each.
DEAR = {
    "a rewind is given up without a fence in the sinks",
    "what a rewind that is given up has taken back is no loss",
    "what was restored is known by its path",
}

pytestmark = [pytest.mark.part("model"), pytest.mark.thin(3)]


class Failures:
    """What a run of tests has found."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.passed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note one of them."""
        if report.failed:
            self.failed.append(report.nodeid)
        elif report.when == "call" and report.passed:
            self.passed += 1


def tried(test: str) -> Failures:
    """Run a test of the product in this process."""
    found = Failures()
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    pytest.main([*options, "--rootdir", str(ROOT), str(ROOT / test)], plugins=[found])
    return found


@pytest.mark.parametrize("name", BY_THE_MODEL)
def test_the_model_finds_that(name: str) -> None:
    mistake = BY_THE_MODEL[name]
    violation = mistake.explore().violation
    assert violation is not None, f"nobody notices that {name}"
    sys.stdout.write(f"{name}\n{described(violation)}\n")
    assert violation.claim == mistake.claim


@pytest.mark.parametrize("name", representatives(BY_A_TEST, {*BY_A_TEST} - DEAR))
def test_a_test_finds_that(name: str) -> None:
    mistake = BY_A_TEST[name]
    whole = tried(mistake.test)
    assert whole.passed
    assert not whole.failed
    with mistake.made():
        assert tried(mistake.test).failed, f"{mistake.test} does not notice that {name}"


def test_at_least_twelve_are_tried() -> None:
    assert len(MISTAKES) >= 12
