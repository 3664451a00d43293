"""The product, broken on purpose inside a plain driver: the mistakes of
`verification.simulation.mutations`, and three more.

Two are silent: one doubles rows, one loses them. The product looks for that in its targets and
would stop, by name. It is made not to look, so that it is the count that shows them. The third is
of a chain, which the simulation has, and no mistakes of.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from twophase.contract.sink import CommitRequest
from twophase.coordinator.commit import checkpoint_completion
from twophase.coordinator.commit.checkpoint_completion import CheckpointCompleter
from twophase.coordinator.commit.orphans import Orphans, key_of
from twophase.coordinator.recovery import plan
from twophase.spark.batch.writer_task import TaskWriter
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.journal.entries import CommittedRecord
from verification.simulation import mutations

DUPLICATES = "recovery commits orphans instead of aborting them"
LOSES = "recovery calls a decided checkpoint committed and drops it"
EARLY = "a chain pre-commits a sink before all have their rows"


def _commit_orphans(self: Orphans, below: Any, kept: Any) -> int:
    found = [
        piece
        for piece in self._sink.in_doubt()
        if piece.transaction.attempt < below and key_of(piece) not in kept
    ]
    self._sink.commit([CommitRequest(piece, 0) for piece in found])
    return len(found)


def _call_committed(self: CheckpointCompleter, decision: Any, **_: Any) -> bool:
    if not decision.committed:
        self._log.append(CommittedRecord(decision.lineage, decision.checkpoint))
    return True


def _keep_nothing(_: CheckpointCompleter, found: Any) -> Any:
    return found


def _look_at_nothing(*_: object, **__: object) -> None:
    return None


def _find_nothing(*_: object) -> Iterator[Any]:
    return iter(())


_BLIND: list[tuple[object, str, Any]] = [
    (plan, "_behind", _find_nothing),
    (plan, "_changed", _find_nothing),
    (CompletedCheckpoint, "predecessor", _look_at_nothing),
]
_OWN: dict[str, list[tuple[object, str, Any]]] = {
    DUPLICATES: [(Orphans, "abort", _commit_orphans), *_BLIND],
    LOSES: [
        (CheckpointCompleter, "commit_decided", _call_committed),
        (CheckpointCompleter, "commit_restored", _keep_nothing),
        *_BLIND,
    ],
    EARLY: [(TaskWriter, "flush", _look_at_nothing)],
}
OWN = {*_OWN}
_CHANGED: dict[str, list[tuple[object, str, Any]]] = {
    # A job of three checkpoints is to subsume, as one of sixteen does.
    "the ledger is collapsed and no mark is raised": [
        (checkpoint_completion, "SUBSUME_SINKS_EVERY", 1)
    ],
    "the newest commit is made first": _BLIND,
}


@contextmanager
def broken(name: str) -> Iterator[None]:
    """The product with one mistake in it."""
    with ExitStack() as stack:
        for owner, attribute, new in [*_OWN.get(name, []), *_CHANGED.get(name, [])]:
            stack.enter_context(mock.patch.object(owner, attribute, new))
        if name in mutations.MISTAKES:
            stack.enter_context(mutations.broken(name))
        yield
