"""The records of the job's log as JSON values."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from twophase.errors import NewerFormatError
from twophase.protocol.record import NEWER_REMEDY
from twophase.state.entries import Released, Rewinding, SinkDecision
from twophase.state.entry_codec import (
    decision_from_json,
    lineage_from_json,
    repair_from_json,
    without_rescaled,
)
from twophase.state.history import History, folded
from twophase.state.records import (
    CommittedRecord,
    DecidedRecord,
    FenceRecord,
    LineageRecord,
    Record,
    ReleasedRecord,
    RepairedRecord,
    RewindingRecord,
    SinkDecidedRecord,
    SubsumedAheadRecord,
    SubsumedRecord,
)
from twophase.state.stats import CheckpointStats


def record_to_json(record: Record) -> dict[str, Any]:
    """Return the fields of a record as JSON values; its kind is stored separately."""
    if isinstance(record, SubsumedRecord):
        return {"history": record.history.to_json()}
    if isinstance(record, SinkDecidedRecord):
        return asdict(record)
    value: dict[str, Any] = without_rescaled(asdict(record))
    if isinstance(record, CommittedRecord) and record.stats is None:
        del value["stats"]
    return value


def record_from_json(kind: str, value: Any, where: str) -> Record:
    """Build a record from JSON values, the inverse of `record_to_json`.

    Raises:
        NewerFormatError: this version does not know the kind or the fields of a whole record.
    """
    try:
        match kind:
            case FenceRecord.kind:
                return FenceRecord(generation=value["generation"])
            case LineageRecord.kind:
                return LineageRecord(lineage_from_json(value["lineage"]))
            case DecidedRecord.kind:
                return DecidedRecord(decision_from_json(value["decision"]))
            case SinkDecidedRecord.kind:
                return SinkDecidedRecord(SinkDecision.from_json(value["decision"]))
            case CommittedRecord.kind:
                found = value.get("stats")
                stats = CheckpointStats.from_json(found) if found else None
                return CommittedRecord(value["lineage"], value["checkpoint"], stats)
            case RepairedRecord.kind:
                return RepairedRecord(repair_from_json(value["repair"]))
            case ReleasedRecord.kind:
                return ReleasedRecord(Released(**value["released"]))
            case RewindingRecord.kind:
                return RewindingRecord(Rewinding(**value["rewinding"]))
            case SubsumedRecord.kind | SubsumedAheadRecord.kind:
                return folded(History.from_json(value["history"]))
            case _:
                raise _unknown_kind(kind, where)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise NewerFormatError(
            f"The log record {where} ({kind}) is whole and lacks or has unknown fields, as of "
            f"another version of twophase: {error}.",
            remedy=NEWER_REMEDY,
        ) from None


def _unknown_kind(kind: str, where: str) -> NewerFormatError:
    return NewerFormatError(
        f"The log record {where} is of the unknown kind {kind!r}: a newer twophase wrote it.",
        remedy=NEWER_REMEDY,
    )
