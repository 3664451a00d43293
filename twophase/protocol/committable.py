"""The committable: the small, serialisable handle of one pre-committed piece."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from twophase.ids import Attempt, Subtask, TransactionId


@dataclass(frozen=True)
class Committable:
    """One pre-committed piece.

    Attributes:
        transaction: whose piece it is.
        subtask: which task attempt made it.
        target: names the target so that no other is ever committed to (invariant I10).
        rows: how many rows the piece holds; more than 0, or 0 where it was found in doubt and its target cannot tell.
        handle: what else the sink needs to commit the piece; JSON values only, no secrets.
    """

    transaction: TransactionId
    subtask: Subtask
    target: str
    rows: int
    handle: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As JSON values, for the checkpoint's body and for the result row of a task."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The reverse of `to_json`."""
        transaction = dict(value["transaction"])
        attempt = Attempt(**transaction.pop("attempt"))
        return cls(
            transaction=TransactionId(attempt=attempt, **transaction),
            subtask=Subtask(**value["subtask"]),
            target=value["target"],
            rows=value["rows"],
            handle=dict(value["handle"]),
        )
