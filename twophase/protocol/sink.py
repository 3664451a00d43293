"""The contract of a sink, driver side.

The coordinator calls a sink in this order (the numbers are marked in `coordinator/`):

    1. open          once per start; fails before any write
    2. history       what the target remembers of this job
    3. commit        recovery: every decided checkpoint not yet known as committed
    4. in_doubt, abort, fence, in_doubt, abort        recovery: nothing of an older attempt survives
    5. pre_commit | writer    each micro-batch: phase 1
    6. commit        each micro-batch: phase 2, repeated until every piece is committed
    7. subsume       after all sinks have committed: forget what only an uncommitted checkpoint needs
    8. close         once

A declined attempt goes through step 4 before the next one begins.

Steps 1 and 2 of several sinks run side by side, each sink's in a thread. So does step 5, and step 4 of the sinks that have
nothing to abort; the others follow in the order of the job, and all sinks are asked again (step 2) before each abort and
when all fences are up. A step may run in another thread than the one before it. All of one sink are called by one thread at a time, but for step 5: with `checkpoint.max_concurrent` above 1, steps 6 and 7 and
the scan for losers (`in_doubt`, `abort`) run in a thread of their own beside the pre-commit of later checkpoints. Step 4
never does: it waits until all that is decided is committed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import pyarrow as pa

from twophase.errors import TargetChangedError
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.protocol.committable import Committable
from twophase.protocol.outcome import CommitOutcome
from twophase.protocol.writer import SinkWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class SinkContext:
    """What a sink is told when it is opened.

    Attributes:
        job: the job's name.
        sink: the sink's name within the job.
        schema: the columns of the rows to come.
        parallelism: how many writers may run at once, at the most.
        speculation: whether Spark may run a task twice at the same time.
        max_concurrent: how many checkpoints may be under way. Above 1 a checkpoint is pre-committed while those before it
            wait for their commit; a sink that would wait for itself refuses that in `open` (hazard H51).
    """

    job: str
    sink: str
    schema: pa.Schema
    parallelism: int
    speculation: bool = False
    max_concurrent: int = 1


@dataclass(frozen=True)
class Predecessor:
    """The newest checkpoint before a piece's own that has pieces in the same sink. It is committed, and has left proof.

    Attributes:
        lineage: of the checkpoint: the piece's own, or one that it continues.
        checkpoint: its number there.
    """

    lineage: str
    checkpoint: int


@dataclass(frozen=True)
class CommitRequest:
    """One piece to commit.

    Attributes:
        committable: the piece.
        retries: how often its commit was tried before by this driver.
        predecessor: what the target must have proof of before the piece becomes visible in it; None if there is none, or
            if the checkpoint was decided by a version that did not say. All requests of a call have the same.
    """

    committable: Committable
    retries: int = 0
    predecessor: Predecessor | None = None


def another_target(committable: Committable, target: str) -> TargetChangedError:
    """Return the error of a piece without proof that is to be committed to another target than it was written to (I10)."""
    return TargetChangedError(
        f"{committable.transaction} was written to {committable.target}, this is {target}.",
        remedy="give the sink the table back that it had; its pieces are there.",
    )


def predecessor_missing(request: CommitRequest, target: str) -> TargetChangedError:
    """What a sink raises for a piece whose predecessor has no proof in the target.

    Args:
        request: with a predecessor.
        target: `Sink.target`.
    """
    transaction, before = request.committable.transaction, request.predecessor
    if before is None:
        raise ValueError("the request has no predecessor")
    return TargetChangedError(
        f"{transaction} is decided and is not committed to {target}: checkpoint {before.checkpoint} of lineage "
        f"{before.lineage} was committed there before it, and the target has no proof of that any more. It was put back, or "
        "is another one.",
        remedy="put the target back as it was, then start the job again.",
    )


@dataclass(frozen=True)
class SinkHistory:
    """What a target remembers of a job and sink.

    Attributes:
        generation: the highest generation that has fenced it; 0 if it has never seen the job.
        committed: for each lineage id, the highest checkpoint that the target has proof of (from the ledger and the
            high-water marks). Checkpoints without pieces leave no proof, so this may lag, never lead. A committed
            checkpoint with pieces that is missing means that the target was put back, or is another one: a target that
            drops proofs by itself needs others beside them.
        replaced: why the rows that the proofs are of are not in the target, such as a table that was dropped and made anew
            under its old name; empty if they are, or where proofs go with the rows.
    """

    generation: int = 0
    committed: Mapping[str, int] = field(default_factory=dict)
    replaced: str = ""


@runtime_checkable
class NeedsSparkConf(Protocol):
    """A power of a sink: it says what Spark has to be started with. `twophase run` starts Spark so."""

    def spark_conf(self) -> Mapping[str, str]:
        """Settings of Spark, such as the jars that the sink works with.

        Called on the driver before there is a Spark, and before `open`. A setting that the user has made wins; `open`
        checks what it needs.
        """


@runtime_checkable
class ChecksConnection(Protocol):
    """A power of a sink: it can look for its target without Spark. `twophase run` asks while Spark's JVM starts."""

    def check_connection(self) -> None:
        """Connect, and check what can be checked without the rows' columns: the account, its rights, the server, the table.

        Runs on the driver, while there is no Spark yet and before `open`, which checks all of it again: what is fine here may
        not be fine any more. Writes nothing, keeps nothing open. Called once, perhaps while other sinks are asked.

        Raises:
            TwoPhaseError: as `Sink.open` raises it.
        """


@runtime_checkable
class OpensForRepair(Protocol):
    """A power of a sink: it opens without Spark, which knows the rows' columns. `twophase repair` opens it so."""

    def open_for_repair(self, context: SinkContext) -> None:
        """As `Sink.open`, but that no rows will come: nothing is checked against their columns.

        Runs on the driver, once, instead of `open`. Only `target`, `history`, `in_doubt`, `commit` and `close` follow.

        Args:
            context: with a schema without columns.
        """


@runtime_checkable
class CanRehearse(Protocol):
    """A power of a sink's class: it writes to a folder of ours, so that Spark's classes can be recorded beforehand."""

    def rehearsal(self, folder: Path) -> tuple[Sink, Mapping[str, str]]:
        """A sink of this kind, and the settings of Spark that keep all it writes in `folder`.

        A static method: called on the class, in a process of its own that records the classes for faster starts.
        """


@runtime_checkable
class NamesPieces(Protocol):
    """A power of a sink: it can say which pieces of a checkpoint its target has proof of."""

    def committed_pieces(self, lineage: str, checkpoint_id: int) -> Sequence[str]:
        """Names of the pieces, as `attempt/subtask`, such as "3.17/0.201"; none where only a mark is left.

        Runs on the driver after `open`, when a target has a checkpoint that the log does not know: for an error message,
        and for a repair, which tells by the attempt what was decided.
        """


@runtime_checkable
class TellsUnfinished(Protocol):
    """A power of a sink: it can say which of the pieces in doubt show no sign that they were ever pre-committed."""

    def unfinished(self, pieces: Sequence[Committable]) -> Sequence[Committable]:
        """Those of `pieces` that their writer did not bring to the end, as far as the target shows: no decision lists such a one.

        Runs on the driver after `open`, in a repair that has no list of the pieces that were decided. To be in doubt without
        a handle is not enough, nor is a record that is damaged: such a piece may be decided, and the repair stops if nothing
        whole is there in its place. So `in_doubt` gives a handle to each piece that can be committed, and to no other. A sink
        that lists only what is pre-committed has no need of this.

        Args:
            pieces: of those that `in_doubt` gave.
        """


class Sink(ABC):
    """A destination that takes part in the two-phase commit. Subclass `BatchSink` or `ArrowSink`."""

    @abstractmethod
    def open(self, context: SinkContext) -> None:
        """Connect, check everything that can be checked before a write, create the sink's own bookkeeping.

        Runs on the driver, once per start of the job, before recovery.

        Raises:
            ConfigError: an option does not fit the target, such as a table or a column that is not there.
            PreflightError: the target cannot keep the protocol's promises, or rights are missing.
        """

    @abstractmethod
    def target(self) -> str:
        """The identity of the target, as committables carry it (invariant I10).

        Two targets never have the same; one target has the same in every process and after every restart.
        """

    @abstractmethod
    def history(self) -> SinkHistory:
        """What the target remembers of this job and sink.

        Runs on the driver, after `open`, before recovery. Must read what is durable in the target itself (I6).
        """

    @abstractmethod
    def fence(self, attempt: Attempt) -> None:
        """Close every attempt below `attempt` for this job and sink.

        Runs on the driver in recovery and after a declined attempt, when all that `in_doubt` lists has been committed or
        aborted: a target may have to wait for such pieces. When it returns, a writer of a lower attempt can pre-commit
        nothing any more, whatever process it lives in; what such writers pre-committed in the meantime is visible to
        `in_doubt`. Waits, and kills what it knows as its own, until that holds. Idempotent; never lowers the fence, and no
        other method takes it down.

        A writer may pre-commit only if the fence is there, has its generation, and is not above its attempt. A missing
        fence refuses, and so does any other generation, also a higher one: a target that was put back has lost the fence
        that would have closed the writer. The check is part of the transaction that makes the rows durable (HD9).

        Raises:
            FencedError: the target has already seen a higher generation. Nothing of the newer driver is touched.
            Exception: it could not be raised in time; names what stands in the way. Calling again is safe.
        """

    @abstractmethod
    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """Make pieces visible. Idempotent.

        Runs on the driver after the decision, repeated until no outcome is `RetryLater`. A crash may lose the reply, so
        a piece may be asked for again although it is committed: answer `AlreadyCommitted`, on proof from the target only.
        Answer `Committed` only if the target shows the piece; that it said OK is not enough (docs/decisions/0010). Rows and
        proof become visible in one atomic unit: whatever a crash leaves, there are both or neither (I4).

        A piece without proof becomes visible only in a target that has proof of `CommitRequest.predecessor`: its own rows, or
        the mark that stands for them. Check that in the transaction or commit that makes the piece visible; where there
        is none, in the same session directly before. Otherwise a target that was restored from a backup, or swapped, under
        a running job gets the piece, and what it lacks is never missed (docs/decisions/0025).

        Returns:
            One outcome for each request, in the same order.

        Raises:
            TargetChangedError: a committable names another target, or the target lacks the predecessor; nothing of the
                requests became visible by this call.
            Exception: anything else counts as `RetryLater` for all requests.
        """

    @abstractmethod
    def abort(self, committables: Sequence[Committable]) -> None:
        """Remove pieces that are in no decision. Idempotent: a piece that is not there is done.

        Runs on the driver for declined attempts, for losers among task attempts, and in recovery. Removes exactly these
        pieces: others of the same task, attempt and checkpoint may be decided. What is committed stays, rows and proof, also
        if it is asked for. A crash leaves the rest to the next recovery.

        Raises:
            StopJobError: a piece is committed; nothing of it was removed.
            Exception: a piece may still be there; the attempt is not retried, recovery tries again.
        """

    @abstractmethod
    def in_doubt(self) -> Sequence[Committable]:
        """All pieces of this job and sink that are pre-committed and not committed, decided or not.

        Runs on the driver in recovery and after a declined attempt. Must come from the target, never from memory.
        """

    @abstractmethod
    def subsume(self, lineage: str, checkpoint_id: int) -> None:
        """All pieces of the lineage up to `checkpoint_id` are committed: collapse the proofs kept for them.

        Runs on the driver after the log says COMMITTED; a crash may skip it, or hit in the middle: the next recovery calls it
        again. Also called for each lineage that the job continues, up to its end. Proof that a checkpoint was committed must
        stay for ever (hazard H50), so the mark is raised before, or together with, the end of what it folds.

        The mark says no more than the proofs that it folds: it rises to the highest checkpoint that the target has proof of.
        A target that was put back, or swapped, meanwhile would otherwise be given proof of rows that it has not.
        """

    @abstractmethod
    def close(self) -> None:
        """Release connections. Runs once on the driver; a crash may skip it."""


class BatchSink(Sink):
    """A sink that pre-commits a whole DataFrame from the driver, such as one with a transaction log of its own."""

    @abstractmethod
    def pre_commit(self, batch: DataFrame, transaction: TransactionId) -> Sequence[Committable]:
        """Write the rows durably and invisibly.

        Runs on the driver, in a thread of its own, once per attempt. A crash leaves only what `in_doubt` finds.

        Raises:
            DeclinedError: the attempt failed.
        """


class ArrowSink(Sink):
    """A sink whose rows are written by the executors."""

    @abstractmethod
    def writer(self, transaction: TransactionId, subtask: Subtask) -> SinkWriter:
        """Make the writer of one task attempt.

        Runs on the executor, in a copy of this object that was pickled after `open`; called when the task has its first
        row, so a task without rows makes no writer.
        """
