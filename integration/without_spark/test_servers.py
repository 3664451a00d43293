"""A server is killed or stopped while the driver is held at a crash point, without
Spark and without luck.

Before the decision the attempt is aborted everywhere; after it the commit is held until
the server is back.
"""

from __future__ import annotations

import itertools

import pytest

from harness.selection import representatives
from integration.without_spark import steps
from integration.without_spark.conftest import MakeScenario, ServerOf
from integration.without_spark.scenario import CATALOGS, TARGETS, Scenario
from twophase.testing.services import KafkaService, Service

pytestmark = [pytest.mark.part("without_spark"), pytest.mark.thin(2)]

IN_PRE_COMMIT = ("C02", "E01", "C04", "C05", "C06")
IN_COMMIT = ("C11", "C12", "C13", "C14", "C15")
IN_RECOVERY = ("C18", "C19", "C20", "C22")
IN_COPY = ("K01", "K02")
BEHIND_SERVERS = ("iceberg_mysql", "iceberg_hive", "iceberg_rest")
ALONE = ("mysql", "mariadb", "kafka", "staged_kafka", *BEHIND_SERVERS)
FROZEN = representatives(["C04", "C11", "C13", "C18", "C20"], {"C04", "C13"})
ALWAYS = {("two_servers", point) for point in ("C04", "C06", "C11", "C13", "C20")}
ASKED_NO_MORE = {("iceberg_rest", "C15")}
"""Behind the last commit of the checkpoint nothing is asked of it, so nobody notices."""
CASES = [
    pytest.param(*case, marks=[] if case in ALWAYS else [pytest.mark.proof])
    for case in itertools.product(
        (*ALONE, "two_servers"), (*IN_PRE_COMMIT, *IN_COMMIT, *IN_RECOVERY)
    )
    if case not in ASKED_NO_MORE
]


@pytest.mark.parametrize(("target", "point"), CASES)
def test_a_server_is_killed_with_the_driver_at(
    make_scenario: MakeScenario, server_of: ServerOf, target: str, point: str
) -> None:
    scenario, server = beside_its_server(make_scenario, server_of, target)
    steps.lose_a_server(scenario, server, point)
    scenario.goes_on()


@pytest.mark.parametrize("point", representatives(IN_COPY, set()))
def test_a_broker_is_killed_in_the_middle_of_a_copy_at(
    make_scenario: MakeScenario, server_of: ServerOf, point: str
) -> None:
    """All rows of a piece are in the open transaction of their copy; their proof may be too."""
    scenario, server = beside_its_server(make_scenario, server_of, "staged_kafka")
    steps.lose_a_server(scenario, server, point)
    scenario.goes_on()


@pytest.mark.parametrize("point", FROZEN)
@pytest.mark.parametrize("target", representatives(["mysql", "kafka", "staged_kafka"], {"mysql"}))
def test_a_server_is_stopped_with_the_driver_at(
    make_scenario: MakeScenario, server_of: ServerOf, target: str, point: str
) -> None:
    """SIGSTOP: its connections stay open and nothing answers, until the job
    has given up waiting.
    """
    scenario, server = beside_its_server(make_scenario, server_of, target)
    steps.freeze_a_server(scenario, server, point)
    scenario.goes_on()


def beside_its_server(
    make_scenario: MakeScenario, server_of: ServerOf, target: str
) -> tuple[Scenario, Service]:
    """A job, and the server of its last sink."""
    kinds = (TARGETS | CATALOGS)[target]
    server = server_of(kinds[-1])
    brokers = server.bootstrap_servers if isinstance(server, KafkaService) else ""
    return make_scenario(kinds, brokers=brokers), server
