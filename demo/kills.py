"""When the drivers die: three times at a chosen point of the protocol, once at a moment that nobody has chosen."""

from __future__ import annotations

from dataclasses import dataclass

from twophase import failpoints


@dataclass(frozen=True)
class Kill:
    """How one driver dies.

    Attributes:
        point: the crash point where it kills itself with SIGKILL; empty: killed from outside.
        hit: at which passing of the point.
        state: what the checkpoint is like at that moment.
        expected: what recovery has to make of it, as a sentence.
    """

    point: str
    hit: int
    state: str
    expected: str

    @property
    def environment(self) -> dict[str, str]:
        """The variables that arm the point."""
        return {failpoints.VARIABLE: f"{self.point}=kill@{self.hit}"} if self.point else {}


# A driver's first checkpoint may be a replay, and its recovery commits what the driver before it has left; each of these comes a
# few checkpoints later.
PLAN = (
    Kill(
        "C06",
        4,
        "all three have it, invisibly; nothing is decided",
        "Recovery has to abort it; then it is written again.",
    ),
    Kill("C11", 4, "it is decided, and committed nowhere yet", "Recovery has to commit it, not write it again."),
    Kill(
        "D01",
        4,
        "it is decided; MySQL has committed it, Delta and Hive have not",
        "Recovery has to commit it in those two.",
    ),
    Kill("", 0, "at a random moment, JVM and workers with it", "Recovery has to find out what was going on."),
)
RANDOM_AFTER_S = (0.5, 6.0)
"""From the driver's first trigger."""
