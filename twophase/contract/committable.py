"""The committable: the small, serialisable handle of one pre-committed piece."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from twophase.ids import Subtask, TransactionId


@dataclass(frozen=True)
class Committable:
    """One pre-committed piece.

    Attributes:
        transaction: the transaction that the piece belongs to.
        subtask: the task attempt that wrote it.
        target: the identity of the target, so that the piece is never committed to
            another (invariant I10).
        rows: rows in the piece; at least 1, or 0 for a piece found in doubt whose
            target cannot tell.
        handle: whatever else the sink needs to commit the piece; JSON values only, no secrets.
    """

    transaction: TransactionId
    subtask: Subtask
    target: str
    rows: int
    handle: Mapping[str, Any] = field(default_factory=dict)
