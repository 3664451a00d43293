"""The ledger: a compacted topic with the proofs (I4) and the fences (I7) of all jobs of a cluster.

    partition 0     pieces, each written as the last record of its own transaction: while that is
                    open, it says that the piece is whole, and once committed, it is the proof;
                    marks, and records without a value that delete what marks stand for
    partition 1     fences, and the pieces whose rows are in a staging topic

Marks and partition 1 are in no transaction, and are read whatever is open. A record of a piece in
partition 0 counts if its transaction is committed. Up to the last stable offset Kafka tells that to
readers of committed records; behind it, which an open transaction of anybody may hold back, the
markers tell it that a transaction writes to the log when it ends.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from twophase.contract.committable import Committable
from twophase.errors import PreflightError, StopJobError
from twophase.ids import Attempt
from twophase.kafka_client.options import ConnectionOptions
from twophase.kafka_client.partitions import Topic
from twophase.sinks.kafka.brokers import Brokers
from twophase.sinks.kafka.clients import (
    COMMITTED,
    UNCOMMITTED,
    Entry,
    RangeReader,
    RecordWriter,
)
from twophase.sinks.kafka.names import Owner
from twophase.sinks.kafka.records import (
    FOREIGN_RECORD,
    Fence,
    Mark,
    Record,
    decoded,
    encoded,
)
from twophase.sinks.kafka.requests import Settled, settled
from twophase.sinks.kafka.topics import INSYNC, find_topic, least_insync

_log = logging.getLogger("twophase.sinks.kafka")

PROOFS, FENCES = 0, 1
_PARTITIONS = 2
_POLICY = "cleanup.policy"
_REPLICAS = 3
"""Of the ledger, where there are as many brokers: with a broker its only replica would go."""
_UNSAFE = {"unclean.leader.election.enable": "true"}


@dataclass
class Proofs:
    """What is proven of one owner.

    Attributes:
        pieces: committed pieces that no mark stands for, by transactional id.
        marks: by key.
    """

    pieces: dict[str, Committable] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)

    def highest(self) -> dict[str, int]:
        """Return, for each lineage, the highest committed checkpoint."""
        return {lineage: checkpoint for lineage, (checkpoint, _) in self._newest().items()}

    def targets(self) -> set[str]:
        """Return where the newest rows of each lineage went."""
        return {target for _, target in self._newest().values()}

    def mark(self, lineage: str) -> int:
        """Return the mark of a lineage; -1 if there is none."""
        found = [one.checkpoint for one in self.marks.values() if one.lineage == lineage]
        return max(found, default=-1)

    def has(self, lineage: str, checkpoint: int) -> bool:
        """Return whether a checkpoint is committed."""
        return checkpoint <= self.mark(lineage) or any(
            piece.transaction.lineage == lineage and piece.transaction.checkpoint == checkpoint
            for piece in self.pieces.values()
        )

    def _newest(self) -> dict[str, tuple[int, str]]:
        found: dict[str, tuple[int, str]] = {}
        for mark in self.marks.values():
            best = (mark.checkpoint, mark.target)
            found[mark.lineage] = max(best, found.get(mark.lineage, best))
        for piece in self.pieces.values():
            best = (piece.transaction.checkpoint, piece.target)
            lineage = piece.transaction.lineage
            found[lineage] = max(best, found.get(lineage, best))
        return found


@dataclass(frozen=True)
class KnownFence:
    """The fence of an owner as somebody has seen it.

    Attributes:
        attempt: the highest one; None if there is none.
        end: how far the partition of the fences was read.
    """

    attempt: Attempt | None
    end: int


class Ledger:
    """The ledger as a driver reads and writes it, with clients that it keeps open.

    Args:
        brokers: an open client.
        topic: the ledger's.
        id: the id of this creation of the topic.
    """

    def __init__(self, brokers: Brokers, topic: str, id: str) -> None:
        self._brokers = brokers
        self.topic = topic
        self.id = id
        self._stable: dict[bytes, Entry] = {}
        self._stable_end = 0
        self._high = 0
        self._fences: dict[bytes, Entry] = {}
        self._fences_end = 0
        self._writer = RecordWriter(brokers.options, topic)
        self._readers = {
            isolation: RangeReader(brokers.options, isolation)
            for isolation in (COMMITTED, UNCOMMITTED)
        }

    def proofs(self, topic: str) -> Mapping[Owner, Proofs]:
        """Return what is proven of each owner that writes to a topic.

        Raises:
            StopJobError: a record is damaged.
        """
        found: dict[Owner, Proofs] = defaultdict(Proofs)
        for name, record in self._committed(topic).items():
            if isinstance(record, Mark):
                found[Owner(record.job, record.sink, topic)].marks[name] = record
            elif isinstance(record, Committable):
                piece = record.transaction
                found[Owner(piece.job, piece.sink, topic)].pieces[name] = record
        return found

    def proofs_of(self, owner: Owner) -> Proofs:
        """Return what is proven of one owner."""
        return self.proofs(owner.topic).get(owner, Proofs())

    def written(self, names: Iterable[str]) -> dict[str, Committable]:
        """Return the pieces whose records are there, committed or not, by transactional id."""
        wanted = {name.encode() for name in names}
        stable, behind = self._read_stable(), self._read_behind()
        entries = {**stable, **{one.key: one for one in (*behind.committed, *behind.open)}}
        found = {}
        for key in wanted & entries.keys():
            record = self._decoded(entries[key])
            if isinstance(record, Committable):
                found[key.decode()] = record
        return found

    def fence(self, owner: Owner) -> KnownFence:
        """Return the fence of an owner."""
        self._read_fences()
        return KnownFence(_newest_fence(self._fences.values(), owner, self.topic), self._fences_end)

    def staged(self, owner: Owner) -> dict[str, Committable]:
        """Return the pieces whose rows wait in a staging topic, or were just copied, by name."""
        self._read_fences()
        prefix = owner.staged_prefix.encode()
        found: dict[str, Committable] = {}
        for entry in self._fences.values():
            record = self._decoded(entry, FENCES) if entry.key.startswith(prefix) else None
            if isinstance(record, Committable):
                found[owner.piece(record.transaction, record.subtask)] = record
        return found

    def raise_fence(self, owner: Owner, attempt: Attempt) -> None:
        """Write a fence, and delete the lower ones behind it. The highest one counts, whoever
        writes last.
        """
        record = Fence(owner.topic, owner.job, owner.sink, attempt.generation, attempt.counter)
        lower = {
            entry.key.decode(): None
            for entry in _fences_of(owner, self._fences.values())
            if _fence(entry, self.topic).attempt < attempt
        }
        self.write({owner.fence(attempt): record}, lower, partition=FENCES)

    def write(self, *steps: Mapping[str, Record | None], partition: int = PROOFS) -> None:
        """Write records outside of any transaction. All replicas have those of a step before the
        next one begins.

        Args:
            steps: records by key; None deletes what is there.
            partition: of the ledger.

        Raises:
            TargetUnreachableError: not all of them are there, as far as is known.
        """
        for step in filter(None, steps):
            values = {
                key: None if record is None else encoded(record) for key, record in step.items()
            }
            self._writer.write(values, partition)

    def close(self) -> None:
        """Close the clients."""
        self._writer.close()
        for reader in self._readers.values():
            reader.close()

    def _committed(self, topic: str) -> dict[str, Record]:
        """Return the committed records of a topic's owners, by key.

        What deletes counts at once: the mark that stands for a piece lies before it.
        """
        entries = dict(self._read_stable())
        _fold(entries, self._read_behind().committed)
        return {
            key.decode(): self._decoded(entry)
            for key, entry in entries.items()
            if _is_of(key, topic)
        }

    def _read_stable(self) -> dict[bytes, Entry]:
        """Read on to the last stable offset; return the newest committed record of each key."""
        stable, self._high = self._brokers.ends(self.topic, PROOFS)
        if stable < self._stable_end:
            self._stable, self._stable_end = {}, 0
        start = self._stable_end or self._brokers.begin(self.topic, PROOFS)
        if start < stable:
            _fold(self._stable, self._read(PROOFS, start, stable, COMMITTED))
            self._stable_end = stable
        return self._stable

    def _read_behind(self) -> Settled:
        """Read what lies behind the last stable offset."""
        start = self._stable_end or self._brokers.begin(self.topic, PROOFS)
        return settled(self._brokers.batches(self.topic, PROOFS, start, self._high), start)

    def _read_fences(self) -> None:
        _, end = self._brokers.ends(self.topic, FENCES)
        if end < self._fences_end:
            self._fences, self._fences_end = {}, 0
        start = self._fences_end or self._brokers.begin(self.topic, FENCES)
        if start < end:
            _fold(self._fences, self._read(FENCES, start, end, UNCOMMITTED))
            self._fences_end = end

    def _read(self, partition: int, start: int, end: int, isolation: str) -> list[Entry]:
        return self._readers[isolation].read(self.topic, partition, start, end)

    def _decoded(self, entry: Entry, partition: int = PROOFS) -> Record:
        return decoded(entry.value or b"", f"{self.topic}-{partition}, offset {entry.offset}")


def read_fence(
    options: ConnectionOptions, ledger: str, owner: Owner, known: KnownFence, end: int | None
) -> Attempt | None:
    """Return the fence of an owner as it is now; None if there is none. For writers.

    Args:
        options: of the connection.
        ledger: the ledger's topic.
        owner: the job's sink.
        known: as the driver has seen it.
        end: an offset of the partition of the fences, behind which nothing matters; None for its
            end.
    """
    if end == known.end:
        return known.attempt
    entries: dict[bytes, Entry] = {}
    with closing(RangeReader(options, UNCOMMITTED)) as reader:
        end = reader.end(ledger, FENCES) if end is None else end
        if end < known.end:  # it is another creation of the topic
            known = KnownFence(None, 0)
        _fold(entries, reader.read(ledger, FENCES, known.end, end))
    newer = _newest_fence(entries.values(), owner, ledger)
    return max(filter(None, (known.attempt, newer)), default=None)


def _newest_fence(entries: Iterable[Entry], owner: Owner, ledger: str) -> Attempt | None:
    found = [_fence(entry, ledger).attempt for entry in _fences_of(owner, entries)]
    return max(found, default=None)


def open_ledger(brokers: Brokers, topic: str, *, create: bool) -> Ledger | None:
    """Return the ledger; None if it does not exist and is not to be created.

    Raises:
        PreflightError: it is not a topic that keeps proofs.
    """
    replicas = min(_REPLICAS, brokers.count())
    insync = least_insync(replicas)
    made_with = {_POLICY: "compact", INSYNC: str(insync)}
    found = find_topic(brokers, topic, _PARTITIONS, made_with, replicas, create=create)
    if found is None:
        return None
    settings = brokers.settings(topic)[topic]
    _check(topic, found, settings)
    _warn_if_few(brokers, topic, replicas, int(settings.get(INSYNC, insync)))
    return Ledger(brokers, topic, found.topic_id)


def _check(topic: str, found: Topic, settings: Mapping[str, str]) -> None:
    problems = []
    if len(found.epochs) != _PARTITIONS:
        problems.append(f"it has {len(found.epochs)} partitions and not {_PARTITIONS}")
    if settings.get(_POLICY, "compact") != "compact":
        problems.append(
            f"its {_POLICY} is {settings[_POLICY]} and not compact: proofs would be deleted"
        )
    problems += [
        f"its {name} is {value}: proofs could be lost"
        for name, value in _UNSAFE.items()
        if settings.get(name) == value
    ]
    if problems:
        raise PreflightError(
            f"Topic {topic!r} cannot be the ledger: {'; '.join(problems)}.",
            remedy="alter it (kafka-configs.sh; kafka-topics.sh adds partitions), or name another "
            "topic in the option ledger if no job has used this one.",
        )


def _warn_if_few(brokers: Brokers, topic: str, replicas: int, insync: int) -> None:
    """Warn of a ledger that was made with fewer replicas than it would be created with."""
    own = brokers.replicas(topic)[topic]
    # before Kafka 3.7 a topic with fewer replicas takes no record
    least = least_insync(own)
    if own < replicas:
        _log.warning(
            "ledger %r has fewer replicas (%d) than it would be created with (%d): without the "
            "brokers that have them there is no proof of what is committed. "
            "kafka-reassign-partitions.sh adds replicas.",
            *(topic, own, replicas),
        )
    if insync < least:
        _log.warning(
            "ledger %r has min.insync.replicas=%d: a proof that one broker alone has is lost with "
            "it. kafka-configs.sh --bootstrap-server %s --alter --entity-type topics "
            "--entity-name %s --add-config min.insync.replicas=%d",
            *(topic, insync, brokers.options.bootstrap_servers, topic, least),
        )


def _fences_of(owner: Owner, entries: Iterable[Entry]) -> list[Entry]:
    prefix = owner.fence(Attempt(0, 0)).rpartition("/")[0].encode() + b"/"
    return [entry for entry in entries if entry.key.startswith(prefix)]


def _is_of(key: bytes, topic: str) -> bool:
    parts = key.split(b"/", 2)
    return len(parts) == 3 and parts[1] == topic.encode()


def _fold(newest: dict[bytes, Entry], entries: Iterable[Entry]) -> None:
    for entry in entries:
        if entry.value is None:
            newest.pop(entry.key, None)
        else:
            newest[entry.key] = entry


def _fence(entry: Entry, ledger: str) -> Fence:
    found = decoded(entry.value or b"", f"{ledger}-{FENCES}, offset {entry.offset}")
    if not isinstance(found, Fence):
        raise StopJobError(
            f"The record at {ledger}-{FENCES}, offset {entry.offset} is not a fence: somebody "
            "else has written to the ledger.",
            remedy=FOREIGN_RECORD,
        )
    return found
