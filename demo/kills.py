"""The plan of kills: three at chosen points of the protocol, one at a random moment."""

from __future__ import annotations

from dataclasses import dataclass

from twophase.internals import failpoints


@dataclass(frozen=True)
class Kill:
    """The death of one driver.

    Attributes:
        point: the crash point where it kills itself with SIGKILL; empty: killed from outside.
        hit: the pass of that point at which it dies.
        state: the state of the checkpoint at that moment.
        expected: what recovery has to do with it, as a sentence.
    """

    point: str
    hit: int
    state: str
    expected: str

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that arm the point."""
        return {failpoints.VARIABLE: f"{self.point}=kill@{self.hit}"} if self.point else {}


# A driver's first checkpoint may be a replay, and its recovery commits what the driver before it
# has left; each of these comes a few checkpoints later.
PLAN = (
    Kill(
        "C06",
        4,
        "all three have it, invisibly; nothing is decided",
        "Recovery has to abort it; then it is written again.",
    ),
    Kill(
        "C11",
        4,
        "it is decided, and committed nowhere yet",
        "Recovery has to commit it, not write it again.",
    ),
    Kill(
        "D01",
        4,
        "it is decided; MySQL has committed it, Delta and Hive have not",
        "Recovery has to commit it in those two.",
    ),
    Kill(
        "",
        0,
        "at a random moment, JVM and workers with it",
        "Recovery has to find out what was going on.",
    ),
)
RANDOM_AFTER_S = (0.5, 6.0)
"""Seconds from the driver's first trigger."""
