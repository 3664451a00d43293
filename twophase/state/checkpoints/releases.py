"""Carries out what `release-topic` has recorded: where a beginning leaves topics behind.

A release is of the micro-batch after a checkpoint. Once that is decided, the offset lines say
themselves what was left behind; until then, every beginning after that checkpoint has to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from twophase.contract.source import ReleasesTopics
from twophase.contract.source_entry_points import owner_of
from twophase.state.journal.entries import Release
from twophase.state.journal.history import History


def released(
    history: History,
    after: Mapping[str, int],
    start: Sequence[str | None],
    end: Sequence[str | None],
) -> tuple[str | None, ...]:
    """Return the end of a micro-batch that leaves behind what operators have released.

    Args:
        history: of the log.
        after: the last checkpoint before the micro-batch, of each lineage that it continues.
        start: the offset line of each source where it starts.
        end: where it would end, likewise.
    """
    parts = [
        part
        for one in history.repairs
        if isinstance(one, Release) and after.get(one.lineage, one.checkpoint + 1) <= one.checkpoint
        for part in one.parts
    ]
    return tuple(_released(*lines, parts) for lines in zip(start, end, strict=True))


def _released(start: str | None, end: str | None, parts: Sequence[str]) -> str | None:
    if start is None or end is None or not parts:
        return end
    _, source = owner_of(end)
    for part in parts:
        if isinstance(source, ReleasesTopics) and source.owns(part):
            end = source.released(start, end, part)
    return end
