"""Recovery: the steps of a new driver before it writes anything new, in this order.

    1. fence      append FENCE(generation) to the log; every older driver is fenced from here on
    2. commit     every decided checkpoint without COMMITTED, oldest first, of all lineages (hazard H48)
    3. close      in each sink: abort orphans, raise its fence, abort again; sinks without orphans in parallel

Before step 1 nothing is written, and the histories of the sinks are validated against the store (I6): if a sink knows
more, the store is outdated; if it knows less, its target is.

A driver over a copy of the folder does not see the decisions of the original, and no log fences the two from each
other. So all sinks are asked again before anything is aborted in one of them, and once more when all fences are up.
From then on the other driver can pre-commit nothing, and each piece that it decided before is either in a sink by now,
or lost with an error that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from twophase.coordinator.fan_out import FanOut, sequentially
from twophase.coordinator.orphans import Orphans, PieceKey
from twophase.errors import CheckpointMissingError, FencedError, RestoreRefusedError
from twophase.events import Observers
from twophase.failpoints import failpoint
from twophase.ids import Attempt
from twophase.protocol.sink import NamesPieces, Sink, SinkHistory
from twophase.state.checkpoint import CompletedCheckpoint
from twophase.state.log import JobLog
from twophase.state.records import Decision, FenceRecord, History, Lineage, Proof

_TAKE_OVER_TRIES = 20
_SHOWN = 5


@dataclass(frozen=True)
class Restore:
    """An explicit restore, for which the store may know less than the sinks.

    Attributes:
        checkpoint: the restored checkpoint.
        lineage: the lineage that begins with it.
        adopting: the checkpoints, up to the restored one, that are decided but not committed in their own log; oldest
            first. They are committed under their own identity (H30), before orphans are aborted.
    """

    checkpoint: CompletedCheckpoint
    lineage: Lineage
    adopting: tuple[CompletedCheckpoint, ...] = ()

    @property
    def committed(self) -> tuple[Proof, ...]:
        """For each sink, the newest checkpoint with pieces that is already committed, by the log that it is from."""
        return (self.adopting[0].predecessors or ()) if self.adopting else self.checkpoint.proofs


PieceNames = Callable[[str, str, int], Sequence[str]]
"""Returns the pieces of a checkpoint that a sink has proof of, given its name, a lineage and a number."""


def piece_names(sinks: Mapping[str, Sink]) -> PieceNames:
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
    """
    for name, remembered in sinks.items():
        if remembered.generation > history.generation:
            state = "is empty" if history == History() else f"ends at generation {history.generation}"
            raise _missing(
                job, f"the checkpoint store {state}, but sink {name!r} has seen generation {remembered.generation}"
            )
        for lineage, checkpoint in remembered.committed.items():
            _check_lineage(job, history, name, lineage, checkpoint, names)


def _check_lineage(job: str, history: History, sink: str, lineage: str, checkpoint: int, names: PieceNames) -> None:
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
        what = f"sink {sink!r} has committed checkpoint {checkpoint}, but the checkpoint store {ends}"
        pieces = names(sink, lineage, checkpoint)
        raise _undecided(job, what, pieces) if pieces else _missing(job, what)


def check_restore(job: str, history: History, lineage: Lineage, sinks: Mapping[str, SinkHistory]) -> None:
    """Refuse to restore to a checkpoint before what a sink already has, or is bound to get (hazard H28).

    Raises:
        RestoreRefusedError: rows after the restored checkpoint are already visible, or decided and about to be; they
            would be written again.
    """
    # The log comes first: it was read after the sinks were asked, and another driver may have advanced in between.
    for decision in history.decisions:
        if decision.checkpoint > lineage.ancestors.get(decision.lineage, -1):
            state = "is committed" if decision.committed else "must still be committed"
            raise RestoreRefusedError(
                f"Job {job!r}: cannot restore from {lineage.restored_from}: checkpoint {decision.checkpoint} of lineage "
                f"{decision.lineage} is decided and {state}; its rows would then be written twice. Nothing was written.",
                remedy=f"start the job without restore.path to go on from it, or restore from {decision.folder}.",
            )
    for name, remembered in sinks.items():
        for found, checkpoint in remembered.committed.items():
            restored = lineage.ancestors.get(found, -1)
            if checkpoint > restored:
                raise RestoreRefusedError(
                    f"Job {job!r}: cannot restore from {lineage.restored_from}: sink {name!r} has committed checkpoint "
                    f"{checkpoint} of lineage {found}, the restore knows {restored if restored >= 0 else 'none'} of it. "
                    "The rows in between would be written twice; nothing was written.",
                    remedy="restore from the newest checkpoint, or give the job another name and target.",
                )


def _undecided(job: str, what: str, pieces: Sequence[str]) -> CheckpointMissingError:
    """Return the error for a checkpoint whose pieces the target still names: the fault need not be in the folder."""
    shown = ", ".join(pieces[:_SHOWN]) + (f" and {len(pieces) - _SHOWN} more" if len(pieces) > _SHOWN else "")
    return CheckpointMissingError(
        f"Job {job!r}: {what}. It is proven by the pieces {shown} (attempt/subtask.task attempt). Either the folder is "
        "older than the sink, or these pieces were committed by hand although they were in no decision. Starting would "
        "write rows twice; nothing was written.",
        remedy="if the folder was restored from a backup, restore the one that it replaced. If the pieces were "
        "committed by hand, delete their rows from the target together with their proofs (MySQL: first roll back what "
        "is still prepared of this checkpoint, since it holds locks; the proofs are its rows of twophase_ledger; "
        "files: see docs/operations.md), then start the job again: it writes the checkpoint again. If the newer folder "
        "is gone for good: twophase repair adopt-from-target JOB.yaml",
    )


def _missing(job: str, what: str) -> CheckpointMissingError:
    return CheckpointMissingError(
        f"Job {job!r}: {what}. Starting would write rows twice; nothing was written.",
        remedy="restore the job's folder (checkpointLocation) to its newest state, or start a new lineage with "
        "restore.path set to its newest checkpoint (not in the plugin form). If it is gone for good: twophase repair "
        "adopt-from-target JOB.yaml",
    )


def take_over(log: JobLog, sinks: Mapping[str, SinkHistory], check: Callable[[History], None]) -> int:
    """Step 1. Return the new generation, higher than all in the log and in the sinks.

    Args:
        log: the job's log; read again here.
        sinks: the history of each sink.
        check: raises if this history must not be continued; runs before the fence is appended.

    Raises:
        FencedError: other drivers keep taking over the job.
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
    """Step 2. Return how many checkpoints were committed.

    Strictly in order: a checkpoint that cannot be committed blocks all later ones, because a sink may take its
    high-water mark as proof of everything before (I4).
    """
    committed = 0
    for decision in history.uncommitted():
        if not commit(decision):
            break
        committed += 1
        failpoint("C19")
    return committed


def close_all(
    orphans: Mapping[str, Orphans],
    below: Attempt,
    kept: frozenset[PieceKey],
    observers: Observers,
    fan_out: FanOut = sequentially,
) -> int:
    """Step 3, also run after a declined attempt. Return how many orphans were aborted.

    Args:
        orphans: of each sink, by its name.
        below: the first attempt that stays open.
        kept: pieces of decided checkpoints that wait for their commit.
        observers: receive the events of the steps.
        fan_out: closes the sinks that have no orphans.
    """

    def close(one: Orphans, _: Observers) -> bool:
        return one.close_if_none(below, kept)

    closed = fan_out({name: partial(close, one) for name, one in orphans.items()}, observers)
    # In the order of the commits, with a check before each abort: if another driver has committed in one sink, that is
    # noticed before the rest of that checkpoint is aborted in the next.
    return sum(orphans[name].close(below, kept) for name, is_closed in closed.items() if not is_closed)
