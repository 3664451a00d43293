"""Closes older attempts in every sink: on recovery, and after a declined attempt."""

from __future__ import annotations

from collections.abc import Sequence

from twophase.coordinator.context import JobContext
from twophase.coordinator.orphans import Orphans
from twophase.coordinator.recovery import Restore, close_all
from twophase.coordinator.validation import SinkValidation
from twophase.ids import Attempt
from twophase.protocol.committable import Committable


class AttemptCloser:
    """Closes attempts for good: afterwards nothing of them is left in a sink, and nothing of them can come.

    Args:
        context: the job.
        validation: validates the sinks before anything is aborted.
    """

    def __init__(self, context: JobContext, validation: SinkValidation) -> None:
        self._context = context
        self._validation = validation

    def close_below(self, below: Attempt, restore: Restore | None = None) -> int:
        """Close all attempts below `below`; pieces of decided checkpoints that wait for their commit stay.

        The sinks are validated before anything is aborted, after a declined attempt too: in a target that was restored
        from a backup, a committed piece may be prepared again.

        Returns:
            How many orphans were aborted.
        """
        context = self._context
        kept = context.completer.pieces_to_commit()

        def may_abort(found: Sequence[Committable]) -> Sequence[Committable]:
            self._validation.check_again(restore)
            return context.completer.commit_again(found)

        orphans = {
            name: Orphans(context.job, name, sink, context.observers, may_abort) for name, sink in context.sinks.items()
        }
        return close_all(orphans, below, kept, context.observers, context.fan_out)
