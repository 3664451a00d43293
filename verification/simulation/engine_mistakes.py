"""Mistakes in the engine (`twophase/engine`), as `mutations` lists those of the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twophase.engine import engine
from twophase.engine.batch_gate import BatchGate
from twophase.engine.driver import Driver
from twophase.engine.run import Run
from twophase.errors import FencedError
from twophase.state.journal.log import JobLog
from verification.simulation.worlds import OPERATED

Patches = Sequence[tuple[object, str, Any]]


def _recover_and_learn_nothing_of_a_failure(self: Driver, restore: Any) -> None:
    self.coordinator.recover(self.generation, restore)
    self.generation = self.coordinator.generation


def _recover_and_take_doubt_for_failure(self: Driver, restore: Any) -> None:
    try:
        self.coordinator.recover(self.generation, restore)
    except Exception:
        self.generation = self.coordinator.generation or self.generation
        raise
    self.generation = self.coordinator.generation


def _take_doubt_for_a_rival(self: JobLog) -> None:
    with self.lock:
        newest = max(self._sequences(), default=0)
        if isinstance(self._over, FencedError) or newest > self._last:
            raise self._fenced(f"record {newest} of its log was written by another driver")


def _begin_before_recovery(self: Driver) -> bool:
    self.plan = self._host.plan()
    beginning = self._host.beginning(self.context, self.plan)
    self._begin(beginning)
    self._recover(beginning.restore)
    beginning.close()
    return not self.context.stopping.is_set()


def _take_over_although_it_stops(self: Driver) -> bool:
    self.plan = self._host.plan()
    beginning = self._host.beginning(self.context, self.plan)
    self._recover(beginning.restore)
    beginning.close()
    self._begin(beginning)
    return True


def _handle_as_if_undecided(self: Driver, number: int, batch: Any) -> None:
    with self.gate.batch(number):
        batch.begin(None)
        self.coordinator.checkpoint(number, self.folder.offsets(number), batch.pre_commit)


def _run_without_memory(
    self: Run, host: Any, context: Any, stopping: Any, previous: Run | None = None
) -> None:
    _real_run(self, host, context, stopping, None)


def _start_whatever_was_asked(self: Run) -> None:
    if self.take_over():
        self._query = self._query_host.start(self.coordinator, self.folder, self.plan, self.handle)


def _wait_for_the_query_alone(self: Run) -> None:
    if self._query is not None:
        self._query.wait()


def _close_sinks_before_the_queue(self: Run) -> None:
    if self._query is not None:
        self._query.wait()
        for sink in self.context.sinks.values():
            sink.close()
    _real_wait(self)


def _stop_in_the_batch(self: Run) -> None:
    self.gate.close()
    self.stop()


_real_run = Run.__init__
_real_wait = Run.wait

RULED_OUT: dict[str, Patches] = {
    "a restart takes the fence of its own failed recovery for a rival's": [
        (Driver, "_recover", _recover_and_learn_nothing_of_a_failure)
    ],
    "a restart takes its own unclear fence for a rival's": [
        (Driver, "_recover", _recover_and_take_doubt_for_failure)
    ],
    "a restart forgets its generation": [(Run, "__init__", _run_without_memory)],
    "a fenced driver is restarted": [(engine, "_is_restartable", lambda _: True)],
    "a lineage begins before the job is recovered": [(Driver, "take_over", _begin_before_recovery)],
    "a lineage begins although a stop has cut its recovery short": [
        (Driver, "take_over", _take_over_although_it_stops)
    ],
    "a decided micro-batch is written again": [(Driver, "handle", _handle_as_if_undecided)],
    "a stop is lost between two runs": [(Run, "start", _start_whatever_was_asked)],
    "a stop does not wait for the commit queue": [(Run, "wait", _wait_for_the_query_alone)],
    "sinks are closed before the commit queue has ended": [
        (Run, "wait", _close_sinks_before_the_queue)
    ],
}

FOUND: dict[str, Patches] = {
    "a record in doubt is taken for a rival's": [(JobLog, "check_fence", _take_doubt_for_a_rival)],
}

IN_WORLDS: dict[str, tuple[str, Patches]] = {
    "a stop with a savepoint cancels the micro-batch under way": (
        OPERATED,
        [(Run, "stop_after_batch", _stop_in_the_batch)],
    ),
    "the gate of a stop with a savepoint does not hold": (
        OPERATED,
        [(BatchGate, "close", lambda _: None)],
    ),
}

_BEHIND = {"max_concurrent": 3, "keyed": False, "checkpoints": 5}
_UNCLEAR = {"disk_rate": 0.02, "disk_budget": 4, "network_rate": 0.01, "network_budget": 3}
_STOPPED = {"stops": 6}
SOONER: dict[str, Mapping[str, Any]] = {
    "a restart takes its own unclear fence for a rival's": _UNCLEAR,
    "a record in doubt is taken for a rival's": _UNCLEAR,
    "a lineage begins although a stop has cut its recovery short": _STOPPED,
    "a stop is lost between two runs": _STOPPED,
    "a stop does not wait for the commit queue": _BEHIND,
    "sinks are closed before the commit queue has ended": _BEHIND,
}
