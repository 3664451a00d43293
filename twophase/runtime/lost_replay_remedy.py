"""The remedy when the records that Spark needs to rebuild its state are gone."""

from __future__ import annotations

import json

from twophase.errors import CorruptRecordError, NewerFormatError
from twophase.sources.kafka.offsets import SourceOffset
from twophase.state.checkpoint import FrozenOffsets


def begin_afresh(number: int, offsets: FrozenOffsets) -> str:
    """Return the remedy: where another job goes on, and what it lacks.

    Args:
        number: the committed checkpoint.
        offsets: those of its micro-batch.
    """
    return (
        "restore the records in the source; or leave this job stopped for good and start another "
        "one: with another name, in another folder, with the same targets and "
        f"{' and '.join(_starting(line) for line in offsets.end)}. All rows up to checkpoint "
        f"{number} are in the targets, and none is written twice. The state is lost: "
        "aggregations, joins and deduplication start from nothing."
    )


def _starting(line: str | None) -> str:
    """Return what a source needs to go on after an offset line of Spark's log."""
    try:
        offset = SourceOffset.parse(line or "")
    except (CorruptRecordError, NewerFormatError):
        return f"a source that starts after {line}"
    topics: dict[str, dict[str, int]] = {}
    for entry in offset.partitions or ():
        topics.setdefault(entry.topic, {})[str(entry.partition)] = entry.offset
    return f"startingOffsets {json.dumps(topics)} of source {offset.source!r}"
