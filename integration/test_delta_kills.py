"""SIGKILL at every crash point of the Delta sink, with real Spark, Kafka and Delta: nothing lost, nothing duplicated.

Each round starts one driver with several jobs, holds each job at another crash point, and kills them all at once; the next
driver recovers what that left and goes on. After a kill no row may be there twice; at the end every record must be in every
table once, and no piece is left beside it.
"""

from __future__ import annotations

import pytest

from integration.delta_arena import BATCH, DeltaArena
from integration.delta_driver import CONTROL
from twophase.testing.services import KafkaService

CONTROLS = ("duplicates", "losses")
# Pieces without a decision, decided ones, and commits that have landed: what the second round has to recover.
FIRST = ("C04", "C05", "C06", "C07", "C08", "C11", "C12", "D01", "D02", "C14", "C15")
# The first four are points of that recovery.
SECOND = ("C18", "C19", "C20", "C22", "C01", "C02", "C09", "C10", "C16", "C17")
JOBS = tuple(f"orders-{number:02d}" for number in range(max(len(FIRST), len(SECOND))))

_hit: set[str] = set()


@pytest.fixture(scope="module")
def arena(kafka: KafkaService, tmp_path_factory: pytest.TempPathFactory) -> DeltaArena:
    arena = DeltaArena(kafka, tmp_path_factory.mktemp("delta"), JOBS, CONTROLS)
    arena.produce(BATCH)
    arena.finish()
    return arena


@pytest.mark.parametrize(
    "points", [(*FIRST, *map(CONTROL.format, CONTROLS)), SECOND], ids=["in normal work", "in recovery and after it"]
)
def test_every_job_is_killed_at_another_point(arena: DeltaArena, points: tuple[str, ...]) -> None:
    arena.produce(3 * BATCH)
    ended = arena.kill_at(points)
    assert ended.killed
    assert {*ended.points} == {*points}
    _hit.update(points)
    for job in JOBS:
        verdict = arena.verdict(job)
        assert (verdict.duplicated, verdict.foreign) == (0, 0), f"{job}: {verdict}"


def test_every_record_is_there_once_and_nothing_is_left(arena: DeltaArena) -> None:
    arena.produce(BATCH)
    arena.finish()
    assert _hit >= {*FIRST, *SECOND}
    for job in JOBS:
        verdict = arena.verdict(job)
        assert verdict.exact, f"{job}: {verdict}"
        assert verdict.produced == arena.produced
        assert arena.records(job) == []
        assert arena.unnamed_files(job) == set()


@pytest.mark.parametrize(("control", "seen"), [("duplicates", "duplicated"), ("losses", "lost")])
def test_without_the_protocol_the_checker_sees(arena: DeltaArena, control: str, seen: str) -> None:
    """The negative controls: the same kill, the same checker, the protocol switched off in the harness."""
    verdict = arena.verdict(control)
    assert getattr(verdict, seen) > 0, verdict
    assert not verdict.exact
