"""Tells which of the waiting pieces of a sink an adoption commits: those of the decided attempt.

The body of a checkpoint lists its decided pieces. Without one, the decision is inferred from what
is proven: the log's records, and the pieces of the checkpoint that are committed in any sink.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from twophase.contract.committable import Committable
from twophase.contract.sink import NamesPieces, TellsUnfinished
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.orphans import key_of, pieces_of
from twophase.errors import CheckpointMissingError, CorruptRecordError, StopJobError
from twophase.ids import Attempt
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.checkpoints.store import CompletedCheckpointStore
from twophase.state.journal.entries import AcceptedLoss, Adoption, Decision, Rewrite
from twophase.state.journal.history import History


class AdoptedPieces:
    """The waiting pieces of one sink, in an adoption.

    Args:
        context: the job's.
        history: the job's history from its log.
        name: the sink's name.
    """

    def __init__(self, context: JobContext, history: History, name: str) -> None:
        self._context = context
        self._history = history
        self._name = name
        self._sink = context.sinks[name]

    def is_over(self, proven: int, piece: Committable) -> bool:
        """Return whether the sink has committed every decided piece of the piece's checkpoint.

        Commits are in order, and an adoption commits all earlier decisions before it is recorded.

        Args:
            proven: the highest checkpoint of the piece's lineage that the target has proof of.
            piece: the piece.
        """
        (lineage, number), sink = checkpoint_of(piece), self._sink
        repairs = self._history.repairs
        begun = [repair.lineage for repair in repairs if isinstance(repair, Adoption)]
        if any(one and number <= one.ancestors.get(lineage, -1) for one in begun):
            return True
        only_a_mark = isinstance(sink, NamesPieces) and not sink.committed_pieces(lineage, number)
        return proven > number or (proven == number and only_a_mark)

    def is_decided(self, piece: Committable) -> bool:
        """Return whether a piece of an adopted checkpoint is decided, and not superseded."""
        if (body := self.body(piece)) is not None:
            return key_of(piece) in pieces_of([body])
        committed = self._committed_pieces(self._name, piece)
        tasks = [text.partition("/")[2].partition(".")[0] for text in committed]
        if str(piece.subtask.index) in tasks:
            return False  # another piece of the task is committed
        if self._was_repaired(piece):
            return False
        attempts = {*self._logged_attempts(piece), *self._committed_attempts(piece)}
        return not attempts or piece.transaction.attempt in attempts

    def body(self, piece: Committable) -> CompletedCheckpoint | None:
        """Return the checkpoint of a piece, or what the sink commits of it ahead of the others, if
        the log has it and it can be read.
        """
        store, mine = self._context.store, checkpoint_of(piece)
        for ahead in self._context.sink_decisions.bodies():
            if (ahead.lineage, ahead.checkpoint) == mine and self._name in ahead.committables:
                return ahead
        decisions = self._history.decisions
        found = next((one for one in decisions if (one.lineage, one.checkpoint) == mine), None)
        return store.read(found) if found and is_readable(store, found) else None

    def unfinished(self, guessed: Sequence[Committable]) -> Sequence[Committable]:
        """Return the pieces that were never pre-committed: another writer rewrote their rows.

        Args:
            guessed: pieces to commit that no body lists.

        Raises:
            StopJobError: one has no intact piece in its place. It may be decided, and its own
                record lost or damaged.
        """
        if not isinstance(self._sink, TellsUnfinished) or not guessed:
            return []
        unfinished = list(self._sink.unfinished(guessed))
        whole = [piece for piece in guessed if piece.handle and piece not in unfinished]
        others = [piece for piece in guessed if piece not in whole]
        alone = [one for one in others if not any(_replaces(other, one) for other in whole)]
        if alone:
            raise StopJobError(
                f"Job {self._context.job!r}: sink {self._name!r} has pieces that were never "
                "finished, or have lost the record of it, and no intact ones of their tasks: "
                f"{_names(alone)}. Nothing tells whether they are decided. Nothing was written.",
                remedy="check whether the target has the rows of these tasks, "
                "and write them by hand if not; end the pieces by hand (docs/by-hand.md), "
                "then run the command again.",
            )
        return unfinished

    def check_one_attempt(self, guessed: Sequence[Committable]) -> None:
        """Check that the pieces to commit that no body lists are of one attempt a checkpoint.

        Raises:
            StopJobError: they are of several, or several are of one task.
        """
        tasks = {(checkpoint_of(piece), piece.subtask.index) for piece in guessed}
        attempts = {(checkpoint_of(piece), piece.transaction.attempt) for piece in guessed}
        checkpoints = {checkpoint for checkpoint, _ in attempts}
        if len(tasks) < len(guessed) or len(attempts) > len(checkpoints):
            raise StopJobError(
                f"Job {self._context.job!r}: sink {self._name!r} has pieces of several attempts, "
                f"and nothing tells which of them is decided: {_names(guessed)}. "
                "Nothing was written.",
                remedy="look at their rows, and end the superseded ones by hand "
                "(docs/by-hand.md), then run the command again.",
            )

    def _was_repaired(self, piece: Committable) -> bool:
        """Return whether a piece was lost, and has reappeared after a repair.

        Its rows may have been written by hand since.
        """
        (lineage, number), task = checkpoint_of(piece), piece.subtask.index
        for repair in self._history.repairs:
            match repair:
                case AcceptedLoss():
                    found = repair.gave_up(self._name, lineage, number, task)
                case Rewrite() if repair.is_of(lineage, number) and repair.sink == self._name:
                    found = repair.replaces(task, piece.transaction.attempt)
                case _:
                    continue
            if found:
                return True
        return False

    def _logged_attempts(self, piece: Committable) -> Iterable[Attempt]:
        """Yield the attempts that the log has decided, or has written again."""
        lineage, number = checkpoint_of(piece)
        for decision in self._history.decisions:
            if (decision.lineage, decision.checkpoint) == (lineage, number):
                yield decision.attempt
        for repair in self._history.repairs:
            if isinstance(repair, Rewrite) and repair.is_of(lineage, number):
                yield repair.replaced
                yield repair.decision.attempt

    def _committed_attempts(self, piece: Committable) -> Iterable[Attempt]:
        """Yield the attempts of the checkpoint's pieces that are committed in any sink."""
        for sink in self._context.sinks:
            for text in self._committed_pieces(sink, piece):
                generation, _, counter = text.partition("/")[0].partition(".")
                yield Attempt(int(generation), int(counter))

    def _committed_pieces(self, sink: str, piece: Committable) -> Sequence[str]:
        found = self._context.sinks[sink]
        return (
            found.committed_pieces(*checkpoint_of(piece)) if isinstance(found, NamesPieces) else ()
        )


def checkpoint_of(piece: Committable) -> tuple[str, int]:
    """Return the lineage and number of a piece's checkpoint."""
    return piece.transaction.lineage, piece.transaction.checkpoint


def is_readable(store: CompletedCheckpointStore, decision: Decision) -> bool:
    """Return whether the body of a decided checkpoint is there and whole."""
    try:
        store.read(decision)
    except (CheckpointMissingError, CorruptRecordError):
        return False
    return True


def _replaces(other: Committable, piece: Committable) -> bool:
    """Return whether `other`, of the same task or another attempt, has the rows of `piece`."""
    if checkpoint_of(other) != checkpoint_of(piece):
        return False
    is_same_task = other.subtask.index == piece.subtask.index
    return other.transaction.attempt != piece.transaction.attempt or is_same_task


def _names(pieces: Sequence[Committable]) -> str:
    return ", ".join(f"{piece.transaction}/{piece.subtask}" for piece in pieces)
