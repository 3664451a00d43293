"""SIGKILL at every crash point of the Delta sink, with real Spark, Kafka and Delta: nothing lost,
nothing duplicated.

Each round starts one driver with several jobs, holds each job at another crash point, and kills
them all at once; the next driver recovers what that left and goes on. After a kill no row may be
duplicated; at the end every record must be in every table once, and no piece is left beside it. As
long as a driver runs, a reader looks at all tables, also once while all jobs are held and once when
they were killed: it sees whole checkpoints only.
"""

from __future__ import annotations

import pytest
from rich.console import Console

from harness import delta_lake
from integration.delta.driver import BEFORE_CHECKPOINT, CONTROL
from integration.delta.scenario import BATCH, DeltaScenario
from twophase.testing.services import KafkaService

# A deadline, not a measure: on a machine that others keep busy a driver takes many times as long.
pytestmark = [
    pytest.mark.part("delta"),
    pytest.mark.proof,
    pytest.mark.timeout(1800),
    pytest.mark.relay,
]

CONTROLS = ("duplicates", "losses")
# Pieces without a decision, decided ones, and commits that have landed: what the second
# round has to recover.
FIRST = (
    "C03",
    "C04",
    "C05",
    "F01",
    "F02",
    "C06",
    "C07",
    "C11",
    "C12",
    "D01",
    "D02",
    "F04",
    "C14",
    "C15",
)
# The first four are points of that recovery.
SECOND = (
    "C18",
    "C19",
    "C20",
    "C22",
    "C01",
    "C02",
    "C08",
    "C09",
    "C10",
    "C16",
    "C17",
    BEFORE_CHECKPOINT,
)
# Of a Python worker; the driver lives.
OF_WORKERS = ("E01", "E02", "E03")
JOBS = tuple(f"orders-{number:02d}" for number in range(max(len(FIRST), len(SECOND))))

KILLS = 2

_hit: set[str] = set()


@pytest.fixture(scope="module")
def scenario(kafka: KafkaService, tmp_path_factory: pytest.TempPathFactory) -> DeltaScenario:
    scenario = DeltaScenario(kafka, tmp_path_factory.mktemp("delta"), JOBS, CONTROLS)
    scenario.finish()  # the first micro-batch of a job is empty: a kill in it would show little
    return scenario


@pytest.fixture(scope="module")
def reader(scenario: DeltaScenario) -> delta_lake.PollingReader:
    return delta_lake.PollingReader(scenario.tables)


@pytest.mark.parametrize(
    ("points", "batches"),
    [((*FIRST, *map(CONTROL.format, CONTROLS)), 1), (SECOND, 2)],
    ids=["in normal work", "in recovery and after it"],
)
def test_every_job_is_killed_at_another_point(
    scenario: DeltaScenario, reader: delta_lake.PollingReader, points: tuple[str, ...], batches: int
) -> None:
    scenario.produce(batches * BATCH)
    with reader:
        ended = scenario.kill_at(points, reader.look_again)
    assert ended.killed
    assert {*ended.points} == {*points}
    _hit.update(points)
    for job in JOBS:
        verdict = scenario.verdict(job)
        assert (verdict.duplicated, verdict.foreign) == (0, 0), f"{job}: {verdict}"


def test_the_last_kill_was_between_a_commit_and_the_checkpoint_of_the_table(
    scenario: DeltaScenario,
) -> None:
    newest = delta_lake.commits(scenario.tables[JOBS[-1]])[-1]
    assert list(newest.parent.glob(f"{newest.stem}.checkpoint*")) == []


def test_workers_die_and_the_driver_goes_on(
    scenario: DeltaScenario, reader: delta_lake.PollingReader
) -> None:
    scenario.produce(BATCH)
    with reader:
        ended = scenario.finish(",".join(f"{point}=kill@1" for point in OF_WORKERS))
    assert {*ended.points} == {*OF_WORKERS}
    _hit.update(ended.points)


def test_every_record_arrives_once_and_nothing_is_left(scenario: DeltaScenario) -> None:
    assert _hit >= {*FIRST, *SECOND, *OF_WORKERS}
    for job in JOBS:
        verdict = scenario.verdict(job)
        assert verdict.exact, f"{job}: {verdict}"
        assert verdict.produced == scenario.produced
        assert scenario.records(job) == []
        assert delta_lake.unnamed_files(scenario.tables[job]) == set()


def test_a_reader_never_saw_a_part_of_a_checkpoint(
    scenario: DeltaScenario, reader: delta_lake.PollingReader
) -> None:
    """Every checkpoint has as many rows, which the control without the
    protocol does not keep to.
    """
    Console().print(f"{reader.reads:,} reads of tables with rows while drivers ran")
    assert reader.looks_at_rest == KILLS
    for job in JOBS:
        assert {count % BATCH for count in reader.counts[job]} == {0}
        assert max(reader.counts[job]) == scenario.produced
    assert any(count % BATCH for count in reader.counts["duplicates"])


@pytest.mark.parametrize(("control", "seen"), [("duplicates", "duplicated"), ("losses", "lost")])
def test_without_the_protocol_the_checker_sees(
    scenario: DeltaScenario, control: str, seen: str
) -> None:
    """The negative controls: the same kill, the same checker, the protocol switched
    off in the harness.
    """
    verdict = scenario.verdict(control)
    assert getattr(verdict, seen) > 0, verdict
    assert not verdict.exact
