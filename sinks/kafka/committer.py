"""Phase 2: pieces of either protocol are committed, each with its proof, or aborted.

A commit looks for proof first. What has none is committed only in its own target, which has the
proof of the predecessor. How, is up to the protocol that has written the piece: a job may have
changed it since.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, RetryLater
from twophase.contract.sink import (
    CommitRequest,
    another_target,
    commit_each,
    predecessor_missing,
)
from twophase.errors import TargetUnreachableError
from twophase.internals.failpoints import failpoint
from twophase.sinks.kafka.downtime import time_left
from twophase.sinks.kafka.ledger import Ledger, Proofs
from twophase.sinks.kafka.names import Owner, name_of
from twophase.sinks.kafka.staging import is_staged


class Pieces(Protocol):
    """The pieces of one protocol."""

    def known(
        self, pieces: Mapping[str, Committable], proofs: Proofs
    ) -> Mapping[str, CommitOutcome | None]:
        """Return what is known of pieces, by name; None of those that can be committed."""

    def commit(self, name: str, piece: Committable) -> CommitOutcome:
        """Commit a piece of which nothing is known."""

    def abort(self, name: str, piece: Committable) -> None:
        """Abort a piece."""


class Committer:
    """Commits and aborts the pieces of one sink.

    Args:
        owner: the job's sink.
        ledger: of the cluster; None if there is none.
        target_now: tells `Sink.target` as it is now: topics may be created again under a job.
        transactions: pieces in open transactions.
        staged: pieces in a staging topic.
    """

    def __init__(
        self,
        owner: Owner,
        ledger: Ledger | None,
        target_now: Callable[[], str],
        transactions: Pieces,
        staged: Pieces,
    ) -> None:
        self._owner = owner
        self._ledger = ledger
        self._target_now = target_now
        self._transactions = transactions
        self._staged = staged

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `OpenSink.commit`. What is to be tried again says how much time is left."""
        pieces = [request.committable for request in requests]
        try:
            outcomes = self._commit_all(requests)
        except TargetUnreachableError as error:
            left = time_left(pieces, time.time())
            what = f"{error.what} The oldest transaction: {left}." if left else error.what
            raise TargetUnreachableError(what, remedy=error.remedy) from error
        return [
            _with_time_left(outcome, piece) if isinstance(outcome, RetryLater) else outcome
            for outcome, piece in zip(outcomes, pieces, strict=True)
        ]

    def abort(self, committables: Sequence[Committable]) -> None:
        """See `OpenSink.abort`."""
        for piece in committables:
            self._of(piece).abort(name_of(self._owner.topic, piece), piece)
            failpoint("C20")

    def _commit_all(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        pieces = {
            name_of(self._owner.topic, request.committable): request.committable
            for request in requests
        }
        proofs = self._ledger.proofs_of(self._owner) if self._ledger else Proofs()
        known: dict[str, CommitOutcome | None] = {}
        for one in (self._transactions, self._staged):
            mine = {name: piece for name, piece in pieces.items() if self._of(piece) is one}
            known |= one.known(mine, proofs)
        waiting = [
            request
            for name, request in zip(pieces, requests, strict=True)
            if not isinstance(known[name], AlreadyCommitted)
        ]
        if waiting:
            self._check_target(waiting, proofs)

        def commit_one(request: CommitRequest) -> CommitOutcome:
            piece = request.committable
            name = name_of(self._owner.topic, piece)
            return known[name] or self._of(piece).commit(name, piece)

        return commit_each(requests, commit_one)

    def _of(self, piece: Committable) -> Pieces:
        return self._staged if is_staged(piece) else self._transactions

    def _check_target(self, requests: Sequence[CommitRequest], proofs: Proofs) -> None:
        """Check that this is the topic of pieces without proof, and has what came before."""
        target = self._target_now()
        for request in requests:
            before = request.predecessor
            if request.committable.target != target:
                raise another_target(request.committable, target)
            if before is not None and not proofs.has(before.lineage, before.checkpoint):
                raise predecessor_missing(request, target)


def _with_time_left(outcome: RetryLater, piece: Committable) -> RetryLater:
    left = time_left([piece], time.time())
    return RetryLater(f"{outcome.reason}; {left}") if left else outcome
