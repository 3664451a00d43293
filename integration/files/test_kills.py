"""SIGKILL at every crash point of the sinks that write files, with real Spark: nothing lost,
nothing duplicated.

Each round starts one driver with several jobs, holds each job at another crash point, and kills
them all at once; the next driver recovers what that left and goes on. After a kill no row may be
duplicated; at the end every record must be in every table once, and nothing is staged any more.
The metastore of the Hive jobs is the embedded one, killed with the driver.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from harness.hive_settings import hive_settings
from integration.files.scenario import FilesScenario

pytestmark = [pytest.mark.part("files"), pytest.mark.proof, pytest.mark.relay("kind")]

CONTROLS = ("duplicates", "losses")
# Pieces without a decision, decided ones, and half committed ones. C03 to C05, E01, E02, F01, F02
# are points in workers.
NORMAL_WORK = (
    ("C06", "C07", "C11", "F03", "C14", "C03", "C05", "E02"),
    ("C08", "C12", "F04", "C13", "C15", "C04", "E01", "F01", "F02"),
)
OF_HIVE = ("F05",)
# The first four are points of the recovery of what the rounds before have left.
RECOVERY_AND_AFTER = ("C18", "C19", "C20", "C22", "C01", "C02", "C09", "C10", "C16", "C17")
# The worker itself dies, and Spark runs its task again; after E02 the first attempt has left a
# piece behind (E03).
OF_WORKER = ("E01", "E02")
JOBS = tuple(f"orders-{number:02d}" for number in range(len(RECOVERY_AND_AFTER)))
# Every other job commits behind the next micro-batch, so a kill may find several
# checkpoints of it decided.
BEHIND = [{"max_concurrent": 1 + number % 2} for number in range(len(JOBS))]
# A worker that is held keeps a slot of Spark's.
HELD_AND_FREE_SLOTS = "local[8]"


@pytest.fixture(scope="module", params=["file", "hive"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def scenario(kind: str, tmp_path_factory: pytest.TempPathFactory) -> FilesScenario:
    scratch = tmp_path_factory.mktemp(kind)
    return _files(scratch) if kind == "file" else _hive(scratch)


def _files(scratch: Path) -> FilesScenario:
    tables = {job: scratch / "lake" / job for job in JOBS}
    (scratch / "lake").mkdir()
    jobs = {
        job: {
            "type": "file",
            "path": str(tables[job]),
            "format": form,
            "partition_by": ["kafka_partition"],
            **behind,
        }
        for job, form, behind in zip(
            JOBS, itertools.cycle(["parquet", "orc", "json", "csv"]), BEHIND, strict=False
        )
    }
    return FilesScenario(scratch, jobs, tables, CONTROLS)


def _hive(scratch: Path) -> FilesScenario:
    names = {job: job.replace("-", "_") for job in JOBS}
    table = {"type": "hive", "create": True, "partition_by": ["kafka_partition"]}
    jobs = {
        job: {**table, "table": names[job], "format": form, **behind}
        for job, form, behind in zip(
            JOBS, itertools.cycle(["parquet", "orc"]), BEHIND, strict=False
        )
    }
    tables = {job: scratch / "warehouse" / name for job, name in names.items()}
    return FilesScenario(
        scratch, jobs, tables, CONTROLS, conf=hive_settings(scratch, str(scratch / "metastore"))
    )


@pytest.mark.parametrize("half", [0, 1])
def test_every_job_is_killed_at_another_point_in_normal_work(
    scenario: FilesScenario, kind: str, half: int
) -> None:
    scenario.produce(3)
    more = OF_HIVE if (kind, half) == ("hive", 0) else ()
    scenario.kill_at((*NORMAL_WORK[half], *more), controls=half == 0, master=HELD_AND_FREE_SLOTS)
    _no_row_is_duplicated(scenario)


def test_every_job_is_killed_at_another_point_in_recovery_and_after_it(
    scenario: FilesScenario,
) -> None:
    scenario.produce(3)
    scenario.kill_at(RECOVERY_AND_AFTER)
    _no_row_is_duplicated(scenario)


def test_workers_die_too_and_in_the_end_every_record_arrives_once_and_nothing_is_left(
    scenario: FilesScenario, kind: str
) -> None:
    scenario.produce(2)
    ended = scenario.finish(",".join(f"{point}=kill@1" for point in OF_WORKER), master="local[4,4]")
    assert {*ended.points} == {*OF_WORKER}
    assert len(scenario.hit) == {"file": 27, "hive": 28}[kind]
    for job in scenario.jobs:
        verdict = scenario.verdict(job)
        assert verdict.exact, f"{job}: {verdict}"
        assert verdict.produced == scenario.produced
        assert scenario.staged(job) == []
    assert scenario.counts() == (
        dict.fromkeys(scenario.jobs, scenario.produced) if kind == "hive" else {}
    )


@pytest.mark.parametrize(("control", "seen"), [("duplicates", "duplicated"), ("losses", "lost")])
def test_without_the_protocol_the_checker_sees(
    scenario: FilesScenario, control: str, seen: str
) -> None:
    """The negative controls: the same kill, the same checker, the protocol switched
    off in the harness.
    """
    verdict = scenario.verdict(control)
    assert getattr(verdict, seen) > 0, verdict
    assert not verdict.exact


def _no_row_is_duplicated(scenario: FilesScenario) -> None:
    for job in scenario.jobs:
        verdict = scenario.verdict(job)
        assert (verdict.duplicated, verdict.foreign) == (0, 0), f"{job}: {verdict}"
