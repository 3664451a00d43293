"""Every deliberate mistake is found, by the claim that is there for it; its shortest trace is printed (`-rP`)."""

from __future__ import annotations

import sys

import pytest

from tests.model.mutants import MUTANTS, Mutant, describe, told
from tests.model.world import Mistake


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.mistake.name.lower())
def test_a_driver_is_found_out_that(mutant: Mutant) -> None:
    violation = mutant.explore().violation
    assert violation is not None, f"nobody notices that a driver {mutant.what}"
    sys.stdout.write(f"a driver {mutant.what}\n{told(violation)}\n")
    assert violation.claim == mutant.claim


def test_every_mistake_is_tried() -> None:
    assert sorted(mutant.mistake.name for mutant in MUTANTS) == sorted(mistake.name for mistake in Mistake)


def test_a_trace_is_told_in_words() -> None:
    assert describe(("FENCE", 2, 5)) == "driver 2 FENCE 5"
    assert describe(("crashes", "sink", 0)) == "sink 0 crashes"
