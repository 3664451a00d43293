"""A repair: an operator accepts a loss, so that a job that cannot continue by itself goes on.

The loss is pieces of a decided checkpoint, also of one that the savepoint in `restore.path` holds
as pending, or everything that a target restored from a backup lacks.

    1. take over   append a fence to the log, like every driver: a driver that still runs is
                   fenced from here on
    2. commit      earlier decisions, then the pieces of the sink. The outcomes are the only proof
                   that a piece is lost. A restored target has lost whatever it has no proof of;
                   nothing is committed there
    3. show        the plan: what is lost; the operator confirms
    4. record      REPAIRED, one record in the log: this is the repair
    5. finish      the checkpoint commits without the lost pieces

A crash before step 4 has the same effect as a failed start: nothing is given up, and the command
can be run again. After step 4, every start does step 5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from twophase.contract.committable import Committable
from twophase.contract.sink import OpenSink, Sink, SinkHistory
from twophase.coordinator.commit.commit_loop import CommitLoop
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.proofs import knows, may_be_the_same
from twophase.coordinator.recovery.plan import FolderBehind, Restore, RowsReturned, TargetLacks
from twophase.coordinator.recovery.planner import StartPlanner
from twophase.coordinator.recovery.recovery_steps import (
    commit_in_order,
    commit_loop_of,
    own_commit_loop,
    take_over,
)
from twophase.errors import ConfigError, StopJobError, TargetChangedError
from twophase.internals.failpoints import failpoint
from twophase.operations.savepoint.fork import close_all, open_original
from twophase.operations.savepoint.preview import restore_of
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.journal.entries import AcceptedLoss, Decision, Note, Proof
from twophase.state.journal.history import History


@dataclass(frozen=True)
class LossPlan:
    """The loss to be given up.

    Attributes:
        lineage: the lineage of the checkpoint.
        number: the number of the checkpoint.
        sink: the sink's name.
        target: of the sink, now.
        lost: the pieces that the target proved lost, each with the evidence.
        kept: the pieces that are not lost; all of them are committed.
        start: the offset lines where the loss begins; empty if not known.
        end: where it ends, likewise.
        before: the newest earlier checkpoint with pieces that the target has; several if an
            adoption left several.
        lacks: this checkpoint, and for a restored target also the newest that it lacks of
            each earlier lineage.
        gap: for a restored target, a description of what it lacks; empty otherwise.
    """

    lineage: str
    number: int
    sink: str
    target: str
    lost: Sequence[tuple[Committable, str]]
    kept: Sequence[Committable]
    start: tuple[str | None, ...]
    end: tuple[str | None, ...]
    before: Sequence[Proof]
    lacks: Sequence[Proof]
    gap: str = ""

    @property
    def rows(self) -> int:
        """Rows in the lost pieces."""
        return sum(piece.rows for piece, _ in self.lost)

    def accepted(self, note: Note) -> AcceptedLoss:
        """Return the record that gives it up."""
        return AcceptedLoss(
            note=note,
            lineage=self.lineage,
            checkpoint=self.number,
            sink=self.sink,
            pieces=tuple(str(piece.subtask) for piece, _ in self.lost),
            rows=self.rows,
            start=self.start,
            end=self.end,
            emptied=not self.kept,
            before=() if self.kept else tuple(self.before),
            lacks=() if self.kept else tuple(self.lacks),
        )


class LossRepair:
    """Accepts the loss of pieces.

    Args:
        context: the job's.
        declared: its sinks, not open, to look at what `restore.path` names as a start does; without
            them only at what the job's log has decided.
    """

    def __init__(self, context: JobContext, declared: Mapping[str, Sink] | None = None) -> None:
        self._context = context
        self._declared = declared
        self._loop = context.commit_loop

    def plan(self, checkpoint: int, sink: str) -> LossPlan:
        """Steps 1 and 2: take over the job, and find out what is lost.

        Raises:
            ConfigError: there is no such decided checkpoint or sink. Nothing was touched.
            StopJobError: nothing is lost, or the job must not go on for another reason.
        """
        context, planner = self._context, StartPlanner(self._context)
        restore = restore_of(context) if self._declared is not None else None
        self._loop = own_commit_loop(context, restore)
        if sink not in context.sinks:
            raise ConfigError(
                f"Job {context.job!r} has no sink {sink!r}.",
                remedy=f"name one of {', '.join(context.sinks)}.",
            )
        context.log.read()
        remembered = planner.histories()
        lacks = self._gap(checkpoint, sink, remembered[sink])
        if restore is not None:
            for one in [one for one in restore.adopting if one.checkpoint == checkpoint]:
                # a gap of the same number in a lineage that it continues comes before it
                if lacks is None or lacks.lineage == one.lineage:
                    return self._plan_of_restore(restore, one, sink)
        if lacks is None:
            self._check_decided(checkpoint, sink)

        def check(history: History) -> None:
            # Gaps of other targets restored with this one are accepted next, a folder that is
            # behind is adopted next, and rows that have returned are taken back next; until then
            # every start stops.
            is_gap = self._gap(checkpoint, sink, remembered[sink]) is not None
            if restore is not None and not is_gap:
                planner.plan(history, remembered, restore)
                return
            others = (FolderBehind, RowsReturned)
            repairs = (*others, TargetLacks) if is_gap else others
            planner.check(history, remembered, repairs)

        take_over(context.log, remembered, check)
        failpoint("R01")
        if (gap := self._gap(checkpoint, sink, remembered[sink])) is not None:
            evidence = "the target was restored from a backup"
            return loss_of_gap(context, gap, context.sinks[sink], evidence)
        body = self._decided(checkpoint, sink)
        return self._plan_of_pieces(body, sink, self._loop)

    def accept(self, plan: LossPlan, note: Note) -> None:
        """Steps 4 and 5.

        Raises:
            FencedError: a driver has taken over the job since the plan was made;
                nothing was given up.
            StopJobError: the loss is accepted, but the checkpoint cannot commit for another reason,
                such as a loss in another sink.
        """
        context = self._context
        failpoint("R02")
        context.log.append(plan.accepted(note))
        failpoint("R03")
        self._commit(context.history)
        context.sink_decisions.commit(self._loop)

    def _plan_of_restore(self, restore: Restore, body: CompletedCheckpoint, sink: str) -> LossPlan:
        """Take over the job that is restored, and commit what its savepoint holds before this."""
        context, planner = self._context, StartPlanner(self._context)
        remembered = planner.histories()

        def check(history: History) -> None:
            planner.plan(history, remembered, restore)

        original = open_original(context.job, restore, self._declared or {}, context.sinks)
        try:
            take_over(context.log, remembered, check)
            failpoint("R01")
            loop = commit_loop_of(context, replace(restore, original=original))
            for older in restore.adopting[: restore.adopting.index(body)]:
                loop.commit(older)
            return self._plan_of_pieces(body, sink, loop)
        finally:
            close_all(original)

    def _plan_of_pieces(self, body: CompletedCheckpoint, sink: str, loop: CommitLoop) -> LossPlan:
        context, checkpoint = self._context, body.checkpoint
        lost = self._lost(body, sink, loop)
        if not lost:
            raise StopJobError(
                f"Job {context.job!r}: nothing of checkpoint {checkpoint} is lost in sink "
                f"{sink!r}; there is nothing to repair.",
                remedy="start the job: it goes on by itself.",
            )
        gone = {piece.subtask for piece, _ in lost}
        kept = [piece for piece in body.committables[sink] if piece.subtask not in gone]
        before = body.predecessors_in(sink)
        lacks = [Proof(sink, body.lineage, checkpoint, lost[0][0].target)]
        return LossPlan(
            body.lineage,
            checkpoint,
            sink,
            context.sinks[sink].target(),
            lost,
            kept,
            body.offsets.start,
            body.offsets.end,
            before,
            lacks,
        )

    def _lost(
        self, body: CompletedCheckpoint, sink: str, loop: CommitLoop
    ) -> Sequence[tuple[Committable, str]]:
        """Return the lost pieces: those too that wait in a target which the sink has left."""
        elsewhere = body.elsewhere(sink, self._context.sinks[sink].target())
        if not elsewhere:
            return loop.lost(body, sink)
        here = [one for one in body.committables[sink] if one not in elsewhere]
        lost = [*loop.lost(replace(body, committables={sink: here}), sink)]
        for piece in elsewhere:
            try:
                lost += loop.lost(replace(body, committables={sink: [piece]}), sink)
            except TargetChangedError as error:
                lost.append((piece, error.what))
        return lost

    def _decided(self, checkpoint: int, sink: str) -> CompletedCheckpoint:
        """Return the checkpoint, or the decided part of it, when all earlier ones are committed."""
        context, history = self._context, self._context.history
        if ahead := self._ahead(checkpoint, sink):
            self._commit(history)
            return ahead
        decision = self._decision(history, checkpoint)
        older = replace(history, decisions=history.decisions[: history.decisions.index(decision)])
        self._commit(older)
        return context.store.read(decision)

    def _commit(self, history: History) -> None:
        commit = partial(self._context.completer.commit_decided, loop=self._loop)
        commit_in_order(history.uncommitted(), commit)

    def _ahead(self, checkpoint: int, sink: str) -> CompletedCheckpoint | None:
        """Return what the sink commits of a checkpoint ahead of the others, if it does."""
        for body in self._context.sink_decisions.bodies():
            if body.checkpoint == checkpoint and sink in body.committables:
                return body
        return None

    def _check_decided(self, checkpoint: int, sink: str) -> None:
        if self._ahead(checkpoint, sink) is None:
            self._decision(self._context.history, checkpoint)

    def _gap(self, checkpoint: int, sink: str, remembered: SinkHistory) -> Proof | None:
        """Return the proof of this checkpoint if the target must have it and lacks it."""
        context = self._context
        for expected in [proof for proof in context.proofs.committed() if proof.sink == sink]:
            if expected.checkpoint != checkpoint:
                continue
            if not may_be_the_same(expected, context.sinks[sink], remembered):
                continue
            # The log was read after the target was asked: a driver may have committed in between.
            if not knows(remembered, expected) and not knows(
                context.sinks[sink].history(), expected
            ):
                return expected
        return None

    def _decision(self, history: History, checkpoint: int) -> Decision:
        """Return the uncommitted decision with this number, or else the newest one with it."""
        named = [decision for decision in history.decisions if decision.checkpoint == checkpoint]
        if not named:
            raise ConfigError(
                f"Job {self._context.job!r}: checkpoint {checkpoint} is not decided, "
                "or no longer kept. Nothing was "
                "written.",
                remedy="`twophase checkpoints FOLDER` lists the decided checkpoints. To accept "
                "the loss of one that only what is restored has, run twophase repair accept-loss "
                "with --restore PATH.",
            )
        found = next((decision for decision in named if not decision.committed), named[-1])
        if found.committed and found != history.decisions[-1]:
            raise ConfigError(
                f"Job {self._context.job!r}: checkpoint {checkpoint} is committed, "
                "and later ones are decided: none of it can be given up. Nothing was written.",
                remedy="pass the checkpoint that the job's error names.",
            )
        return found


def loss_of_gap(context: JobContext, gap: Proof, sink: OpenSink, evidence: str) -> LossPlan:
    """Return the loss of everything that a target lacks.

    Args:
        context: the job.
        gap: the proof that the target must have and lacks.
        sink: the sink of that name, open.
        evidence: how that is known.
    """
    remembered, target = sink.history(), sink.target()
    lacks, before = context.proofs.missing(gap, remembered)
    what = f"{target}: {evidence}. {context.proofs.gap(gap, remembered)}"
    body = context.proofs.body_of(gap)
    last = context.proofs.body_of(before[0]) if len(before) == 1 else None
    since = last.offsets.end if last else ()
    lost = [(piece, evidence) for piece in body.committables.get(gap.sink, ())] if body else []
    end = body.offsets.end if body else ()
    return LossPlan(
        gap.lineage, gap.checkpoint, gap.sink, target, lost, (), since, end, before, lacks, what
    )
