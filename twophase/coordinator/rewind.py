"""A rewind: what sinks have committed after a restored checkpoint is taken back (H28).

    1. check     before the fence: each sink that is ahead, or is bound to be, says that it can
    2. recover   fence, commit all that is decided (I2), close older attempts in every sink
    3. check     again: behind the fences no driver adds anything any more
    4. record    REWINDING: a death leaves some sinks ahead, or one with a part of its rows, and no
                 start goes on from there without the rewind
    5. rewind    sink by sink
    6. ask       the sinks again: none is ahead

The record LINEAGE, which follows, ends it. Steps 1 to 3 are those of every start
(`coordinator.recovery`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from twophase.coordinator.context import JobContext
from twophase.coordinator.recovery_steps import Restore
from twophase.errors import RestoreRefusedError
from twophase.events import SinkRewound
from twophase.failpoints import failpoint
from twophase.ids import Attempt
from twophase.protocol.sink import CanRewind, SinkHistory
from twophase.state.entries import Decision, Rewinding
from twophase.state.records import History, RewindingRecord

_OTHER_WAYS = (
    "restore from the newest checkpoint; or begin another job with a savepoint, under another "
    "name: restore.sink_ahead=fork."
)


class SinkRewind:
    """Takes back what is committed after a restored checkpoint.

    Args:
        context: the job.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context

    def check(
        self, history: History, remembered: Mapping[str, SinkHistory], restore: Restore
    ) -> None:
        """Steps 1 and 3. Nothing is written.

        Args:
            history: of the log.
            remembered: the history of each sink.
            restore: with the policy `rewind`.

        Raises:
            RestoreRefusedError: a sink that is ahead cannot take it back; names it and why.
        """
        names = [name for name, *_ in ahead_of(restore.keep, remembered)]
        names += self._bound_to_be(history, restore)
        for name in dict.fromkeys(names):
            self._able(name, restore).check_rewind(restore.keep)

    def run(self, restore: Restore, attempt: Attempt) -> None:
        """Steps 4 to 6, behind the fences.

        Args:
            restore: checked.
            attempt: the fence of every sink.

        Raises:
            RestoreRefusedError: a sink cannot take it back after all.
            FencedError: a newer driver has taken the job over.
            Exception: of a sink. The next start with the same options calls it again.
        """
        context = self._context
        ahead = [*ahead_of(restore.keep, self._histories())]
        if not ahead and context.log.history.rewinding is None and not self._later(restore):
            return
        begun = Rewinding(restore.lineage.restored_from, restore.keep)
        context.log.append(RewindingRecord(begun))
        failpoint("S11")
        for sink in dict.fromkeys(name for name, *_ in ahead):
            self._able(sink, restore).rewind(restore.keep, attempt)
            for name, lineage, newest in ahead:
                if name == sink:
                    kept = restore.keep.get(lineage, -1)
                    context.observers(SinkRewound(context.job, sink, lineage, newest, kept))
            failpoint("S12")
        self._check_done(restore)
        failpoint("S13")

    def _able(self, name: str, restore: Restore) -> CanRewind:
        sink = self._context.sinks[name]
        if isinstance(sink, CanRewind):
            return sink
        raise RestoreRefusedError(
            f"Job {self._context.job!r}: cannot rewind to {restore.lineage.restored_from}: "
            f"sink {name!r} is ahead of it, and sinks of its kind cannot take back what "
            "they have committed. Nothing was written.",
            remedy=_OTHER_WAYS,
        )

    def _check_done(self, restore: Restore) -> None:
        for name, lineage, newest in ahead_of(restore.keep, self._histories()):
            raise RestoreRefusedError(
                f"Job {self._context.job!r}: sink {name!r} still has proof of checkpoint {newest} "
                f"of lineage {lineage} after it was rewound to {restore.lineage.restored_from}. "
                "No lineage has begun.",
                remedy="find out who else writes to it under this job's name, then start again "
                "with the same options.",
            )

    def _histories(self) -> dict[str, SinkHistory]:
        return {name: sink.history() for name, sink in self._context.sinks.items()}

    def _bound_to_be(self, history: History, restore: Restore) -> list[str]:
        """Return the sinks that get pieces of later checkpoints: those are decided (I2)."""
        later = [one for one in later_than(restore.keep, history) if not one.committed]
        bodies = [self._context.store.read(one) for one in later]
        return [
            name
            for name in self._context.sinks
            if any(body.committables.get(name) for body in bodies)
        ]

    def _later(self, restore: Restore) -> Sequence[Decision]:
        return later_than(restore.keep, self._context.log.history)


def later_than(keep: Mapping[str, int], history: History) -> list[Decision]:
    """Return the decisions of a log that are after what a rewind keeps, oldest first."""
    return [one for one in history.decisions if one.checkpoint > keep.get(one.lineage, -1)]


def ahead_of(
    keep: Mapping[str, int], remembered: Mapping[str, SinkHistory]
) -> Iterator[tuple[str, str, int]]:
    """Yield each sink and lineage that is ahead, with its newest committed checkpoint."""
    for name, memory in remembered.items():
        for lineage, newest in memory.committed.items():
            if newest > keep.get(lineage, -1):
                yield name, lineage, newest
