"""The contract of a sink, driver side.

A `Sink` is declared with options: it can be pickled, and it has no connection. `Sink.open` binds it
to a job and a target; the `OpenSink` that it returns takes part in checkpoints. The coordinator
calls it in this order. The steps are those of docs/architecture.md.

A start:

    2. open                          fails before any write
    3. history, other_names          the target's proofs and fence of this job, and its proofs
                                     under other names
       check_rewind                  before 3a and behind the fences, if a restore asks for a rewind
    3b. commit                       every decided checkpoint not yet known as committed
    3c. in_doubt, abort, fence, in_doubt, abort     nothing of an older attempt survives
    3d. rewind                       if a restore asks for it
    3e. subsume                      what a dead driver did not get to fold

A checkpoint:

    3. writers | pre_commit          durable and invisible
    6. commit                        visible; repeated until every piece is committed
    7. in_doubt, history, abort      superseded task attempts
    8. subsume                       after all sinks have committed: fold the proofs

At the end of a job, `close`. A declined attempt goes through 3c before the next one begins.

A look, such as a dry run or the plan of a repair, opens sinks without columns. It calls `target`,
`history`, `in_doubt`, `check_rewind`, what the optional powers tell, and `close`. All of that
leaves the target as it is: no table, folder or mark is made. What is missing is made by an `open`
with columns, and by the first `fence` or `commit` after one without.

`open` and `history` run in parallel, with one thread per sink. So does step 3 of a checkpoint, and
3c for sinks with nothing to abort; the other sinks follow in the order of the job. `history` is
called again for all sinks before each abort, and for each sink behind its new fence. A step may run
on a different thread than the step before it. One thread at a time calls a sink, except while it
pre-commits: with `checkpoint.max_concurrent` above 1, steps 6 to 8 run in a thread of their own,
concurrently with the pre-commit of later checkpoints. 3c never does: it waits until every decided
checkpoint is committed. With `checkpoint.mode` at_least_once step 6 of a sink that has acknowledged
runs while others pre-commit; a piece that it names may then be of an older attempt than the
checkpoint.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

import pyarrow as pa

from twophase.contract.committable import Committable
from twophase.contract.outcome import CommitOutcome
from twophase.contract.writer import SinkWriter
from twophase.errors import StopJobError, TargetChangedError
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.internals.failpoints import failpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Waits:
    """How long the settings of a job let a written piece wait for its commit, in seconds.

    For a sink whose target keeps a piece for a limited time. A failure, or a target that does not
    answer, may make it wait for longer.

    Attributes:
        decision_s: the longest time from its first row to the decision (`checkpoint.timeout`).
        pauses_s: the longest pauses before a decided piece is committed again, by the option that
            sets each.
        behind: the sinks that a decided piece waits for while one of them cannot commit an older
            checkpoint, for as long as that lasts (`checkpoint.max_concurrent`).
    """

    decision_s: float
    pauses_s: Mapping[str, float] = field(default_factory=dict, hash=False)
    behind: Sequence[str] = ()


@dataclass(frozen=True)
class SinkContext:
    """The context in which a sink is opened.

    Attributes:
        job: the job's name.
        sink: the sink's name within the job.
        schema: the columns of the rows to come; None if none will follow, as in a repair or a dry
            run: then nothing is checked against columns, and `writers`, `pre_commit` and `subsume`
            are not called.
        parallelism: the maximum number of writers that run at once.
        beside: the maximum number of writers of other sinks of this kind that run at the same time,
            because a task writes to several of them; 0 if Spark's slots bound all sinks together.
        speculation: whether Spark may run a task twice at the same time.
        max_concurrent: how many checkpoints may be in progress. Above 1 a checkpoint is
            pre-committed while earlier ones wait for their commit; a sink that would deadlock with
            itself rejects that in `open` (hazard H51).
        waits: how long pieces may have to wait; None where the job does not set it, as in a repair
            or in the plugin form.
    """

    job: str
    sink: str
    schema: pa.Schema | None
    parallelism: int
    speculation: bool = False
    max_concurrent: int = 1
    beside: int = 0
    waits: Waits | None = None


@dataclass(frozen=True)
class Predecessor:
    """The newest committed checkpoint before a piece's own that has pieces in the same sink.

    Attributes:
        lineage: the lineage of the checkpoint: the piece's own, or one that it continues.
        checkpoint: its number there.
    """

    lineage: str
    checkpoint: int


@dataclass(frozen=True)
class CommitRequest:
    """One piece to commit.

    Attributes:
        committable: the piece.
        retries: how often this driver has tried to commit it before.
        predecessor: the checkpoint that the target must have proof of before the piece becomes
            visible; None if there is none. The same for all requests of a call.
    """

    committable: Committable
    retries: int = 0
    predecessor: Predecessor | None = None


def another_target(committable: Committable, target: str) -> TargetChangedError:
    """Return the error of a piece without proof that was written to another target (I10)."""
    return TargetChangedError(
        f"{committable.transaction} was written to {committable.target}; this is {target}, which "
        "has no proof of it. Nothing of it is committed here.",
        remedy="point the sink to the target that it had; its pieces are there.",
    )


def decided_elsewhere(piece: object, target: str) -> StopJobError:
    """Return the error of a piece that is to be aborted, and is committed.

    Args:
        piece: its name.
        target: where it is committed, as a sentence names it.
    """
    return StopJobError(
        f"Piece {piece} is in no decision of this job's folder, but is committed in {target}: its "
        "checkpoint was decided in another folder. Nothing was deleted.",
        remedy="start the job with the folder (checkpointLocation) that decided it.",
    )


def predecessor_missing(request: CommitRequest, target: str) -> TargetChangedError:
    """Return the error that a sink raises for a piece whose predecessor has no proof in the target.

    Args:
        request: a request with a predecessor.
        target: `Sink.target`.
    """
    transaction, before = request.committable.transaction, request.predecessor
    if before is None:
        raise ValueError("the request has no predecessor")
    return TargetChangedError(
        f"{transaction} is decided, but was not committed to {target}: checkpoint "
        f"{before.checkpoint} of lineage {before.lineage} was committed there before it, and the "
        "target no longer has proof of that. It was restored from a backup, "
        "or is a different target.",
        remedy="restore the target to its previous state, then start the job again: if anything "
        "is still missing, its error says what, and how to go on without it.",
    )


def commit_each(
    requests: Sequence[CommitRequest], commit_one: Callable[[CommitRequest], CommitOutcome]
) -> Sequence[CommitOutcome]:
    """Commit pieces one after the other: `OpenSink.commit`, with its failpoints C12 to C15.

    Args:
        requests: of `OpenSink.commit`.
        commit_one: commits one piece.
    """
    outcomes = []
    for number, request in enumerate(requests):
        failpoint("C13" if number else "C12")
        outcomes.append(commit_one(request))
        failpoint("C14")
    failpoint("C15")
    return outcomes


@dataclass(frozen=True)
class SinkHistory:
    """What a target durably records about a job and sink.

    Attributes:
        generation: the highest generation that has fenced it; 0 if it has never seen the job.
        committed: for each lineage id, the highest checkpoint that the target has proof of (from
            the ledger and the high-water marks). Checkpoints without pieces leave no proof, so this
            may lag, never lead. A missing committed checkpoint with pieces means that the target
            was restored from a backup, or is a different one: a target that drops proofs by itself
            needs additional ones.
        replaced: why the target lacks the rows that its proofs are for, such as a table that was
            dropped and recreated under the same name; empty if it has them, or where proofs
            vanish with the rows.
        half_rewound: whether a rewind has taken back a part of the rows and died, so that the
            target lacks rows that it has proof of.
    """

    generation: int = 0
    committed: Mapping[str, int] = field(default_factory=dict)
    replaced: str = ""
    half_rewound: bool = False


@runtime_checkable
class NamesPieces(Protocol):
    """Optional power of an open sink: it lists the proven pieces of a checkpoint."""

    def committed_pieces(self, lineage: str, checkpoint: int) -> Sequence[str]:
        """Return the names of the pieces, as `attempt/subtask`, such as "3.17/0.201".

        There are none where only a mark is left.

        Runs on the driver after `open`, when a target has a checkpoint that the log does not know:
        for an error message, and for a repair, which infers the decision from the attempt.
        """


@runtime_checkable
class KnowsOtherNames(Protocol):
    """Optional power of an open sink: it tells who else has rows in its target, by name.

    A job or a sink that was renamed has neither fence nor proofs under its new name. This is how a
    start notices that the rows which it is about to write, or to take back, are there already.
    """

    def other_names(self) -> Mapping[tuple[str, str], Mapping[str, int]]:
        """Return what the target has proof of under other names: by job and sink, the highest
        checkpoint of each lineage, as in `SinkHistory.committed`.

        Only what was committed to the same table counts, as far as the target can tell. Runs on the
        driver after `open`, each time that a start is planned.
        """


@runtime_checkable
class TellsUnfinished(Protocol):
    """Optional power of an open sink: it tells which pieces in doubt were never pre-committed."""

    def unfinished(self, pieces: Sequence[Committable]) -> Sequence[Committable]:
        """Return those `pieces` that their writer never finished, as far as the target shows.

        Runs on the driver after `open`, in a repair without a list of the decided pieces. A missing
        handle is not enough, nor is a damaged record: such a piece may be decided, and the repair
        stops unless there is an intact piece in its place. So `in_doubt` gives a handle to each
        piece that can be committed, and to no other. A sink that lists only pre-committed pieces
        does not need this.

        Args:
            pieces: some of the pieces that `in_doubt` returned.
        """


@runtime_checkable
class CompletesPartitions(Protocol):
    """Optional power of an open sink: it keeps partitions from readers until they are complete."""

    def waiting_partitions(self) -> Sequence[str]:
        """Return the committed partitions that readers do not see yet, for people to read."""

    def complete_partitions(self, names: Sequence[str]) -> None:
        """Complete those, though their time has not come; others go on waiting. Idempotent.

        Args:
            names: as `waiting_partitions` has returned them.

        Both run on the driver after `open`, in a repair (`twophase repair complete-partitions`).
        """


@runtime_checkable
class CanRewind(Protocol):
    """Optional power of an open sink: it takes back what was committed after a checkpoint.

    For the restore of an older savepoint with `restore.sink_ahead=rewind`. `keep` maps each lineage
    that the savepoint is of, or continues, to the last checkpoint that stays. Checkpoints after it
    are taken back, and all checkpoints of every other lineage.
    """

    def check_rewind(self, keep: Mapping[str, int]) -> None:
        """Check that `rewind` can take back exactly the rows of these checkpoints.

        Runs on the driver, after `open`, before the job is taken over and again behind the fence.
        Writes nothing.

        Raises:
            RestoreRefusedError: it cannot: rows do not name their checkpoint, somebody else has
                changed them, or what is needed has expired. Names which.
        """

    def rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """Remove the rows of these checkpoints, and the proofs of them, for ever.

        Runs on the driver in recovery, behind the fence of `attempt`; no piece is in doubt.
        Idempotent. Rows and proofs go together; where the target has no such transaction, the
        rows go first, so that `history` shows the sink ahead until all of them are gone and the
        next start calls again; such a sink is a `RewindsInSteps` too. Rows of others, and what
        `keep` keeps, stay as they are.

        Raises:
            FencedError: a newer driver has taken over.
            TargetChangedError: the target does not have this driver's fence (`driver_is_fenced`).
            RestoreRefusedError: as `check_rewind`; nothing was removed.
            Exception: rows may be left; the next start calls again.
        """


@runtime_checkable
class RewindsInSteps(Protocol):
    """Optional power of an open sink that rewinds, but not in one transaction.

    A rewind that died leaves rows of some checkpoints gone and their proofs still there. If it
    cannot be finished, an operator gives it up (`twophase repair abandon-rewind`), and the job goes
    on from what `history` says.
    """

    def settle_rewind(self, keep: Mapping[str, int], attempt: Attempt) -> None:
        """End a rewind to `keep` that may have died anywhere, so that rows and proofs agree again.

        While any row is left that it would remove, bring back those that it has moved aside.
        Otherwise remove the proofs. Nothing that readers see goes, whatever others have done to it.

        Runs on the driver, behind the fence of `attempt`, also where no rewind has reached the
        sink. Idempotent.

        Raises:
            FencedError: a newer driver has taken over.
            TargetChangedError: the target does not have this driver's fence (`driver_is_fenced`).
            Exception: the repair is called again.
        """


class OpenSink(ABC):
    """A sink that is open: bound to a job and to its target. Lives in the driver's process only.

    Subclass `OpenArrowSink` or `OpenBatchSink`; add the optional powers `CanRewind`,
    `RewindsInSteps`, `KnowsOtherNames`, `NamesPieces`, `TellsUnfinished` and `CompletesPartitions`
    where the target allows them.
    """

    @abstractmethod
    def target(self) -> str:
        """Return the identity of the target, as committables carry it (invariant I10).

        It differs between any two targets, and stays the same for one target in every process and
        after every restart.
        """

    @abstractmethod
    def history(self) -> SinkHistory:
        """Return what the target durably records about this job and sink. Writes nothing.

        Runs on the driver, after `open`, before recovery. Must read durable state from the
        target itself (I6).
        """

    @abstractmethod
    def fence(self, attempt: Attempt) -> None:
        """Close every attempt below `attempt` for this job and sink.

        Runs on the driver in recovery and after a declined attempt, once everything that `in_doubt`
        lists has been committed or aborted: a target may have to wait for such pieces. When it
        returns, no writer of a lower attempt can pre-commit any more, in whatever process; pieces
        that such writers pre-committed in the meantime are visible to `in_doubt`. Waits until that
        holds, and ends the connections and processes that it knows as its own. Idempotent; never
        lowers the fence, and no other method removes it.

        A writer may pre-commit only if the fence exists, has its generation, and is not above its
        attempt. A missing fence rejects it, and so does any other generation, even a higher one: a
        target restored from a backup has lost the fence that would have closed the writer. The
        check is part of the transaction that makes the rows durable (HD9).

        Raises:
            FencedError: the target has already seen a higher generation. Nothing of the newer
                driver is touched.
            Exception: the fence could not be raised in time; names what blocks it.
                Calling again is safe.
        """

    @abstractmethod
    def commit(self, requests: Sequence[CommitRequest]) -> Sequence[CommitOutcome]:
        """Make pieces visible. Idempotent.

        Runs on the driver after the decision, repeated with all pieces of the checkpoint until no
        outcome is `RetryLater`. So a request may name a piece that is already committed, also after
        a crash, which may lose the reply: answer `AlreadyCommitted`, only on proof from the target,
        which may have been restored from a backup since. Answer `Committed` only if the target
        shows the piece; an OK reply is not enough (docs/decisions/0010). Rows and proof become
        visible atomically: a crash leaves both or neither (I4).

        A piece without proof becomes visible only in a target that has proof of
        `CommitRequest.predecessor`: its own rows, or the mark that stands for them. Check that in
        the transaction or commit that makes the piece visible; where there is none, in the same
        session directly before. Otherwise a target that is restored from a backup, or swapped,
        under a running job would get the piece, and the gap before it would go unnoticed
        (docs/decisions/0025).

        Returns:
            One outcome for each request, in the same order.

        Raises:
            TargetChangedError: a committable names another target, or the target lacks the
                predecessor; this call made none of the requested pieces visible.
            Exception: anything else counts as `RetryLater` for all requests.
        """

    @abstractmethod
    def abort(self, committables: Sequence[Committable]) -> None:
        """Remove pieces that are in no decision. Idempotent: a missing piece counts as removed.

        Runs on the driver for declined attempts, for superseded task attempts, and in recovery.
        Removes exactly these pieces: others of the same task, attempt and checkpoint may be
        decided. A committed piece keeps its rows and its proof, even if it is listed. A crash
        leaves the rest to the next recovery. A driver over a copy of the job's folder may be
        committing a piece meanwhile: one of the two must find the other's work, or fail.

        Raises:
            StopJobError: a piece is committed; its rows and its proof stay.
            Exception: a piece may still exist; the attempt is not retried, and
                recovery tries again.
        """

    @abstractmethod
    def in_doubt(self) -> Sequence[Committable]:
        """Return all pre-committed, uncommitted pieces of this job and sink, decided or not.

        Runs on the driver in recovery and after a declined attempt. Must read the
        target, never memory. Writes nothing.
        """

    @abstractmethod
    def subsume(self, lineage: str, checkpoint: int) -> None:
        """Fold a lineage's proofs up to `checkpoint`, all committed, into its high-water mark.

        Runs on the driver after the log says COMMITTED; a crash may skip or interrupt it: the next
        recovery calls it again. Also called for each lineage that the job continues, up to its end.
        Proof that a checkpoint was committed must last for ever (hazard H50), so raise the mark
        before, or together with, deleting the proofs that it replaces.

        The mark claims no more than the proofs that it folds: raise it to the highest checkpoint
        that the target has proof of. Otherwise a target that was meanwhile restored or swapped
        would be given proof of rows that it lacks.
        """

    @abstractmethod
    def close(self) -> None:
        """Release connections. Runs once on the driver; a crash may skip it."""


class OpenBatchSink(OpenSink):
    """An open sink that pre-commits a whole DataFrame from the driver, such as by its own log."""

    @abstractmethod
    def pre_commit(self, batch: DataFrame, transaction: TransactionId) -> Sequence[Committable]:
        """Write the rows durably and invisibly.

        Runs on the driver, in a thread of its own, once per attempt. A crash leaves nothing that
        `in_doubt` cannot find.

        Raises:
            DeclinedError: the attempt failed.
        """


WriterFactory = Callable[[TransactionId, Subtask], SinkWriter]
"""Creates the writer of one task attempt. Picklable: it is sent to the executors.

Called on an executor when the task gets its first row, so a task without rows creates no writer.
"""


class OpenArrowSink(OpenSink):
    """An open sink whose rows are written by the executors."""

    @abstractmethod
    def writers(self) -> WriterFactory:
        """Return what the executors create writers with.

        Runs on the driver, after `open`, for each attempt at a checkpoint. What it returns holds
        what a writer needs to reach the target, and nothing of the driver's connections.
        """


class Sink(ABC):
    """A destination as a job declares it: options, checked, and no connection. Picklable.

    Subclass `ArrowSink` or `BatchSink`. One declared sink may be opened several times, one after
    the other or at once: by a job, by a repair, and by a fork in the name of another job.

    Attributes:
        needs_spark: whether the open sink calls Spark on the driver. A repair then starts Spark for
            it, and it cannot be used as a `writeStream` format, which commits without Spark.
    """

    needs_spark: ClassVar[bool] = False

    @abstractmethod
    def open(self, context: SinkContext) -> OpenSink:
        """Connect, check all that can be checked before a write, and create the sink's bookkeeping.

        Runs on the driver, once per start of the job, before recovery. Leaves this object as it is.
        Without columns (`SinkContext.schema`) it creates nothing, and leaves the target as it is.

        Raises:
            ConfigError: an option does not fit the target, such as a missing table or column.
            PreflightError: the target cannot give the protocol's guarantees, or
                privileges are missing.
        """

    def check_connection(self) -> None:  # noqa: B027 most sinks have nothing to check early
        """Connect, and check all that does not depend on the job and the rows' columns.

        That is account, privileges, server and table. Runs on the driver, before Spark is up and
        before `open`, which repeats all of it: what passes here may fail later. Writes nothing and
        keeps nothing open. Called once, possibly concurrently with other sinks' checks. Checks
        nothing by default.

        Raises:
            TwoPhaseError: as `open` raises it.
        """

    def spark_conf(self) -> Mapping[str, str]:
        """Return the settings that `twophase run` starts Spark with, such as jars. By default none.

        Called on the driver before Spark starts, and before `open`. A setting made by the user
        wins; `open` checks what it needs.
        """
        return {}

    @classmethod
    def rehearsal(cls, folder: Path) -> tuple[Sink, Mapping[str, str]] | None:  # noqa: ARG003
        """Return a sink of this kind that writes below `folder`, and the Spark settings for that.

        Called in a separate process that records the classes which a job loads, for faster starts;
        None, as by default, leaves this kind of sink out.
        """
        return None


class BatchSink(Sink):
    """A sink whose rows are pre-committed as a whole DataFrame, from the driver."""

    needs_spark: ClassVar[bool] = True

    @abstractmethod
    def open(self, context: SinkContext) -> OpenBatchSink:
        """See `Sink.open`."""


class ArrowSink(Sink):
    """A sink whose rows are written by the executors."""

    @abstractmethod
    def open(self, context: SinkContext) -> OpenArrowSink:
        """See `Sink.open`."""
