"""The real MySQL sink; what it is asked and what it answers is told to the oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, Committed
from twophase.contract.sink import (
    ArrowSink,
    CommitRequest,
    OpenArrowSink,
    SinkContext,
    SinkHistory,
    WriterFactory,
)
from twophase.errors import RestoreRefusedError
from twophase.ids import Attempt
from twophase.sinks.mysql.open_sink import OpenMySqlSink
from twophase.sinks.mysql.sink import MySqlSink
from verification.simulation.decisions import FORMAT_ID
from verification.simulation.rewinding import Rewind

if TYPE_CHECKING:
    from verification.simulation.world import World


class WatchedSink(ArrowSink):
    """A declared sink.

    Args:
        world: where it is opened.
        options: of the real one.
    """

    def __init__(self, world: World, **options: Any) -> None:
        self._world = world
        self._sink = MySqlSink(**options)

    def open(self, context: SinkContext) -> OpenWatchedSink:
        return OpenWatchedSink(self._world, self._sink.open(context))


class OpenWatchedSink(OpenArrowSink):
    """The same, open.

    Args:
        world: where it is.
        sink: the real one.

    Attributes:
        hash: what stands for the sink in an xid.
    """

    def __init__(self, world: World, sink: OpenMySqlSink) -> None:
        self._oracle = world.oracle
        self._world = world
        self._sink = sink
        self._is_closed = False
        owner = sink.writers().owner
        self._owner = (owner.job, owner.sink)
        self.hash = owner.sink_hash

    def target(self) -> str:
        return self._sink.target()

    def history(self) -> SinkHistory:
        found = self._open.history()
        self._oracle.asks(found.generation)
        return found

    def committed_pieces(self, lineage: str, checkpoint: int) -> Sequence[str]:
        return self._open.committed_pieces(lineage, checkpoint)

    def in_doubt(self) -> Sequence[Committable]:
        self._oracle.looks()
        return self._open.in_doubt()

    def fence(self, attempt: Attempt) -> None:
        changes = self._oracle.changes
        self._open.fence(attempt)
        if self._oracle.changes == changes:
            self._oracle.fenced(self.hash, (attempt.generation, attempt.counter))

    def writers(self) -> WriterFactory:
        return self._open.writers()

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        missing = {*self._oracle.undone}
        outcomes = self._open.commit(requests)
        for request, outcome in zip(requests, outcomes, strict=True):
            if isinstance(outcome, Committed | AlreadyCommitted):
                self._oracle.believes_committed(_xid(request.committable), missing)
        return outcomes

    def abort(self, committables: Sequence[Committable]) -> None:
        self._open.abort(committables)

    def subsume(self, lineage: str, checkpoint: int) -> None:
        self._open.subsume(lineage, checkpoint)

    def check_rewind(self, keep: Mapping[str, int]) -> None:
        """Every row can be distinguished from others here: the oracle knows them."""
        _, name = self._owner
        if name in self._world.obstructed:
            raise RestoreRefusedError(
                f"Sink {name!r}: a foreign key refers to the table.", remedy="drop the key."
            )
        self._rewind(keep, Attempt(0, 0)).check()

    def rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """As a sink without transactions does it: the rows go, then their proofs."""
        self.check_rewind(keep)
        self._rewind(keep, attempt).rewind()
        self._open._is_half_rewound = False

    def settle_rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """The same, to bring it to an end."""
        self._rewind(keep, attempt).settle()
        self._open._is_half_rewound = False

    def _rewind(self, keep: Mapping[str, int], attempt: Attempt) -> Rewind:
        number = (attempt.generation, attempt.counter)
        return Rewind(self._world, self.hash, self._owner, keep, number)

    def close(self) -> None:
        self._is_closed = True
        self._sink.close()

    @property
    def _open(self) -> OpenMySqlSink:
        self._oracle.holds(not self._is_closed, f"{self._owner} is called after it was closed")
        return self._sink


def _xid(committable: Committable) -> str:
    return f"'{committable.handle['gtrid']}','{committable.handle['bqual']}',{FORMAT_ID}"
