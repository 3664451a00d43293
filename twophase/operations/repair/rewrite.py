"""A repair: reads the records of lost pieces again, and writes them in a new attempt instead.

    1. plan       take over and commit, as every repair does (operations/repair/accept_loss.py),
                  which
                  proves what is lost. The source tells which records it would read again, and that
                  they exist. The operator confirms
    2. fence      close the sink for all attempts before ours; abort the leftovers of
                  an earlier rewrite
    3. write      the lost pieces, durably and invisibly: orphans until step 5
    4. compare    their rows with those of the lost pieces; abort them if they differ
    5. record     the new body, then REPAIRED: this is the decision on the new pieces
    6. finish     the checkpoint commits, under the same checks and proofs as any commit

A crash before step 5 leaves orphans and a body that no decision names, which the next start
removes; the command can be run again. After step 5, every start does step 6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from twophase.contract.committable import Committable
from twophase.contract.sink import NamesPieces
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.orphans import Orphans
from twophase.coordinator.recovery.planner import StartPlanner
from twophase.coordinator.recovery.recovery_steps import commit_in_order
from twophase.errors import StopJobError
from twophase.ids import Attempt, TransactionId
from twophase.internals.failpoints import failpoint
from twophase.operations.repair.accept_loss import LossPlan, LossRepair
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.journal.entries import AcceptedLoss, Adoption, Decision, Note, Rewrite


@dataclass(frozen=True)
class Lost:
    """The lost pieces to write again.

    Attributes:
        checkpoint: the checkpoint that lists the pieces.
        sink: the sink's name.
        pieces: the lost pieces.
        whole: whether they are all pieces that the sink ever had of the checkpoint.
        rewritten: the attempts in which earlier rewrites wrote pieces of the
            checkpoint to the sink.
        gone: the indexes of the tasks whose pieces in the sink were given up or rewritten before.
    """

    checkpoint: CompletedCheckpoint
    sink: str
    pieces: Sequence[Committable]
    whole: bool
    rewritten: frozenset[Attempt] = frozenset()
    gone: frozenset[int] = frozenset()


class Reread(Protocol):
    """Reads the records of a checkpoint again, through the job's plan."""

    def ranges(self, lost: Lost) -> Sequence[str]:
        """Check that all records that `write` reads still exist; describe them for people.

        Raises:
            SourceLossError: some no longer exist.
            StopJobError: it cannot be determined which records the pieces have.
        """

    def write(self, lost: Lost, transaction: TransactionId) -> Mapping[int, Sequence[Committable]]:
        """Read and pre-commit.

        Returns:
            For each subtask of a lost piece, the new pieces with its rows; if all pieces are lost,
            all of them under -1.

        Raises:
            TwoPhaseError: it failed; pieces that were already pre-committed are left in doubt.
        """


@dataclass(frozen=True)
class RewritePlan:
    """The plan of a rewrite.

    Attributes:
        loss: the loss.
        lost: the same loss for the source.
        ranges: the records that are read again.
    """

    loss: LossPlan
    lost: Lost
    ranges: Sequence[str]


class RewriteRepair:
    """Writes lost pieces again.

    Args:
        context: the job's; its sinks are open for rows.
        reread: reads through the job's plan.
    """

    def __init__(self, context: JobContext, reread: Reread) -> None:
        self._context = context
        self._reread = reread

    def plan(self, checkpoint: int, sink: str) -> RewritePlan:
        """Step 1.

        Raises:
            ConfigError: there is no such decided checkpoint or sink. Nothing was touched.
            StopJobError: nothing is lost, it cannot be written again, or the job must not go on
                for another reason.
        """
        context = self._context
        loss = LossRepair(context).plan(checkpoint, sink)
        if loss.gap:
            raise StopJobError(
                f"{loss.gap} Only pieces that a target says are lost can be written again, and not "
                "what a restored target has no proof of.",
                remedy="restore the target to its previous state, "
                "or see what twophase repair accept-loss gives up.",
            )
        self._check_whole(loss)
        decision = self._decision(loss)
        self._check_newest(decision, sink)
        body = context.store.read_with_states(decision)
        self._check_not_written_elsewhere(loss, body)
        whole = not loss.kept and not self._has_given_up(loss)
        pieces = [piece for piece, _ in loss.lost]
        lost = Lost(body, sink, pieces, whole, self._rewritten(loss), self._gone(loss))
        return RewritePlan(loss, lost, self._reread.ranges(lost))

    def rewrite(self, plan: RewritePlan, note: Note) -> None:
        """Steps 2 to 6.

        Raises:
            FencedError: a driver has taken over the job since the plan was made;
                nothing was recorded.
            StopJobError: the rows read again differ from the lost ones; nothing was recorded. Or it
                is recorded, but the checkpoint cannot commit for another reason, such as a
                loss in another sink.
        """
        context, lost, sink = self._context, plan.lost, plan.loss.sink
        failpoint("R02")
        attempt = Attempt(context.history.generation, 1)
        body, old = lost.checkpoint, self._decision(plan.loss)
        pieces = self._write(plan, attempt)
        failpoint("R04")
        listed = (*plan.loss.kept, *(piece for found in pieces.values() for piece in found))
        new = context.store.prepare(
            replace(body, attempt=attempt, committables={**body.committables, sink: listed})
        )
        failpoint("R05")
        names = tuple(str(piece.subtask) for piece in lost.pieces)
        rewritten = Rewrite(note, new, old.attempt, sink, names, plan.loss.rows)
        context.log.append(rewritten)
        failpoint("R03")
        commit_in_order(
            context.history.uncommitted(),
            lambda one: context.completer.commit_decided(one, own=one.attempt == attempt),
        )

    def _write(self, plan: RewritePlan, attempt: Attempt) -> Mapping[int, Sequence[Committable]]:
        """Close the attempts below `attempt`, and write the pieces in it. An error leaves none."""
        context, sink, body = self._context, plan.loss.sink, plan.lost.checkpoint
        transaction = TransactionId(
            context.job, body.lineage, body.checkpoint, attempt, sink, body.offsets.hash
        )
        target = context.sinks[sink]
        orphans = Orphans(context.job, sink, target, context.observers, self._may_abort)
        kept = context.completer.pieces_to_commit()
        orphans.close(attempt, kept)
        self._ask_again()
        self._check_not_written_elsewhere(plan.loss, body)
        try:
            pieces = self._reread.write(plan.lost, transaction)
            _check_rows(context.job, plan.lost, pieces)
        except Exception:
            orphans.abort(replace(attempt, counter=attempt.counter + 1), kept)
            raise
        return pieces

    def _decision(self, loss: LossPlan) -> Decision:
        decisions = self._context.history.decisions
        return next(
            one for one in decisions if (one.lineage, one.checkpoint) == (loss.lineage, loss.number)
        )

    def _check_whole(self, loss: LossPlan) -> None:
        """Check that the checkpoint is decided in all sinks: only then it has a body.

        Raises:
            StopJobError: the sink is ahead of it.
        """
        context = self._context
        if loss.sink in context.sink_decisions.pieces_of(loss.lineage, loss.number):
            raise StopJobError(
                f"Job {context.job!r}: sink {loss.sink!r} commits checkpoint {loss.number} ahead "
                "of the others (checkpoint.mode at_least_once); its lost pieces cannot be written "
                "again before the checkpoint is decided. Nothing was written.",
                remedy="go on without the lost pieces (twophase repair accept-loss), and write "
                "their rows again by hand.",
            )

    def _check_newest(self, decision: Decision, sink: str) -> None:
        """Check that no later checkpoint has pieces in the sink: they may wait for ours (I4).

        Raises:
            StopJobError: they have some.
        """
        context, decisions = self._context, self._context.history.decisions
        for later in decisions[decisions.index(decision) + 1 :]:
            if context.store.read(later).committables.get(sink):
                raise StopJobError(
                    f"Job {context.job!r}: checkpoint {later.checkpoint} is decided too "
                    f"(checkpoint.max_concurrent), and its pieces in sink {sink!r} wait for those "
                    "that are lost: no new attempt can begin there. Nothing was written.",
                    remedy=f"go on without the lost pieces of {decision.checkpoint} (twophase "
                    "repair accept-loss), and write their rows again by hand.",
                )

    def _check_not_written_elsewhere(self, loss: LossPlan, body: CompletedCheckpoint) -> None:
        """Check that no newer copy of the folder has written the lost pieces again.

        After an adoption that may be: the drivers of that copy are not known here. A sink that does
        not name its pieces cannot tell.

        Raises:
            StopJobError: one has, or may have.
        """
        context, target = self._context, self._context.sinks[loss.sink]
        if isinstance(target, NamesPieces):
            attempts = {self._decision(loss).attempt, body.attempt, *self._rewritten(loss)}
            attempts |= {piece.transaction.attempt for piece in body.committables[loss.sink]}
            known = tuple(f"{attempt}/" for attempt in attempts)
            shown = target.committed_pieces(loss.lineage, loss.number)
            others = [piece for piece in shown if not piece.startswith(known)]
            found = f"has the pieces {', '.join(others)} of it" if others else ""
        else:
            adopted = any(isinstance(one, Adoption) for one in context.history.repairs)
            found = "cannot tell which pieces it has, and the folder was adopted" if adopted else ""
        if found:
            raise StopJobError(
                f"Job {context.job!r}: the lost pieces of checkpoint {loss.number} in sink "
                f"{loss.sink!r} may have been written again by a driver of a newer copy of the "
                f"job's folder: the sink {found}. Nothing was written.",
                remedy="restore the job's folder to its newest state; if that is gone, look which "
                "rows the target has, and go on without writing these again: twophase repair "
                f"accept-loss JOB.yaml --checkpoint {loss.number} --sink {loss.sink}",
            )

    def _has_given_up(self, loss: LossPlan) -> bool:
        mine = (loss.lineage, loss.number, loss.sink)
        return any(
            isinstance(repair, AcceptedLoss)
            and (repair.lineage, repair.checkpoint, repair.sink) == mine
            for repair in self._context.history.repairs
        )

    def _rewritten(self, loss: LossPlan) -> frozenset[Attempt]:
        return frozenset(
            repair.decision.attempt
            for repair in self._context.history.repairs
            if isinstance(repair, Rewrite)
            and repair.sink == loss.sink
            and repair.is_of(loss.lineage, loss.number)
        )

    def _gone(self, loss: LossPlan) -> frozenset[int]:
        repairs = [
            one for one in self._context.history.repairs if isinstance(one, AcceptedLoss | Rewrite)
        ]
        return frozenset().union(
            *(one.tasks_of(loss.sink, loss.lineage, loss.number) for one in repairs)
        )

    def _may_abort(self, found: Sequence[Committable]) -> Sequence[Committable]:
        self._ask_again()
        return self._context.completer.commit_restored(found)

    def _ask_again(self) -> None:
        """Validate the sinks once more: another driver can commit until the fence is up.

        Raises:
            FencedError: another driver over this folder has taken over.
            StopJobError: the job must not go on.
        """
        context = self._context
        remembered = {name: sink.history() for name, sink in context.sinks.items()}
        context.log.check_fence()
        StartPlanner(context).check(context.history, remembered)


def _check_rows(job: str, lost: Lost, pieces: Mapping[int, Sequence[Committable]]) -> None:
    """Step 4: compare the rows.

    Raises:
        StopJobError: the number of rows differs from that of the lost pieces.
    """
    expected: Counter[int] = Counter()
    for piece in lost.pieces:
        expected[-1 if lost.whole else piece.subtask.index] += piece.rows
    found = {index: sum(piece.rows for piece in written) for index, written in pieces.items()}
    if found == dict(expected):
        return
    raise StopJobError(
        f"Job {job!r}: {expected.total()} rows of checkpoint {lost.checkpoint.checkpoint} are lost "
        f"in sink {lost.sink!r}, and reading their records again gave {sum(found.values())}: the "
        "plan, its options or the topic have changed. "
        "Nothing of it is visible or recorded.",
        remedy="run the command with the job file, and the code, that wrote the checkpoint. A "
        "compacted topic may have lost records: then go on without these rows "
        "(twophase repair accept-loss).",
    )
