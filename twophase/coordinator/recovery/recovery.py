"""Recovery, step 3 of a start: a new driver takes the job over and finishes what older ones left.

    3a. fence     append FENCE(generation) to the log; every older driver is fenced from here on
    3b. commit    every decided checkpoint without COMMITTED, oldest first, of all
                  lineages (hazard H48); then the sinks that are ahead of the newest one
    3c. close     in each sink: abort orphans, raise its fence, abort again; sinks without
                  orphans in parallel
    3d. rewind    if a restore asks for it, as planned behind the fences: `_rewind`
    3e. subsume   bodies that nothing needs any more, and proofs that a dead driver did not get
                  to fold

What is done is planned by what the log and the sinks say (`coordinator.recovery.plan`, I6): before
3a, when nothing is written yet, before anything is aborted, and behind the fences.

A driver over a copy of the folder does not see the decisions of the original, and no log fences the
two from each other. So all sinks are asked again before anything is aborted in one of them, and
each once more behind its fence. From then on the other driver can pre-commit nothing there, and
each piece that it decided before is either in that sink by now, or lost with an error that names
it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

from twophase.contract.committable import Committable
from twophase.contract.sink import CanRewind, OpenSink, SinkHistory
from twophase.coordinator.commit.commit_loop import CommitLoop
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.orphans import Orphans
from twophase.coordinator.recovery.plan import Restore, StartPlan, TakenBack, ahead_of
from twophase.coordinator.recovery.planner import StartPlanner
from twophase.coordinator.recovery.recovery_steps import (
    check_generation,
    commit_in_order,
    commit_loop_of,
    own_commit_loop,
    take_over,
)
from twophase.coordinator.recovery.refusal import begun_and_refused
from twophase.errors import RestoreRefusedError, StopJobError
from twophase.events import Observers, RecoveryFinished, RecoveryStarted, SinkRewound
from twophase.ids import Attempt, AttemptSequence
from twophase.internals.failpoints import failpoint
from twophase.options.job_options import SinkAhead
from twophase.state.journal.entries import Decision
from twophase.state.journal.history import History

_log = logging.getLogger("twophase")


@dataclass(frozen=True)
class Closed:
    """The result of closing attempts.

    Attributes:
        aborted: how many orphans were aborted.
        histories: what each sink without orphans remembered once it was closed, if asked for. It
            stays true: what was not committed there by then never will be.
    """

    aborted: int
    histories: Mapping[str, SinkHistory]


class AttemptCloser:
    """Closes attempts for good: nothing of them is left in a sink, and nothing more can arrive.

    Args:
        context: the job.
        planner: plans again before anything is aborted.
    """

    def __init__(self, context: JobContext, planner: StartPlanner) -> None:
        self._context = context
        self._planner = planner

    def close_below(
        self, below: Attempt, restore: Restore | None = None, *, ask: bool = False
    ) -> Closed:
        """Close all attempts below `below`. Pieces that wait for their commit stay.

        The start is planned again before anything is aborted, after a declined attempt too: in a
        target that was restored from a backup, a committed piece may be prepared again.

        Args:
            below: the first attempt that stays open.
            restore: the restore whose lineage is about to begin, if any.
            ask: each sink without orphans is asked for its history when it is closed, while others
                are being closed.
        """
        context = self._context
        kept = context.completer.pieces_to_commit()

        def may_abort(found: Sequence[Committable]) -> Sequence[Committable]:
            self._planner.plan_again(restore)
            return context.completer.commit_restored(found)

        orphans = {
            name: Orphans(context.job, name, sink, context.observers, may_abort)
            for name, sink in context.sinks.items()
        }
        histories: dict[str, SinkHistory] = {}

        def close(name: str, _: Observers) -> bool:
            closed = orphans[name].close_if_none(below, kept)
            if closed and ask:
                histories[name] = context.sinks[name].history()
            return closed

        closed = context.fan_out(
            {name: partial(close, name) for name in orphans}, context.observers
        )
        # In the order of the commits, with a check before each abort: if another driver has
        # committed in one sink, that is noticed before the rest of that checkpoint is aborted in
        # the next.
        left = [orphans[name] for name, is_closed in closed.items() if not is_closed]
        return Closed(sum(one.close(below, kept) for one in left), histories)


class DriverRecovery:
    """Recovers a job for one driver.

    Args:
        context: the job.
        attempts: gets the new generation.
        planner: plans what it does.
        closer: closes the attempts of older drivers.

    Attributes:
        plan: the plan of the last recovery; the first one has to be made yet.
        recommitted: lineage and number of the checkpoint that the last recovery committed last;
            None if there was none.
    """

    def __init__(
        self,
        context: JobContext,
        attempts: AttemptSequence,
        planner: StartPlanner,
        closer: AttemptCloser,
    ) -> None:
        self.plan = StartPlan()
        self.recommitted: tuple[str, int] | None = None
        self._context = context
        self._attempts = attempts
        self._planner = planner
        self._closer = closer

    def run(self, previous_generation: int | None, restore: Restore | None) -> None:
        """Recover.

        Args:
            previous_generation: the generation of this very driver before a restart; it is fenced
                if the log has a newer one.
            restore: the restore whose lineage is about to begin, if any.

        Raises:
            StopJobError: the job must not go on.
        """
        try:
            self._run(previous_generation, restore)
        finally:
            self._planner.close()

    def _run(self, previous_generation: int | None, restore: Restore | None) -> None:
        context = self._context
        began_s = context.clock.monotonic_s()
        self._take_over(previous_generation, restore)
        generation = self._attempts.generation
        context.observers(RecoveryStarted(context.job, generation))
        failpoint("C18")
        # the log does not grow, whatever this recovery or the drivers before it die of
        context.store.fold()
        context.log.sweep()
        newest = self._newest_committed()
        recommitted = self._commit_decided(restore)
        if context.stopping.is_set():
            return
        failpoint("C22")
        aborted = self._close(restore)
        if restore is not None and restore.sink_ahead is SinkAhead.REWIND:
            # no body goes before its lineage begins: the restored one may be needed again
            restore.prove(bool(self.plan.takes_back))
            sink_of = partial(self._planner.sink_for, restore)
            _rewind(context, self.plan, Attempt(generation, 0), sink_of, restore.goes_back)
        else:
            # not before: a body says which pieces in doubt were committed once, in a restored
            # target
            context.store.subsume()
        context.store.sweep()
        context.completer.catch_up(newest)
        duration_s = context.clock.monotonic_s() - began_s
        outcome = (generation, recommitted, aborted, duration_s)
        context.observers(RecoveryFinished(context.job, *outcome))

    def _take_over(self, previous_generation: int | None, restore: Restore | None) -> None:
        """Step 3a, planned before the fence is appended."""
        context = self._context
        remembered = self._planner.histories()

        def check(history: History) -> None:
            if previous_generation is not None:
                check_generation(context.job, history, previous_generation)
            self.plan = self._planner.plan(history, remembered, restore)
            if restore is not None:
                restore.prove(bool(self.plan.takes_back))
                # a fence under another name counts, too
                remembered.update(self._planner.under_other_names(self.plan, restore))

        self._attempts.generation = take_over(context.log, remembered, check)
        for note in self.plan.notes():
            _log.warning("job %s: %s", context.job, note)

    def _commit_decided(self, restore: Restore | None) -> int:
        """Step 3b, as planned before the fence; returns how many checkpoints were committed."""
        context = self._context
        own = own_commit_loop(context, restore)
        recommitted = commit_in_order(self.plan.commits, partial(self._commit_one, own))
        if not context.history.uncommitted():
            context.sink_decisions.commit(own)
        if restore is not None and not context.stopping.is_set():
            loop = commit_loop_of(context, restore)
            recommitted += commit_in_order(self.plan.adopts, loop.commit)
        return recommitted

    def _commit_one(self, loop: CommitLoop, decision: Decision) -> bool:
        """Commit a decision; Spark's replay then asks no sink again for the newest one."""
        done = self._context.completer.commit_decided(decision, loop=loop)
        if done:
            self.recommitted = (decision.lineage, decision.checkpoint)
        return done

    def _close(self, restore: Restore | None) -> int:
        """Step 3c; returns how many orphans were aborted."""
        try:
            below = Attempt(self._attempts.generation, 0)
            closed = self._closer.close_below(below, restore, ask=True)
            self.plan = self._planner.plan_again(restore, closed.histories)
        except StopJobError:
            # What could not be aborted may be what another driver has committed: then that is the
            # error. If a sink does not answer, that is: the next start asks, and until then nobody
            # is advised to remove rows that are decided.
            self._planner.plan_again(restore)
            raise
        except Exception:
            # a newer driver's progress looks like loss to the driver that it has overtaken
            self._context.log.check_fence()
            raise
        return closed.aborted

    def _newest_committed(self) -> Decision | None:
        """The newest committed checkpoint of the current lineage."""
        history = self._context.history
        return history.newest_committed(history.lineage.id) if history.lineage else None


def _rewind(
    context: JobContext,
    plan: StartPlan,
    attempt: Attempt,
    sink_of: Callable[[TakenBack], OpenSink],
    goes_back: Callable[[], None],
) -> None:
    """Step 3d: remove from the sinks what they committed after a restored checkpoint (H28).

    1. ask       those who write under another name what is in doubt: nothing that stays
    2. record    REWINDING: a death leaves some sinks ahead, or one with a part of its rows, and no
                 start goes on from there before it is finished or given up
    3. tell      others that the job goes back: should its folder be lost before the rewind has
                 ended, rows come twice that would otherwise be left out
    4. rewind    sink by sink
    5. ask       the sinks again: none is ahead

    The record LINEAGE, which follows, ends it; or that of `twophase repair abandon-rewind`.

    Args:
        context: the job.
        plan: of a restore that rewinds, made behind the fences; nothing is done if it says so.
        attempt: the fence of every sink.
        sink_of: returns the open sink that takes rows back.
        goes_back: `Restore.goes_back`.

    Raises:
        RestoreRefusedError: a sink cannot rewind after all.
        FencedError: a newer driver has taken the job over.
        Exception: of a sink. The next start with the same options calls it again.
    """
    if plan.rewinding is None:
        return
    origin, keep = plan.rewinding.restored_from, plan.rewinding.keep
    sinks = {(one.sink, one.name): sink_of(one) for one in plan.takes_back}
    for key, sink in sinks.items():
        if key[1] is not None:
            _in_doubt_after(sink, keep)  # while the job can still go on without the rewind
    context.log.append(plan.rewinding)
    goes_back()
    failpoint("S11")
    for key, sink in sinks.items():
        if key[1] is not None:
            sink.fence(attempt)
            sink.abort(_in_doubt_after(sink, keep))
        try:
            cast("CanRewind", sink).rewind(keep, attempt)
        except RestoreRefusedError as error:
            raise begun_and_refused(context.job, plan.rewinding, error) from error
        for one in plan.takes_back:
            if (one.sink, one.name) == key:
                found = (one.lineage, one.newest, one.kept)
                context.observers(SinkRewound(context.job, one.sink, *found))
        failpoint("S12")
    histories = {name: sink.history() for name, sink in context.sinks.items()}
    histories |= {
        "/".join((name, *other)): sink.history() for (name, other), sink in sinks.items() if other
    }
    for name, lineage, newest in ahead_of(keep, histories):
        raise RestoreRefusedError(
            f"Job {context.job!r}: sink {name!r} still has proof of checkpoint {newest} of lineage "
            f"{lineage} after it was rewound to {origin}. No lineage has begun.",
            remedy="find out who else writes to it under this job's name, then start again with "
            "the same options.",
        )
    failpoint("S13")


def _in_doubt_after(sink: OpenSink, keep: Mapping[str, int]) -> Sequence[Committable]:
    """Return what is in doubt under another name, all of it after what stays.

    Raises:
        StopJobError: a piece of a checkpoint that stays is in doubt: the target was restored from a
            backup, and its rows would be lost.
    """
    found = sink.in_doubt()
    for transaction in (piece.transaction for piece in found):
        if transaction.checkpoint <= keep.get(transaction.lineage, -1):
            raise StopJobError(
                f"Job {transaction.job!r}: sink {transaction.sink!r} has pieces of checkpoint "
                f"{transaction.checkpoint} of lineage {transaction.lineage} in doubt, which the "
                "rewind keeps. Nothing of the sink was removed.",
                remedy="give the sink that name again and start the job without restore.path: it "
                "commits or removes them, or says what is missing.",
            )
    return found
