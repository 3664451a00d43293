"""A repair: an operator gives up a rewind that has begun and cannot be finished.

A sink refuses it by now (somebody has rewritten files, or deleted a row), or a source can no longer
read what would have to be written again. Rows that are gone from one sink do not come back; all
others stay.

    1. take over   append a fence to the log, like every driver, and raise it in each sink: no
                   driver that is still rewinding takes back more
    2. settle      each sink whose rewind is not one transaction: rows and proofs agree again; also
                   under another name of the sink, if its target has rows by that
    3. show        the plan: what each sink has, and lacks; the operator confirms
    4. record      REPAIRED, one record in the log: this is the repair. It ends the rewind, and
                   accepts the loss of what was taken back, as `accept-loss` does for a target
                   that was restored from a backup

After step 4 the job goes on after its newest checkpoint. A crash before it gives up nothing, and
the command can be run again; so can the rewind.

A rewind that has begun in a folder of its own is given up for the folder that the job ran in. Both
logs are taken over; the record goes to the log that goes on.

If the folder in which it has begun is gone, or was replaced by an older copy, a sink that
lacks a part of its rows tells of it, and the operator names what it goes back to.

If the job's newest folder is gone for good, the rewind is given up for an older one, or for the one
in which it has begun. Nothing tells there what a sink had that has nothing left after the restored
checkpoint. `adopt-from-target`, which the next start names, leads on.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from twophase.contract.sink import CanRewind, OpenSink, RewindsInSteps, Sink, SinkHistory
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.proofs import knows
from twophase.coordinator.recovery.plan import (
    DriverMissed,
    FolderBehind,
    GoOn,
    NamedOtherwise,
    Refusal,
    RenamedLacks,
    RewindUnfinished,
    TargetLacks,
    ahead_of,
    ahead_under_other_names,
)
from twophase.coordinator.recovery.planner import StartPlanner
from twophase.coordinator.recovery.recovery_steps import take_over
from twophase.errors import CheckpointMissingError, RestoreRefusedError, StopJobError
from twophase.ids import Attempt
from twophase.internals.failpoints import failpoint
from twophase.operations.repair.accept_loss import LossPlan, loss_of_gap
from twophase.operations.savepoint.fork import open_as
from twophase.operations.savepoint.preview import restore_of
from twophase.state.journal.entries import AbandonedRewind, Note, Rewinding
from twophase.state.journal.history import History
from twophase.state.journal.log import JobLog


@dataclass(frozen=True)
class AbandonPlan:
    """A rewind to be given up.

    Attributes:
        rewinding: the rewind.
        whole: the sinks that still have everything, by their names in the target, with why one
            cannot take it back; empty if it could.
        losses: what was taken back of the others; at most one a sink, except after an adoption.
        again: see `AbandonedRewind`.
        is_behind: whether a target knows more of the job than the folder.
        unknown: if so, the sinks that have nothing after what the rewind keeps: what they had is
            not known.
    """

    rewinding: Rewinding
    whole: Mapping[str, str]
    losses: Sequence[LossPlan]
    again: Sequence[str]
    is_behind: bool
    unknown: Sequence[str]


class RewindRepair:
    """Gives up a rewind.

    Args:
        context: the job's.
        declared: its sinks, not open: one is opened once more by each other name under which its
            target has rows of the job.
        elsewhere: the log of the folder in which the rewind has begun, if that is another one.
        named: the rewind, if the folder in which it has begun is gone for good: `rewind_named`.
        newest_is_gone: whether the job's newest folder is gone for good.
    """

    def __init__(
        self,
        context: JobContext,
        declared: Mapping[str, Sink],
        elsewhere: JobLog | None = None,
        *,
        named: Rewinding | None = None,
        newest_is_gone: bool = False,
    ) -> None:
        self._context = context
        self._declared = declared
        self._elsewhere = elsewhere
        self._named = named
        self._newest_is_gone = newest_is_gone

    def plan(self) -> AbandonPlan:
        """Steps 1 and 2: take over the job, and find out what was taken back.

        Raises:
            StopJobError: no rewind has begun, or the job must not go on for another reason.
        """
        context, planner = self._context, StartPlanner(self._context)
        self._begun(context.log.read())
        remembered = planner.histories()
        if self._recorded(context.history) is None and not _half_rewound(remembered):
            raise self._none_begun()

        def check(history: History) -> None:
            self._check(planner, history, remembered)

        taken = 0
        if self._elsewhere is not None:  # a driver there may have raised a fence of a sink since
            taken = take_over(self._elsewhere, remembered, lambda _: check(context.history))
        with ExitStack() as stack:
            others = self._others(stack, planner, remembered)
            remembered.update(_histories(others))
            attempt = Attempt(take_over(context.log, remembered, check, above=taken), 0)
            failpoint("R01")
            begun, sinks = self._begun(context.history), {**context.sinks, **others}
            for sink in sinks.values():
                sink.fence(attempt)
                if isinstance(sink, RewindsInSteps):
                    sink.settle_rewind(begun.keep, attempt)
                failpoint("R06")
            remembered = {**planner.histories(), **_histories(others)}
            for name in _half_rewound(remembered):
                raise StopJobError(
                    f"Job {context.job!r}: sink {name!r} still lacks rows that a rewind has taken "
                    f"back: it was not the one to {begun.restored_from}, or the sink cannot "
                    "restore them. Nothing was given up.",
                    remedy="name what that rewind goes back to: --restore PATH; or finish it: "
                    "start with that restore.path and `restore.sink_ahead=rewind`.",
                )
            is_behind = self._check(planner, context.history, remembered)
            return self._plan(begun, sinks, remembered, is_behind=is_behind)

    def abandon(self, plan: AbandonPlan, note: Note) -> None:
        """Step 4.

        Raises:
            FencedError: a driver has taken over the job since the plan was made; nothing was given
                up.
        """
        losses = tuple(loss.accepted(note) for loss in plan.losses)
        failpoint("R02")
        begun = self._context.history.rewinding or plan.rewinding
        self._context.log.append(AbandonedRewind(note, begun, losses, tuple(plan.again)))
        failpoint("R03")

    def _check(
        self, planner: StartPlanner, history: History, remembered: Mapping[str, SinkHistory]
    ) -> bool:
        """Return whether a target knows more of the job than its folder.

        Raises:
            StopJobError: it does, and a newer folder may be there; or the job must not go on for
                another reason.
        """
        repairs: list[type[Refusal]] = [RewindUnfinished, TargetLacks, RenamedLacks, FolderBehind]
        if self._newest_is_gone:
            repairs.append(NamedOtherwise)
        if self._named is not None:  # who left half a rewind has decided nothing, nor has any since
            repairs.append(DriverMissed)
        found = planner.check(self._known(history), remembered, repairs)
        for why in found:
            if isinstance(why, FolderBehind) and not self._newest_is_gone:
                raise self._behind(why)
        return any(isinstance(why, FolderBehind | NamedOtherwise) for why in found)

    def _others(
        self, stack: ExitStack, planner: StartPlanner, remembered: Mapping[str, SinkHistory]
    ) -> dict[str, OpenSink]:
        """Open each sink by the other names under which the rewind takes rows back, or has.

        Args:
            stack: closes them.
            planner: of the job.
            remembered: the history of each sink of the job.

        Returns:
            The open sinks by that name, or by the sink, the job and the name if it is another job's
            or not the only one so named.
        """
        job, history = self._context.job, self._context.log.read()
        observed = planner.observe(history, remembered, GoOn())
        keep, sinks = self._begun(history).keep, observed.sinks
        found = [(sink, name) for sink, name, _, _ in ahead_under_other_names(observed, keep)]
        # where all of them are gone already, the log knows the name
        left = [one for one in history.committed_proofs() if one.sink not in sinks]
        found += [
            (sink, (job, proof.sink))
            for proof in left
            for sink, one in sinks.items()
            if one.target == proof.target
        ]
        opened: dict[str, OpenSink] = {}
        for sink, (of, name) in dict.fromkeys(found):
            is_unique = of == job and name not in {*sinks, *opened}
            other = open_as(self._declared, sink, of, name)
            stack.callback(other.close)
            opened[name if is_unique else f"{sink}/{of}/{name}"] = other
        return opened

    def _behind(self, why: FolderBehind) -> CheckpointMissingError:
        """Return the error for a log that does not know what is taken back."""
        restored_from = self._begun(self._context.history).restored_from
        return CheckpointMissingError(
            f"Job {self._context.job!r}: sink {why.sink!r} has committed checkpoint "
            f"{why.checkpoint} of lineage {why.lineage}, which the job's folder does not know: "
            "nothing tells what the rewind has taken back. Nothing was given up.",
            remedy="restore the job's folder to its newest state, or name the right one "
            "(checkpointLocation), and run the command again. If that is gone for good, finish "
            f"the rewind: start with `restore.path={restored_from}`, or a copy of it, and "
            "`restore.sink_ahead=rewind`; what stands in its way is named then. If it can never be "
            "finished, run this command with --newest-folder-gone, then do what the next start "
            "says.",
        )

    def _begun(self, history: History) -> Rewinding:
        """Return the rewind, wherever it has begun.

        Raises:
            StopJobError: none has, or not in this folder.
        """
        folder = self._context.options.checkpoint_location
        job, begun = self._context.job, self._recorded(history) or self._named
        if begun is None:
            raise self._none_begun()
        if history.lineage is None and not self._newest_is_gone:
            raise StopJobError(
                f"Job {job!r}: the rewind has begun in a folder that has no checkpoint of its own: "
                "there is nothing in it to go on from.",
                remedy="give it up for the folder that the job ran in: twophase repair "
                "abandon-rewind JOB.yaml --checkpoint-location FOLDER --begun-in "
                f"{shlex.quote(folder)}. If that folder is gone for good, "
                "run this command with --newest-folder-gone; then: "
                "twophase repair adopt-from-target JOB.yaml",
            )
        return begun

    def _recorded(self, history: History) -> Rewinding | None:
        return (self._elsewhere.read() if self._elsewhere is not None else history).rewinding

    def _none_begun(self) -> StopJobError:
        return StopJobError(
            f"Job {self._context.job!r}: no rewind has begun; there is nothing to give up.",
            remedy="start the job: it goes on by itself, without restore.path. If a rewind has "
            "begun in another folder, name that: --begun-in FOLDER. If that is gone, name what it "
            "goes back to: --restore PATH.",
        )

    def _known(self, history: History) -> History:
        """Return what this log and the other one know together."""
        begun, log = self._begun(history), self._elsewhere
        newest = max(history.generation, log.history.generation if log else 0)
        return replace(history, generation=newest, rewinding=begun)

    def _plan(
        self,
        begun: Rewinding,
        sinks: Mapping[str, OpenSink],
        remembered: Mapping[str, SinkHistory],
        *,
        is_behind: bool,
    ) -> AbandonPlan:
        context = self._context
        lacked = [
            proof
            for proof in context.proofs.committed()
            if proof.sink in remembered and not knows(remembered[proof.sink], proof)
        ]
        evidence = f"gone since the rewind to {begun.restored_from} began, or before"
        again = [
            one.sink
            for one in context.history.ahead_of(begun.keep)
            if one.sink in remembered
            and remembered[one.sink].committed.get(one.lineage, -1) < one.checkpoint
        ]
        rewound = {*(proof.sink for proof in lacked), *again}
        has_newer = {name for name, _, _ in ahead_of(begun.keep, remembered)}
        unknown = [name for name in sinks if is_behind and name not in rewound | has_newer]
        rewound.update(unknown)
        return AbandonPlan(
            begun,
            {name: _refusal(sink, begun) for name, sink in sinks.items() if name not in rewound},
            [loss_of_gap(context, proof, sinks[proof.sink], evidence) for proof in lacked],
            again,
            is_behind,
            unknown,
        )


def rewind_named(context: JobContext) -> Rewinding | None:
    """Return the rewind that the job's options ask for; None if the job has begun with it.

    Raises:
        TwoPhaseError: it cannot be restored.
    """
    restore = restore_of(context)
    return Rewinding(restore.lineage.restored_from, restore.keep) if restore else None


def _half_rewound(remembered: Mapping[str, SinkHistory]) -> list[str]:
    return [name for name, memory in remembered.items() if memory.half_rewound]


def _histories(sinks: Mapping[str, OpenSink]) -> dict[str, SinkHistory]:
    return {name: sink.history() for name, sink in sinks.items()}


def _refusal(sink: OpenSink, begun: Rewinding) -> str:
    """Return why a sink cannot take its rows back; empty if it can, or has none to take back."""
    try:
        if isinstance(sink, CanRewind):
            sink.check_rewind(begun.keep)
    except RestoreRefusedError as error:
        return error.what
    return ""
