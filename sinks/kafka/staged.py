"""Phase 2 of `protocol=staged`: pieces are copied from the staging topic, or aborted.

A commit:

    1. the ledger    has a proof, or a mark: done; has no announcement: lost
    2. the rows      are where they were acknowledged, or they are lost, and the error says why
    3. begin         the transactional id of the copy is closed to all who have used it: whatever
                     they did is over, and is committed or aborted
    4. look again    a proof: done; no announcement: it was aborted; a newer fence: this driver
                     stops
    5. the copy      chunk after chunk: the topic gets the rows in their order
    6. the proof     a record in the ledger, the last one of the transaction
    7. commit        rows and proof appear together
    8. clean-up      announcements and rows of what was copied are deleted

So it may be repeated by any process, after any time, and of two that copy the same piece the later
one goes on.

An abort deletes the announcement first, and then closes the transactional id of the copy: a copy
that was begun before cannot be committed any more, and one that begins later finds no announcement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import cached_property

from twophase.contract.committable import Committable
from twophase.contract.fencing import driver_is_fenced
from twophase.contract.outcome import (
    AlreadyCommitted,
    CommitOutcome,
    Committed,
    Lost,
    RetryLater,
)
from twophase.ids import Attempt
from twophase.internals.failpoints import failpoint
from twophase.internals.record import DamagedRecordError
from twophase.sinks.kafka.brokers import Brokers
from twophase.sinks.kafka.chunks import Chunk, decoded
from twophase.sinks.kafka.clients import UNCOMMITTED, RangeReader
from twophase.sinks.kafka.ledger import FENCES, PROOFS, Ledger, Proofs
from twophase.sinks.kafka.limits import sizes_of
from twophase.sinks.kafka.names import Owner, copy_of
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.sinks.kafka.records import encoded
from twophase.sinks.kafka.sender import REJECTED, Sender, SendError
from twophase.sinks.kafka.staging import Place, delete_staged, find_staging, what_is_lost
from twophase.sinks.kafka.transactions import abort_transaction, committed, is_committed


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
        outcome = _copy(self._options, self._sizes, name, piece, lambda: self._look(name, piece))
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

    @cached_property
    def _sizes(self) -> Mapping[str, int]:
        return sizes_of(self._brokers, self._options)

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


class _NotWholeError(Exception):
    """Rows of a piece are not where they were acknowledged; says which."""


def _copy(
    options: KafkaSinkOptions,
    sizes: Mapping[str, int],
    name: str,
    piece: Committable,
    look: Callable[[], CommitOutcome | None],
) -> CommitOutcome:
    """Copy a piece and commit the copy, with some megabytes of it in memory at a time.

    Args:
        options: of the sink.
        sizes: as `sizes_of` returns them.
        name: of the piece.
        piece: a staged one.
        look: step 4; returns what is known of the piece, None if it is to be copied.

    Returns:
        `Committed` as soon as the coordinator has taken the commit over.
    """
    settings = {
        "transactional.id": copy_of(name),
        "transaction.timeout.ms": int(options.transaction_timeout_s * 1000),
    }
    try:
        sender = Sender(options, {**settings, **sizes})
        sender.begin()
        if (known := look()) is not None:
            return known
        return _copied(sender, options, name, piece)
    except SendError as error:
        return RetryLater(_why(error, options, name))


def _copied(
    sender: Sender, options: KafkaSinkOptions, name: str, piece: Committable
) -> CommitOutcome:
    """Steps 5 to 7."""
    try:
        for chunk in _chunks(options, name, piece):
            for record in chunk.records:
                sender.send_record(record.topic or options.topic, record)
            failpoint("K01")
        sender.send(options.ledger, encoded(piece), name.encode(), PROOFS)
        sender.flush()
    except _NotWholeError as error:
        sender.abort()
        return Lost(str(error))
    except BaseException:
        sender.abort()
        raise
    failpoint("K02")
    sender.commit()
    return Committed()


def _chunks(options: KafkaSinkOptions, name: str, piece: Committable) -> Iterator[Chunk]:
    """Yield the chunks of a piece, all of them and in order.

    Raises:
        _NotWholeError: there are others, or fewer.
    """
    place, rows, number = Place.of(piece), 0, 0
    where = f"partition {place.topic}-{place.partition}"
    with closing(RangeReader(options, UNCOMMITTED)) as reader:
        for entry in reader.stream(place.topic, place.partition, place.first, place.end):
            if entry.key != name.encode():
                continue
            try:
                chunk = decoded(entry.value or b"", f"{where}, offset {entry.offset}")
            except DamagedRecordError as error:
                raise _NotWholeError(f"{where}: the record at {entry.offset}: {error}") from error
            if chunk.number != number:
                raise _NotWholeError(
                    f"{where}: offset {entry.offset} has chunk {chunk.number} of piece {name} "
                    f"and not chunk {number}"
                )
            rows, number = rows + len(chunk.records), number + 1
            yield chunk
    if (number, rows) != (place.chunks, piece.rows):
        raise _NotWholeError(
            f"{where} has {rows} rows of piece {name} in {number} chunks, and had {piece.rows} in "
            f"{place.chunks}"
        )


def _why(error: SendError, options: KafkaSinkOptions, name: str) -> str:
    found = error.error
    text = f"copy of piece {name} to {error.where(options)}: {error.text}"
    if found.code() in REJECTED:
        return (
            f"{text}. The topic took such records when they were staged: undo what was changed of "
            "it since (partitions, max.message.bytes, cleanup.policy, message.timestamp.*)"
        )
    if found.fatal():
        return f"{text}. Another driver copies it, or it took longer than transaction_timeout"
    return text
