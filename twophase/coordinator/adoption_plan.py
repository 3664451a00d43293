"""The plan of an adoption: what the log would adopt, which waiting pieces are committed, and
where the job goes on.

Each piece is adopted in its own lineage: targets have a mark of every lineage that the job ever
had. `LineageOrder` finds the newest lineage. If it cannot, the lineage that has waiting pieces is
the newest, because a newer one commits nothing before them. If no piece waits, the order stays
unknown: Spark's folder may have just one of them because it is an old copy.

No target records where the newest adopted checkpoint ended. Its body does, if it is the log's
newest decision. Spark's folder does, if it has the offsets of that micro-batch: Spark froze them
before it wrote a row. Otherwise each source begins where its own options say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from twophase.coordinator.context import JobContext
from twophase.coordinator.lineage_order import LineageOrder
from twophase.coordinator.orphans import key_of, pieces_of
from twophase.coordinator.proofs import check_targets
from twophase.coordinator.validation import check_histories
from twophase.errors import CheckpointMissingError, CorruptRecordError, StopJobError
from twophase.ids import Attempt
from twophase.protocol.committable import Committable
from twophase.protocol.sink import NamesPieces, SinkHistory, TellsUnfinished
from twophase.state.checkpoint import CompletedCheckpoint, FrozenOffsets
from twophase.state.entries import AcceptedLoss, Adoption, Decision, Rewrite
from twophase.state.records import History

Frozen = Callable[[str, int], FrozenOffsets | None]
"""Returns the offsets of a micro-batch in Spark's folder, given a lineage and a number;
None if it has none.
"""


@dataclass(frozen=True)
class SinkPlan:
    """The plan for one sink.

    Attributes:
        committed: for each lineage the highest checkpoint that the target has proof of.
        commits: pieces of adopted checkpoints that wait for their commit.
        aborts: pieces that the next start aborts: those of checkpoints that no target has proof of,
            those of superseded attempts, and those that were never pre-committed.
    """

    committed: Mapping[str, int]
    commits: Sequence[Committable]
    aborts: Sequence[Committable]


@dataclass(frozen=True)
class AdoptionPlan:
    """The plan of an adoption.

    Attributes:
        lineage: the newest lineage that the targets know; empty if they know none, or
            its order is unknown.
        checkpoint: its newest adopted checkpoint; -1 if none is.
        ancestors: the highest adopted checkpoint of each lineage; -1 for the log's
            own if none of it is.
        sinks: the plan for each sink, by name.
        end: where that checkpoint ended, or where the log's own lineage begins if none of it is
            adopted; empty if that is not known.
        gave_up: folders of decided checkpoints whose bodies cannot be read.
        continues: whether the log has a decided checkpoint, or a lineage that continues from one.
    """

    lineage: str
    checkpoint: int
    ancestors: Mapping[str, int]
    sinks: Mapping[str, SinkPlan]
    end: tuple[str | None, ...]
    gave_up: tuple[str, ...]
    continues: bool

    @property
    def is_empty(self) -> bool:
        """True if nothing is adopted: the log's lineage has no decision, and the targets have
        no rows of the job.
        """
        return all(checkpoint < 0 for checkpoint in self.ancestors.values())

    def has_newest(self, sink: str) -> bool:
        """Return whether a sink has, or gets, pieces of the newest checkpoint."""
        mine = self.sinks[sink]
        waits = any(
            checkpoint_of(piece) == (self.lineage, self.checkpoint) for piece in mine.commits
        )
        return waits or mine.committed.get(self.lineage, -1) >= self.checkpoint


class AdoptionPlanner:
    """Plans an adoption.

    Args:
        context: the job's.
        frozen: reads the job's folder.
        is_stuck: whether a job with this log cannot continue by itself, even if the log knows all
            that the targets have.
    """

    def __init__(
        self, context: JobContext, frozen: Frozen, is_stuck: Callable[[History], bool]
    ) -> None:
        self._context = context
        self._frozen = frozen
        self._is_stuck = is_stuck

    def plan(self, history: History, remembered: Mapping[str, SinkHistory]) -> AdoptionPlan:
        """Return what an adoption would do, given the log and what the sinks remember.
        Nothing is written.

        Raises:
            StopJobError: a start needs no repair, a target lacks something, or the decisions
                cannot be determined.
        """
        context = self._context
        unreadable = self._unreadable(history)
        if not unreadable:
            self._check_needed(history, remembered)
        check_targets(
            context.proofs, context.proofs.committed(), context.sinks, remembered, may_move=False
        )
        in_doubt = {name: sink.in_doubt() for name, sink in context.sinks.items()}
        order = LineageOrder(history, remembered, context.sinks, in_doubt)
        adopted = _highest(history, remembered)
        sinks = {
            name: self._sink_plan(
                history, name, remembered[name].committed, in_doubt[name], order, adopted
            )
            for name in context.sinks
        }
        lineage = self._newest_lineage(history, sinks, order, adopted)
        checkpoint = adopted.get(lineage, -1)
        end = self._end(history, sinks, lineage, adopted)
        continues = bool(history.decisions) or any(known.ancestors for known in history.lineages)
        return AdoptionPlan(
            lineage,
            checkpoint,
            adopted,
            sinks,
            end,
            tuple(one.folder for one in unreadable),
            continues,
        )

    def _check_needed(self, history: History, remembered: Mapping[str, SinkHistory]) -> None:
        try:
            check_histories(self._context.job, history, remembered)
        except CheckpointMissingError:
            return
        if self._is_stuck(history):
            return
        raise StopJobError(
            f"Job {self._context.job!r}: its folder knows all that the targets have; "
            "there is nothing to adopt.",
            remedy="start the job: it goes on by itself.",
        )

    def _unreadable(self, history: History) -> list[Decision]:
        """Return the decided checkpoints that a start must read but cannot."""
        newest = history.newest(history.lineage.id) if history.lineage else None
        needed = [one for one in history.decisions if not one.committed or one == newest]
        return [one for one in needed if not self._is_readable(one)]

    def _is_readable(self, decision: Decision) -> bool:
        try:
            self._context.store.read(decision)
        except (CheckpointMissingError, CorruptRecordError):
            return False
        return True

    def _newest_lineage(
        self,
        history: History,
        sinks: Mapping[str, SinkPlan],
        order: LineageOrder,
        adopted: Mapping[str, int],
    ) -> str:
        """Return the newest lineage that the log does not know, or else the log's own. Empty if
        the order is unknown.

        Raises:
            StopJobError: pieces wait, and Spark's folder has a different lineage from theirs.
        """
        if not (unknown := [lineage for lineage in adopted if not order.is_known(lineage)]):
            return history.lineage.id if history.lineage else ""
        if len(newest := order.newest(unknown)) == 1:
            return newest[0]
        waiting = {
            piece.transaction.lineage for sink in sinks.values() for piece in sink.commits
        }.intersection(newest)
        kept = {
            lineage for lineage in newest if self._frozen(lineage, adopted[lineage]) is not None
        }
        if len(waiting) > 1 or (kept and waiting - kept):
            raise self._ambiguous(waiting, {lineage: adopted[lineage] for lineage in newest})
        return next(iter(waiting), "")

    def _ambiguous(self, waiting: set[str], newest: Mapping[str, int]) -> StopJobError:
        known = ", ".join(f"{lineage} up to {checkpoint}" for lineage, checkpoint in newest.items())
        return StopJobError(
            f"Job {self._context.job!r}: nothing tells which of the lineages that its targets have "
            f"is the newest: {known}. Pieces of {', '.join(sorted(waiting))} wait, and may be "
            "decided. Nothing was written.",
            remedy="make sure that checkpointLocation names the newest folder of the job. If it "
            "does, leave there what Spark has of the newest lineage only, or nothing (below "
            "spark/; in the plugin form `offsets` beside `metadata`), then run the command again. "
            "Pieces of an older lineage are ended by hand (docs/operations.md).",
        )

    def _sink_plan(
        self,
        history: History,
        name: str,
        committed: Mapping[str, int],
        in_doubt: Sequence[Committable],
        order: LineageOrder,
        adopted: Mapping[str, int],
    ) -> SinkPlan:
        commits: list[Committable] = []
        aborts: list[Committable] = []
        for piece in in_doubt:
            lineage, number = piece.transaction.lineage, piece.transaction.checkpoint
            waits = number <= adopted.get(lineage, -1) and not order.is_followed(lineage, number)
            waits = waits and not self._is_over(history, name, committed.get(lineage, -1), piece)
            (commits if waits and self._is_decided(history, name, piece) else aborts).append(piece)
        commits.sort(key=oldest_first(order))
        guessed = [piece for piece in commits if self._body(history, piece) is None]
        unfinished = self._unfinished(name, guessed)
        commits, guessed = (
            [one for one in found if one not in unfinished] for found in (commits, guessed)
        )
        tasks = {(checkpoint_of(piece), piece.subtask.index) for piece in guessed}
        attempts = {(checkpoint_of(piece), piece.transaction.attempt) for piece in guessed}
        if len(tasks) < len(guessed) or len(attempts) > len(
            {checkpoint for checkpoint, _ in attempts}
        ):
            names = ", ".join(f"{piece.transaction}/{piece.subtask}" for piece in guessed)
            raise StopJobError(
                f"Job {self._context.job!r}: sink {name!r} has pieces of several attempts, and "
                f"nothing tells which of them is decided: {names}. Nothing was written.",
                remedy="look at their rows, and end the superseded ones by hand "
                "(docs/operations.md), then run the command again.",
            )
        return SinkPlan(dict(committed), tuple(commits), (*aborts, *unfinished))

    def _unfinished(self, name: str, guessed: Sequence[Committable]) -> Sequence[Committable]:
        """Return the pieces of adopted checkpoints that were never pre-committed: another writer
        rewrote their rows.

        Raises:
            StopJobError: one has no intact piece in its place. It may be decided, and its own
                record lost or damaged.
        """
        sink = self._context.sinks[name]
        if not isinstance(sink, TellsUnfinished) or not guessed:
            return []
        unfinished = list(sink.unfinished(guessed))
        whole = [piece for piece in guessed if piece.handle and piece not in unfinished]
        alone = [
            piece
            for piece in guessed
            if piece not in whole and not any(_replaces(other, piece) for other in whole)
        ]
        if alone:
            names = ", ".join(f"{piece.transaction}/{piece.subtask}" for piece in alone)
            raise StopJobError(
                f"Job {self._context.job!r}: sink {name!r} has pieces that were never finished, "
                f"or have lost the record of it, and no intact ones of their tasks: {names}. "
                "Nothing tells whether they are decided. "
                "Nothing was written.",
                remedy="check whether the target has the rows of these tasks, "
                "and write them by hand if not; end the pieces by hand (docs/operations.md), "
                "then run the command again.",
            )
        return unfinished

    def _is_over(self, history: History, name: str, proven: int, piece: Committable) -> bool:
        """Return whether the sink has committed every decided piece of the piece's checkpoint.

        Commits are in order, and an adoption commits all earlier decisions before it is recorded.
        """
        (lineage, number), sink = checkpoint_of(piece), self._context.sinks[name]
        adoptions = [repair.lineage for repair in history.repairs if isinstance(repair, Adoption)]
        if any(number <= adoption.ancestors.get(lineage, -1) for adoption in adoptions):
            return True
        only_a_mark = isinstance(sink, NamesPieces) and not sink.committed_pieces(lineage, number)
        return proven > number or (proven == number and only_a_mark)

    def _is_decided(self, history: History, name: str, piece: Committable) -> bool:
        """Return whether a piece of an adopted checkpoint belongs to the decided attempt and
        is not superseded.
        """
        if (body := self._body(history, piece)) is not None:
            return key_of(piece) in pieces_of([body])
        lineage, number = piece.transaction.lineage, piece.transaction.checkpoint
        tasks = [
            text.partition("/")[2].partition(".")[0]
            for text in self._committed_pieces(name, lineage, number)
        ]
        if str(piece.subtask.index) in tasks:
            return False  # another piece of the task is committed
        attempts = {
            one.attempt
            for one in history.decisions
            if (one.lineage, one.checkpoint) == (lineage, number)
        }
        for repair in history.repairs:
            if isinstance(repair, AcceptedLoss) and repair.gave_up(
                name, lineage, number, piece.subtask.index
            ):
                # it was lost, and has reappeared; its rows may have been written by hand since
                return False
            if isinstance(repair, Rewrite) and repair.is_of(lineage, number):
                if repair.sink == name and repair.withdrew(
                    piece.subtask.index, piece.transaction.attempt
                ):
                    return False  # likewise
                attempts |= {repair.replaced, repair.decision.attempt}
        for sink in self._context.sinks:
            for text in self._committed_pieces(sink, lineage, number):
                generation, _, counter = text.partition("/")[0].partition(".")
                attempts.add(Attempt(int(generation), int(counter)))
        return not attempts or piece.transaction.attempt in attempts

    def _body(self, history: History, piece: Committable) -> CompletedCheckpoint | None:
        """Return the checkpoint of a piece, which lists the decided pieces, if the log has it
        and it can be read.
        """
        mine = (piece.transaction.lineage, piece.transaction.checkpoint)
        found = next(
            (one for one in history.decisions if (one.lineage, one.checkpoint) == mine), None
        )
        return self._context.store.read(found) if found and self._is_readable(found) else None

    def _committed_pieces(self, sink: str, lineage: str, checkpoint: int) -> Sequence[str]:
        found = self._context.sinks[sink]
        return found.committed_pieces(lineage, checkpoint) if isinstance(found, NamesPieces) else ()

    def _end(
        self,
        history: History,
        sinks: Mapping[str, SinkPlan],
        lineage: str,
        adopted: Mapping[str, int],
    ) -> tuple[str | None, ...]:
        checkpoint = adopted.get(lineage, -1)
        # First, because it rejects a lineage with state in Spark.
        frozen = self._frozen(lineage, checkpoint) if lineage else None
        if checkpoint < 0:
            return self._begin(history, lineage, adopted)
        newest = (lineage, checkpoint)
        decision = next(
            (one for one in history.decisions if (one.lineage, one.checkpoint) == newest), None
        )
        if decision is not None and self._is_readable(decision):
            return self._context.store.read(decision).offsets.end
        if frozen is None:
            return ()
        waiting = [piece for sink in sinks.values() for piece in sink.commits]
        hashes = [
            piece.transaction.offsets_hash for piece in waiting if checkpoint_of(piece) == newest
        ]
        hashes += [decision.offsets_hash] if decision else []
        # an xid holds only a prefix of the hash
        if not all(frozen.hash.startswith(found) for found in hashes):
            # Spark's folder is not from the same time as the log, or as the waiting pieces
            return ()
        return frozen.end

    def _begin(
        self, history: History, lineage: str, adopted: Mapping[str, int]
    ) -> tuple[str | None, ...]:
        """Return where the log's own lineage begins, unless another driver has advanced a lineage
        that it continues.
        """
        own = history.lineage
        if (
            own is None
            or own.id != lineage
            or any(last > own.ancestors.get(one, -1) for one, last in adopted.items())
        ):
            return ()
        return own.start


def _highest(history: History, remembered: Mapping[str, SinkHistory]) -> dict[str, int]:
    """Return each lineage's highest checkpoint that a target has proof of, or that the log has
    decided and needs.
    """
    adopted = {history.lineage.id: -1} if history.lineage else {}
    newest = history.newest(history.lineage.id) if history.lineage else None
    # the newest may have no rows in any target
    decided = [*history.uncommitted(), *([newest] if newest else [])]
    found = [(decision.lineage, decision.checkpoint) for decision in decided]
    for lineage, checkpoint in [
        *found,
        *(one for memory in remembered.values() for one in memory.committed.items()),
    ]:
        adopted[lineage] = max(adopted.get(lineage, -1), checkpoint)
    return adopted


def oldest_first(order: LineageOrder) -> Callable[[Committable], tuple[float, int]]:
    """Return the sort key for commits, oldest first."""
    return lambda piece: (order.rank(piece.transaction.lineage), piece.transaction.checkpoint)


def _replaces(other: Committable, piece: Committable) -> bool:
    """Return whether `other` has the rows meant for `piece`: as another attempt of its task, or
    of its checkpoint.
    """
    if checkpoint_of(other) != checkpoint_of(piece):
        return False
    return (
        other.transaction.attempt != piece.transaction.attempt
        or other.subtask.index == piece.subtask.index
    )


def checkpoint_of(piece: Committable) -> tuple[str, int]:
    """Return the lineage and number of a piece's checkpoint."""
    return piece.transaction.lineage, piece.transaction.checkpoint
