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

Where the newest adopted checkpoint ended, no target says. Spark's folder does, if it has the offsets of that micro-batch: they
were frozen before a row of it was written. Otherwise the source begins where its own options say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from twophase.coordinator.orphans import key_of, pieces_of
from twophase.coordinator.proofs import check_targets
from twophase.coordinator.recovery import check_histories, take_over
from twophase.coordinator.repair import Bench
from twophase.errors import CheckpointMissingError, CorruptRecordError, LostPreparedError, StopJobError
from twophase.failpoints import failpoint
from twophase.ids import Attempt, new_lineage_id
from twophase.protocol.committable import Committable
from twophase.protocol.sink import NamesPieces, SinkHistory
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
        aborts: pieces that the next start aborts: of checkpoints that no target has proof of, and of superseded attempts.
    """

    committed: Mapping[str, int]
    commits: Sequence[Committable]
    aborts: Sequence[Committable]


@dataclass(frozen=True)
class AdoptionPlan:
    """What the log takes over.

    Attributes:
        lineage: the newest lineage that the targets know; empty if it cannot be told which one that is.
        checkpoint: its newest checkpoint that is adopted.
        sinks: by name.
        end: where that checkpoint ended, by Spark's folder; empty if that is not known.
        gave_up: folders of decided checkpoints whose bodies cannot be read.
    """

    lineage: str
    checkpoint: int
    sinks: Mapping[str, SinkPlan]
    end: tuple[str | None, ...]
    gave_up: tuple[str, ...]

    @property
    def ancestors(self) -> dict[str, int]:
        """The highest adopted checkpoint of each lineage."""
        highest = {self.lineage: self.checkpoint} if self.lineage else {}
        for sink in self.sinks.values():
            for lineage, checkpoint in sink.committed.items():
                highest[lineage] = max(highest.get(lineage, -1), checkpoint)
        return highest


class AdoptionRepair:
    """Lets the log take over what the targets have proof of.

    Args:
        bench: the job's.
        frozen: of the job's folder.
    """

    def __init__(self, bench: Bench, frozen: Frozen) -> None:
        self._bench = bench
        self._frozen = frozen

    def plan(self) -> AdoptionPlan:
        """Step 1.

        Raises:
            StopJobError: a start would go on by itself, a target lacks something, or it cannot be told what is decided.
        """
        return self._plan(self._bench.log.read(), self._remembered())

    def adopt(self, plan: AdoptionPlan, note: Note) -> None:
        """Steps 2 to 4.

        Raises:
            StopJobError: something has changed since the plan was made, or a piece cannot be committed.
        """
        bench, remembered = self._bench, self._remembered()

        def check(history: History) -> None:
            if self._plan(history, remembered) != plan:
                raise StopJobError(
                    f"Job {bench.job!r}: the folder or a target has changed since the plan was shown. Nothing was adopted.",
                    remedy="make sure that no driver of the job runs, then run the command again.",
                )

        take_over(bench.log, remembered, check)
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
        bench.log.append(RepairedRecord(Adoption(note, lineage, plan.gave_up)))
        failpoint("R03")

    def _remembered(self) -> dict[str, SinkHistory]:
        return {name: sink.history() for name, sink in self._bench.sinks.items()}

    # -- the plan --------------------------------------------------------------------------------------------------------

    def _plan(self, history: History, remembered: Mapping[str, SinkHistory]) -> AdoptionPlan:
        bench = self._bench
        unreadable = self._unreadable(history)
        if not unreadable:
            self._check_needed(history, remembered)
        check_targets(bench.proofs, bench.proofs.committed(), bench.sinks, remembered, may_move=False)
        lineage = self._newest_lineage(history, remembered)
        proven = max((sink.committed.get(lineage, -1) for sink in remembered.values()), default=-1)
        decided = [*unreadable, *history.uncommitted()]  # what can be read is committed too
        checkpoint = max([proven, *(one.checkpoint for one in decided if one.lineage == lineage)])
        sinks = {
            name: self._sink_plan(history, name, remembered[name].committed, lineage, checkpoint)
            for name in bench.sinks
        }
        end = self._end(history, lineage, checkpoint)
        return AdoptionPlan(lineage, checkpoint, sinks, end, tuple(one.folder for one in unreadable))

    def _check_needed(self, history: History, remembered: Mapping[str, SinkHistory]) -> None:
        try:
            check_histories(self._bench.job, history, remembered)
        except CheckpointMissingError:
            return
        raise StopJobError(
            f"Job {self._bench.job!r}: its folder knows all that the targets have; there is nothing to adopt.",
            remedy="start the job: it goes on by itself.",
        )

    def _unreadable(self, history: History) -> list[Decision]:
        """Decided checkpoints that a start has to read and cannot."""
        newest = history.newest(history.lineage.id) if history.lineage else None
        needed = [one for one in history.decisions if not one.committed or one == newest]
        return [one for one in needed if not self._is_readable(one)]

    def _is_readable(self, decision: Decision) -> bool:
        try:
            self._bench.store.read(decision)
        except (CheckpointMissingError, CorruptRecordError):
            return False
        return True

    @staticmethod
    def _newest_lineage(history: History, remembered: Mapping[str, SinkHistory]) -> str:
        """The one that the log does not know, if there is such a one; otherwise its own. Empty if there are several."""
        known = {one.id for one in history.lineages} | {id for one in history.lineages for id in one.ancestors}
        unknown = {lineage for sink in remembered.values() for lineage in sink.committed} - known
        if unknown:
            return next(iter(unknown)) if len(unknown) == 1 else ""
        return history.lineage.id if history.lineage else ""

    def _sink_plan(
        self, history: History, name: str, committed: Mapping[str, int], lineage: str, checkpoint: int
    ) -> SinkPlan:
        commits: list[Committable] = []
        aborts: list[Committable] = []
        for piece in self._bench.sinks[name].in_doubt():
            mine = piece.transaction.lineage == lineage and piece.transaction.checkpoint <= checkpoint
            proven = committed.get(lineage, -1)
            adopted = mine and not self._is_over(name, proven, piece) and self._is_decided(history, name, piece)
            (commits if adopted else aborts).append(piece)
        guessed = [piece for piece in commits if self._body(history, piece) is None]
        tasks = {(piece.transaction.checkpoint, piece.subtask.index) for piece in guessed}
        attempts = {(piece.transaction.checkpoint, piece.transaction.attempt) for piece in guessed}
        if len(tasks) < len(guessed) or len(attempts) > len({number for number, _ in attempts}):
            names = ", ".join(f"{piece.transaction}/{piece.subtask}" for piece in guessed)
            raise StopJobError(
                f"Job {self._bench.job!r}: sink {name!r} has pieces of several attempts, and nothing tells which of them "
                f"is decided: {names}. Nothing was written.",
                remedy="look at their rows, and end the superseded ones by hand (docs/operations.md), then run the command again.",
            )
        return SinkPlan(dict(committed), tuple(commits), tuple(aborts))

    def _is_over(self, name: str, proven: int, piece: Committable) -> bool:
        """Whether the sink has committed all that is decided of the piece's checkpoint: commits are in order."""
        number, sink = piece.transaction.checkpoint, self._bench.sinks[name]
        only_a_mark = isinstance(sink, NamesPieces) and not sink.committed_pieces(piece.transaction.lineage, number)
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
        for sink in self._bench.sinks:
            for text in self._committed_pieces(sink, lineage, number):
                generation, _, counter = text.partition("/")[0].partition(".")
                attempts.add(Attempt(int(generation), int(counter)))
        return not attempts or piece.transaction.attempt in attempts

    def _body(self, history: History, piece: Committable) -> CompletedCheckpoint | None:
        """The checkpoint of a piece, if the log has it and it can be read: it lists what is decided."""
        mine = (piece.transaction.lineage, piece.transaction.checkpoint)
        found = next((one for one in history.decisions if (one.lineage, one.checkpoint) == mine), None)
        return self._bench.store.read(found) if found and self._is_readable(found) else None

    def _committed_pieces(self, sink: str, lineage: str, checkpoint: int) -> Sequence[str]:
        found = self._bench.sinks[sink]
        return found.committed_pieces(lineage, checkpoint) if isinstance(found, NamesPieces) else ()

    def _end(self, history: History, lineage: str, checkpoint: int) -> tuple[str | None, ...]:
        frozen = self._frozen(lineage, checkpoint) if lineage and checkpoint >= 0 else None
        if frozen is None:
            return ()
        hashes = [
            one.offsets_hash for one in history.decisions if (one.lineage, one.checkpoint) == (lineage, checkpoint)
        ]
        if any(found != frozen.hash for found in hashes):
            return ()  # Spark's folder is of another time than the log
        return frozen.end

    # -- the deed --------------------------------------------------------------------------------------------------------

    def _commit(self, plan: AdoptionPlan) -> None:
        """Step 3, oldest first."""
        bench = self._bench
        for decision in bench.log.history.uncommitted():
            if decision.folder not in plan.gave_up:
                bench.committer.commit(bench.store.read(decision))  # no COMMITTED: one before it may have no body
            elif decision.lineage == plan.lineage:
                self._commit_pieces(plan, decision.checkpoint)
        for number in sorted({piece.transaction.checkpoint for sink in plan.sinks.values() for piece in sink.commits}):
            self._commit_pieces(plan, number)

    def _commit_pieces(self, plan: AdoptionPlan, number: int) -> None:
        """Commit what waits of a checkpoint without body. Those before it are committed."""
        bench = self._bench
        for name, sink in plan.sinks.items():
            pieces = [piece for piece in sink.commits if piece.transaction.checkpoint == number]
            if not pieces:
                continue
            whole = CompletedCheckpoint(
                bench.job,
                plan.lineage,
                number,
                pieces[0].transaction.attempt,
                0,
                FrozenOffsets((), ()),
                committables={name: pieces},
            )
            if lost := bench.committer.lost(whole, name):
                raise LostPreparedError(
                    f"Job {bench.job!r}: {len(lost)} pieces of checkpoint {number} were pre-committed in sink {name!r} "
                    f"and are lost: {lost[0][1]}. Nothing was adopted.",
                    remedy="run the command again: it shows what is there now.",
                )

    def _proofs(self, plan: AdoptionPlan) -> tuple[Proof, ...]:
        """What every target has to have proof of from now on."""
        proofs = []
        for name, history in self._remembered().items():
            if history.committed:
                newest = plan.lineage if plan.lineage in history.committed else max(history.committed)
                proofs.append(Proof(name, newest, history.committed[newest], self._bench.sinks[name].target()))
        return tuple(proofs)
