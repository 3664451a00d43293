"""Phase 2: the coordinator of each transaction is told to commit it, or to abort it.

A commit:

    1. its state     committed: done; with a record in the ledger or behind a mark: done; nowhere:
                     lost; open: it goes on
    2. the target    it is this topic, with the proof of the predecessor
    3. EndTxn        by producer id and epoch, which the coordinator checks
    4. its state     OK is not believed: committed once the coordinator has told all partitions

An abort that races with a commit of the same transaction, by a driver with a copy of the job's
folder, is refused by the coordinator, or refuses it. Once it has won, the transactional id is
closed to its writer, which may be alive: it could begin again in the same epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, Committed, Lost, RetryLater
from twophase.contract.sink import (
    CommitRequest,
    another_target,
    commit_each,
    predecessor_missing,
)
from twophase.errors import StopJobError, TargetUnreachableError
from twophase.internals.failpoints import failpoint
from twophase.sinks.kafka.brokers import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Brokers,
    Transaction,
)
from twophase.sinks.kafka.downtime import time_left
from twophase.sinks.kafka.ledger import PROOFS, Ledger, Proofs
from twophase.sinks.kafka.names import Owner, name_of

_PENDING = (ONGOING, PREPARE_COMMIT)


class Committer:
    """Commits and aborts the pieces of one sink.

    Args:
        brokers: an open client.
        ledger: of the cluster; None if there is none.
        owner: the job's sink.
        target_now: tells `Sink.target` as it is now: topics may be created again under a job.
    """

    def __init__(
        self,
        brokers: Brokers,
        ledger: Ledger | None,
        owner: Owner,
        target_now: Callable[[], str],
    ) -> None:
        self._brokers = brokers
        self._ledger = ledger
        self._owner = owner
        self._target_now = target_now

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

    def _commit_all(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        names = [name_of(self._owner.topic, request.committable) for request in requests]
        states = self._brokers.describe(names)
        proofs = self._ledger.proofs_of(self._owner) if self._ledger else Proofs()
        known = {
            name: self._known(name, request.committable, states, proofs)
            for name, request in zip(names, requests, strict=True)
        }
        waiting = [
            request
            for name, request in zip(names, requests, strict=True)
            if not isinstance(known[name], AlreadyCommitted)
        ]
        if waiting:
            self._check_target(waiting, proofs)

        def commit_one(request: CommitRequest) -> CommitOutcome:
            name = name_of(self._owner.topic, request.committable)
            return known[name] or self._commit(name, states[name])

        return commit_each(requests, commit_one)

    def abort(self, committables: Sequence[Committable]) -> None:
        """See `OpenSink.abort`."""
        for piece in committables:
            self._abort(name_of(self._owner.topic, piece))
            failpoint("C20")

    def _known(
        self,
        name: str,
        piece: Committable,
        states: Mapping[str, Transaction],
        proofs: Proofs,
    ) -> CommitOutcome | None:
        """Return what is known of a piece; None if it can be committed."""
        found = states.get(name)
        if found is not None and found.state == COMPLETE_COMMIT:
            return AlreadyCommitted(f"transaction {name} is committed")
        if name in proofs.pieces:
            return AlreadyCommitted("record of the ledger")
        if found is not None and found.state in _PENDING:
            return None if self._is_whole(found) else self._lost(name, found, proofs, piece)
        if found is not None and found.state == PREPARE_ABORT:
            return RetryLater(f"transaction {name} is being aborted")
        if found is None and piece.transaction.checkpoint <= proofs.mark(piece.transaction.lineage):
            return AlreadyCommitted("high-water mark")
        return self._lost(name, found, proofs, piece)

    def _is_whole(self, found: Transaction) -> bool:
        """Return whether the last record of a piece is in its transaction."""
        return self._ledger is not None and (self._ledger.topic, PROOFS) in found.partitions

    def _lost(
        self, name: str, found: Transaction | None, proofs: Proofs, piece: Committable
    ) -> Lost:
        state = "unknown to the brokers" if found is None else f"in state {found.state}"
        why = (
            f"; the brokers abort what is open for longer than {found.timeout_s:g} s "
            "(transaction_timeout)"
            if found is not None and found.state == COMPLETE_ABORT
            else ""
        )
        return Lost(
            f"transaction {name} is {state}, the ledger has no record of it, and the high-water "
            f"mark of its lineage is {proofs.mark(piece.transaction.lineage)}{why}"
        )

    def _check_target(self, requests: Sequence[CommitRequest], proofs: Proofs) -> None:
        """Check that this is the topic of pieces without proof, and has what came before."""
        target = self._target_now()
        for request in requests:
            before = request.predecessor
            if request.committable.target != target:
                raise another_target(request.committable, target)
            if before is not None and not proofs.has(before.lineage, before.checkpoint):
                raise predecessor_missing(request, target)

    def _commit(self, name: str, found: Transaction) -> CommitOutcome:
        """Steps 3 and 4."""
        error = self._brokers.end(name, found, commit=True) if found.state == ONGOING else None
        deadline = self._brokers.deadline_s()
        while True:
            now = self._brokers.describe([name]).get(name)
            if now is not None and now.state == COMPLETE_COMMIT:
                return Committed()
            is_moving = now is not None and now.state == PREPARE_COMMIT
            if not is_moving or time.monotonic() >= deadline:
                state = now.state if now else "unknown"
                refusal = f", {error.__name__}" if error else ""
                return RetryLater(f"transaction {name} is in state {state}{refusal}")
            self._brokers.wait()

    def _abort(self, name: str) -> None:
        deadline = self._brokers.deadline_s()
        while True:
            found = self._brokers.describe([name]).get(name)
            if found is None or found.state == EMPTY:
                return self._check_unproven(name)
            if found.state in (COMPLETE_COMMIT, PREPARE_COMMIT):
                raise self._is_committed(name)
            if found.state == ONGOING:
                # this, and not the next step, has an answer if somebody is committing it
                self._brokers.end(name, found, commit=False)
            elif found.state == COMPLETE_ABORT and self._brokers.fence_producer(name) is None:
                return None
            if time.monotonic() >= deadline:
                raise TargetUnreachableError(
                    f"Transaction {name} could not be aborted in time: it is in state "
                    f"{found.state}.",
                    remedy="check that the brokers run; then start the job again.",
                )
            self._brokers.wait()

    def _check_unproven(self, name: str) -> None:
        if self._ledger and name in self._ledger.proofs_of(self._owner).pieces:
            raise self._is_committed(name)

    def _is_committed(self, name: str) -> StopJobError:
        return StopJobError(
            f"Transaction {name} is in no decision of this job's folder, but is committed in "
            f"topic {self._owner.topic!r}: its checkpoint was decided in another folder. Nothing "
            "was removed.",
            remedy="start the job with the folder (checkpointLocation) that decided it.",
        )


def _with_time_left(outcome: RetryLater, piece: Committable) -> RetryLater:
    left = time_left([piece], time.time())
    return RetryLater(f"{outcome.reason}; {left}") if left else outcome
