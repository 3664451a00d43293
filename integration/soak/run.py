"""One soak: a job, what strikes it, a reader who looks all the time, and what the
checker says at the end.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from harness.checker import Verdict
from integration.soak.faults import Fault, Scene
from integration.soak.plan import Strike, strikes
from integration.soak.producer import SoakProducer
from integration.soak.reader import SoakReader
from integration.soak.scenario import SoakScenario
from twophase.testing.journal import Entry
from twophase.testing.services import KafkaService

_AHEAD = 4
"""Checkpoints that the producer is ahead of the job."""


@dataclass(frozen=True)
class Goal:
    """When a soak is over.

    Attributes:
        kills: after so many strikes; None: as many as there is time for.
        records: and not before so many are written.
        minutes: or no more strikes after so long; 0 for no matter how long.
    """

    kills: int | None = None
    records: int = 0
    minutes: float = 0.0


@dataclass(frozen=True)
class Struck:
    """A fault that has struck.

    Attributes:
        strike: as planned.
        at_s: when.
        mended_s: when it was mended.
    """

    strike: Strike
    at_s: float
    mended_s: float


@dataclass(frozen=True)
class Outcome:
    """What a soak has shown.

    Attributes:
        seed: of its choices.
        struck: what has struck, in order.
        entries: what the drivers have reported.
        verdicts: of the checker, by sink.
        prepared: transactions that are left prepared, on all servers.
        looks: of the reader.
        refused: drivers that could not start because a server was away, and were started again.
        took_s: from the first commit to the last.
    """

    seed: int
    struck: Sequence[Struck]
    entries: Sequence[Entry]
    verdicts: Mapping[str, Verdict]
    prepared: int
    looks: int
    refused: int
    took_s: float

    @property
    def exact(self) -> bool:
        """Whether every record is in every table once, and nothing is left over."""
        return self.prepared == 0 and all(verdict.exact for verdict in self.verdicts.values())


class Soak:
    """Runs once.

    Args:
        scenario: the job; not started.
        kafka: its broker.
        known: all faults, by name.
        deck: names of those that strike; one that is in it twice strikes twice as often.
        seed: of all choices.
        rows: that are committed between two strikes, on average.
        eager: share of the strikes that wait for no recovery from the one before.
        tell: hears of each strike as it is mended.
    """

    def __init__(
        self,
        scenario: SoakScenario,
        kafka: KafkaService,
        known: Mapping[str, Fault],
        deck: Sequence[str],
        seed: int,
        *,
        rows: int = 1,
        eager: float = 0.3,
        tell: Callable[[Struck], None] = lambda _: None,
    ) -> None:
        self._scenario = scenario
        self._known = known
        self._seed = seed
        self._plan = strikes(seed, deck, rows, eager)
        self._tell = tell
        self._struck: list[Struck] = []
        self._scene = Scene(scenario, random.Random(seed), self._check)
        self._producer = SoakProducer(
            kafka.bootstrap_servers,
            scenario.topic,
            lambda: scenario.journals.rows,
            _AHEAD * scenario.batch,
        )
        self._reader = SoakReader(scenario)

    def run(self, goal: Goal) -> Outcome:
        """Until the goal is reached.

        Raises:
            AssertionError: the job ended or stood still, or the reader saw what it must not see.
        """
        try:
            with self._producer:
                self._scene.start_driver()
                self._await_rows(1)
                began_s = time.monotonic()
                with self._reader:
                    self._strike(goal)
                    self._finish(goal)
                    took_s = time.monotonic() - began_s
                self._check()
        finally:
            self._scene.stop()
        return self._judge(took_s)

    def _strike(self, goal: Goal) -> None:
        until_s = time.monotonic() + goal.minutes * 60 if goal.minutes else float("inf")
        for strike in islice(self._plan, goal.kills):
            self._await_rows(strike.rows)
            if strike.aimed:
                self._await_acknowledgement()
            time.sleep(strike.delay_s)  # the moment is to be a random one
            if time.monotonic() > until_s:
                return
            at_s = time.monotonic()
            self._known[strike.fault](self._scene)
            self._struck.append(Struck(strike, at_s, time.monotonic()))
            self._tell(self._struck[-1])

    def _finish(self, goal: Goal) -> None:
        """The job has to recover from the last strike, and to write all that there is."""
        journals = self._scenario.journals
        self._await_rows(max(1, goal.records - journals.rows))
        self._scenario.produced = self._producer.stop()
        self._await_rows(self._scenario.produced - journals.rows)
        for sink in self._scenario.servers:
            self._await_nothing_prepared(sink)

    def _await_rows(self, rows: int) -> None:
        """Wait until so many more rows are committed; each checkpoint has a deadline of its own."""
        wanted = self._scenario.journals.rows + rows
        while (now := self._scenario.journals.rows) < wanted:
            self._await_more_than(now)

    def _await_more_than(self, rows: int) -> None:
        self._scene.wait_for(
            lambda: self._scenario.journals.rows > rows, f"a checkpoint after {rows} committed rows"
        )

    def _await_acknowledgement(self) -> None:
        journals, now = self._scenario.journals, time.monotonic()
        self._scene.wait_for(
            lambda: bool(journals.since(now, ["SinkAcknowledged"])), "a sink to acknowledge"
        )

    def _await_nothing_prepared(self, sink: str) -> None:
        self._scene.wait_for(
            lambda: not self._scenario.prepared(sink), f"nothing to be prepared in {sink}"
        )

    def _check(self) -> None:
        self._producer.check()
        self._reader.check()

    def _judge(self, took_s: float) -> Outcome:
        """What is there after one more death of each server: what is committed is durable,
        nothing comes back.
        """
        for server in self._scenario.servers.values():
            server.kill()
            server.restart()
        prepared = sum(len(self._scenario.prepared(sink)) for sink in self._scenario.servers)
        verdicts = {sink: self._scenario.verdict(sink) for sink in self._scenario.servers}
        return Outcome(
            seed=self._seed,
            struck=self._struck,
            entries=self._scenario.journals.entries(),
            verdicts=verdicts,
            prepared=prepared,
            looks=self._reader.looks,
            refused=self._scene.refused,
            took_s=took_s,
        )
