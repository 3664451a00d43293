"""What the product tells of its runs is a behaviour of the model; what a broken
product tells is not.

Most runs are those of the simulation: the real coordinator, log, recovery and MySQL sink, under a
seed's crashes, pauses, rivals, power cuts, declined attempts, late tasks, restores and broken
connections. The others have the reference sink, and a driver that dies at each of its steps, or is
overtaken at each third. `test_refused` has the negative controls.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count, groupby, pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from harness.interleaving import Crash, SteppingDriver
from harness.memory_driver import JOB
from harness.selection import first_of
from twophase import events
from twophase.contract.committable import Committable
from twophase.coordinator.commit.checkpoint_completion import SUBSUME_SINKS_EVERY
from twophase.coordinator.commit.pending import PendingCheckpoint
from twophase.errors import TwoPhaseError
from twophase.state.checkpoints.store import _FOLD_AT
from twophase.testing.memory import MemoryTarget
from verification.model.conformance import RejectedTraceError, accept
from verification.model.event_map import Trace, TracedWorld
from verification.simulation.mutations import MISTAKES, broken
from verification.simulation.oracle import Oracle
from verification.simulation.repairs import REPAIRS
from verification.simulation.scheduler import Process
from verification.simulation.supervisor import run
from verification.simulation.telling import Started, Telling
from verification.simulation.worlds import OPERATED, in_world

SEEDS = int(os.environ.get("TWOPHASE_CONFORMANCE_SEEDS", "300"))
IN_EVERY_RUN = 50

pytestmark = [pytest.mark.part("model"), pytest.mark.thin(3)]


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(
            range(first, first + 50),
            id=str(first),
            marks=[] if first < IN_EVERY_RUN else pytest.mark.proof,
        )
        for first in range(0, SEEDS, 50)
    ],
)
def test_the_model_accepts_the_reported_events_in(seeds: range) -> None:
    for seed in seeds:
        options = TracedWorld.options(seed)
        outcome = run(options)
        assert not outcome.violation, outcome
        assert (
            accept(TracedWorld.of_run(options, outcome.reported), outcome.reported)
            > len(outcome.reported)
            > 0
        )


@pytest.mark.parametrize(
    "wanted", [pytest.param(4, id="few"), pytest.param(60, id="more", marks=pytest.mark.proof)]
)
def test_the_model_accepts_the_reported_events_of_runs_with_restores(wanted: int) -> None:
    restored = 0
    for seed in count():
        options = replace(in_world(seed, OPERATED), max_concurrent=1, incident="")
        if options.ahead:
            continue
        outcome = run(options)
        assert not outcome.violation, outcome
        if goes_back(outcome.reported) or any(one in outcome.points for one in UNTRACED):
            continue
        accept(TracedWorld.of_run(options, outcome.reported), outcome.reported)
        restored += any(
            isinstance(event, Started) and event.restores for _, event in outcome.reported
        )
        if restored == wanted:
            break


UNTRACED = ("S11", *(f"repair: {verb}" for verb in REPAIRS))
"""What runs have that the traced model has not: a rewind, and repairs, which report nothing."""


def goes_back(trace: Trace) -> bool:
    """Whether drivers start again in a folder that the job has left, or restore what is in one."""
    begun = [event for _, event in trace if isinstance(event, Started)]
    runs = [folder for folder, _ in groupby(event.folder for event in begun)]
    return len(runs) > len(set(runs)) or any(
        event.restores
        and event.savepoint is None
        and not event.restored.startswith((f"{before.folder}/", f"{event.folder}/"))
        for before, event in pairwise(begun)
    )


class ToldDriver(SteppingDriver):
    """A driver over the reference sink, every step of which can be its last; what it tells
    is part of a trace.
    """

    def __init__(self, folder: Path, targets: dict[str, MemoryTarget], telling: Telling) -> None:
        super().__init__(folder, targets)
        self.process = Process("driver")
        self._tell = telling.begin(
            self.process, Started(JOB, str(folder), tuple(targets), restores=False)
        )
        self.coordinator.context.observers.add(self._tell)

    def write(self, pending: PendingCheckpoint) -> None:
        """As `twophase.spark.batch.batch` tells of it."""
        with mock.patch.object(
            pending, "acknowledge", partial(self._acknowledge, pending, pending.acknowledge)
        ):
            super().write(pending)

    def _acknowledge(
        self, pending: PendingCheckpoint, acknowledge: Any, sink: str, pieces: list[Committable]
    ) -> None:
        acknowledge(sink, pieces)
        self._tell(
            events.SinkAcknowledged(
                JOB, pending.checkpoint, pending.attempt, sink, len(pieces), 0, 0.0
            )
        )

    def run_to(self, number: int) -> None:
        """All checkpoints that are left up to this one."""
        newest = self.coordinator.newest()
        for left in range(newest.checkpoint + 1 if newest else 0, number + 1):
            self.run(left)


class Life:
    """A job whose first driver does not come to its end undisturbed.

    Args:
        folder: of the job.
    """

    def __init__(self, folder: Path) -> None:
        self.telling = Telling()
        self._folder = folder
        self._targets = {"facts": MemoryTarget(), "lake": MemoryTarget()}

    def go(self, steps: int, *, dies: bool) -> bool:
        """Returns whether the first driver had so many steps."""
        first = self._new()
        first.steps.plan(steps, partial(self._die, first) if dies else self._overtake)
        with suppress(Crash, TwoPhaseError):
            first.recover()
            first.run_to(2)
        first.process.kill()
        if disturbed := first.steps.clear():
            self._new().recover().run_to(3)
        return disturbed

    def _new(self) -> ToldDriver:
        return ToldDriver(self._folder, self._targets, self.telling)

    def _die(self, driver: ToldDriver) -> None:
        driver.process.kill()
        raise Crash

    def _overtake(self) -> None:
        self._new().recover().run_to(1)


@pytest.mark.parametrize(
    "dies", [True, pytest.param(False, marks=pytest.mark.proof)], ids=["dies", "is overtaken"]
)
def test_the_model_accepts_the_reported_events_whichever_step_a_driver(
    dies: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    for steps in count(step=1 if dies else 3):
        life = Life(tmp_path / str(steps))
        if not life.go(steps, dies=dies):
            break
        trace = life.telling.trace
        assert accept(TracedWorld.of(trace, _FOLD_AT, SUBSUME_SINKS_EVERY, 1), trace)
    assert steps > 50


# -- a product that is wrong is refused ------------------------------------------------------------


@pytest.mark.parametrize(
    "mistake",
    first_of(
        3,
        [
            "a checkpoint is called committed before it is",
            "recovery takes decided pieces for orphans",
            "a taken place in the log is taken for one's own",
            "an empty folder is taken for a fresh start",
            "a checkpoint is subsumed by itself",
            "a restore is validated against what sinks knew before",
        ],
    ),
)
def test_a_product_is_refused_in_which(mistake: str) -> None:
    for seed in range(100):
        options = replace(TracedWorld.options(seed), **MISTAKES[mistake].options)
        with broken(mistake), mock.patch.object(Oracle, "violated", return_value=None):
            outcome = run(options)
        try:
            accept(TracedWorld.of_run(options, outcome.reported), outcome.reported)
        except RejectedTraceError:
            return
    pytest.fail("100 seeds were accepted")
