"""Phase 2 of `protocol=transaction`: the coordinator of each transaction is told to commit it, or
to abort it.

A commit:

    1. its state     committed: done; with a record in the ledger or behind a mark: done; nowhere:
                     lost; open: it goes on
    2. EndTxn        by producer id and epoch, which the coordinator checks
    3. its state     OK is not believed: committed once the coordinator has told all partitions

An abort that races with a commit of the same transaction, by a driver with a copy of the job's
folder, is refused by the coordinator, or refuses it. Once it has won, the transactional id is
closed to its writer, which may be alive: it could begin again in the same epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from twophase.contract.committable import Committable
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, Committed, Lost, RetryLater
from twophase.contract.sink import decided_elsewhere
from twophase.errors import StopJobError, TargetUnreachableError
from twophase.sinks.kafka.brokers import Brokers
from twophase.sinks.kafka.ledger import PROOFS, Ledger, Proofs
from twophase.sinks.kafka.names import Owner
from twophase.sinks.kafka.requests import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Transaction,
)
from twophase.sinks.kafka.topics import TopicIds, ids_now, lost_topics

_PENDING = (ONGOING, PREPARE_COMMIT)
_CLOSABLE = (EMPTY, COMPLETE_ABORT)
"""Whoever has the id may begin again."""


class TransactionPieces:
    """Pieces in open transactions.

    Args:
        brokers: an open client.
        ledger: of the cluster; None if there is none.
        owner: the job's sink.
    """

    def __init__(self, brokers: Brokers, ledger: Ledger | None, owner: Owner) -> None:
        self._brokers = brokers
        self._ledger = ledger
        self._owner = owner
        self._states: Mapping[str, Transaction] = {}
        self._topics: TopicIds = {}

    def known(
        self, pieces: Mapping[str, Committable], proofs: Proofs
    ) -> Mapping[str, CommitOutcome | None]:
        """See `Pieces.known`."""
        states = self._states = self._brokers.describe(pieces)
        waiting = [pieces[name] for name, found in states.items() if found.state == ONGOING]
        self._topics = ids_now(self._brokers, waiting)
        return {name: self._known(name, piece, proofs) for name, piece in pieces.items()}

    def commit(self, name: str, piece: Committable) -> CommitOutcome:  # noqa: ARG002
        """See `Pieces.commit`."""
        found = self._states[name]
        error = self._brokers.end(name, found, commit=True) if found.state == ONGOING else None
        return committed(self._brokers, name, f", {error.__name__}" if error else "")

    def abort(self, name: str, piece: Committable) -> None:  # noqa: ARG002
        """See `Pieces.abort`."""
        abort_transaction(self._brokers, name, lambda: is_committed(self._owner, name))
        if self._is_proven(name):
            raise is_committed(self._owner, name)

    def _known(self, name: str, piece: Committable, proofs: Proofs) -> CommitOutcome | None:
        found = self._states.get(name)
        if found is not None and found.state == COMPLETE_COMMIT:
            return AlreadyCommitted(f"transaction {name} is committed")
        if name in proofs.pieces:
            return AlreadyCommitted("record of the ledger")
        if found is not None and found.state in _PENDING:
            if not self._is_whole(found):
                # of a commit the brokers leave out the partitions that have got its marker
                if found.state == PREPARE_COMMIT and self._is_proven(name):
                    return AlreadyCommitted("record of the ledger")
                return self._lost(name, found, proofs, piece)
            return lost_topics(piece, self._topics) if found.state == ONGOING else None
        if found is not None and found.state == PREPARE_ABORT:
            return RetryLater(f"transaction {name} is being aborted")
        if found is None and piece.transaction.checkpoint <= proofs.mark(piece.transaction.lineage):
            return AlreadyCommitted("high-water mark")
        return self._lost(name, found, proofs, piece)

    def _is_proven(self, name: str) -> bool:
        """Return whether the ledger has the record of a piece by now."""
        ledger = self._ledger
        return ledger is not None and name in ledger.proofs_of(self._owner).pieces

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


def committed(brokers: Brokers, name: str, refusal: str = "") -> CommitOutcome:
    """Wait until a transaction is committed in all partitions, if it is about to be.

    Args:
        brokers: an open client.
        name: its id.
        refusal: what is said of it if it is not.
    """
    deadline = brokers.deadline_s()
    while True:
        now = brokers.describe([name]).get(name)
        if now is not None and now.state == COMPLETE_COMMIT:
            return Committed()
        is_moving = now is not None and now.state == PREPARE_COMMIT
        if not is_moving or time.monotonic() >= deadline:
            state = now.state if now else "unknown"
            return RetryLater(f"transaction {name} is in state {state}{refusal}")
        brokers.wait()


def abort_transaction(
    brokers: Brokers, name: str, is_committed: Callable[[], StopJobError]
) -> None:
    """Abort a transaction, and close its id to whoever has used it.

    Args:
        brokers: an open client.
        name: its id.
        is_committed: makes the error of one that is committed.
    """
    deadline = brokers.deadline_s()
    while True:
        found = brokers.describe([name]).get(name)
        if found is None:
            return
        if found.state in (COMPLETE_COMMIT, PREPARE_COMMIT):
            raise is_committed()
        if found.state == ONGOING:
            # this, and not the next step, has an answer if somebody is committing it
            brokers.end(name, found, commit=False)
        elif found.state in _CLOSABLE and brokers.fence_producer(name) is None:
            return
        if time.monotonic() >= deadline:
            raise TargetUnreachableError(
                f"Transaction {name} could not be aborted in time: it is in state {found.state}.",
                remedy="check that the brokers run; then start the job again.",
            )
        brokers.wait()


def is_committed(owner: Owner, name: str) -> StopJobError:
    """Return the error of a piece that is to be aborted, and is committed."""
    return decided_elsewhere(name, f"topic {owner.topic!r}")
