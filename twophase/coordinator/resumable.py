"""A coordinator for a driver that runs as several processes in turn, which share only the log.

Each process reads the log and goes on as the same driver, with the generation that was fenced for
it. Only the log says whether it still may: a process that another driver, or another process of
this one, has overtaken is fenced at its next append (I7).
"""

from __future__ import annotations

from collections.abc import Sequence

from twophase.contract.committable import Committable
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.coordinator.coordinator import CheckpointCoordinator
from twophase.coordinator.recovery.recovery_steps import check_generation, take_over
from twophase.ids import Attempt
from twophase.state.checkpoints.checkpoint import FrozenOffsets
from twophase.state.journal.entries import Decision


class ResumableCoordinator:
    """Lets a coordinator go on where another process of its own driver stopped.

    Args:
        coordinator: of this process.
    """

    def __init__(self, coordinator: CheckpointCoordinator) -> None:
        self._coordinator = coordinator

    def join(self, attempt: Attempt) -> None:
        """Go on as the driver of `attempt`'s generation, which another process of it has recovered.

        Args:
            attempt: the last one that this driver has begun.

        Raises:
            FencedError: another driver has taken the job over.
        """
        log, attempts = self._coordinator.context.log, self._coordinator.attempts
        check_generation(self._coordinator.job, log.refresh(), attempt.generation)
        attempts.generation, attempts.counter = attempt.generation, attempt.counter

    def acknowledged(
        self,
        number: int,
        offsets: FrozenOffsets,
        sink: str,
        pieces: Sequence[Committable],
        triggered_ms: int,
    ) -> None:
        """Decide and commit a checkpoint that every writer of the next attempt has acknowledged
        already.

        Args:
            number: n.
            offsets: as `classify` accepted them.
            sink: the only sink's name.
            pieces: all their committables.
            triggered_ms: Unix time when the attempt was planned.

        Raises:
            DeclinedError: it was not decided; nothing of it is visible.
            StopJobError: the job must stop.
        """

        def acknowledge(pending: PendingCheckpoint) -> None:
            pending.acknowledge(sink, pieces)

        self._coordinator.checkpoint(number, offsets, acknowledge, triggered_ms)

    def commit_again(self, decision: Decision, attempt: Attempt) -> None:
        """Commit a decided checkpoint again (H12).

        Args:
            decision: as `classify` returned it.
            attempt: an attempt at the same checkpoint, whose pieces are aborted.
        """
        completer = self._coordinator.context.completer
        self._coordinator.replay(decision, None)
        completer.abort_superseded_attempts(attempt)

    def abandon(self, generation: int) -> None:
        """End this driver's run after a failure: abort what is undecided, decide nothing more.

        The process that was about to decide may still live. So the fence comes first, and what the
        log says then is final. Decided checkpoints stay, for the recovery of the next run (I2).

        Args:
            generation: of the run.

        Raises:
            FencedError: another driver has taken the job over, and the rest is up to it.
            Exception: of a sink; pieces may be left, for the next recovery.
        """
        coordinator, context = self._coordinator, self._coordinator.context
        coordinator.attempts.generation = take_over(
            context.log, {}, lambda history: check_generation(context.job, history, generation)
        )
        if coordinator.history.uncommitted():
            return
        coordinator.closer.close_below(Attempt(coordinator.generation, 0))
        context.store.sweep()
