"""The remedy when the records that Spark needs to rebuild its state are gone."""

from __future__ import annotations

from twophase.runtime.source_entry_points import owner_of
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
    if line is None:
        return "a source that begins at its start"
    _, source = owner_of(line)
    return source.begin_after(line)
