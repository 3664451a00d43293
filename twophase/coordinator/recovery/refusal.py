"""The words of a refused beginning: what was found, and the ways that lead on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.recovery.plan import (
    CannotTakeBack,
    DriverMissed,
    FolderBehind,
    HalfRewound,
    LeftBehind,
    NamedOtherwise,
    Observed,
    Refusal,
    RenamedLacks,
    Restore,
    RestoreBehind,
    RestoredMeanwhile,
    RewindUnfinished,
    RowsReturned,
    SinkRenamed,
    TargetLacks,
    TargetReplaced,
    Wish,
)
from twophase.errors import (
    CheckpointMissingError,
    ConfigError,
    FencedError,
    RestoreRefusedError,
    TargetChangedError,
    TwoPhaseError,
)
from twophase.state.journal.entries import Rewinding
from twophase.state.journal.history import History

_SHOWN = 5
_OTHER_POLICY = (
    "restore from the newest checkpoint; remove the newer rows with `restore.sink_ahead=rewind`; "
    "or begin another job with a savepoint, under another name: `restore.sink_ahead=fork`."
)

GIVE_UP = (
    "Or give it up: what it has taken back is lost, and the job goes on after its newest "
    "checkpoint: twophase repair abandon-rewind JOB.yaml (not if it has died in the middle of a "
    "MySQL table: then see docs/by-hand.md)"
)
"""The other way on from a rewind that has begun."""

_TARGET_OF_RESTORE = (
    "restore the target to its state at the restored checkpoint, or a later one; or give the sink "
    "an empty target, which begins there. If what it lacks is gone for good, start the job in its "
    "own folder without restore.path: the error says how twophase repair accept-loss gives it up."
)

PieceNames = Callable[[str, str, int], Sequence[str]]
"""Returns the pieces of a checkpoint that a sink has proof of, given its name, a lineage and a
number.
"""


def refused(
    why: Refusal, observed: Observed, wish: Wish, context: JobContext, names: PieceNames
) -> TwoPhaseError:
    """Return the error of a refusal.

    Args:
        why: the refusal.
        observed: what was planned by.
        wish: what was wished.
        context: the job.
        names: names the pieces that a sink has and the log does not know.
    """
    job, origin = context.job, _origin(wish)
    match why:
        case RewindUnfinished(begun):
            return _unfinished_rewind(job, begun, observed.history)
        case HalfRewound(sink):
            return _half_rewound(context, sink)
        case FolderBehind():
            return _folder_behind(context, why, observed.history, names)
        case RowsReturned():
            return _rows_returned(context, why, observed.history)
        case DriverMissed():
            return _driver_missed(context, why, observed.history)
        case RestoreBehind():
            return _restore_behind(context, why, observed.history, origin)
        case RestoredMeanwhile(lineage):
            return _restored_meanwhile(job, lineage, origin)
        case LeftBehind():
            return _left_behind(job, why, origin)
        case NamedOtherwise():
            return _named_otherwise(context, why)
        case CannotTakeBack(sink):
            return _cannot_take_back(job, sink, origin)
        case TargetReplaced(sink):
            memory = observed.sinks[sink].memory
            return context.proofs.replaced(sink, context.sinks[sink], memory)
        case TargetLacks():
            return _target_lacks(context, why, observed, wish)
        case SinkRenamed():
            return _sink_renamed(job, why)
        case RenamedLacks():
            return _renamed_lacks(job, why)


def _origin(wish: Wish) -> str:
    return wish.lineage.restored_from if isinstance(wish, Restore) else ""


def _half_rewound(context: JobContext, sink: str) -> RestoreRefusedError:
    folder = context.options.checkpoint_location
    return RestoreRefusedError(
        f"Job {context.job!r}: a rewind that has begun in another folder than {folder} has "
        f"taken back a part of the rows of sink {sink!r}, and has died. Nothing was "
        "written.",
        remedy="finish it: restore the job's folder, the one in which it has begun, or "
        "start here with the same restore.path and `restore.sink_ahead=rewind`. Or give it "
        "up, if the sink can restore those rows (files can; MySQL cannot: see docs/by-hand.md): "
        "twophase repair abandon-rewind JOB.yaml --begun-in FOLDER; if that folder is gone for "
        "good, with --restore PATH in its place, which names what the rewind goes back to.",
    )


def _folder_behind(
    context: JobContext, why: FolderBehind, history: History, names: PieceNames
) -> CheckpointMissingError:
    sink, lineage, checkpoint = why.sink, why.lineage, why.checkpoint
    if why.continued:
        what = f"sink {sink!r} has committed checkpoint {checkpoint} of lineage {lineage}, "
        return _missing(context, f"{what}this job continues from {why.known}")
    if history == History():
        what = f"the checkpoint store is empty, but sink {sink!r} has rows of lineage {lineage}"
        return _missing(context, what)
    if why.known is None:
        return _missing(
            context,
            f"sink {sink!r} has rows of lineage {lineage}, which the checkpoint store does not "
            "know",
        )
    ends = "has none" if why.known < 0 else f"ends at {why.known}"
    what = f"sink {sink!r} has committed checkpoint {checkpoint}, but the checkpoint store {ends}"
    pieces = names(sink, lineage, checkpoint)
    return _undecided(context, what, pieces) if pieces else _missing(context, what)


def _rows_returned(context: JobContext, why: RowsReturned, history: History) -> TargetChangedError:
    begun, folder = history.lineage, context.options.checkpoint_location
    path = begun.restored_from if begun else ""
    if why.newest is not None:
        path = f"{folder}/{why.newest.folder}"
    return TargetChangedError(
        f"Job {context.job!r}: sink {why.sink!r} ({context.sinks[why.sink].target()}) has "
        f"checkpoint {why.checkpoint} of lineage {why.lineage} again, and the job has gone back to "
        f"{'none' if why.left < 0 else why.left} of it since: the target was restored from a "
        "backup taken before that. Starting would write rows twice; nothing was written.",
        remedy="restore the target to its newest state. If that is gone for good, take the rows "
        f"back once more: start with `restore.path={path}` and `restore.sink_ahead=rewind`; or go "
        "back further, to a checkpoint or savepoint that the target has all of: then nothing that "
        "it lacks is given up. What the job was restored from before takes a new `restore.id`. "
        "If the plan keeps state, or Spark reads files, name a savepoint of the job as it is now "
        "in place of a checkpoint: twophase savepoint create JOB.yaml PATH",
    )


def _driver_missed(
    context: JobContext, why: DriverMissed, history: History
) -> CheckpointMissingError:
    is_empty = history == History()
    state = "is empty" if is_empty else f"ends at generation {history.generation}"
    return _missing(
        context,
        f"the checkpoint store {state}, but sink {why.sink!r} has seen generation "
        f"{why.generation}: what that driver has decided is not known here",
        "lose or repeat it",
        "If a rewind in another folder has died, repeat it in this one: the same restore.path, "
        "with `restore.sink_ahead=rewind`; or give it up: twophase repair abandon-rewind "
        "JOB.yaml --begun-in FOLDER. ",
    )


def _named_otherwise(context: JobContext, why: NamedOtherwise) -> CheckpointMissingError:
    then, sink = why.name
    return CheckpointMissingError(
        f"Job {context.job!r}: the target of sink {why.sink!r} has checkpoint {why.checkpoint} of "
        f"lineage {why.lineage}, which sink {sink!r} of job {then!r} has committed. A start from "
        f"{context.options.checkpoint_location} does not know it and would write its rows twice; "
        "nothing was written.",
        remedy=f"name the job {then!r} and the sink {sink!r} again, then go on from its newest "
        "checkpoint, or restore with `restore.sink_ahead=rewind`.",
    )


def _restore_behind(
    context: JobContext, why: RestoreBehind, history: History, origin: str
) -> RestoreRefusedError:
    begin = f"Job {context.job!r}: cannot restore from {origin}: "
    twice = "its rows would then be written twice. Nothing was written."
    if why.decision is not None:
        state = "is committed" if why.decision.committed else "must still be committed"
        return RestoreRefusedError(
            f"{begin}checkpoint {why.checkpoint} of lineage {why.lineage} is decided and {state}; "
            f"{twice}",
            remedy="start the job without restore.path to go on after the newest one, or restore "
            f"that: {context.options.checkpoint_location}/{history.decisions[-1].folder}; "
            f"or {_OTHER_POLICY}",
        )
    if why.will_be:
        return RestoreRefusedError(
            f"{begin}sink {why.sink!r} has or gets checkpoint {why.checkpoint} of lineage "
            f"{why.lineage} ahead of the others; {twice}",
            remedy=f"start the job without restore.path to go on from it; or {_OTHER_POLICY}",
        )
    known = "none" if why.kept is None else why.kept
    return RestoreRefusedError(
        f"{begin}sink {why.sink!r} has committed checkpoint {why.checkpoint} of lineage "
        f"{why.lineage}, the restore knows {known} of it. The rows in between would be written "
        "twice; nothing was written.",
        remedy=_OTHER_POLICY,
    )


def _restored_meanwhile(job: str, lineage: str, origin: str) -> FencedError:
    return FencedError(
        f"Job {job!r}: another driver has begun lineage {lineage} with "
        f"{origin} while this one was starting.",
        remedy="leave this driver stopped; the next start goes on with that lineage, with "
        "the same options too.",
    )


def _left_behind(job: str, why: LeftBehind, origin: str) -> RestoreRefusedError:
    return RestoreRefusedError(
        f"Job {job!r}: cannot restore from {origin}: it continues "
        f"checkpoint {why.checkpoint} of lineage {why.lineage}, and the job has gone back to "
        f"{'none' if why.left < 0 else why.left} of it since: what was newer was taken back. "
        "Nothing was written.",
        remedy="start the job without restore.path to go on from where it is, or restore "
        "what was made since.",
    )


def _cannot_take_back(job: str, sink: str, origin: str) -> RestoreRefusedError:
    return RestoreRefusedError(
        f"Job {job!r}: cannot rewind to {origin}: sink {sink!r} is ahead "
        "of it, and sinks of its kind cannot remove committed rows. Nothing was written.",
        remedy="restore from the newest checkpoint; or begin another job with a savepoint, "
        "under another name: `restore.sink_ahead=fork`.",
    )


def _target_lacks(
    context: JobContext, why: TargetLacks, observed: Observed, wish: Wish
) -> TwoPhaseError:
    proof, memory = why.proof, observed.sinks[why.proof.sink].memory
    error = context.proofs.changed(proof, context.sinks[proof.sink], memory)
    if isinstance(wish, Restore) and proof not in observed.history.committed_proofs():
        error.remedy = _TARGET_OF_RESTORE
    return error


def _sink_renamed(job: str, why: SinkRenamed) -> ConfigError:
    proof, name = why.proof, why.name
    return ConfigError(
        f"Job {job!r}: sink {name!r} writes to {proof.target}, as sink "
        f"{proof.sink!r} did. The target knows the job's rows by that name. "
        "Nothing was written.",
        remedy=f"name the sink {proof.sink!r} again; or, after a clean stop, set "
        "`restore.allow_non_restored_state=true` once.",
    )


def _renamed_lacks(job: str, why: RenamedLacks) -> ConfigError:
    proof, name = why.proof, why.name
    return ConfigError(
        f"Job {job!r}: sink {name!r} writes to {proof.target}, as sink {proof.sink!r} did, and the "
        f"target lacks the rows of its checkpoint {proof.checkpoint}: it was restored from a "
        "backup, say. Nothing was written.",
        remedy=f"name the sink {proof.sink!r} again: the start says what is missing, and how the "
        "job goes on.",
    )


def begun_and_refused(job: str, begun: Rewinding, error: TwoPhaseError) -> TwoPhaseError:
    """Return the error of a rewind that has begun and cannot be finished, with both ways on.

    Args:
        job: the job's name.
        begun: the rewind.
        error: of the sink or source that stands in the way.
    """
    return type(error)(
        f"Job {job!r}: the rewind to {begun.restored_from} was started and cannot be finished: "
        f"{error.what} Until then rows after it may be gone from one sink and still be in another.",
        remedy=f"finish it: {error.remedy} {GIVE_UP}",
    )


def finishing(begun: Rewinding, history: History) -> str:
    """Say with which options a start finishes a rewind.

    Args:
        begun: the rewind.
        history: of the log that it has begun in.
    """
    again = any(one.restored_from and one.ancestors == begun.keep for one in history.lineages)
    return (
        f"start with `restore.path={begun.restored_from}`, or a copy of it, and "
        "`restore.sink_ahead=rewind`"
        + (", and with a new `restore.id`, as the job was restored from it before" * again)
    )


def _unfinished_rewind(job: str, begun: Rewinding, history: History) -> RestoreRefusedError:
    return RestoreRefusedError(
        f"Job {job!r}: a rewind to {begun.restored_from} was started and not finished: rows after "
        "it may be gone from one sink and still be in another. Nothing was written.",
        remedy=f"finish it: {finishing(begun, history)}. {GIVE_UP}",
    )


def _undecided(context: JobContext, what: str, pieces: Sequence[str]) -> CheckpointMissingError:
    """Return the error for a checkpoint that the target still names; the folder may be intact."""
    shown = ", ".join(pieces[:_SHOWN]) + (
        f" and {len(pieces) - _SHOWN} more" if len(pieces) > _SHOWN else ""
    )
    return CheckpointMissingError(
        f"Job {context.job!r}: {what}. It is proven by the pieces {shown} (attempt/subtask.task "
        "attempt). Either the folder is older than the sink, or these pieces were committed by "
        "hand although they were in no decision. Starting would write rows twice; nothing was "
        "written.",
        remedy=f"if the job's folder, {context.options.checkpoint_location}, was restored from a "
        "backup, restore the one that it replaced. "
        "If the pieces were committed by hand, delete their rows from the target together with "
        "their proofs (MySQL: first roll back what is still prepared of this checkpoint, since it "
        "holds locks; the proofs are its rows of twophase_ledger; files: see docs/by-hand.md), "
        "then start the job again: it writes the checkpoint again. If the newer folder is gone "
        "for good: twophase repair adopt-from-target JOB.yaml",
    )


def _missing(
    context: JobContext, what: str, would: str = "write rows twice", begun_elsewhere: str = ""
) -> CheckpointMissingError:
    folder = context.options.checkpoint_location
    return CheckpointMissingError(
        f"Job {context.job!r}: {what}. Starting would {would}; nothing was written.",
        remedy=f"restore the job's folder, {folder}, to its newest state, or name the right one "
        "(checkpointLocation); or start a new lineage from its newest checkpoint: "
        f"`restore.path=PATH` (not in the plugin form). {begun_elsewhere}If the newest state is "
        "gone for good: twophase repair adopt-from-target JOB.yaml",
    )
