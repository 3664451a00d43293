"""Every deliberate mistake is found, by the claim that is there for it; its shortest trace
is printed (`-rP`).
"""

from __future__ import annotations

import sys

import pytest

from verification.model.explore import Label
from verification.model.mutants import MUTANTS, Mutant, describe, described
from verification.model.state import Decision
from verification.model.world import Mistake

pytestmark = pytest.mark.part("model")


@pytest.mark.thin(2)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.mistake.name.lower())
def test_a_driver_is_found_out_that(mutant: Mutant) -> None:
    violation = mutant.explore().violation
    assert violation is not None, f"nobody notices that a driver {mutant.what}"
    sys.stdout.write(f"a driver {mutant.what}\n{described(violation)}\n")
    assert violation.claim == mutant.claim


def test_every_mistake_is_tried() -> None:
    assert sorted(mutant.mistake.name for mutant in MUTANTS) == sorted(
        mistake.name for mistake in Mistake
    )


@pytest.mark.parametrize(
    ("label", "words"),
    [
        (("FENCE", 2, 5), "driver 2 FENCE 5"),
        (("crashes", "sink", 0), "sink 0 crashes"),
        (("prepares", "sink", 1, 1, 0, 2, 3, 0), "sink 1 prepares 1/0 2.3 branch 0"),
        (("commits", 1, 0, 1, 4, 2, 3, 1), "driver 1 commits sink 0: 1/4 2.3 branch 1"),
        (("DECIDED", 1, Decision(1, 0, 2, 3)), "driver 1 DECIDED 1/0 2.3"),
    ],
)
def test_a_step_is_described_in_words(label: Label, words: str) -> None:
    assert describe(label) == words
