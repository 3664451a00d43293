"""The open sink: the topics of one job and sink, in either protocol."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from twophase.contract.committable import Committable
from twophase.contract.fencing import driver_is_fenced
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, Committed
from twophase.contract.sink import CommitRequest, OpenArrowSink, SinkHistory, WriterFactory
from twophase.errors import TargetUnreachableError
from twophase.ids import Attempt
from twophase.sinks.kafka.brokers import Brokers
from twophase.sinks.kafka.committer import Committer
from twophase.sinks.kafka.ledger import Ledger, Proofs, open_ledger
from twophase.sinks.kafka.limits import limits_of, sizes_of
from twophase.sinks.kafka.names import Owner, name_of, unfinished_piece
from twophase.sinks.kafka.options import KafkaSinkOptions
from twophase.sinks.kafka.records import Mark
from twophase.sinks.kafka.staged import StagedPieces
from twophase.sinks.kafka.staged_writer import StagedWriter
from twophase.sinks.kafka.staging import find_staging, is_staged
from twophase.sinks.kafka.topics import other_ids
from twophase.sinks.kafka.transactions import TransactionPieces
from twophase.sinks.kafka.writer import KafkaWriter

_log = logging.getLogger("twophase.sinks.kafka")


class OpenKafkaSink(OpenArrowSink):
    """Writes to a topic, or to several; commits and aborts what either protocol has written.

    Args:
        options: of the sink.
        owner: the job's sink.
        brokers: an open client.
        cluster: the cluster's id.
        topic_id: of the sink's topic.
        ledger: the ledger; None if it does not exist.
    """

    def __init__(
        self,
        options: KafkaSinkOptions,
        owner: Owner,
        brokers: Brokers,
        cluster: str,
        topic_id: str,
        ledger: Ledger | None,
    ) -> None:
        self._options = options
        self._owner = owner
        self._brokers = brokers
        self._cluster = cluster
        self._topic_id = topic_id
        self._ledger = ledger
        self._attempt: Attempt | None = None
        brokers.begun = True

    def target(self) -> str:
        """See `OpenSink.target`. The proofs belong to it: rows are committed with them."""
        return self._named(self._topic_id, self._ledger.id if self._ledger else "none")

    def history(self) -> SinkHistory:
        """See `OpenSink.history`."""
        if self._ledger is None:
            return SinkHistory()
        proofs = self._ledger.proofs_of(self._owner)
        fence = self._ledger.fence(self._owner).attempt
        others = sorted(proofs.targets() - {self.target()})
        replaced = f"it is {self.target()}, and rows went to {others[0]}" if others else ""
        return SinkHistory(fence.generation if fence else 0, proofs.highest(), replaced)

    def other_names(self) -> Mapping[tuple[str, str], Mapping[str, int]]:
        """See `KnowsOtherNames`."""
        if self._ledger is None:
            return {}
        return {
            (owner.job, owner.sink): proofs.highest()
            for owner, proofs in self._ledger.proofs(self._owner.topic).items()
            if owner != self._owner and self.target() in proofs.targets()
        }

    def committed_pieces(self, lineage: str, checkpoint: int) -> Sequence[str]:
        """See `NamesPieces`."""
        proofs = self._ledger.proofs_of(self._owner) if self._ledger else Proofs()
        return [
            f"{piece.transaction.attempt}/{piece.subtask}"
            for piece in proofs.pieces.values()
            if (piece.transaction.lineage, piece.transaction.checkpoint) == (lineage, checkpoint)
        ]

    def fence(self, attempt: Attempt) -> None:
        """See `OpenSink.fence`. The highest fence counts: of two drivers that raise it at once,
        each looks at it behind its own record, and so the lower one finds the higher.
        """
        ledger = self._made_ledger()
        for is_raised in (False, True):
            found = ledger.fence(self._owner).attempt
            if found is not None and found.generation > attempt.generation:
                raise driver_is_fenced(self._owner.job, self._owner.sink, found, attempt)
            if found is not None and found >= attempt:
                self._attempt = found
                if is_raised:
                    self._clean_behind_fence()
                return
            if not is_raised:
                ledger.raise_fence(self._owner, attempt)
        raise TargetUnreachableError(
            f"The fence of sink {self._owner.sink!r} of job {self._owner.job!r} was written to the "
            f"ledger {ledger.topic!r}, and is not there.",
            remedy="find out who deletes records of the ledger; then start the job again.",
        )

    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """See `OpenSink.commit`. Rows that were copied are deleted where they waited."""
        outcomes = self._committer().commit(requests)
        done = {
            name_of(self._owner.topic, request.committable): request.committable
            for request, outcome in zip(requests, outcomes, strict=True)
            if isinstance(outcome, Committed | AlreadyCommitted) and is_staged(request.committable)
        }
        try:
            self._staged().clean_up(done)
        except TargetUnreachableError as error:
            _log.warning("sink %s: staged rows are deleted later. %s", self._owner.sink, error)
        return outcomes

    def abort(self, committables: Sequence[Committable]) -> None:
        """See `OpenSink.abort`."""
        self._committer().abort(committables)

    def in_doubt(self) -> Sequence[Committable]:
        """See `OpenSink.in_doubt`: staged pieces, and open transactions; with a handle, if the last
        record is there.

        Those without belong to writers that are alive, or died before they were done.
        """
        names = self._brokers.open_transactions(self._owner.prefix)
        written = self._ledger.written(names) if self._ledger and names else {}
        found = [written.get(name) or unfinished_piece(name, self.target()) for name in names]
        open_ones = [piece for piece in found if piece is not None]
        return [*self._staged().in_doubt().values(), *open_ones]

    def subsume(self, lineage: str, checkpoint: int) -> None:
        """See `OpenSink.subsume`. The mark is there before what it stands for is deleted, and what
        is staged is deleted before its proof.
        """
        if self._ledger is None:
            return
        proofs = self._ledger.proofs_of(self._owner)
        folded = {
            name: piece
            for name, piece in proofs.pieces.items()
            if piece.transaction.lineage == lineage and piece.transaction.checkpoint <= checkpoint
        }
        if not folded:
            return
        self._staged().clean_up({name: piece for name, piece in folded.items() if is_staged(piece)})
        newest = max(folded.values(), key=lambda piece: piece.transaction.checkpoint)
        highest, before = newest.transaction.checkpoint, proofs.mark(lineage)
        raised: dict[str, Mark] = {}
        if highest > before:
            owner = self._owner
            mark = Mark(owner.topic, owner.job, owner.sink, lineage, highest, newest.target)
            raised = {owner.mark(lineage, highest): mark}
        lower = [
            key
            for key, mark in proofs.marks.items()
            if mark.lineage == lineage and mark.checkpoint < max(highest, before)
        ]
        self._ledger.write(raised, dict.fromkeys([*folded, *lower]))

    def close(self) -> None:
        """See `OpenSink.close`."""
        if self._ledger is not None:
            self._ledger.close()
        self._brokers.close()

    def _made_ledger(self) -> Ledger:
        if self._ledger is None:
            self._ledger = open_ledger(self._brokers, self._options.ledger, create=True)
        if self._ledger is None:
            raise TargetUnreachableError(
                f"The ledger {self._options.ledger!r} could not be created.",
                remedy="create it as a compacted topic of two partitions.",
            )
        return self._ledger

    def _clean_behind_fence(self) -> None:
        """Delete what writers have left that a new fence has closed."""

    def _committer(self) -> Committer:
        transactions = TransactionPieces(self._brokers, self._ledger, self._owner)
        return Committer(self._owner, self._ledger, self._target_now, transactions, self._staged())

    def _staged(self) -> StagedPieces:
        return StagedPieces(self._options, self._brokers, self._ledger, self._owner, self._attempt)

    def _target_now(self) -> str:
        return self._named(*self._brokers.ids(self._options.topic, self._options.ledger))

    def _named(self, topic: str, ledger: str) -> str:
        return f"kafka:{self._cluster}/{self._options.topic}:{topic}+{ledger}"


class OpenTransactionSink(OpenKafkaSink):
    """Lets rows wait in open transactions of the topic."""

    def writers(self) -> WriterFactory:
        """See `OpenArrowSink.writers`."""
        fence = self._made_ledger().fence(self._owner)
        others = other_ids(self._brokers, self._options)
        sizes = sizes_of(self._brokers, self._options)
        return partial(KafkaWriter, self._options, self.target(), others, sizes, fence)

    def unfinished(self, pieces: Sequence[Committable]) -> Sequence[Committable]:
        """See `TellsUnfinished`: a piece without a record in the ledger."""
        return [piece for piece in pieces if not piece.handle]


class OpenStagedSink(OpenKafkaSink):
    """Lets rows wait in a staging topic."""

    def writers(self) -> WriterFactory:
        """See `OpenArrowSink.writers`."""
        fence = self._made_ledger().fence(self._owner)
        staging = find_staging(self._brokers, self._staging)
        if staging is None:
            raise TargetUnreachableError(
                f"The staging topic {self._staging!r} does not exist any more.",
                remedy="start the job again: it is created at the start. What was decided and not "
                "committed is lost with it.",
            )
        limits = limits_of(self._brokers, self._options)
        return partial(StagedWriter, self._options, self.target(), staging, limits, fence)

    def _clean_behind_fence(self) -> None:
        self._staged().sweep(self._staging)

    @property
    def _staging(self) -> str:
        return self._owner.staging(self._options.ledger)
