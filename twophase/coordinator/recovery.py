"""Recovery: what a new driver does before anything new is written, in this order.

    1. fence      append FENCE(generation) to the log; every older driver is out from here on
    2. commit     every decided checkpoint without COMMITTED, oldest first, of all lineages (hazard H48)
    3. close      in each sink: abort orphans, raise its fence, abort again; the sinks side by side

Before step 1 nothing is written, and what the sinks remember is held against what the store remembers (I6): a sink that
knows more means that the store is old, one that knows less that its target is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from twophase.coordinator.alongside import Alongside, in_turn
from twophase.coordinator.orphans import Orphans, PieceKey
from twophase.errors import CheckpointMissingError, FencedError, TargetChangedError
from twophase.events import Observers
from twophase.failpoints import failpoint
from twophase.ids import Attempt
from twophase.protocol.sink import Sink, SinkHistory
from twophase.state.checkpoint import CompletedCheckpoint
from twophase.state.log import JobLog
from twophase.state.records import Decision, FenceRecord, History, Lineage

_TAKE_OVER_TRIES = 20


@dataclass(frozen=True)
class Restore:
    """An explicit restore: the store may know less than the sinks then.

    Attributes:
        checkpoint: the restored checkpoint.
        lineage: the lineage that begins with it.
        adopting: what of it, and of what was decided before it, is not committed in its own log; oldest first. It is
            committed under its own identity (H30), before orphans are aborted.
    """

    checkpoint: CompletedCheckpoint
    lineage: Lineage
    adopting: tuple[CompletedCheckpoint, ...] = ()

    @property
    def continuing(self) -> CompletedCheckpoint | None:
        """The restored checkpoint, if it is committed."""
        return None if self.checkpoint in self.adopting else self.checkpoint


def check_histories(job: str, history: History, sinks: Mapping[str, SinkHistory]) -> None:
    """Refuse a store that knows less than a sink: it is empty, old, or another one.

    Raises:
        CheckpointMissingError: starting would write rows again that a sink already has.
    """
    for name, remembered in sinks.items():
        if remembered.generation > history.generation:
            state = "is empty" if history == History() else f"ends at generation {history.generation}"
            raise _missing(
                job, f"the checkpoint store {state}, but sink {name!r} has seen generation {remembered.generation}"
            )
        for lineage, checkpoint in remembered.committed.items():
            _check_lineage(job, history, name, lineage, checkpoint)


def _check_lineage(job: str, history: History, sink: str, lineage: str, checkpoint: int) -> None:
    ancestors = {ancestor: last for known in history.lineages for ancestor, last in known.ancestors.items()}
    if lineage in ancestors:
        if checkpoint > ancestors[lineage]:
            what = f"sink {sink!r} has committed checkpoint {checkpoint} of lineage {lineage}, this job goes on from "
            raise _missing(job, f"{what}{ancestors[lineage]}")
        return
    if all(known.id != lineage for known in history.lineages):
        raise _missing(job, f"sink {sink!r} has rows of lineage {lineage}, which the checkpoint store does not know")
    current = history.lineage
    if current is None or current.id != lineage:
        return
    newest = history.newest(lineage)
    if newest is None or newest.checkpoint < checkpoint:
        ends = "has none" if newest is None else f"ends at {newest.checkpoint}"
        raise _missing(job, f"sink {sink!r} has committed checkpoint {checkpoint}, but the checkpoint store {ends}")


def check_restore(job: str, history: History, lineage: Lineage, sinks: Mapping[str, SinkHistory]) -> None:
    """Refuse to restore behind what a sink already has, or is bound to get (hazard H28).

    Raises:
        CheckpointMissingError: rows after the restored checkpoint are visible already, or decided and about to be; they
            would be written again.
    """
    # The log comes first: it was read later than the sinks were asked, and another driver may have gone on in between.
    for decision in history.decisions:
        if decision.checkpoint > lineage.ancestors.get(decision.lineage, -1):
            state = "is committed" if decision.committed else "must still be committed"
            raise CheckpointMissingError(
                f"Job {job!r}: cannot restore from {lineage.restored_from}: checkpoint {decision.checkpoint} of lineage "
                f"{decision.lineage} is decided and {state}; its rows would then be written twice. Nothing was written.",
                remedy=f"start the job without restore.path to go on from it, or restore from {decision.folder}.",
            )
    for name, remembered in sinks.items():
        for found, checkpoint in remembered.committed.items():
            restored = lineage.ancestors.get(found, -1)
            if checkpoint > restored:
                raise CheckpointMissingError(
                    f"Job {job!r}: cannot restore from {lineage.restored_from}: sink {name!r} has committed checkpoint "
                    f"{checkpoint} of lineage {found}, the restore knows {restored if restored >= 0 else 'none'} of it. "
                    "The rows in between would be written twice; nothing was written.",
                    remedy="restore from the newest checkpoint, or give the job another name and target.",
                )


def check_kept(
    job: str,
    checkpoint: CompletedCheckpoint,
    sinks: Mapping[str, Sink],
    remembered: Mapping[str, SinkHistory],
    *,
    may_move: bool,
) -> None:
    """Refuse a target that does not know of a committed checkpoint any more: it was put back, or is another one.

    Args:
        job: the job's name.
        checkpoint: one that the log calls committed.
        sinks: by name.
        remembered: what each of them said before the log was read; one that has missed the checkpoint is asked again.
        may_move: whether a sink may have got another target since; it begins there without the rows of the old one.

    Raises:
        TargetChangedError: going on would leave a hole.
    """
    for name, sink in sinks.items():
        pieces = checkpoint.committables.get(name, ())
        if not pieces or (may_move and pieces[0].target != sink.target()):
            continue
        if not _knows(remembered[name], checkpoint) and not _knows(history := sink.history(), checkpoint):
            newest = history.committed.get(checkpoint.lineage)
            raise TargetChangedError(
                f"Job {job!r}: checkpoint {checkpoint.checkpoint} of lineage {checkpoint.lineage} is committed, and sink "
                f"{name!r} ({sink.target()}) knows {'none' if newest is None else f'up to {newest}'} of that lineage: its "
                f"target was put back, or is another one than {pieces[0].target}. The rows in between are not in it. "
                "Nothing was written.",
                remedy="put the target back as it was. If it is to be another one from here on, begin there with "
                "restore.path; in the plugin form, with another name and checkpointLocation.",
            )


def _knows(history: SinkHistory, checkpoint: CompletedCheckpoint) -> bool:
    return history.forgets or history.committed.get(checkpoint.lineage, -1) >= checkpoint.checkpoint


def _missing(job: str, what: str) -> CheckpointMissingError:
    return CheckpointMissingError(
        f"Job {job!r}: {what}. Starting would write rows twice; nothing was written.",
        remedy="put the job's folder (checkpointLocation) back as it was, or start a new lineage with restore.path set "
        "to its newest checkpoint.",
    )


def take_over(log: JobLog, sinks: Mapping[str, SinkHistory], check: Callable[[History], None]) -> int:
    """Step 1. Returns the new generation, higher than all in the log and in the sinks.

    Args:
        log: the job's log; read anew here.
        sinks: what each sink remembers.
        check: raises if this history must not be continued; runs before the fence is appended.

    Raises:
        FencedError: other drivers keep taking the job over.
    """
    for _ in range(_TAKE_OVER_TRIES):
        history = log.read()
        check(history)
        generation = 1 + max([history.generation, *(sink.generation for sink in sinks.values())])
        try:
            log.append(FenceRecord(generation))
        except FencedError:
            continue
        return generation
    raise FencedError(f"Other drivers took the job over {_TAKE_OVER_TRIES} times.", remedy="start one driver only.")


def commit_decided(history: History, commit: Callable[[Decision], bool]) -> int:
    """Step 2. Returns how many checkpoints were committed.

    Strictly in order: a checkpoint that cannot be committed holds all after it, because a sink may take its high-water
    mark for proof of everything before (I4).
    """
    committed = 0
    for decision in history.uncommitted():
        if not commit(decision):
            break
        committed += 1
        failpoint("C19")
    return committed


def close_all(
    job: str,
    sinks: Mapping[str, Sink],
    below: Attempt,
    kept: frozenset[PieceKey],
    observers: Observers,
    alongside: Alongside = in_turn,
) -> int:
    """Step 3, and what follows a declined attempt. Returns how many orphans were aborted."""

    def close(name: str, sink: Sink, observers: Observers) -> int:
        return Orphans(job, name, sink, observers).close(below, kept)

    return sum(alongside({name: partial(close, name, sink) for name, sink in sinks.items()}, observers).values())
