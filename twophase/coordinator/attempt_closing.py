"""Closes older attempts in all sinks, on recovery and after a declined attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from twophase.coordinator.context import JobContext
from twophase.coordinator.fan_out import FanOut, sequentially
from twophase.coordinator.orphans import Orphans, PieceKey
from twophase.coordinator.recovery_steps import Restore
from twophase.coordinator.validation import SinkValidation
from twophase.events import Observers
from twophase.ids import Attempt
from twophase.protocol.committable import Committable


class AttemptCloser:
    """Closes attempts for good: nothing of them is left in a sink, and nothing more can come.

    Args:
        context: the job.
        validation: validates the sinks before anything is aborted.
    """

    def __init__(self, context: JobContext, validation: SinkValidation) -> None:
        self._context = context
        self._validation = validation

    def close_below(self, below: Attempt, restore: Restore | None = None) -> int:
        """Close all attempts below `below`. Pieces that wait for their commit stay.

        The sinks are validated before anything is aborted, after a declined attempt too: in a
        target that was restored from a backup, a committed piece may be prepared again.

        Returns:
            How many orphans were aborted.
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
        return _close_all(orphans, below, kept, context.observers, context.fan_out)


def _close_all(
    orphans: Mapping[str, Orphans],
    below: Attempt,
    kept: frozenset[PieceKey],
    observers: Observers,
    fan_out: FanOut = sequentially,
) -> int:
    """Close all attempts below `below` in all sinks. Return how many orphans were aborted.

    Args:
        orphans: of each sink, by its name.
        below: the first attempt that stays open.
        kept: pieces of decided checkpoints that wait for their commit.
        observers: receive the events of the steps.
        fan_out: closes the sinks that have no orphans.
    """

    def close(one: Orphans, _: Observers) -> bool:
        return one.close_if_none(below, kept)

    closed = fan_out({name: partial(close, one) for name, one in orphans.items()}, observers)
    # In the order of the commits, with a check before each abort: if another driver has committed
    # in one sink, that is noticed before the rest of that checkpoint is aborted in the next.
    return sum(
        orphans[name].close(below, kept) for name, is_closed in closed.items() if not is_closed
    )
