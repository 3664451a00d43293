"""A whole job with one sink, on the engine without Spark, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from twophase.coordinator.commit.failure_manager import SAME_FAILURES
from twophase.errors import RepeatedFailureError, TwoPhaseError
from twophase.events import Event, JobRestarting
from twophase.testing.harness import Row, SinkHarness
from twophase.testing.plain_host import ListedRows, plain_engine

NAME = "orders"
WAIT_S = 120


class OneSinkJob:
    """One run of a job.

    Args:
        harness: the target.
        folder: the job's.
        batches: of each micro-batch, the rows of each of its tasks.
        restarts: how often the strategy would restart it.
        sink_options: of the sink.

    Attributes:
        events: of the engine.
    """

    def __init__(
        self,
        harness: SinkHarness,
        folder: Path,
        batches: Sequence[Sequence[Sequence[Row]]],
        restarts: int = 15,
        **sink_options: Any,
    ) -> None:
        self.harness = harness
        self.events: list[Event] = []
        options = {
            "checkpointLocation": str(folder),
            "restart.strategy": "fixed",
            "restart.attempts": restarts,
            "restart.delay": "1 ms",
            "commit.backoff": "1 ms",
            "commit.backoff_max": "20 ms",
        }
        fields = getattr(harness, "fields", harness.schema)
        listed = ListedRows(
            [[pa.RecordBatch.from_pylist([*task], fields) for task in tasks] for tasks in batches]
        )
        sinks = {"facts": harness.new_sink(**sink_options)}
        self._engine = plain_engine(NAME, sinks, listed, options, self.events.append)

    def on(self, kind: type[Event], then: Callable[[], object], at: int = 1) -> None:
        """Call a function at the n-th event of a kind, on the engine's thread."""
        left = [at]

        def observe(event: Event) -> None:
            if isinstance(event, kind):
                left[0] -= 1
                if left[0] == 0:
                    then()

        self._engine.observers.add(observe)

    def run(self) -> TwoPhaseError | None:
        """Run it to its end; return what ended it, which is always one of our errors."""
        try:
            self._engine.start()
            assert self._engine.await_termination(WAIT_S)
        except TwoPhaseError as error:
            return error
        return None

    def run_until_repeated(self) -> RepeatedFailureError:
        """Run it until the same failure has repeated as often as is tried; return what says so."""
        error = self.run()
        assert isinstance(error, RepeatedFailureError), error
        assert self.restarts == SAME_FAILURES - 1
        return error

    def stop(self) -> None:
        """Have it stop, from a thread of its own."""
        self._engine.stop(timeout_s=0)

    @property
    def restarts(self) -> int:
        """How often it has restarted."""
        return sum(isinstance(event, JobRestarting) for event in self.events)
