"""A repair: the log takes over what the targets have proof of, where the job's folder is old, damaged or gone.

A piece that is committed was decided (I1), whatever this folder knows. So the checkpoints that a target has proof of are taken
for committed, a new lineage goes on behind them, and what is pre-committed of them in other sinks is committed (I2).

    1. show       the plan; nothing is written by it. The operator says yes
    2. take over  a fence in the log; the plan is made again, and has to be the same
    3. commit     what this log has decided, oldest first, as its bodies or else the targets list it; then the pieces that only
                  the targets know of adopted checkpoints
    4. record     REPAIRED, which begins the new lineage: this is the repair

A death before step 4 leaves a job that refuses to start as before; the command can be run again. Where no target has proof of
anything, the fence of step 2 is all that the job was refused for: then a start goes on as it would after the repair.

Each piece is adopted by its own lineage: targets have a mark of every lineage that the job ever had. `LineageOrder` finds the
newest lineage. Where it cannot, the lineage that pieces wait of is the newest, because a newer one commits nothing before them.
Where no piece waits, nothing tells: that Spark's folder has one of them only may be because it is an old copy.

No target says where the newest adopted checkpoint ended. Its body does, if it is the log's newest decision. Spark's folder does,
if it has the offsets of that micro-batch: Spark froze them before it wrote a row. Otherwise each source begins where its own
options say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from twophase.coordinator.lineage_order import LineageOrder
from twophase.coordinator.orphans import key_of, pieces_of
from twophase.coordinator.proofs import check_targets
from twophase.coordinator.recovery import check_histories, take_over
from twophase.coordinator.repair import RepairContext
from twophase.errors import CheckpointMissingError, CorruptRecordError, LostCommittableError, StopJobError
from twophase.failpoints import failpoint
from twophase.ids import Attempt, new_lineage_id
from twophase.protocol.committable import Committable
from twophase.protocol.sink import NamesPieces, SinkHistory, TellsUnfinished
from twophase.state.checkpoint import CompletedCheckpoint, FrozenOffsets
from twophase.state.records import (
    AcceptedLoss,
    Adoption,
    Decision,
    History,
    Lineage,
    Note,
    Proof,
    RepairedRecord,
    Rewrite,
)

Frozen = Callable[[str, int], FrozenOffsets | None]
"""What Spark's folder has as the offsets of a micro-batch, of a lineage and a number; None if it has none."""


@dataclass(frozen=True)
class SinkPlan:
    """What becomes of one sink.

    Attributes:
        committed: for each lineage the highest checkpoint that the target has proof of.
        commits: pieces of adopted checkpoints that wait for their commit.
        aborts: pieces that the next start aborts: of checkpoints that no target has proof of, of superseded attempts, and
            those that were never pre-committed.
    """

    committed: Mapping[str, int]
    commits: Sequence[Committable]
    aborts: Sequence[Committable]


@dataclass(frozen=True)
class AdoptionPlan:
    """What the log takes over.

    Attributes:
        lineage: the newest lineage that the targets know; empty if it cannot be told which one that is, or they know none.
        checkpoint: its newest checkpoint that is adopted; -1 if none is.
        ancestors: the highest adopted checkpoint of each lineage; -1 for the log's own if none of it is.
        sinks: by name.
        end: where that checkpoint ended, or where the log's own lineage begins if none of it is adopted; empty if that is not known.
        gave_up: folders of decided checkpoints whose bodies cannot be read.
        continues: whether the log has a decided checkpoint, or a lineage that goes on behind one.
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
        """Whether nothing is adopted: the log has no decision of its lineage, and the targets have no row of the job."""
        return all(checkpoint < 0 for checkpoint in self.ancestors.values())

    def has_newest(self, sink: str) -> bool:
        """Whether a sink has, or gets, something of the newest checkpoint."""
        mine = self.sinks[sink]
        waits = any(_checkpoint_of(piece) == (self.lineage, self.checkpoint) for piece in mine.commits)
        return waits or mine.committed.get(self.lineage, -1) >= self.checkpoint


class AdoptionRepair:
    """Lets the log take over what the targets have proof of.

    Args:
        context: the job's.
        frozen: of the job's folder.
        is_stuck: whether a job with this log cannot go on by itself, even if the log knows all that the targets have.
    """

    def __init__(
        self, context: RepairContext, frozen: Frozen, is_stuck: Callable[[History], bool] = lambda _: False
    ) -> None:
        self._context = context
        self._frozen = frozen
        self._is_stuck = is_stuck

    def plan(self) -> AdoptionPlan:
        """Step 1.

        Raises:
            StopJobError: a start would go on by itself, a target lacks something, or it cannot be told what is decided.
        """
        return self._plan(self._context.log.read(), self._remembered())

    def adopt(self, plan: AdoptionPlan, note: Note) -> Lineage:
        """Steps 2 to 4. Returns the new lineage.

        Raises:
            StopJobError: something has changed since the plan was made, or a piece cannot be committed.
        """
        context, remembered = self._context, self._remembered()

        def check(history: History) -> None:
            if self._plan(history, remembered) != plan:
                raise StopJobError(
                    f"Job {context.job!r}: the folder or a target has changed since the plan was shown. Nothing was adopted.",
                    remedy="make sure that no driver of the job runs, then run the command again.",
                )

        take_over(context.log, remembered, check)
        failpoint("R01")
        self._commit(plan)
        failpoint("R02")
        lineage = Lineage(
            new_lineage_id(),
            first_checkpoint=1 if plan.end else 0,
            start=plan.end,
            ancestors=plan.ancestors,
            proofs=self._proofs(plan),
        )
        context.log.append(RepairedRecord(Adoption(note, lineage, plan.gave_up)))
        failpoint("R03")
        return lineage

    def _remembered(self) -> dict[str, SinkHistory]:
        return {name: sink.history() for name, sink in self._context.sinks.items()}

    # -- the plan --------------------------------------------------------------------------------------------------------

    def _plan(self, history: History, remembered: Mapping[str, SinkHistory]) -> AdoptionPlan:
        context = self._context
        unreadable = self._unreadable(history)
        if not unreadable:
            self._check_needed(history, remembered)
        check_targets(context.proofs, context.proofs.committed(), context.sinks, remembered, may_move=False)
        in_doubt = {name: sink.in_doubt() for name, sink in context.sinks.items()}
        order = LineageOrder(history, remembered, context.sinks, in_doubt)
        adopted = _highest(history, remembered)
        sinks = {
            name: self._sink_plan(history, name, remembered[name].committed, in_doubt[name], order, adopted)
            for name in context.sinks
        }
        lineage = self._newest_lineage(history, sinks, order, adopted)
        checkpoint = adopted.get(lineage, -1)
        end = self._end(history, sinks, lineage, adopted)
        continues = bool(history.decisions) or any(known.ancestors for known in history.lineages)
        return AdoptionPlan(
            lineage, checkpoint, adopted, sinks, end, tuple(one.folder for one in unreadable), continues
        )

    def _check_needed(self, history: History, remembered: Mapping[str, SinkHistory]) -> None:
        try:
            check_histories(self._context.job, history, remembered)
        except CheckpointMissingError:
            return
        if self._is_stuck(history):
            return
        raise StopJobError(
            f"Job {self._context.job!r}: its folder knows all that the targets have; there is nothing to adopt.",
            remedy="start the job: it goes on by itself.",
        )

    def _unreadable(self, history: History) -> list[Decision]:
        """Decided checkpoints that a start has to read and cannot."""
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
        self, history: History, sinks: Mapping[str, SinkPlan], order: LineageOrder, adopted: Mapping[str, int]
    ) -> str:
        """The newest that the log does not know, if there is such a one; otherwise its own. Empty if it cannot be told.

        Raises:
            StopJobError: pieces wait, and Spark's folder has another lineage than theirs.
        """
        if not (unknown := [lineage for lineage in adopted if not order.is_known(lineage)]):
            return history.lineage.id if history.lineage else ""
        if len(newest := order.newest(unknown)) == 1:
            return newest[0]
        waiting = {piece.transaction.lineage for sink in sinks.values() for piece in sink.commits}.intersection(newest)
        kept = {lineage for lineage in newest if self._frozen(lineage, adopted[lineage]) is not None}
        if len(waiting) > 1 or (kept and waiting - kept):
            raise self._ambiguous(waiting, {lineage: adopted[lineage] for lineage in newest})
        return next(iter(waiting), "")

    def _ambiguous(self, waiting: set[str], newest: Mapping[str, int]) -> StopJobError:
        known = ", ".join(f"{lineage} up to {checkpoint}" for lineage, checkpoint in newest.items())
        return StopJobError(
            f"Job {self._context.job!r}: nothing tells which of the lineages that its targets have is the newest: {known}. "
            f"Pieces wait of {', '.join(sorted(waiting))}, and may be decided. Nothing was written.",
            remedy="make sure that checkpointLocation names the newest folder of the job. If it does, leave there what Spark has "
            "of the newest lineage only, or nothing (below spark/; in the plugin form `offsets` beside `metadata`), then run "
            "the command again. Pieces of an older lineage are ended by hand (docs/operations.md).",
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
        commits.sort(key=_oldest_first(order))
        guessed = [piece for piece in commits if self._body(history, piece) is None]
        unfinished = self._unfinished(name, guessed)
        commits, guessed = ([one for one in found if one not in unfinished] for found in (commits, guessed))
        tasks = {(_checkpoint_of(piece), piece.subtask.index) for piece in guessed}
        attempts = {(_checkpoint_of(piece), piece.transaction.attempt) for piece in guessed}
        if len(tasks) < len(guessed) or len(attempts) > len({checkpoint for checkpoint, _ in attempts}):
            names = ", ".join(f"{piece.transaction}/{piece.subtask}" for piece in guessed)
            raise StopJobError(
                f"Job {self._context.job!r}: sink {name!r} has pieces of several attempts, and nothing tells which of them "
                f"is decided: {names}. Nothing was written.",
                remedy="look at their rows, and end the superseded ones by hand (docs/operations.md), then run the command again.",
            )
        return SinkPlan(dict(committed), tuple(commits), (*aborts, *unfinished))

    def _unfinished(self, name: str, guessed: Sequence[Committable]) -> Sequence[Committable]:
        """Pieces of adopted checkpoints that were never pre-committed: the writer died, and another wrote the rows again.

        Raises:
            StopJobError: nothing whole is there in place of one. Then it may be decided, and what showed it lost or damaged.
        """
        sink = self._context.sinks[name]
        if not isinstance(sink, TellsUnfinished) or not guessed:
            return []
        unfinished = list(sink.unfinished(guessed))
        whole = [piece for piece in guessed if piece.handle and piece not in unfinished]
        alone = [
            piece for piece in guessed if piece not in whole and not any(_replaces(other, piece) for other in whole)
        ]
        if alone:
            names = ", ".join(f"{piece.transaction}/{piece.subtask}" for piece in alone)
            raise StopJobError(
                f"Job {self._context.job!r}: sink {name!r} has pieces that were not brought to their end, or have lost what says "
                f"so, and no whole ones of their tasks: {names}. Nothing tells whether they are decided. Nothing was written.",
                remedy="look whether the target has the rows of these tasks, and write them by hand if not; end the pieces by "
                "hand (docs/operations.md), then run the command again.",
            )
        return unfinished

    def _is_over(self, history: History, name: str, proven: int, piece: Committable) -> bool:
        """Whether the sink has committed all that is decided of the piece's checkpoint.

        Commits are in order, and an adoption has committed what was decided before it was recorded.
        """
        (lineage, number), sink = _checkpoint_of(piece), self._context.sinks[name]
        adoptions = [repair.lineage for repair in history.repairs if isinstance(repair, Adoption)]
        if any(number <= adoption.ancestors.get(lineage, -1) for adoption in adoptions):
            return True
        only_a_mark = isinstance(sink, NamesPieces) and not sink.committed_pieces(lineage, number)
        return proven > number or (proven == number and only_a_mark)

    def _is_decided(self, history: History, name: str, piece: Committable) -> bool:
        """Whether a piece of an adopted checkpoint belongs to the attempt that was decided, and is no superseded one of it."""
        if (body := self._body(history, piece)) is not None:
            return key_of(piece) in pieces_of([body])
        lineage, number = piece.transaction.lineage, piece.transaction.checkpoint
        tasks = [text.partition("/")[2].partition(".")[0] for text in self._committed_pieces(name, lineage, number)]
        if str(piece.subtask.index) in tasks:
            return False  # another piece of the task is committed
        attempts = {one.attempt for one in history.decisions if (one.lineage, one.checkpoint) == (lineage, number)}
        for repair in history.repairs:
            if isinstance(repair, AcceptedLoss) and repair.gave_up(name, lineage, number, piece.subtask.index):
                return False  # it was lost, and is back; its rows may have been written by hand since
            if isinstance(repair, Rewrite) and repair.is_of(lineage, number):
                if repair.sink == name and repair.withdrew(piece.subtask.index, piece.transaction.attempt):
                    return False  # likewise
                attempts |= {repair.replaced, repair.decision.attempt}
        for sink in self._context.sinks:
            for text in self._committed_pieces(sink, lineage, number):
                generation, _, counter = text.partition("/")[0].partition(".")
                attempts.add(Attempt(int(generation), int(counter)))
        return not attempts or piece.transaction.attempt in attempts

    def _body(self, history: History, piece: Committable) -> CompletedCheckpoint | None:
        """The checkpoint of a piece, if the log has it and it can be read: it lists what is decided."""
        mine = (piece.transaction.lineage, piece.transaction.checkpoint)
        found = next((one for one in history.decisions if (one.lineage, one.checkpoint) == mine), None)
        return self._context.store.read(found) if found and self._is_readable(found) else None

    def _committed_pieces(self, sink: str, lineage: str, checkpoint: int) -> Sequence[str]:
        found = self._context.sinks[sink]
        return found.committed_pieces(lineage, checkpoint) if isinstance(found, NamesPieces) else ()

    def _end(
        self, history: History, sinks: Mapping[str, SinkPlan], lineage: str, adopted: Mapping[str, int]
    ) -> tuple[str | None, ...]:
        checkpoint = adopted.get(lineage, -1)
        # First of all: it refuses a lineage with state in Spark.
        frozen = self._frozen(lineage, checkpoint) if lineage else None
        if checkpoint < 0:
            return self._begin(history, lineage, adopted)
        newest = (lineage, checkpoint)
        decision = next((one for one in history.decisions if (one.lineage, one.checkpoint) == newest), None)
        if decision is not None and self._is_readable(decision):
            return self._context.store.read(decision).offsets.end
        if frozen is None:
            return ()
        waiting = [piece for sink in sinks.values() for piece in sink.commits]
        hashes = [piece.transaction.offsets_hash for piece in waiting if _checkpoint_of(piece) == newest]
        hashes += [decision.offsets_hash] if decision else []
        if not all(frozen.hash.startswith(found) for found in hashes):  # an xid has the start of a hash only
            return ()  # Spark's folder is of another time than the log, or than what waits
        return frozen.end

    def _begin(self, history: History, lineage: str, adopted: Mapping[str, int]) -> tuple[str | None, ...]:
        """Where the log's own lineage begins, unless another driver has gone on in one that it continues."""
        own = history.lineage
        if own is None or own.id != lineage or any(last > own.ancestors.get(one, -1) for one, last in adopted.items()):
            return ()
        return own.start

    # -- the deed --------------------------------------------------------------------------------------------------------

    def _commit(self, plan: AdoptionPlan) -> None:
        """Step 3, oldest first."""
        context = self._context
        for decision in context.log.history.uncommitted():
            if decision.folder not in plan.gave_up:
                context.commit_loop.commit(context.store.read(decision))  # no COMMITTED: one before it may have no body
            else:
                self._commit_pieces(plan, (decision.lineage, decision.checkpoint))
        order = LineageOrder(context.log.history, {}, {}, {})  # the log's alone, as in each sink
        waiting = sorted((one for sink in plan.sinks.values() for one in sink.commits), key=_oldest_first(order))
        for checkpoint in dict.fromkeys(_checkpoint_of(piece) for piece in waiting):
            self._commit_pieces(plan, checkpoint)

    def _commit_pieces(self, plan: AdoptionPlan, checkpoint: tuple[str, int]) -> None:
        """Commit what waits of a checkpoint without body. Those before it are committed."""
        context, (lineage, number) = self._context, checkpoint
        for name, sink in plan.sinks.items():
            pieces = [piece for piece in sink.commits if _checkpoint_of(piece) == checkpoint]
            if not pieces:
                continue
            whole = CompletedCheckpoint(
                context.job,
                lineage,
                number,
                pieces[0].transaction.attempt,
                0,
                FrozenOffsets((), ()),
                committables={name: pieces},
            )
            if lost := context.commit_loop.lost(whole, name):
                raise LostCommittableError(
                    f"Job {context.job!r}: {len(lost)} pieces of checkpoint {number} were pre-committed in sink {name!r} "
                    f"and are lost: {lost[0][1]}. Nothing was adopted.",
                    remedy="run the command again: it shows what is there now.",
                )

    def _proofs(self, plan: AdoptionPlan) -> tuple[Proof, ...]:
        """What every target has to have proof of from now on: its newest lineage; each that may be it, where that is not known."""
        remembered, sinks = self._remembered(), self._context.sinks
        order = LineageOrder(self._context.log.history, remembered, sinks, {})
        proofs = []
        for name, memory in remembered.items():
            newest = [plan.lineage] if plan.lineage in memory.committed else order.newest(memory.committed)
            proofs += [Proof(name, one, memory.committed[one], sinks[name].target()) for one in newest]
        return tuple(proofs)


def _highest(history: History, remembered: Mapping[str, SinkHistory]) -> dict[str, int]:
    """The highest checkpoint of each lineage that a target has proof of, or that the log has decided and still needs."""
    adopted = {history.lineage.id: -1} if history.lineage else {}
    newest = history.newest(history.lineage.id) if history.lineage else None
    decided = [*history.uncommitted(), *([newest] if newest else [])]  # no target need have rows of the newest
    found = [(decision.lineage, decision.checkpoint) for decision in decided]
    for lineage, checkpoint in [*found, *(one for memory in remembered.values() for one in memory.committed.items())]:
        adopted[lineage] = max(adopted.get(lineage, -1), checkpoint)
    return adopted


def _oldest_first(order: LineageOrder) -> Callable[[Committable], tuple[float, int]]:
    """The key by which pieces are committed."""
    return lambda piece: (order.rank(piece.transaction.lineage), piece.transaction.checkpoint)


def _replaces(other: Committable, piece: Committable) -> bool:
    """Whether one piece has rows that another was to have: another attempt of its task, or of its checkpoint."""
    if _checkpoint_of(other) != _checkpoint_of(piece):
        return False
    return other.transaction.attempt != piece.transaction.attempt or other.subtask.index == piece.subtask.index


def _checkpoint_of(piece: Committable) -> tuple[str, int]:
    """Its lineage and number."""
    return piece.transaction.lineage, piece.transaction.checkpoint
