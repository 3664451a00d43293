"""Closes older attempts in all sinks, on recovery and after a declined attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from twophase.coordinator.context import JobContext
from twophase.coordinator.orphans import Orphans
from twophase.coordinator.recovery_steps import Restore
from twophase.coordinator.validation import SinkValidation
from twophase.events import Observers
from twophase.ids import Attempt
from twophase.protocol.committable import Committable
from twophase.protocol.sink import SinkHistory


@dataclass(frozen=True)
class Closed:
    """What the closing of attempts found.

    Attributes:
        aborted: how many orphans were aborted.
        histories: what each sink without orphans remembered once it was closed, if asked for. It
            stays true: what was not committed there by then never will be.
    """

    aborted: int
    histories: Mapping[str, SinkHistory]


class AttemptCloser:
    """Closes attempts for good: nothing of them is left in a sink, and nothing more can come.

    Args:
        context: the job.
        validation: validates the sinks before anything is aborted.
    """

    def __init__(self, context: JobContext, validation: SinkValidation) -> None:
        self._context = context
        self._validation = validation

    def close_below(
        self, below: Attempt, restore: Restore | None = None, *, ask: bool = False
    ) -> Closed:
        """Close all attempts below `below`. Pieces that wait for their commit stay.

        The sinks are validated before anything is aborted, after a declined attempt too: in a
        target that was restored from a backup, a committed piece may be prepared again.

        Args:
            below: the first attempt that stays open.
            restore: the restore whose lineage is about to begin, if any.
            ask: each sink without orphans is asked for its history when it is closed, while others
                are being closed.
        """
        context = self._context
        kept = context.completer.pieces_to_commit()

        def may_abort(found: Sequence[Committable]) -> Sequence[Committable]:
            self._validation.check_again(restore)
            return context.completer.commit_again(found)

        orphans = {
            name: Orphans(context.job, name, sink, context.observers, may_abort)
            for name, sink in context.sinks.items()
        }
        histories: dict[str, SinkHistory] = {}

        def close(name: str, _: Observers) -> bool:
            closed = orphans[name].close_if_none(below, kept)
            if closed and ask:
                histories[name] = context.sinks[name].history()
            return closed

        closed = context.fan_out(
            {name: partial(close, name) for name in orphans}, context.observers
        )
        # In the order of the commits, with a check before each abort: if another driver has
        # committed in one sink, that is noticed before the rest of that checkpoint is aborted in
        # the next.
        left = [orphans[name] for name, is_closed in closed.items() if not is_closed]
        return Closed(sum(one.close(below, kept) for one in left), histories)
