"""A repair of a job whose folder is old or gone: its log adopts what the targets have proof of.

A committed piece was decided (I1), whether or not this folder knows it. So every checkpoint that a
target has proof of counts as committed, its pieces that other sinks have pre-committed are
committed (I2), and a new lineage follows.

    1. show       the plan, which writes nothing; the operator confirms
    2. take over  append a fence to the log; plan again, with the same result
    3. commit     the decisions of this log, oldest first, as listed by their bodies or else by the
                  targets; then the pieces of adopted checkpoints that only the targets know. Behind
                  the fences of the sinks: a driver that still ran has committed no more than that
    4. record     REPAIRED, which begins the new lineage, if there is one: this is the repair

A crash before step 4 leaves a job that still refuses to start; the command can be run again. If the
log lacks nothing but a driver that a target has seen, the fence of step 2 is all that the job
lacked: no lineage begins, and a start goes on as it would after the repair.

`operations.repair.adoption_plan` tells what is adopted, and where the job goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from twophase.contract.sink import SinkHistory
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.recovery.plan import ahead_of
from twophase.coordinator.recovery.recovery_steps import take_over
from twophase.errors import LostCommittableError, StopJobError
from twophase.ids import Attempt, new_lineage_id
from twophase.internals.failpoints import failpoint
from twophase.operations.repair.adopted_pieces import checkpoint_of
from twophase.operations.repair.adoption_plan import (
    AdoptionPlan,
    AdoptionPlanner,
    Frozen,
    oldest_first,
)
from twophase.operations.repair.lineage_order import LineageOrder
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint, FrozenOffsets
from twophase.state.journal.entries import Adoption, Lineage, Note, Proof, StartingOffsets
from twophase.state.journal.history import History


class AdoptionRepair:
    """Lets the log adopt the checkpoints that the targets have proof of.

    Args:
        context: the job's.
        frozen: reads the job's folder.
        is_stuck: whether a job with this log cannot continue by itself, even if the log knows all
            that the targets have.
    """

    def __init__(
        self,
        context: JobContext,
        frozen: Frozen,
        is_stuck: Callable[[History], bool] = lambda _: False,
    ) -> None:
        self._context = context
        self._planner = AdoptionPlanner(context, frozen, is_stuck)

    def plan(self) -> AdoptionPlan:
        """Step 1.

        Raises:
            StopJobError: a start needs no repair, a target lacks something, or the decisions
                cannot be determined.
        """
        return self._planner.plan(self._context.log.read(), self._remembered())

    def adopt(
        self, plan: AdoptionPlan, note: Note, starting: Sequence[StartingOffsets] = ()
    ) -> Lineage | None:
        """Steps 2 to 4. Return the new lineage; None if the log goes on as it is.

        Args:
            plan: what was confirmed.
            note: who, when, why.
            starting: where the sources begin if the plan does not say; the first start agrees.

        Raises:
            StopJobError: something has changed since the plan, or a piece cannot be committed.
        """
        context, remembered = self._context, self._remembered()

        def check(history: History) -> None:
            if self._planner.plan(history, remembered) != plan:
                raise self._has_changed()

        take_over(context.log, remembered, check)
        failpoint("R01")
        lineage = None if plan.missed else self._begun(plan)
        failpoint("R02")
        context.log.append(Adoption(note, lineage, plan.gave_up, tuple(starting)))
        failpoint("R03")
        return lineage

    def _has_changed(self) -> StopJobError:
        return StopJobError(
            f"Job {self._context.job!r}: the folder or a target has changed since the plan was "
            "shown. Nothing was adopted.",
            remedy="make sure that no driver of the job is running, then run the command again.",
        )

    def _begun(self, plan: AdoptionPlan) -> Lineage:
        """Step 3. Return the lineage that begins when everything is committed.

        Raises:
            StopJobError: a driver that still runs has committed more than is adopted.
        """
        self._commit(plan)
        for sink in self._context.sinks.values():
            sink.fence(Attempt(self._context.history.generation, 0))
            sink.in_doubt()  # behind its fence: when the commits under way have ended
        remembered = self._remembered()
        if any(ahead_of(plan.ancestors, remembered)):
            raise self._has_changed()
        return Lineage(
            new_lineage_id(),
            first_checkpoint=1 if plan.end else 0,
            start=plan.end,
            ancestors=plan.ancestors,
            proofs=self._proofs(plan, remembered),
        )

    def _remembered(self) -> dict[str, SinkHistory]:
        return {name: sink.history() for name, sink in self._context.sinks.items()}

    def _commit(self, plan: AdoptionPlan) -> None:
        """Step 3, oldest first."""
        context = self._context
        for decision in context.history.uncommitted():
            if decision.folder not in plan.gave_up:
                # no COMMITTED: an earlier one may lack a body
                context.commit_loop.commit(context.store.read(decision))
            else:
                self._commit_pieces(plan, (decision.lineage, decision.checkpoint))
        if self._planner.ahead(context.history, self._remembered()):
            context.sink_decisions.commit()
        # by the log alone, as within each sink
        order = LineageOrder(context.history, {}, {}, {})
        waiting = sorted(
            (one for sink in plan.sinks.values() for one in sink.commits), key=oldest_first(order)
        )
        for checkpoint in dict.fromkeys(checkpoint_of(piece) for piece in waiting):
            self._commit_pieces(plan, checkpoint)

    def _commit_pieces(self, plan: AdoptionPlan, checkpoint: tuple[str, int]) -> None:
        """Commit the waiting pieces of a checkpoint without a body; all before it is committed."""
        context, (lineage, number) = self._context, checkpoint
        for name, sink in plan.sinks.items():
            pieces = [piece for piece in sink.commits if checkpoint_of(piece) == checkpoint]
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
                    f"Job {context.job!r}: {len(lost)} pieces of checkpoint {number} were "
                    f"pre-committed in sink {name!r} and are lost: {lost[0][1]}. "
                    "Nothing was adopted.",
                    remedy="run the command again: it shows what is there now.",
                )

    def _proofs(
        self, plan: AdoptionPlan, remembered: Mapping[str, SinkHistory]
    ) -> tuple[Proof, ...]:
        """Return the proofs that targets must keep: of each lineage that may be the newest."""
        sinks = self._context.sinks
        order = LineageOrder(self._context.history, remembered, sinks, {})
        proofs = []
        for name, memory in remembered.items():
            is_known = plan.lineage in memory.committed
            newest = [plan.lineage] if is_known else order.newest(memory.committed)
            proofs += [
                Proof(name, one, memory.committed[one], sinks[name].target()) for one in newest
            ]
        return tuple(proofs)
