"""The files of a table's log, with a cache of what was read from them."""

from __future__ import annotations

from twophase.sinks.delta.log_segment import (
    LogFile,
    LogSegment,
    Marks,
    Reads,
    check_parts,
    read_marks,
    replay,
)


class LogFiles:
    """Reads each file once while Delta lists it unchanged, so mostly the new commits only.

    Args:
        storage: the table's storage.
    """

    def __init__(self, storage: Reads) -> None:
        self._storage = storage
        self._known: dict[LogFile, Marks] = {}  # only of the last segment

    def transactions(self, segment: LogSegment, forgotten_until_ms: int | None) -> dict[str, int]:
        """Return the version of every application id.

        Args:
            segment: the files of a snapshot.
            forgotten_until_ms: see `replay`.

        Raises:
            UnreadableLogError: see `twophase.sinks.delta.log_segment`.
        """
        segment.check()
        known = self._known
        marks = {
            file: known[file] if file in known else read_marks(file, self._storage)
            for file in segment.files
        }
        check_parts([marks[file] for file in segment.checkpoint_files])
        self._known = marks
        return replay(marks.values(), forgotten_until_ms)
