"""The outcome of one commit: a value, so that every caller handles every case."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Committed:
    """The piece is visible; this call made it so."""


@dataclass(frozen=True)
class AlreadyCommitted:
    """The piece has been visible since an earlier call.

    Attributes:
        proof: the evidence in the target (invariant I4), such as "ledger row".
    """

    proof: str


@dataclass(frozen=True)
class RetryLater:
    """Not visible yet, and not lost: call again.

    Attributes:
        reason: what blocks the commit, for the operator.
    """

    reason: str


@dataclass(frozen=True)
class Lost:
    """The piece is proven to be neither committed nor prepared. The job stops.

    Attributes:
        evidence: what was checked, for the operator.
    """

    evidence: str


CommitOutcome = Committed | AlreadyCommitted | RetryLater | Lost
