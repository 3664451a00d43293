"""A repair: lost pieces of a decided checkpoint are read again and written under a new attempt, which takes their place.

    1. plan       take over and commit, as every repair does (coordinator/repair.py): what is lost is proven by then.
                  The source says which records it would read again, and that they are there. The operator says yes
    2. fence      the sink is closed for all attempts before ours; what an earlier rewrite has left there is aborted
    3. write      the lost pieces, durably and invisibly: orphans until step 5
    4. compare    they have the rows of the lost ones; otherwise they are aborted
    5. record     the new body, then REPAIRED: this is the decision on the new pieces
    6. finish     the checkpoint commits, with what each sink requires and proves in any commit

A death before step 5 leaves orphans and a body that no decision names, which the next start removes; the command can be run
again. After it, every start does step 6.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from twophase.coordinator.orphans import Orphans
from twophase.coordinator.proofs import check_targets
from twophase.coordinator.recovery import check_histories, commit_decided, piece_names
from twophase.coordinator.repair import LossPlan, LossRepair, RepairContext
from twophase.errors import StopJobError
from twophase.failpoints import failpoint
from twophase.ids import Attempt, TransactionId
from twophase.protocol.committable import Committable
from twophase.state.checkpoint import CompletedCheckpoint
from twophase.state.records import AcceptedLoss, Decision, Note, RepairedRecord, Rewrite


@dataclass(frozen=True)
class Lost:
    """What is to be written again.

    Attributes:
        checkpoint: which lists the pieces.
        sink: the sink's name.
        pieces: the lost ones.
        whole: whether they are all that the sink was ever given of the checkpoint.
        rewritten: the attempts under which pieces of the checkpoint were written again there before.
        gone: the tasks, by their index, whose pieces were given up or written again there before.
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
        """Which records `write` reads, for people. They are all there.

        Raises:
            SourceLossError: they are not there any more.
            StopJobError: nothing tells which records the pieces have.
        """

    def write(self, lost: Lost, transaction: TransactionId) -> Mapping[int, Sequence[Committable]]:
        """Read and pre-commit.

        Returns:
            For each subtask of a lost piece the pieces that have its rows; where all is lost, all of them under -1.

        Raises:
            TwoPhaseError: it failed; what was pre-committed is left in doubt.
        """


@dataclass(frozen=True)
class RewritePlan:
    """What is written again.

    Attributes:
        loss: what is lost.
        lost: the same for the source.
        ranges: the records that are read again.
    """

    loss: LossPlan
    lost: Lost
    ranges: Sequence[str]


class RewriteRepair:
    """Writes lost pieces again.

    Args:
        context: the job's; its sinks are open for rows.
        reread: of the job's plan.
    """

    def __init__(self, context: RepairContext, reread: Reread) -> None:
        self._context = context
        self._reread = reread

    def plan(self, checkpoint: int, sink: str) -> RewritePlan:
        """Step 1.

        Raises:
            ConfigError: there is no such decided checkpoint or sink. Nothing was touched.
            StopJobError: nothing is lost, it cannot be written again, or the job must not go on for another reason.
        """
        context = self._context
        loss = LossRepair(context).plan(checkpoint, sink)
        if loss.gap:
            raise StopJobError(
                f"{loss.gap} These checkpoints were committed: what is written again is lost pieces of one that was not.",
                remedy="put the target back as it was, or see what `twophase repair accept-loss` would give up.",
            )
        decision = self._decision(loss)
        self._check_newest(decision, sink)
        body = context.store.read(decision)
        whole = not loss.kept and not self._has_given_up(loss)
        pieces = [piece for piece, _ in loss.lost]
        lost = Lost(body, sink, pieces, whole, self._rewritten(loss), self._gone(loss))
        return RewritePlan(loss, lost, self._reread.ranges(lost))

    def rewrite(self, plan: RewritePlan, note: Note) -> None:
        """Steps 2 to 6.

        Raises:
            FencedError: a driver has taken the job over since the plan was made; nothing was recorded.
            StopJobError: what was read again is not what was lost; nothing was recorded. Or it is recorded, and the
                checkpoint cannot commit for another reason, such as a loss in another sink.
        """
        context, lost, sink = self._context, plan.lost, plan.loss.sink
        failpoint("R02")
        attempt = Attempt(context.log.history.generation, 1)
        body, old = lost.checkpoint, self._decision(plan.loss)
        transaction = TransactionId(context.job, body.lineage, body.checkpoint, attempt, sink, body.offsets.hash)
        orphans = Orphans(context.job, sink, context.sinks[sink], context.observers, self._may_abort)
        kept = context.completer.pieces_to_commit()
        orphans.close(attempt, kept)
        self._ask_again()
        try:
            pieces = self._reread.write(lost, transaction)
            _check_rows(context.job, lost, pieces)
        except Exception:
            orphans.abort(replace(attempt, counter=attempt.counter + 1), kept)
            raise
        failpoint("R04")
        listed = (*plan.loss.kept, *(piece for found in pieces.values() for piece in found))
        new = context.store.prepare(replace(body, attempt=attempt, committables={**body.committables, sink: listed}))
        failpoint("R05")
        names = tuple(str(piece.subtask) for piece in lost.pieces)
        context.log.append(RepairedRecord(Rewrite(note, new, old.attempt, sink, names, plan.loss.rows)))
        failpoint("R03")
        commit_decided(context.log.history, context.completer.recommit)

    def _decision(self, loss: LossPlan) -> Decision:
        decisions = self._context.log.history.decisions
        return next(one for one in decisions if (one.lineage, one.checkpoint) == (loss.lineage, loss.number))

    def _check_newest(self, decision: Decision, sink: str) -> None:
        """Pieces of later checkpoints may hold what the fence waits for, and they wait for this one (I4).

        Raises:
            StopJobError: there are some.
        """
        context, decisions = self._context, self._context.log.history.decisions
        for later in decisions[decisions.index(decision) + 1 :]:
            if context.store.read(later).committables.get(sink):
                raise StopJobError(
                    f"Job {context.job!r}: checkpoint {later.checkpoint} is decided too (checkpoint.max_concurrent), and its "
                    f"pieces in sink {sink!r} wait for those that are lost: no new attempt can begin there. Nothing was written.",
                    remedy=f"go on without the lost pieces of {decision.checkpoint} (twophase repair accept-loss), and write "
                    "their rows again by hand.",
                )

    def _has_given_up(self, loss: LossPlan) -> bool:
        mine = (loss.lineage, loss.number, loss.sink)
        return any(
            isinstance(repair, AcceptedLoss) and (repair.lineage, repair.checkpoint, repair.sink) == mine
            for repair in self._context.log.history.repairs
        )

    def _rewritten(self, loss: LossPlan) -> frozenset[Attempt]:
        return frozenset(
            repair.decision.attempt
            for repair in self._context.log.history.repairs
            if isinstance(repair, Rewrite) and repair.sink == loss.sink and repair.is_of(loss.lineage, loss.number)
        )

    def _gone(self, loss: LossPlan) -> frozenset[int]:
        repairs = [one for one in self._context.log.history.repairs if isinstance(one, AcceptedLoss | Rewrite)]
        return frozenset().union(*(one.tasks_of(loss.sink, loss.lineage, loss.number) for one in repairs))

    def _may_abort(self, found: Sequence[Committable]) -> Sequence[Committable]:
        self._ask_again()
        return self._context.completer.commit_again(found)

    def _ask_again(self) -> None:
        """Compare the sinks with the log once more: a driver over another folder can commit until the fence is up.

        Raises:
            FencedError: another driver over this folder has gone on.
            StopJobError: the job must not go on.
        """
        context = self._context
        remembered = {name: sink.history() for name, sink in context.sinks.items()}
        context.log.check_fence()
        check_histories(context.job, context.log.history, remembered, piece_names(context.sinks))
        check_targets(context.proofs, context.proofs.committed(), context.sinks, remembered, may_move=False)


def _check_rows(job: str, lost: Lost, pieces: Mapping[int, Sequence[Committable]]) -> None:
    """Step 4.

    Raises:
        StopJobError: a piece does not have the rows of the lost one.
    """
    expected: Counter[int] = Counter()
    for piece in lost.pieces:
        expected[-1 if lost.whole else piece.subtask.index] += piece.rows
    found = {index: sum(piece.rows for piece in written) for index, written in pieces.items()}
    if found == dict(expected):
        return
    raise StopJobError(
        f"Job {job!r}: {expected.total()} rows of checkpoint {lost.checkpoint.checkpoint} are lost in sink {lost.sink!r}, and "
        f"reading their records again gave {sum(found.values())}: the plan, its options or the topic are not what they were. "
        "Nothing of it is visible or recorded.",
        remedy="run the command with the job file, and the code, that wrote the checkpoint. A compacted topic may have lost "
        "records: then go on without these rows (twophase repair accept-loss).",
    )
