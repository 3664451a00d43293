"""One checkpoint over MySQL, Delta and Hive from one input, with a SIGKILL at every crash point:
all have it, or none.

Each round starts one driver with several jobs, holds each job at another crash point, and kills
them all at once; the next driver recovers what that left and goes on. When a job has recovered, its
three tables have the same rows; at the end every record is in each of them once, and nothing is
left prepared or staged. As long as a driver runs, a reader looks at all tables, also once while all
jobs are held and once when they were killed. With `-s` the last test of the reader
prints what it saw.
"""

from __future__ import annotations

import pytest
from rich.console import Console

from harness import delta_lake
from harness.order_files import BATCH
from harness.three_targets import DELTA, HIVE, MYSQL, SINKS
from integration.delta.driver import BEFORE_CHECKPOINT
from integration.three_sinks.driver import CONTROL
from integration.three_sinks.reader import ThreeReader
from integration.three_sinks.scenario import ThreeSinksScenario
from twophase.testing.services import MySqlService

# A minute on a quiet machine; on a busy one sixteen jobs with three sinks each take their time.
pytestmark = [
    pytest.mark.part("several_sinks"),
    pytest.mark.proof,
    pytest.mark.timeout(1800),
    pytest.mark.relay,
]

CONTROLS = ("duplicates", "losses")
KILLS = 2
# Only a checkpoint with rows gets there. Of the driver: decided, and some sinks have more
# of it than others.
IN_COMMIT = ("C12", "C13", "C14", "C15", "D01", "D02", "F03", "F04", "F05")
# Undecided, in the writers of any of the sinks; each holds a slot of Spark's.
IN_WRITERS = ("C03", "C04", "C05", "E01", "E02", "F01", "F02")
# The recovery of what the first round has left, and then the rest of the driver's points.
IN_RECOVERY = ("C18", "C19", "C20", "C22")
IN_DRIVER = (
    "C01",
    "C02",
    "C06",
    "C07",
    "C08",
    "C09",
    "C10",
    "C11",
    "C16",
    "C17",
    BEFORE_CHECKPOINT,
)
# The worker itself dies, and Spark runs its task again: a second attempt (E03).
OF_WORKER = ("E01", "E02")
PLANNED = {
    *(f"C{number:02d}" for number in (*range(1, 21), 22)),
    *("D01", "D02", "D03", "E01", "E02", "F01", "F02", "F03", "F04", "F05"),
}
JOBS = tuple(
    f"orders_{number:02d}"
    for number in range(max(len(IN_COMMIT + IN_WRITERS), len(IN_RECOVERY + IN_DRIVER)))
)


@pytest.fixture(scope="module")
def scenario(mysql: MySqlService, tmp_path_factory: pytest.TempPathFactory) -> ThreeSinksScenario:
    return ThreeSinksScenario(mysql, tmp_path_factory.mktemp("three"), JOBS, CONTROLS)


@pytest.fixture(scope="module")
def reader(scenario: ThreeSinksScenario) -> ThreeReader:
    return ThreeReader(scenario, JOBS)


def test_every_job_is_killed_in_a_writer_or_in_a_commit(
    scenario: ThreeSinksScenario, reader: ThreeReader
) -> None:
    scenario.produce(1)
    points = (*IN_COMMIT, *IN_WRITERS, *map(CONTROL.format, CONTROLS))
    with reader:
        scenario.kill_at(points, reader.look_again, master=f"local[{4 + len(IN_WRITERS)}]")
    _no_row_is_duplicated(scenario)
    seen = [scenario.targets(job).rows() for job in JOBS]
    assert {MYSQL: BATCH, DELTA: 0, HIVE: 0} in seen  # D01
    assert {MYSQL: BATCH, DELTA: BATCH, HIVE: 0} in seen  # D02


def test_every_job_is_killed_in_recovery_or_around_a_decision(
    scenario: ThreeSinksScenario, reader: ThreeReader
) -> None:
    scenario.produce(2)
    # D03 needs a table: one job may have been held at two points of the first round, and the last
    # one then never began.
    *rest, last = sorted(
        JOBS, key=lambda job: bool(delta_lake.commits(scenario.targets(job).delta))
    )
    # The jobs that were caught first have orphans. Others take the points before C20.
    with reader:
        scenario.kill_at(
            (*IN_RECOVERY, *IN_DRIVER),
            reader.look_again,
            controls=[],
            jobs=[*rest[-2:], *rest[:-2], last],
        )
    _no_row_is_duplicated(scenario)
    _all_recovered_to_the_same_checkpoint(scenario)


def test_workers_are_killed_and_their_tasks_run_again(
    scenario: ThreeSinksScenario, reader: ThreeReader
) -> None:
    scenario.produce(1)
    with reader:
        ended = scenario.finish(
            ",".join(f"{point}=kill@1" for point in OF_WORKER), master="local[2,4]"
        )
    assert {*ended.points} == {*OF_WORKER}
    assert any(scenario.entries(job, "OrphansAborted") for job in JOBS), (
        "no attempt has lost to another one"
    )
    _all_recovered_to_the_same_checkpoint(scenario, JOBS)


def test_every_record_is_in_every_table_once_and_nothing_is_left(
    scenario: ThreeSinksScenario,
) -> None:
    assert scenario.hit >= PLANNED
    scenario.verify()


def test_a_reader_saw_decided_rows_once_and_of_delta_whole_checkpoints_only(
    reader: ThreeReader,
) -> None:
    """MySQL and Hive may show a part: a driver that died in mid-commit leaves one, and the next
    start commits the rest.
    """
    Console().print(reader.figures())
    assert reader.wrong == {job: [] for job in JOBS}
    assert reader.looks_at_rest == KILLS
    assert all(reader.looks[sink] for sink in SINKS), reader.looks
    assert reader.looks_at_parts[DELTA] == 0
    assert reader.left(MYSQL), "no kill at C13 was seen"
    assert reader.left(HIVE), "no kill at F03 was seen"
    assert reader.open == {}


def test_without_the_protocol_the_reader_sees_rows_twice_and_without_a_decision(
    scenario: ThreeSinksScenario,
) -> None:
    reader = ThreeReader(scenario, ["duplicates"])
    reader.look()
    twice, *undecided = reader.wrong["duplicates"]
    assert twice.startswith(f"{MYSQL}: visible twice: {BATCH}")
    assert all("visible and not decided" in found for found in undecided)
    assert len(undecided) == len(SINKS)


def test_without_the_protocol_the_checker_sees_what_the_same_kill_does(
    scenario: ThreeSinksScenario,
) -> None:
    """The negative controls: the same input, the same kill, the same checker, the protocol switched
    off in the harness.
    """
    twice, less = scenario.verdicts("duplicates"), scenario.verdicts("losses")
    assert (twice[MYSQL].duplicated, twice[MYSQL].lost) == (BATCH, 0), twice
    assert twice[DELTA].exact
    assert twice[HIVE].exact
    assert [less[sink].lost for sink in (MYSQL, DELTA, HIVE)] == [0, BATCH, BATCH], less


def _no_row_is_duplicated(scenario: ThreeSinksScenario) -> None:
    for job in JOBS:
        for sink, verdict in scenario.verdicts(job).items():
            assert (verdict.duplicated, verdict.foreign) == (0, 0), f"{job}, {sink}: {verdict}"


def _all_recovered_to_the_same_checkpoint(
    scenario: ThreeSinksScenario, jobs: tuple[str, ...] = ()
) -> None:
    recovered = {job: found for job in JOBS if (found := scenario.recovered(job))}
    assert recovered.keys() >= {*jobs}
    assert recovered
    for job, found in recovered.items():
        for rows in found:
            assert rows[MYSQL] == rows[DELTA] == rows[HIVE], f"{job} recovered to {rows}"
            assert rows[MYSQL] % BATCH == 0
