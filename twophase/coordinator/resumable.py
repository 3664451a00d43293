"""A coordinator for a driver that runs as several processes in turn, which share only the log.

Each process reads the log and goes on as the same driver, with the generation that was fenced for
it. Only the log says whether it still may: a process that another driver, or another process of
this one, has overtaken is fenced at its next append (I7).
"""

from __future__ import annotations

from collections.abc import Sequence

from twophase.coordinator.coordinator import CheckpointCoordinator, Replay, Write
from twophase.coordinator.pending import PendingCheckpoint
from twophase.coordinator.recovery_steps import take_over
from twophase.errors import FencedError
from twophase.ids import Attempt
from twophase.protocol.committable import Committable
from twophase.state.checkpoint import FrozenOffsets
from twophase.state.history import History


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
        self._check_generation(self._coordinator.context.log.refresh(), attempt.generation)
        attempts = self._coordinator.attempts
        attempts.generation, attempts.counter = attempt.generation, attempt.counter

    def acknowledged(
        self,
        number: int,
        offsets: FrozenOffsets,
        attempt: Attempt,
        sink: str,
        pieces: Sequence[Committable],
        triggered_ms: int,
    ) -> None:
        """Decide and commit a checkpoint that every writer of `attempt` has acknowledged already.

        If it is decided (H12), it is only committed again, and what the attempt has
        pre-committed is aborted.

        Args:
            number: n.
            offsets: of micro-batch n, from Spark's offset log.
            attempt: the attempt that the writers had.
            sink: the only sink's name.
            pieces: all their committables.
            triggered_ms: Unix time when the attempt was planned.

        Raises:
            DeclinedError: it was not decided; nothing of it is visible.
            StopJobError: the job must stop.
        """

        def acknowledge(pending: PendingCheckpoint) -> None:
            pending.acknowledge(sink, pieces)

        coordinator = self._coordinator
        self.join(Attempt(attempt.generation, attempt.counter - 1))
        match coordinator.classify(number, offsets):
            case Write():
                coordinator.checkpoint(number, offsets, acknowledge, triggered_ms)
            case Replay(decision):
                coordinator.replay(decision, None)
                coordinator.context.completer.abort_superseded_attempts(attempt)

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
        coordinator = self._coordinator
        coordinator.attempts.generation = take_over(
            coordinator.context.log, {}, lambda history: self._check_generation(history, generation)
        )
        if coordinator.context.log.history.uncommitted():
            return
        coordinator.closer.close_below(Attempt(coordinator.generation, 0))
        coordinator.context.store.sweep()

    def _check_generation(self, history: History, generation: int) -> None:
        if history.generation != generation:
            raise FencedError(
                f"Job {self._coordinator.context.job!r}: a driver of generation "
                f"{history.generation} has taken over from {generation}.",
                remedy="leave this driver stopped.",
            )
