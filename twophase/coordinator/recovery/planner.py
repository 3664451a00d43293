"""Observes a job's log and targets, and plans its beginning by them.

A start plans three times: before the fence, when nothing may have been written; before anything is
aborted in a sink; and behind the fences, from where on no older driver adds anything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from twophase.contract.sink import CanRewind, KnowsOtherNames, NamesPieces, OpenSink, SinkHistory
from twophase.coordinator.commit.context import JobContext
from twophase.coordinator.commit.proofs import knows
from twophase.coordinator.recovery.plan import (
    GoOn,
    Observed,
    ObservedSink,
    Refusal,
    Restore,
    StartPlan,
    TakenBack,
    TargetLacks,
    Wish,
    plan_start,
    refusals,
)
from twophase.coordinator.recovery.refusal import begun_and_refused, refused
from twophase.errors import ConfigError, RestoreRefusedError, TwoPhaseError
from twophase.events import Observers
from twophase.options.job_options import SinkAhead
from twophase.state.journal.entries import Proof, Rewinding
from twophase.state.journal.history import History

_log = logging.getLogger("twophase")


class StartPlanner:
    """Plans the beginning of a job; one for each driver, repair or dry run.

    Args:
        context: the job.
    """

    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._renamed: dict[tuple[str, tuple[str, str]], OpenSink] = {}

    def histories(self, known: Mapping[str, SinkHistory] | None = None) -> dict[str, SinkHistory]:
        """Return what each sink remembers of the job now.

        Args:
            known: what sinks were asked for already.
        """
        known = known or {}

        def history(sink: OpenSink, _: Observers) -> SinkHistory:
            return sink.history()

        context = self._context
        asked = {name: sink for name, sink in context.sinks.items() if name not in known}
        found = context.fan_out(
            {name: partial(history, sink) for name, sink in asked.items()}, context.observers
        )
        return {name: known[name] if name in known else found[name] for name in context.sinks}

    def plan(
        self,
        history: History,
        remembered: Mapping[str, SinkHistory],
        restore: Restore | None = None,
    ) -> StartPlan:
        """Return the plan, when every sink that has to take rows back has said that it can.

        Args:
            history: of the log, read after the sinks were asked.
            remembered: the history of each sink.
            restore: what is to be restored, if anything.

        Raises:
            TwoPhaseError: the beginning is refused. Nothing was written.
        """
        wish = self._wish(restore)
        observed = self.observe(history, remembered, wish)
        found = plan_start(observed, wish)
        if not isinstance(found, StartPlan):
            raise self._error(found, observed, wish)
        if restore is not None:
            self._check_rewind(found.takes_back, restore, history.rewinding)
        elif history.lineage is None:
            self._check_fresh_start()
        return found

    def under_other_names(self, plan: StartPlan, restore: Restore) -> dict[str, SinkHistory]:
        """Return what the targets remember of the other names under which rows are taken back."""
        return {
            "/".join((one.sink, *one.name)): self.sink_for(restore, one).history()
            for one in plan.takes_back
            if one.name is not None
        }

    def sink_for(self, restore: Restore, one: TakenBack) -> OpenSink:
        """Return the open sink that takes rows back: under the name that the target has them by."""
        if one.name is None or restore.open_as is None:
            return self._context.sinks[one.sink]
        key = (one.sink, one.name)
        if key not in self._renamed:
            self._renamed[key] = restore.open_as(one.sink, *one.name)
        return self._renamed[key]

    def close(self) -> None:
        """Close the sinks that were opened under other names."""
        while self._renamed:
            (_, name), sink = self._renamed.popitem()
            try:
                sink.close()
            except Exception as error:  # noqa: BLE001 what recovery has met counts
                _log.warning("sink %s of job %s cannot be closed: %s", name[1], name[0], error)

    def plan_again(
        self, restore: Restore | None = None, known: Mapping[str, SinkHistory] | None = None
    ) -> StartPlan:
        """Plan once more: another driver can commit in each sink until its fence is up.

        Args:
            restore: what is to be restored, if anything.
            known: what sinks were asked for behind their fences.

        Raises:
            FencedError: another driver over this folder has gone on, and the sinks may know
                of its work by now.
            TwoPhaseError: as `plan`.
        """
        remembered, history = self.histories(known), self._context.history
        self._context.log.check_fence()
        return self.plan(history, remembered, restore)

    def check(
        self,
        history: History,
        remembered: Mapping[str, SinkHistory],
        repairs: Sequence[type[Refusal]] = (),
    ) -> Sequence[Refusal]:
        """Return why the job cannot go on by itself, for a repair that leads on from that.

        Args:
            history: of the log, read after the sinks were asked.
            remembered: the history of each sink.
            repairs: the reasons that the repair is for.

        Raises:
            TwoPhaseError: there is another reason, which the repair does not lead on from.
        """
        wish = GoOn(may_rename=True)
        observed = self.observe(history, remembered, wish)
        found = tuple(refusals(observed, wish))
        for why in found:
            if not isinstance(why, tuple(repairs)):
                raise self._error(why, observed, wish)
        return found

    def observe(
        self, history: History, remembered: Mapping[str, SinkHistory], wish: Wish
    ) -> Observed:
        """Return what is found, with the bodies that the wish needs.

        A sink that lacks a proof is asked once more, for it was asked before the log was read.

        Args:
            history: of the log, read after the sinks were asked.
            remembered: the history of each sink.
            wish: what will be planned.
        """
        context = self._context
        is_fresh = isinstance(wish, GoOn) and history.lineage is None
        rewinds = isinstance(wish, Restore) and wish.sink_ahead is SinkAhead.REWIND
        waiting = history.uncommitted() if rewinds else ()
        ahead = context.sink_decisions.bodies() if rewinds else ()
        sinks = {
            name: ObservedSink(
                sink.target(),
                remembered[name],
                isinstance(sink, CanRewind),
                sink.other_names() if isinstance(sink, KnowsOtherNames) else None,
                _in_doubt(sink) if is_fresh else {},
            )
            for name, sink in context.sinks.items()
        }
        bodies = (*map(context.store.read, waiting), *ahead)
        observed = Observed(
            *(context.job, history, sinks, bodies, context.lineage_folders()),
            skips_existing=context.skips_existing,
        )
        for why in tuple(refusals(observed, wish)):
            if isinstance(why, TargetLacks) and self._has(why.proof):
                observed = observed.with_proof(why.proof)
        return observed

    def _has(self, proof: Proof) -> bool:
        return knows(self._context.sinks[proof.sink].history(), proof)

    def _error(self, why: Refusal, observed: Observed, wish: Wish) -> TwoPhaseError:
        return refused(why, observed, wish, self._context, self._piece_names)

    def _wish(self, restore: Restore | None) -> Wish:
        may_rename = self._context.options.allow_non_restored_state
        if restore is None:
            return GoOn(may_rename)
        return replace(restore, may_rename=may_rename)

    def _check_rewind(
        self, takes_back: Iterable[TakenBack], restore: Restore, begun: Rewinding | None
    ) -> None:
        """Let each sink prove that it can, before a rewind is recorded or a row goes."""
        asked = [one for one in takes_back if one.name is None or restore.open_as is not None]
        for sink in dict.fromkeys(self.sink_for(restore, one) for one in asked):
            try:
                if isinstance(sink, CanRewind):
                    sink.check_rewind(restore.keep)
            except RestoreRefusedError as error:
                if begun is None:
                    raise
                raise begun_and_refused(self._context.job, begun, error) from error

    def _check_fresh_start(self) -> None:
        """Check that a job whose folder has no lineage, and that restores nothing, may begin.

        Before the fence: the folder may be an empty mount point, and the targets would know a
        driver that the real one has missed.
        """
        options = self._context.options
        if options.error_if_no_checkpoint:
            raise ConfigError(
                f"Job {self._context.job!r}: {options.checkpoint_location} has no checkpoint, and "
                "restore.error_if_no_checkpoint is set. Nothing was written.",
                remedy="set `restore.path=PATH`, or leave restore.error_if_no_checkpoint out "
                "for a fresh start.",
            )

    def _piece_names(self, sink: str, lineage: str, checkpoint: int) -> Sequence[str]:
        found = self._context.sinks[sink]
        return found.committed_pieces(lineage, checkpoint) if isinstance(found, NamesPieces) else ()


def _in_doubt(sink: OpenSink) -> dict[str, int]:
    """Return the newest checkpoint of each lineage with pieces in doubt in a sink."""
    found: dict[str, int] = {}
    for transaction in (piece.transaction for piece in sink.in_doubt()):
        lineage = transaction.lineage
        found[lineage] = max(found.get(lineage, -1), transaction.checkpoint)
    return found
