"""When something happens to the job's folder or to a target."""

from __future__ import annotations

from random import Random

DELAYS_S = (0.0, 0.003, 0.03, 0.3)


class Moment:
    """A moment in a run: some time after so many decisions.

    Args:
        random: draws the time.
        decisions: so many; 0 is the start of the run.
    """

    def __init__(self, random: Random, decisions: int) -> None:
        self.decisions = decisions
        self.delay_s = random.choice(DELAYS_S) * random.random()
