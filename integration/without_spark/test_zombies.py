"""Zombies, without Spark: a driver is stopped at a crash point, others go two checkpoints on,
then it is let go.

It has to find out that it is fenced, and may leave no trace: neither in the job's log nor in a
target. Each case is a job of its own.
"""

from __future__ import annotations

import pytest

from harness.selection import representatives
from integration.without_spark import steps
from integration.without_spark.conftest import MakeScenario
from integration.without_spark.points import in_checkpoint, in_recovery, in_workers
from integration.without_spark.scenario import TARGETS

pytestmark = [pytest.mark.part("without_spark"), pytest.mark.thin(2)]

# On two servers that differ in what a prepared branch still locks, on a topic, and on files and a
# table in a catalog, which have no server at all.
CASES = [
    (target, point)
    for target in ("two_servers", "files", "iceberg", "kafka", "staged_kafka")
    for point in dict.fromkeys(
        [
            *in_workers(TARGETS[target]),
            *in_checkpoint(TARGETS[target]),
            *in_recovery(TARGETS[target]),
        ]
    )
]


@pytest.mark.parametrize(
    ("target", "point"),
    [
        pytest.param(*case, marks=[] if number % 9 == 0 else pytest.mark.proof)
        for number, case in enumerate(CASES)
    ],
)
def test_a_driver_that_was_stopped_is_fenced_out_at(
    make_scenario: MakeScenario, target: str, point: str
) -> None:
    scenario = make_scenario(TARGETS[target])
    steps.be_fenced_out(scenario, point)
    scenario.goes_on()


@pytest.mark.parametrize("point", representatives(["C06", "C07", "C08", "C09"], {"C06", "C09"}))
@pytest.mark.parametrize(
    "target",
    representatives(["two_servers", "files", "iceberg", "kafka", "staged_kafka"], {"two_servers"}),
)
def test_a_driver_that_was_stopped_is_fenced_out_by_the_fence_alone_at(
    make_scenario: MakeScenario, target: str, point: str
) -> None:
    """Its place in the log is taken by one record, behind which nothing more is found.

    It has pre-committed all: until the sinks are fenced too, an older driver may still leave pieces
    for recovery to abort.
    """
    scenario = make_scenario(TARGETS[target])
    steps.be_fenced_out_at_once(scenario, point)
    scenario.goes_on()
