"""Validates what the sinks remember against the log, before a driver goes on with a job (I6, hazards H60 to H63)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from twophase.coordinator.context import JobContext
from twophase.coordinator.proofs import check_targets
from twophase.coordinator.recovery import Restore, check_histories, check_restore, piece_names
from twophase.events import Observers
from twophase.protocol.sink import Sink, SinkHistory
from twophase.state.records import History


class SinkValidation:
    """Asks the sinks for their histories and validates them against the log.

    Args:
        context: the job.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def histories(self) -> dict[str, SinkHistory]:
        """Return what each sink remembers of the job now."""

        def history(sink: Sink, _: Observers) -> SinkHistory:
            return sink.history()

        context = self._context
        return context.fan_out(
            {name: partial(history, sink) for name, sink in context.sinks.items()}, context.observers
        )

    def check(self, history: History, remembered: Mapping[str, SinkHistory], restore: Restore | None) -> None:
        """Validate what the sinks remember against the log, or against the checkpoint that is restored.

        Raises:
            StopJobError: the job must not go on.
        """
        context = self._context
        if restore is None:
            check_histories(context.job, history, remembered, piece_names(context.sinks))
        else:
            check_restore(context.job, history, restore.lineage, remembered)
        expected = restore.committed if restore else context.proofs.committed()
        check_targets(context.proofs, expected, context.sinks, remembered, may_move=restore is not None)

    def check_again(self, restore: Restore | None = None) -> None:
        """Validate the sinks once more: a driver over another folder can commit until all fences are up.

        Raises:
            FencedError: another driver over this folder has gone on, and the sinks may know of its work by now.
            StopJobError: the job must not go on.
        """
        remembered, history = self.histories(), self._context.log.history
        self._context.log.check_fence()
        self.check(history, remembered, restore)
