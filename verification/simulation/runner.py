"""Many seeds, in one or more processes. What a seed does depends on nothing but the seed."""

from __future__ import annotations

import hashlib
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from verification.simulation.options import Options
from verification.simulation.supervisor import Outcome, run
from verification.simulation.worlds import in_world

_AT_A_TIME = 50


@dataclass
class Summary:
    """What became of many seeds.

    Attributes:
        seeds: how many there were.
        steps: inputs and outputs, over all of them.
        cpu_s: processor time.
        points: how often each crash point was reached, and each event of the `worlds`.
        limits: how many seeds have met a known limit of the protocol.
        failures: each seed that failed, with its options and how to replay it.
        digest: stands for everything that happened.
    """

    seeds: int = 0
    steps: int = 0
    cpu_s: float = 0.0
    points: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    digest: str = ""
    limits: int = 0

    def add(self, other: Summary) -> None:
        """Add what became of the seeds after these."""
        self.seeds += other.seeds
        self.steps += other.steps
        self.cpu_s += other.cpu_s
        self.points.update(other.points)
        self.failures += other.failures
        self.limits += other.limits
        self.digest = hashlib.sha256(f"{self.digest}{other.digest}".encode()).hexdigest()

    def note(self, outcome: Outcome) -> None:
        """Add one seed."""
        failures = [str(outcome)] if outcome.violation else []
        self.add(
            Summary(
                1,
                outcome.steps,
                0.0,
                outcome.points,
                failures,
                outcome.digest,
                int(bool(outcome.limit)),
            )
        )


def run_all(seeds: range, processes: int = 1, world: str = "") -> Summary:
    """Run seeds, in their order or side by side; the summary is the same but for `cpu_s`.

    Args:
        seeds: which ones.
        processes: how many at once.
        world: in which of the `worlds`; none if empty.
    """
    summary = Summary()
    blocks = list(_blocks(seeds))
    if processes == 1:
        for block in blocks:
            summary.add(run_block(block, world))
        return summary
    # Not forked: who calls this may have threads, which would be missing in the child.
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        for result in pool.map(partial(run_block, world=world), blocks):
            summary.add(result)
    return summary


def run_block(seeds: list[int], world: str = "") -> Summary:
    """Run seeds one after the other."""
    summary = Summary()
    began_s = time.process_time()
    for seed in seeds:
        summary.note(run(in_world(seed, world) if world else Options.of(seed)))
    summary.cpu_s = time.process_time() - began_s
    return summary


def _blocks(seeds: range) -> Iterator[list[int]]:
    numbers = iter(seeds)
    while block := list(islice(numbers, _AT_A_TIME)):
        yield block
