"""Phase 2 of `protocol=staged`: pieces are copied from the staging topic, or withdrawn.

A commit:

    1. the ledger    has a proof, or a mark: done; has no announcement: lost
    2. the rows      are where they were acknowledged, or they are lost, and the error says why
    3. the copy      see `copier`
    4. clean-up      announcements and rows of what was copied are deleted

An abort deletes the announcement first, and then closes the transactional id of the copy: a copy
that was begun before cannot be committed any more, and one that begins later finds no announcement.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from twophase.contract.committable import Committable
from twophase.contract.fencing import driver_is_fenced
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, Committed, Lost
from twophase.ids import Attempt
from twophase.sinks.kafka.brokers import Brokers
from twophase.sinks.kafka.copier import copy_piece
from twophase.sinks.kafka.ledger import FENCES, Ledger, Proofs
from twophase.sinks.kafka.names import Owner, copy_of
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.sinks.kafka.staging import Place, delete_staged, find_staging, what_is_lost
from twophase.sinks.kafka.transactions import abort_transaction, committed, is_committed

_log = logging.getLogger("twophase.sinks.kafka")


class StagedPieces:
    """Pieces in a staging topic.

    Args:
        options: of the sink.
        brokers: an open client.
        ledger: of the cluster; None if there is none, and then there are no such pieces.
        owner: the job's sink.
        attempt: that this driver has raised the fence to; None if it has not.
    """

    def __init__(
        self,
        options: KafkaSinkOptions,
        brokers: Brokers,
        ledger: Ledger | None,
        owner: Owner,
        attempt: Attempt | None,
    ) -> None:
        self._options = options
        self._brokers = brokers
        self._ledger = ledger
        self._owner = owner
        self._attempt = attempt

    def in_doubt(self) -> Mapping[str, Committable]:
        """Return the pieces that are announced, and not committed, by name."""
        if self._ledger is None:
            return {}
        found, proofs = self._ledger.staged(self._owner), self._ledger.proofs_of(self._owner)
        return {name: piece for name, piece in found.items() if name not in proofs.pieces}

    def known(
        self, pieces: Mapping[str, Committable], proofs: Proofs
    ) -> Mapping[str, CommitOutcome | None]:
        """See `Pieces.known`."""
        return {name: self._known(name, piece, proofs) for name, piece in pieces.items()}

    def commit(self, name: str, piece: Committable) -> CommitOutcome:
        """See `Pieces.commit`."""
        if why := what_is_lost(self._brokers, Place.of(piece)):
            rows = f"the rows of piece {name} are not in their staging topic any more"
            return self._proven(name, piece) or Lost(f"{rows}: {why}")
        outcome = copy_piece(self._options, name, piece, lambda: self._look(name, piece))
        if outcome == Committed():
            return committed(self._brokers, copy_of(name))
        return outcome

    def abort(self, name: str, piece: Committable) -> None:  # noqa: ARG002
        """See `Pieces.abort`."""
        ledger = self._ledger
        if ledger is None:
            return
        self._check_unproven(ledger, name)
        ledger.write({self._owner.staged(name): None}, partition=FENCES)
        abort_transaction(self._brokers, copy_of(name), lambda: is_committed(self._owner, name))
        self._check_unproven(ledger, name)

    def clean_up(self, done: Mapping[str, Committable]) -> None:
        """Delete announcements and rows of pieces that are proven committed.

        Of a partition all goes that is before the end of such a piece, and before the first row of
        pieces that may still be copied: writers of later checkpoints have begun behind it.

        Args:
            done: those pieces, by name.

        Raises:
            TargetUnreachableError: they are deleted later.
        """
        ledger = self._ledger
        if ledger is None or not done:
            return
        ledger.write(dict.fromkeys(map(self._owner.staged, done)), partition=FENCES)
        live = ledger.staged(self._owner).values()
        ends: dict[tuple[str, str], dict[int, int]] = {}
        for place in map(Place.of, done.values()):
            found = ends.setdefault((place.topic, place.id), {})
            found[place.partition] = max(place.end, found.get(place.partition, 0))
        for (name, id), bounds in ends.items():
            if (topic := find_staging(self._brokers, name)) is not None and topic.id == id:
                delete_staged(self._brokers, topic, bounds, live)

    def sweep(self, name: str) -> None:
        """Delete what no announced piece has, behind a fence: whoever has written it is closed.

        Args:
            name: of the staging topic.
        """
        topic = find_staging(self._brokers, name)
        if topic is not None and self._ledger is not None:
            ranges = self._brokers.ranges(topic.name, topic.partitions)
            ends = {number: end for number, (_, end) in ranges.items()}
            delete_staged(self._brokers, topic, ends, self._ledger.staged(self._owner).values())

    def _known(self, name: str, piece: Committable, proofs: Proofs) -> CommitOutcome | None:
        if (proof := _proof(name, piece, proofs)) is not None:
            return proof
        if self._ledger is not None and name in self._ledger.staged(self._owner):
            return None
        return self._proven(name, piece) or Lost(
            f"the ledger has neither a proof of piece {name} nor an announcement that it is "
            f"staged, and the high-water mark of its lineage is "
            f"{proofs.mark(piece.transaction.lineage)}"
        )

    def _proven(self, name: str, piece: Committable) -> AlreadyCommitted | None:
        """Look for a proof again: whoever commits a piece deletes its rows behind that."""
        if self._ledger is None:
            return None
        return _proof(name, piece, self._ledger.proofs_of(self._owner))

    def _look(self, name: str, piece: Committable) -> CommitOutcome | None:
        """Look again, behind the end of all other copies."""
        if self._ledger is None:
            return None
        fence, mine = self._ledger.fence(self._owner).attempt, self._attempt
        if fence and mine and fence.generation > mine.generation:
            raise driver_is_fenced(self._owner.job, self._owner.sink, fence, mine)
        return self._known(name, piece, self._ledger.proofs_of(self._owner))

    def _check_unproven(self, ledger: Ledger, name: str) -> None:
        if name in ledger.proofs_of(self._owner).pieces:
            raise is_committed(self._owner, name)


def _proof(name: str, piece: Committable, proofs: Proofs) -> AlreadyCommitted | None:
    if name in proofs.pieces:
        return AlreadyCommitted("record of the ledger")
    is_folded = piece.transaction.checkpoint <= proofs.mark(piece.transaction.lineage)
    return AlreadyCommitted("high-water mark") if is_folded else None
