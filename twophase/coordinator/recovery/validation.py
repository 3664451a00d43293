"""Validates what the sinks remember against the log, before a job goes on (I6, H60 to H63)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from twophase.contract.sink import NamesPieces, OpenSink, SinkHistory
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.proofs import check_names, check_targets
from twophase.coordinator.recovery.recovery_steps import Restore
from twophase.coordinator.recovery.rewind import ahead_of, check_rewind
from twophase.errors import CheckpointMissingError, FencedError, RestoreRefusedError
from twophase.events import Observers
from twophase.options.job_options import SinkAhead
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.journal.entries import Lineage, Released, Rewinding
from twophase.state.journal.history import History

_SHOWN = 5
SINK_AHEAD = (
    "restore from the newest checkpoint; remove the newer rows with restore.sink_ahead=rewind; "
    "or begin another job with a savepoint, under another name: restore.sink_ahead=fork."
)
"""The remedy of a restore that is refused because a sink is ahead of it."""


class SinkValidation:
    """Asks the sinks for their histories and validates them against the log.

    Args:
        context: the job.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def histories(self, known: Mapping[str, SinkHistory] | None = None) -> dict[str, SinkHistory]:
        """Return what each sink remembers of the job now.

        Args:
            known: what sinks were asked for already.
        """
        known = known or {}

        def history(sink: OpenSink, _: Observers) -> SinkHistory:
            return sink.history()

        context = self._context
        asked = {name: sink for name, sink in context.sinks.items() if name not in known}
        found = context.fan_out(
            {name: partial(history, sink) for name, sink in asked.items()}, context.observers
        )
        return {name: known[name] if name in known else found[name] for name in context.sinks}

    def check(
        self, history: History, remembered: Mapping[str, SinkHistory], restore: Restore | None
    ) -> None:
        """Validate what the sinks remember against the log, or the restored checkpoint.

        Raises:
            StopJobError: the job must not go on.
        """
        context = self._context
        if restore is None:
            check_histories(context.job, history, remembered, piece_names(context.sinks))
        else:
            _check_not_done(context.job, history, restore.lineage.restored_from)
            rewinds = restore.sink_ahead is SinkAhead.REWIND
            waiting = history.uncommitted() if rewinds else ()
            ahead = context.sink_decisions.bodies() if rewinds else ()
            uncommitted = [*map(context.store.read, waiting), *ahead]
            check_sinks(context.job, history, remembered, restore, context.sinks, uncommitted)
        expected = restore.committed if restore else context.proofs.committed()
        may_rename = context.options.allow_non_restored_state
        check_names(context.job, expected, context.sinks, may_rename=may_rename)
        check_targets(
            context.proofs, expected, context.sinks, remembered, may_move=restore is not None
        )

    def check_again(
        self, restore: Restore | None, known: Mapping[str, SinkHistory] | None = None
    ) -> None:
        """Validate the sinks once more: another driver can commit in each until its fence is up.

        Args:
            restore: the restore whose lineage is about to begin, if any.
            known: what sinks were asked for behind their fences.

        Raises:
            FencedError: another driver over this folder has gone on, and the sinks may know
                of its work by now.
            StopJobError: the job must not go on.
        """
        remembered, history = self.histories(known), self._context.history
        self._context.log.check_fence()
        self.check(history, remembered, restore)


PieceNames = Callable[[str, str, int], Sequence[str]]
"""Returns the pieces of a checkpoint that a sink has proof of, given its name, a
lineage and a number.
"""


def piece_names(sinks: Mapping[str, OpenSink]) -> PieceNames:
    """Return a function that asks those sinks that can name their pieces."""

    def names(sink: str, lineage: str, checkpoint: int) -> Sequence[str]:
        found = sinks[sink]
        return found.committed_pieces(lineage, checkpoint) if isinstance(found, NamesPieces) else ()

    return names


def check_histories(
    job: str, history: History, sinks: Mapping[str, SinkHistory], names: PieceNames = lambda *_: ()
) -> None:
    """Reject a store that knows less than a sink: it is empty, outdated, or a different one.

    Args:
        job: the job's name.
        history: the history of the log.
        sinks: the history of each sink.
        names: names the pieces that a sink has and the log does not know.

    Raises:
        CheckpointMissingError: starting would rewrite rows that a sink already has.
        RestoreRefusedError: a rewind was begun and not finished.
    """
    if history.released is not None:
        raise _released(job, history.released)
    if history.rewinding is not None:
        raise unfinished_rewind(job, history.rewinding)
    for name, remembered in sinks.items():
        if remembered.generation > history.generation:
            state = (
                "is empty" if history == History() else f"ends at generation {history.generation}"
            )
            raise _missing(
                job,
                f"the checkpoint store {state}, but sink {name!r} has seen "
                f"generation {remembered.generation}",
            )
        for lineage, checkpoint in remembered.committed.items():
            _check_lineage(job, history, name, lineage, checkpoint, names)


def _check_lineage(
    job: str, history: History, sink: str, lineage: str, checkpoint: int, names: PieceNames
) -> None:
    ancestors = {
        ancestor: last for known in history.lineages for ancestor, last in known.ancestors.items()
    }
    if lineage in ancestors:
        if checkpoint > ancestors[lineage]:
            what = (
                f"sink {sink!r} has committed checkpoint {checkpoint} of lineage {lineage}, "
                "this job continues from "
            )
            raise _missing(job, f"{what}{ancestors[lineage]}")
        return
    if all(known.id != lineage for known in history.lineages):
        raise _missing(
            job,
            f"sink {sink!r} has rows of lineage {lineage}, "
            "which the checkpoint store does not know",
        )
    if history.lineage is not None and history.lineage.id == lineage:
        _check_newest(job, history, sink, checkpoint, names)


def _check_newest(
    job: str, history: History, sink: str, checkpoint: int, names: PieceNames
) -> None:
    """Check that the log has decided a checkpoint of the current lineage that a sink has."""
    lineage = history.lineage.id if history.lineage else ""
    if any(one.sink == sink and one.is_of(lineage, checkpoint) for one in history.sink_decisions):
        return
    newest = history.newest(lineage)
    if newest is None or newest.checkpoint < checkpoint:
        ends = "has none" if newest is None else f"ends at {newest.checkpoint}"
        what = (
            f"sink {sink!r} has committed checkpoint {checkpoint}, but the checkpoint store {ends}"
        )
        pieces = names(sink, lineage, checkpoint)
        raise _undecided(job, what, pieces) if pieces else _missing(job, what)


def check_sinks(
    job: str,
    history: History,
    remembered: Mapping[str, SinkHistory],
    restore: Restore,
    sinks: Mapping[str, OpenSink],
    uncommitted: Sequence[CompletedCheckpoint],
) -> None:
    """Refuse a restore to a checkpoint before what a sink has, unless it can be rewound.

    Args:
        job: the job's name.
        history: of its log.
        remembered: the history of each sink.
        restore: the restore whose lineage is about to begin.
        sinks: by name.
        uncommitted: the checkpoints that the log still has to commit.

    Raises:
        RestoreRefusedError: it is refused.
    """
    _check_not_taken_back(job, history, restore)
    rewinds = restore.sink_ahead is SinkAhead.REWIND
    if (begun := history.rewinding) and not (rewinds and begun.is_finished_by(restore.keep)):
        raise unfinished_rewind(job, begun)
    if rewinds:
        check_rewind(job, restore, sinks, remembered, uncommitted)
    else:
        check_restore(job, history, restore.lineage, remembered)


def check_restore(
    job: str, history: History, lineage: Lineage, sinks: Mapping[str, SinkHistory]
) -> None:
    """Refuse to restore to a checkpoint before what a sink has, or is bound to get (H28).

    Raises:
        RestoreRefusedError: rows after the restored checkpoint are already visible, or decided and
            about to be; they would be written again.
    """
    # The log comes first: it was read after the sinks were asked, and another driver may have
    # advanced in between.
    _check_restore_against_log(job, history, lineage)
    for name, found, checkpoint in ahead_of(lineage.ancestors, sinks):
        raise RestoreRefusedError(
            f"Job {job!r}: cannot restore from {lineage.restored_from}: sink {name!r} has "
            f"committed checkpoint {checkpoint} of lineage {found}, the restore knows "
            f"{lineage.ancestors.get(found, 'none')} of it. The rows in between would be written "
            "twice; nothing was written.",
            remedy=SINK_AHEAD,
        )


def _check_restore_against_log(job: str, history: History, lineage: Lineage) -> None:
    gone = history.released
    if gone is not None and gone.checkpoint > lineage.ancestors.get(gone.lineage, -1):
        raise RestoreRefusedError(
            f"Job {job!r}: cannot restore from {lineage.restored_from}: checkpoint "
            f"{gone.checkpoint} of lineage {gone.lineage} was committed after it, and deleted when "
            "the job ended; its rows would then be written twice. Nothing was written.",
            remedy=f"restore from a copy that has this checkpoint, or {SINK_AHEAD}",
        )
    for decision in history.decisions:
        if decision.checkpoint > lineage.ancestors.get(decision.lineage, -1):
            state = "is committed" if decision.committed else "must still be committed"
            raise RestoreRefusedError(
                f"Job {job!r}: cannot restore from {lineage.restored_from}: checkpoint "
                f"{decision.checkpoint} of lineage {decision.lineage} is decided and {state}; its "
                "rows would then be written twice. Nothing was written.",
                remedy="start the job without restore.path to go on from it, "
                f"or restore from {decision.folder}; or {SINK_AHEAD}",
            )
    for ahead in history.ahead_of(lineage.ancestors):
        raise RestoreRefusedError(
            f"Job {job!r}: cannot restore from {lineage.restored_from}: sink {ahead.sink!r} has or "
            f"gets checkpoint {ahead.checkpoint} of lineage {ahead.lineage} ahead of the others; "
            "its rows would then be written twice. Nothing was written.",
            remedy=f"start the job without restore.path to go on from it; or {SINK_AHEAD}",
        )


def _check_not_done(job: str, history: History, where: str) -> None:
    """Reject a restore that another driver has done since this one read the log.

    Doing it again would take back what the job has written since.

    Raises:
        FencedError: it has.
    """
    if history.lineage is not None and history.lineage.restored_from == where:
        raise FencedError(
            f"Job {job!r}: another driver has begun lineage {history.lineage.id} with {where} "
            "while this one was starting.",
            remedy="leave this driver stopped; the next start goes on with that lineage, with the "
            "same options too.",
        )


def _check_not_taken_back(job: str, history: History, restore: Restore) -> None:
    """Refuse to continue checkpoints that an earlier rewind has taken back.

    Raises:
        RestoreRefusedError: it would.
    """
    if (current := history.lineage) is None:
        return
    older = {one.id for one in history.lineages} - {current.id}
    for lineage, newest in restore.keep.items():
        if lineage in older and newest > (last := current.ancestors.get(lineage, -1)):
            raise RestoreRefusedError(
                f"Job {job!r}: cannot restore from {restore.lineage.restored_from}: it continues "
                f"checkpoint {newest} of lineage {lineage}, and the job has gone back to "
                f"{'none' if last < 0 else last} of it since: what was newer was taken back. "
                "Nothing was written.",
                remedy="start the job without restore.path to go on from where it is, or restore "
                "what was made since.",
            )


def unfinished_rewind(job: str, begun: Rewinding) -> RestoreRefusedError:
    """Return the error of a start that would go on in the middle of a rewind."""
    return RestoreRefusedError(
        f"Job {job!r}: a rewind to {begun.restored_from} was started and not finished: rows after "
        "it may be gone from one sink and still be in another. Nothing was written.",
        remedy=f"finish it: start with restore.path={begun.restored_from}, or a copy of it, and "
        "restore.sink_ahead=rewind.",
    )


def _released(job: str, released: Released) -> CheckpointMissingError:
    return CheckpointMissingError(
        f"Job {job!r}: its checkpoints, up to {released.checkpoint}, were deleted when it ended, "
        "as checkpoint.externalized_retention said. Starting would read the sources from their "
        "beginning and write rows twice; nothing was written.",
        remedy="begin under another name, with another checkpointLocation and other targets; or "
        "restore with restore.path from a copy of the folder that has this checkpoint; or go on "
        "from what the targets have: twophase repair adopt-from-target JOB.yaml",
    )


def _undecided(job: str, what: str, pieces: Sequence[str]) -> CheckpointMissingError:
    """Return the error for a checkpoint that the target still names; the folder may be intact."""
    shown = ", ".join(pieces[:_SHOWN]) + (
        f" and {len(pieces) - _SHOWN} more" if len(pieces) > _SHOWN else ""
    )
    return CheckpointMissingError(
        f"Job {job!r}: {what}. It is proven by the pieces {shown} (attempt/subtask.task attempt). "
        "Either the folder is older than the sink, or these pieces were committed by hand "
        "although they were in no decision. Starting would write rows twice; nothing was written.",
        remedy="if the folder was restored from a backup, restore the one that it replaced. "
        "If the pieces were committed by hand, delete their rows from the target together with "
        "their proofs (MySQL: first roll back what is still prepared of this checkpoint, since it "
        "holds locks; the proofs are its rows of twophase_ledger; files: see docs/operations.md), "
        "then start the job again: it writes the checkpoint again. If the newer folder is gone "
        "for good: twophase repair adopt-from-target JOB.yaml",
    )


def _missing(job: str, what: str) -> CheckpointMissingError:
    return CheckpointMissingError(
        f"Job {job!r}: {what}. Starting would write rows twice; nothing was written.",
        remedy="restore the job's folder (checkpointLocation) to its newest state, "
        "or start a new lineage with restore.path set to its newest checkpoint (not in the plugin "
        "form). If it is gone for good: twophase repair adopt-from-target JOB.yaml",
    )
