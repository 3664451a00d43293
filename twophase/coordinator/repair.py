"""Repairs: what an operator decides where a job cannot go on by itself. Here: a loss is accepted.

    1. take over   a fence in the log, as every driver takes it: a driver that still runs is out from here on
    2. commit      what was decided before; then the pieces of the sink. What they answer is the only proof of a loss
    3. show        the plan: what is lost; the operator says yes
    4. record      REPAIRED, one record in the log: this is the repair
    5. finish      the checkpoint commits without the lost pieces

A death before step 4 leaves what a start leaves that fails: nothing is given up, and the command can be run again. After it,
every start does step 5.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from twophase.config import JobOptions
from twophase.coordinator.clock import Clock
from twophase.coordinator.commit import Committer
from twophase.coordinator.finish import Finisher, Listeners
from twophase.coordinator.proofs import Proofs, check_targets
from twophase.coordinator.recovery import check_histories, commit_decided, piece_names, take_over
from twophase.errors import ConfigError, StopJobError
from twophase.events import Observers
from twophase.failpoints import failpoint
from twophase.protocol.committable import Committable
from twophase.protocol.sink import Sink
from twophase.state.checkpoint import CompletedCheckpoint
from twophase.state.log import JobLog
from twophase.state.records import AcceptedLoss, Decision, History, Note, Proof, RepairedRecord
from twophase.state.storage import Storage
from twophase.state.store import CompletedCheckpointStore


class Bench:
    """The parts of a driver that a repair works with.

    Args:
        job: the job's name.
        storage: the job's folder.
        sinks: by name, in the order of the user; opened.
        options: the job's options.
        observers: hear of commits.
        clock: the time.

    Attributes:
        log: the job's log.
        store: its checkpoints.
        committer: of its sinks.
        finisher: of its checkpoints.
        proofs: what its targets have proof of, by the log.
    """

    def __init__(
        self,
        job: str,
        storage: Storage,
        sinks: Mapping[str, Sink],
        options: JobOptions,
        observers: Observers,
        clock: Clock,
    ) -> None:
        self.job = job
        self.sinks = sinks
        self.log = JobLog(storage, job)
        self.store = CompletedCheckpointStore(storage, self.log, options.num_retained)
        self.proofs = Proofs(job, self.log, self.store)
        backoff_s, backoff_max_s = options.commit_backoff_s, options.commit_backoff_max_s
        self.committer = Committer(
            sinks, observers, clock, threading.Event(), backoff_s, backoff_max_s, self.proofs.explain
        )
        self.finisher = Finisher(job, sinks, self.committer, self.log, self.store, Listeners(()), observers)


@dataclass(frozen=True)
class LossPlan:
    """What is given up.

    Attributes:
        checkpoint: the decided checkpoint.
        sink: the sink's name.
        lost: its pieces that the target proved lost, each with the evidence.
    """

    checkpoint: CompletedCheckpoint
    sink: str
    lost: Sequence[tuple[Committable, str]]

    @property
    def rows(self) -> int:
        """Rows lost."""
        return sum(piece.rows for piece, _ in self.lost)

    @property
    def kept(self) -> Sequence[Committable]:
        """The pieces of the sink that are not lost; all of them are committed."""
        gone = {piece.subtask for piece, _ in self.lost}
        return [piece for piece in self.checkpoint.committables[self.sink] if piece.subtask not in gone]


class LossRepair:
    """Accepts the loss of pieces.

    Args:
        bench: the job's.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def plan(self, checkpoint: int, sink: str) -> LossPlan:
        """Steps 1 and 2: take the job over, and find out what is lost.

        Raises:
            ConfigError: there is no such decided checkpoint or sink. Nothing was touched.
            StopJobError: nothing is lost, or the job must not go on for another reason.
        """
        bench = self._bench
        self._decision(bench.log.read(), checkpoint)
        if sink not in bench.sinks:
            raise ConfigError(
                f"Job {bench.job!r} has no sink {sink!r}.", remedy=f"name one of {', '.join(bench.sinks)}."
            )
        remembered = {name: one.history() for name, one in bench.sinks.items()}

        def check(history: History) -> None:
            check_histories(bench.job, history, remembered, piece_names(bench.sinks))
            check_targets(bench.proofs, bench.proofs.committed(), bench.sinks, remembered, may_move=False)

        take_over(bench.log, remembered, check)
        failpoint("R01")
        history = bench.log.history
        decision = self._decision(history, checkpoint)
        older = history.decisions[: history.decisions.index(decision)]
        commit_decided(replace(history, decisions=older), bench.finisher.recommit)
        body = bench.store.read(decision)
        lost = bench.committer.lost(body, sink)
        if not lost:
            raise StopJobError(
                f"Job {bench.job!r}: nothing of checkpoint {checkpoint} is lost in sink {sink!r}; there is nothing to accept.",
                remedy="start the job: it goes on by itself.",
            )
        return LossPlan(body, sink, lost)

    def accept(self, plan: LossPlan, note: Note) -> None:
        """Steps 4 and 5.

        Raises:
            FencedError: a driver has taken the job over since the plan was made; nothing was given up.
            StopJobError: the loss is accepted, and the checkpoint cannot commit for another reason, such as a loss in
                another sink.
        """
        bench, body = self._bench, plan.checkpoint
        emptied = not plan.kept
        loss = AcceptedLoss(
            note=note,
            lineage=body.lineage,
            checkpoint=body.checkpoint,
            sink=plan.sink,
            pieces=tuple(str(piece.subtask) for piece, _ in plan.lost),
            rows=plan.rows,
            start=body.offsets.start,
            end=body.offsets.end,
            emptied=emptied,
            before=self._before(plan) if emptied else None,
        )
        failpoint("R02")
        bench.log.append(RepairedRecord(loss))
        failpoint("R03")
        commit_decided(bench.log.history, bench.finisher.recommit)

    def _decision(self, history: History, checkpoint: int) -> Decision:
        """The one of this number that waits for its commit; where none does, the newest of it."""
        named = [decision for decision in history.decisions if decision.checkpoint == checkpoint]
        if not named:
            raise ConfigError(
                f"Job {self._bench.job!r}: checkpoint {checkpoint} is not decided, or not kept any more. Nothing was written.",
                remedy="`twophase checkpoints FOLDER` lists the decided checkpoints.",
            )
        return next((decision for decision in named if not decision.committed), named[-1])

    @staticmethod
    def _before(plan: LossPlan) -> Proof | None:
        return next((proof for proof in plan.checkpoint.predecessors or () if proof.sink == plan.sink), None)
