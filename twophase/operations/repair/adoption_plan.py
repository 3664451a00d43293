"""The plan of an adoption: what the log adopts, what is committed, and where the job goes on.

Each piece is adopted in its own lineage: targets have a mark of every lineage that the job ever
had. `LineageOrder` finds the newest lineage. If it cannot, the lineage that has waiting pieces is
the newest, because a newer one commits nothing before them. If no piece waits, the order stays
unknown: Spark's folder may have just one of them because it is an old copy.

No target records where the newest adopted checkpoint ended. Its body does, if it is the log's
newest decision. Spark's folder does, if it has the offsets of that micro-batch: Spark froze them
before it wrote a row. Otherwise each source begins where its own options say.

`operations.repair.adopted_pieces` tells which of the waiting pieces are decided.

A log that knows all that the targets have, but not of their newest driver, lacks nothing to adopt:
it is confirmed to be the newest that there is, and goes on as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from twophase.contract.committable import Committable
from twophase.contract.sink import SinkHistory
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.proofs import knows
from twophase.coordinator.recovery.plan import (
    DriverMissed,
    FolderBehind,
    GoOn,
    RewindUnfinished,
    refusals,
)
from twophase.coordinator.recovery.planner import StartPlanner
from twophase.errors import StopJobError
from twophase.operations.repair.adopted_pieces import AdoptedPieces, checkpoint_of, is_readable
from twophase.operations.repair.lineage_order import LineageOrder
from twophase.options.job_options import CheckpointMode
from twophase.state.checkpoints.checkpoint import FrozenOffsets
from twophase.state.journal.entries import Decision, SinkDecision
from twophase.state.journal.history import History

Frozen = Callable[[str, int], FrozenOffsets | None]
"""Returns the offsets of a micro-batch in Spark's folder, given a lineage and a number;
None if it has none.
"""


@dataclass(frozen=True)
class SinkPlan:
    """The plan for one sink.

    Attributes:
        committed: for each lineage the highest checkpoint that the target has proof of.
        commits: pieces of adopted checkpoints that wait for their commit.
        aborts: pieces that the next start aborts: those of checkpoints that no target has proof of,
            those of superseded attempts, and those that were never pre-committed.
    """

    committed: Mapping[str, int]
    commits: Sequence[Committable]
    aborts: Sequence[Committable]


@dataclass(frozen=True)
class AdoptionPlan:
    """The plan of an adoption.

    Attributes:
        lineage: the newest lineage that the targets know; empty if they know none, or
            its order is unknown.
        checkpoint: its newest adopted checkpoint; -1 if none is.
        ancestors: the highest adopted checkpoint of each lineage; -1 for the log's
            own if none of it is.
        sinks: the plan for each sink, by name.
        end: where that checkpoint ended, or where the log's own lineage begins if none of it is
            adopted; empty if that is not known.
        gave_up: folders of decided checkpoints whose bodies cannot be read.
        continues: whether the log has a decided checkpoint, or a lineage that continues from one.
        missed: the generation of the newest driver that a target has seen and the log has not, if
            that is all that the log lacks: then it goes on in its own lineage; 0 otherwise.
    """

    lineage: str
    checkpoint: int
    ancestors: Mapping[str, int]
    sinks: Mapping[str, SinkPlan]
    end: tuple[str | None, ...]
    gave_up: tuple[str, ...] = ()
    continues: bool = True
    missed: int = 0

    @property
    def is_empty(self) -> bool:
        """True if the log's lineage has no decision, and the targets have no rows of the job."""
        return all(checkpoint < 0 for checkpoint in self.ancestors.values())

    def has_newest(self, sink: str) -> bool:
        """Return whether a sink has, or gets, pieces of the newest checkpoint."""
        mine = self.sinks[sink]
        waits = any(
            checkpoint_of(piece) == (self.lineage, self.checkpoint) for piece in mine.commits
        )
        return waits or mine.committed.get(self.lineage, -1) >= self.checkpoint


class AdoptionPlanner:
    """Plans an adoption.

    Args:
        context: the job's.
        frozen: reads the job's folder.
        is_stuck: whether a job with this log cannot continue by itself, even if the log knows all
            that the targets have.
    """

    def __init__(
        self, context: JobContext, frozen: Frozen, is_stuck: Callable[[History], bool]
    ) -> None:
        self._context = context
        self._frozen = frozen
        self._is_stuck = is_stuck

    def plan(self, history: History, remembered: Mapping[str, SinkHistory]) -> AdoptionPlan:
        """Return what an adoption would do. Nothing is written.

        Raises:
            StopJobError: a start needs no repair, a target lacks something, or the decisions
                cannot be determined.
        """
        targets = self._context.sinks
        if missed := self._missed(history, remembered):
            return self._as_it_is(history, remembered, missed)
        unreadable = self._unreadable(history)
        self._check_needed(history, remembered, is_unreadable=bool(unreadable))
        self._check_none_lacks(history, remembered)
        in_doubt = {name: sink.in_doubt() for name, sink in targets.items()}
        order = LineageOrder(history, remembered, targets, in_doubt)
        gone = _gone(unreadable, history, remembered, in_doubt)
        left = [one for one in history.decisions if one not in gone]
        adopted = _highest(replace(history, decisions=tuple(left)), remembered)
        self._check_no_rewind(history, adopted)
        sinks = {
            name: self._sink_plan(history, name, memory.committed, in_doubt[name], order, adopted)
            for name, memory in remembered.items()
        }
        lineage = self._newest_lineage(history, sinks, order, adopted)
        self._check_whole(history, (lineage, adopted.get(lineage, -1)), remembered)
        return AdoptionPlan(
            lineage=lineage,
            checkpoint=adopted.get(lineage, -1),
            ancestors=adopted,
            sinks=sinks,
            end=self._end(history, sinks, lineage, adopted),
            gave_up=tuple(one.folder for one in unreadable),
            continues=bool(history.decisions) or any(one.ancestors for one in history.lineages),
        )

    def _missed(self, history: History, remembered: Mapping[str, SinkHistory]) -> int:
        """Return the generation of the newest driver that is unknown to a log with a lineage."""
        wish = GoOn(may_rename=True)
        observed = StartPlanner(self._context).observe(history, remembered, wish)
        missed = (one for one in refusals(observed, wish) if isinstance(one, DriverMissed))
        return max((one.generation for one in missed), default=0) if history.lineage else 0

    def _as_it_is(
        self, history: History, remembered: Mapping[str, SinkHistory], missed: int
    ) -> AdoptionPlan:
        """Return the plan of a log that goes on; whatever else keeps it from that is told next."""
        decided = {(one.lineage, one.checkpoint) for one in history.decisions}
        decided |= {(one.lineage, one.checkpoint) for one in history.ahead}
        sinks = {}
        for name, memory in remembered.items():
            waiting = self._context.sinks[name].in_doubt()
            commits = tuple(one for one in waiting if checkpoint_of(one) in decided)
            aborts = tuple(one for one in waiting if checkpoint_of(one) not in decided)
            sinks[name] = SinkPlan(memory.committed, commits, aborts)
        lineage = history.lineage.id if history.lineage else ""
        newest = history.newest(lineage)
        checkpoint = newest.checkpoint if newest else -1
        return AdoptionPlan(lineage, checkpoint, {}, sinks, end=(), missed=missed)

    def _check_no_rewind(self, history: History, adopted: Mapping[str, int]) -> None:
        """Check that no sink still has what a rewind that has begun takes back.

        Raises:
            StopJobError: one has.
        """
        begun = history.rewinding
        if begun is not None and not begun.is_finished_by(adopted):
            raise StopJobError(
                f"Job {self._context.job!r}: a rewind to {begun.restored_from} has begun, and a "
                "sink still has what it takes back. Nothing was written.",
                remedy="give the rewind up first: twophase repair abandon-rewind JOB.yaml. Then "
                "run this command again.",
            )

    def _check_needed(
        self, history: History, remembered: Mapping[str, SinkHistory], *, is_unreadable: bool
    ) -> None:
        repairs = [FolderBehind, DriverMissed, *([RewindUnfinished] if is_unreadable else [])]
        found = StartPlanner(self._context).check(history, remembered, repairs)
        if found or is_unreadable or self._is_stuck(history):
            return
        raise StopJobError(
            f"Job {self._context.job!r}: its folder knows all that the targets have; "
            "there is nothing to adopt.",
            remedy="start the job: it goes on by itself.",
        )

    def ahead(
        self, history: History, remembered: Mapping[str, SinkHistory]
    ) -> Sequence[SinkDecision]:
        """Return the decisions in some sinks only, without those of which the target has nothing.

        That was deleted by hand, or was lost and given up: it is read again, like a checkpoint of
        which there is neither a decision nor a piece.
        """
        return [one for one in history.sink_decisions if self._is_there(one, remembered)]

    def _is_there(self, one: SinkDecision, remembered: Mapping[str, SinkHistory]) -> bool:
        if one.sink not in remembered or knows(remembered[one.sink], one):
            return True
        waiting = self._context.sinks[one.sink].in_doubt()
        return any(one.is_of(*checkpoint_of(piece)) for piece in waiting)

    def _check_none_lacks(self, history: History, remembered: Mapping[str, SinkHistory]) -> None:
        """Check that a checkpoint which is decided in some sinks only has proof in all others.

        Raises:
            StopJobError: one may lack its rows, so the job can go on neither before nor after them.
        """
        decided = self.ahead(history, remembered)
        ahead = {one.sink for one in decided}
        others = [memory for name, memory in remembered.items() if name not in ahead]
        for one in decided:
            if all(knows(memory, one) for memory in others):
                continue
            raise StopJobError(
                f"Job {self._context.job!r}: sink {one.sink!r} is ahead: its log has checkpoint "
                f"{one.checkpoint} of lineage {one.lineage} as decided in that sink only, and "
                "adopting it would lose its rows in the others. Nothing was written.",
                remedy="restore what is damaged in the job's folder, then start the job: it writes "
                "the other sinks. Or restore a savepoint with `restore.sink_ahead=rewind`. If "
                "there is neither a backup nor a savepoint, delete its rows and proofs there by "
                "hand (docs/by-hand.md), then run the command again: they are written again.",
            )

    def _check_whole(
        self, history: History, newest: tuple[str, int], remembered: Mapping[str, SinkHistory]
    ) -> None:
        """Check that the newest checkpoint is decided, or not that of a sink that was ahead.

        Raises:
            StopJobError: sinks may commit ahead, and not all of them have proof of it.
        """
        lineage, checkpoint = newest
        is_decided = any((one.lineage, one.checkpoint) == newest for one in history.decisions)
        if is_decided or self._context.options.mode is not CheckpointMode.AT_LEAST_ONCE:
            return
        has = [
            name
            for name, memory in remembered.items()
            if memory.committed.get(lineage, -1) >= checkpoint >= 0
        ]
        decided = [one.sink for one in history.sink_decisions]
        lacks = [name for name in remembered if name not in (*has, *decided)]
        if has and lacks:
            raise StopJobError(
                f"Job {self._context.job!r}: checkpoint {checkpoint} of lineage {lineage} is "
                f"committed in {', '.join(has)} and not in {', '.join(lacks)}. With "
                "checkpoint.mode at_least_once that does not tell whether it was decided, and "
                "the others may lack its rows. Nothing was written.",
                remedy="make sure that no driver of the job is running, then run the command "
                "again. If it says the same, look for its rows in the others. If they have them, "
                "or it has none for them, run the command with `checkpoint.mode=exactly_once`. If "
                "not, delete its rows and proofs where it is committed (docs/by-hand.md).",
            )

    def _unreadable(self, history: History) -> list[Decision]:
        """Return the decided checkpoints that a start must read but cannot."""
        newest = history.newest(history.lineage.id) if history.lineage else None
        needed = [one for one in history.decisions if not one.committed or one == newest]
        return [one for one in needed if not is_readable(self._context.store, one)]

    def _newest_lineage(
        self,
        history: History,
        sinks: Mapping[str, SinkPlan],
        order: LineageOrder,
        adopted: Mapping[str, int],
    ) -> str:
        """Return the newest lineage that the log does not know, or else the log's own.

        Empty if the order is unknown.

        Raises:
            StopJobError: pieces wait, and Spark's folder has a different lineage from theirs.
        """
        if not (unknown := [lineage for lineage in adopted if not order.is_known(lineage)]):
            return history.lineage.id if history.lineage else ""
        if len(newest := order.newest(unknown)) == 1:
            return newest[0]
        commits = [piece for sink in sinks.values() for piece in sink.commits]
        waiting = {piece.transaction.lineage for piece in commits}.intersection(newest)
        kept = {one for one in newest if self._frozen(one, adopted[one]) is not None}
        if len(waiting) > 1 or (kept and waiting - kept):
            raise self._ambiguous(waiting, {lineage: adopted[lineage] for lineage in newest})
        return next(iter(waiting), "")

    def _ambiguous(self, waiting: set[str], newest: Mapping[str, int]) -> StopJobError:
        known = ", ".join(f"{lineage} up to {checkpoint}" for lineage, checkpoint in newest.items())
        return StopJobError(
            f"Job {self._context.job!r}: nothing tells which of the lineages that its targets have "
            f"is the newest: {known}. Pieces of {', '.join(sorted(waiting))} wait, and may be "
            "decided. Nothing was written.",
            remedy="make sure that checkpointLocation names the newest folder of the job. If it "
            "does, leave there what Spark has of the newest lineage only, or nothing (below "
            "spark/; in the plugin form `offsets` beside `metadata`), then run the command again. "
            "Pieces of an older lineage are ended by hand (docs/by-hand.md).",
        )

    def _sink_plan(
        self,
        history: History,
        name: str,
        committed: Mapping[str, int],
        in_doubt: Sequence[Committable],
        order: LineageOrder,
        adopted: Mapping[str, int],
    ) -> SinkPlan:
        pieces = AdoptedPieces(self._context, history, name)
        commits: list[Committable] = []
        aborts: list[Committable] = []
        for piece in in_doubt:
            lineage, number = checkpoint_of(piece)
            waits = number <= adopted.get(lineage, -1) and not order.is_followed(lineage, number)
            waits = waits and not pieces.is_over(committed.get(lineage, -1), piece)
            (commits if waits and pieces.is_decided(piece) else aborts).append(piece)
        commits.sort(key=oldest_first(order))
        guessed = [piece for piece in commits if pieces.body(piece) is None]
        unfinished = pieces.unfinished(guessed)
        commits = [piece for piece in commits if piece not in unfinished]
        pieces.check_one_attempt([piece for piece in guessed if piece not in unfinished])
        return SinkPlan(dict(committed), tuple(commits), (*aborts, *unfinished))

    def _end(
        self,
        history: History,
        sinks: Mapping[str, SinkPlan],
        lineage: str,
        adopted: Mapping[str, int],
    ) -> tuple[str | None, ...]:
        checkpoint = adopted.get(lineage, -1)
        # First, because it rejects a lineage with state in Spark.
        frozen = self._frozen(lineage, checkpoint) if lineage else None
        if checkpoint < 0:
            return self._begin(history, lineage, adopted)
        newest = (lineage, checkpoint)
        decision = next(
            (one for one in history.decisions if (one.lineage, one.checkpoint) == newest), None
        )
        if decision is not None and is_readable(self._context.store, decision):
            return self._context.store.read(decision).offsets.end
        if frozen is None:
            return ()
        waiting = [piece for sink in sinks.values() for piece in sink.commits]
        hashes = [
            piece.transaction.offsets_hash for piece in waiting if checkpoint_of(piece) == newest
        ]
        hashes += [decision.offsets_hash] if decision else []
        # an xid holds only a prefix of the hash
        if not all(frozen.hash.startswith(found) for found in hashes):
            # Spark's folder is not from the same time as the log, or as the waiting pieces
            return ()
        return frozen.end

    def _begin(
        self, history: History, lineage: str, adopted: Mapping[str, int]
    ) -> tuple[str | None, ...]:
        """Return where the log's own lineage begins.

        Empty if another driver has advanced a lineage that it continues.
        """
        own = history.lineage
        if (
            own is None
            or own.id != lineage
            or any(last > own.ancestors.get(one, -1) for one, last in adopted.items())
        ):
            return ()
        return own.start


def _highest(history: History, remembered: Mapping[str, SinkHistory]) -> dict[str, int]:
    """Return each lineage's highest checkpoint that a target proves, or that the log needs."""
    adopted = {history.lineage.id: -1} if history.lineage else {}
    newest = history.newest(history.lineage.id) if history.lineage else None
    # the newest may have no rows in any target
    decided = [*history.uncommitted(), *([newest] if newest else [])]
    found = [(decision.lineage, decision.checkpoint) for decision in decided]
    for lineage, checkpoint in [
        *found,
        *(one for memory in remembered.values() for one in memory.committed.items()),
    ]:
        adopted[lineage] = max(adopted.get(lineage, -1), checkpoint)
    return adopted


def _gone(
    unreadable: Sequence[Decision],
    history: History,
    remembered: Mapping[str, SinkHistory],
    in_doubt: Mapping[str, Sequence[Committable]],
) -> list[Decision]:
    """Return the newest decisions without a body that had pieces, and of which no target has any:
    their records are read again.
    """
    waiting = {checkpoint_of(piece) for found in in_doubt.values() for piece in found}
    gone: list[Decision] = []
    for one in reversed(history.uncommitted()):
        of = one.lineage, one.checkpoint
        proofs = [proof for proof in one.proofs if (proof.lineage, proof.checkpoint) == of]
        is_left = of in waiting or any(
            proof.sink not in remembered or knows(remembered[proof.sink], proof) for proof in proofs
        )
        if one not in unreadable or not proofs or is_left:
            break
        gone.append(one)
    return gone


def oldest_first(order: LineageOrder) -> Callable[[Committable], tuple[float, int]]:
    """Return the sort key for commits, oldest first."""
    return lambda piece: (order.rank(piece.transaction.lineage), piece.transaction.checkpoint)
