"""Phase 2 of `protocol=staged`: copies one piece from its staging topic, in one transaction.

    1. begin        the transactional id of the copy is closed to all who have used it: whatever
                    they did is over, and is committed or aborted
    2. look         a proof: done; no announcement: it was aborted; a newer fence: this driver stops
    3. copy         chunk after chunk: the topic gets the rows in their order
    4. the proof    a record in the ledger, the last one of the transaction
    5. commit       rows and proof appear together

So it may be repeated by any process, after any time, and of two that copy the same piece the later
one goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

from twophase.contract.committable import Committable
from twophase.contract.outcome import CommitOutcome, Committed, Lost, RetryLater
from twophase.internals.failpoints import failpoint
from twophase.internals.record import DamagedRecordError
from twophase.internals.redaction import shown
from twophase.sinks.kafka.chunks import Chunk, decoded
from twophase.sinks.kafka.clients import UNCOMMITTED, RangeReader
from twophase.sinks.kafka.ledger import PROOFS
from twophase.sinks.kafka.names import copy_of
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.sinks.kafka.records import encoded
from twophase.sinks.kafka.sender import REJECTED, Sender, SendError
from twophase.sinks.kafka.staging import Place

_QUEUE_KBYTES = 16 << 10


class _NotWholeError(Exception):
    """Rows of a piece are not where they were acknowledged; says which."""


def copy_piece(
    options: KafkaSinkOptions,
    name: str,
    piece: Committable,
    look: Callable[[], CommitOutcome | None],
) -> CommitOutcome:
    """Copy a piece and commit the copy, with some megabytes of it in memory at a time.

    Args:
        options: of the sink.
        name: of the piece.
        piece: a staged one.
        look: step 2; returns what is known of the piece, None if it is to be copied.

    Returns:
        `Committed` as soon as the coordinator has taken the commit over.
    """
    settings = {
        "transactional.id": copy_of(name),
        "transaction.timeout.ms": int(options.transaction_timeout_s * 1000),
        "queue.buffering.max.kbytes": _QUEUE_KBYTES,
    }
    try:
        sender = Sender(options, settings)
        sender.begin()
        if (known := look()) is not None:
            return known
        return _copied(sender, options, name, piece)
    except SendError as error:
        return RetryLater(_why(error, options, name))


def _copied(
    sender: Sender, options: KafkaSinkOptions, name: str, piece: Committable
) -> CommitOutcome:
    """Steps 3 to 5."""
    try:
        for chunk in _chunks(options, name, piece):
            for record in chunk.records:
                sender.send_record(options.topic, record)
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
    text = f"copy of piece {name} to {options.where}: {shown(found.str())}"
    if found.code() in REJECTED:
        return (
            f"{text}. The topic took such records when they were staged: undo what was changed of "
            "its settings since (max.message.bytes, cleanup.policy, message.timestamp.*)"
        )
    if found.fatal():
        return f"{text}. Another driver copies it, or it took longer than transaction_timeout"
    return text
