"""What the records of the log hold, as JSON values: also those that older versions wrote."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twophase.ids import Attempt
from twophase.state.entries import (
    AcceptedLoss,
    Adoption,
    Decision,
    Lineage,
    Note,
    Proof,
    Repair,
    Rewrite,
    proofs_from_json,
    rescaled_from_json,
)


def without_rescaled(value: Any) -> Any:
    """Return JSON values in which no lineage has an empty `rescaled`: older versions lack it."""
    if isinstance(value, dict):
        kept = {name: one for name, one in value.items() if name != "rescaled" or one}
        return {name: without_rescaled(one) for name, one in kept.items()}
    if isinstance(value, list | tuple):
        return [without_rescaled(one) for one in value]
    return value


def lineage_from_json(value: Mapping[str, Any]) -> Lineage:
    """Build a lineage from JSON values."""
    fields = dict(value)
    return Lineage(
        start=tuple(fields.pop("start")),
        proofs=proofs_from_json(fields.pop("proofs", None)),
        rescaled=rescaled_from_json(fields.pop("rescaled", ())),
        **fields,
    )


def decision_from_json(value: Mapping[str, Any]) -> Decision:
    """Build a decision from JSON values."""
    fields = dict(value)
    attempt, proofs = Attempt(**fields.pop("attempt")), proofs_from_json(fields.pop("proofs", None))
    return Decision(attempt=attempt, proofs=proofs, **fields)


def repair_from_json(value: Mapping[str, Any]) -> Repair:
    """Build a repair from JSON values.

    Raises:
        ValueError: this version does not know its action.
    """
    fields = dict(value)
    note = Note(**fields.pop("note"))
    match fields["action"]:
        case "accept-loss":
            pieces, start, end = (tuple(fields.pop(name)) for name in ("pieces", "start", "end"))
            before, lacks = (
                _before(fields.pop("before")),
                proofs_from_json(fields.pop("lacks", None)),
            )
            return AcceptedLoss(
                note=note, pieces=pieces, start=start, end=end, before=before, lacks=lacks, **fields
            )
        case "adopt-from-target":
            lineage = lineage_from_json(fields.pop("lineage"))
            gave_up = tuple(fields.pop("gave_up"))
            return Adoption(note=note, lineage=lineage, gave_up=gave_up, **fields)
        case "rewrite":
            decision, replaced = (
                decision_from_json(fields.pop("decision")),
                Attempt(**fields.pop("replaced")),
            )
            return Rewrite(
                note=note,
                decision=decision,
                replaced=replaced,
                pieces=tuple(fields.pop("pieces")),
                **fields,
            )
        case other:
            raise ValueError(f"the unknown action {other!r}")


def _before(value: Any) -> tuple[Proof, ...]:
    """Return `AcceptedLoss.before`; a record of an older version has one proof or none."""
    one = [value] if isinstance(value, Mapping) else value
    return proofs_from_json(one) or ()
