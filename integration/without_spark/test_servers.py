"""A server is killed or stopped while the driver is held at a crash point, without
Spark and without luck.

Before the decision the attempt is aborted everywhere; after it the commit is held until
the server is back.
"""

from __future__ import annotations

import pytest

from harness.selection import representatives
from integration.without_spark import steps
from integration.without_spark.conftest import MakeScenario
from integration.without_spark.scenario import TARGETS
from twophase.testing.services import SqlService

pytestmark = [pytest.mark.part("without_spark"), pytest.mark.thin(2)]

IN_PRE_COMMIT = ("C02", "E01", "C04", "C05", "C06")
IN_COMMIT = ("C11", "C12", "C13", "C14", "C15")
IN_RECOVERY = ("C18", "C19", "C20", "C22")
ALONE = [pytest.param(target, marks=pytest.mark.proof) for target in ("mysql", "mariadb")]
FROZEN = representatives(["C04", "C11", "C13", "C18", "C20"], {"C04", "C13"})
POINTS = representatives(
    [*IN_PRE_COMMIT, *IN_COMMIT, *IN_RECOVERY], {"C04", "C06", "C11", "C13", "C20"}
)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("target", [*ALONE, "two_servers"])
def test_a_server_is_killed_with_the_driver_at(
    make_scenario: MakeScenario, servers: dict[str, SqlService], target: str, point: str
) -> None:
    scenario = make_scenario(TARGETS[target])
    steps.lose_a_server(scenario, servers[TARGETS[target][-1]], point)
    scenario.goes_on()


@pytest.mark.parametrize("point", FROZEN)
def test_a_server_is_stopped_with_the_driver_at(
    make_scenario: MakeScenario, servers: dict[str, SqlService], point: str
) -> None:
    """SIGSTOP: its connections stay open and nothing answers, until the job
    has given up waiting.
    """
    scenario = make_scenario(TARGETS["mysql"])
    steps.freeze_a_server(scenario, servers["mysql"], point)
    scenario.goes_on()
