"""What strikes when: endless, and the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_DELAY_S = 1.0
_AIMED_DELAY_S = 0.5
_AIMED = 0.5
"""Share of the strikes that wait for a recovery."""


@dataclass(frozen=True)
class Strike:
    """One fault and its moment.

    Attributes:
        fault: its name.
        rows: that have to be committed first, counted from when the last fault was mended; 0: no
            wait for a recovery.
        aimed: whether a sink has to acknowledge a checkpoint then: the decision and
            the commit are near.
        delay_s: that passes after that.
    """

    fault: str
    rows: int
    aimed: bool
    delay_s: float


def strikes(seed: int, deck: Sequence[str], rows: int, eager: float) -> Iterator[Strike]:
    """Strikes drawn from a deck of faults that is shuffled again when it is used up.

    Args:
        seed: of the choices.
        deck: names of faults, some perhaps more than once.
        rows: between two strikes, on average.
        eager: share of the strikes that wait for no recovery.
    """
    noise = random.Random(seed)
    while True:
        for fault in noise.sample(deck, len(deck)):
            most = max(1, round(2 * rows / (1 - eager)))
            if noise.random() < eager:
                yield Strike(fault, 0, False, noise.uniform(0, _DELAY_S))
            elif noise.random() < _AIMED:
                yield Strike(fault, noise.randint(1, most), True, noise.uniform(0, _AIMED_DELAY_S))
            else:
                yield Strike(fault, noise.randint(1, most), False, noise.uniform(0, _DELAY_S))
