"""MySQL, MariaDB and Kafka die and freeze again and again under load, and the job
outlives it by itself.

One driver a test, which may not end. In the first tests a driver is stopped in each phase, and the
database dies there. In the others the moments are random; how many fell into which phase is
printed. `--kills` says how many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rich.console import Console

from integration.mysql.scenario import Scenario, State
from integration.soak.faults import faults, name_of
from integration.soak.report import tables
from integration.soak.run import Goal, Outcome, Soak
from integration.soak.scenario import SoakScenario
from twophase.testing.services import KafkaService, MariaDbService, MySqlService

SEED = 20
BATCH = 1000
BROKER_KILLS = 10
FREEZES = 2
LINGER_MS = 75

pytestmark = [pytest.mark.part("servers"), pytest.mark.proof, pytest.mark.timeout(7200)]


@dataclass(frozen=True)
class Phase:
    """Where a driver is stopped when its database dies.

    Attributes:
        point: the crash point, the first time that it is reached.
        state: what there is then.
        after: the crash point where the driver before it was killed.
    """

    point: str
    state: State
    after: str = ""


PHASES = {
    "pre-commit, rows in an open branch": Phase(
        "C04", State(decided=-1, committed=-1, prepared=0, visible=0)
    ),
    "pre-commit, a branch prepared": Phase(
        "C05", State(decided=-1, committed=-1, prepared=1, visible=0)
    ),
    "before the decision": Phase("C09", State(decided=-1, committed=-1, prepared=2, visible=0)),
    "commit": Phase("C13", State(decided=0, committed=-1, prepared=1, visible=BATCH // 2)),
    "recovery": Phase("C18", State(decided=0, committed=-1, prepared=2, visible=0), after="C11"),
}


@pytest.fixture
def broker() -> Iterator[KafkaService]:
    """One that may be killed, as may the database below."""
    with KafkaService(own=True) as kafka:
        yield kafka


@pytest.fixture
def database() -> Iterator[MySqlService]:
    with MySqlService(local_infile=True, own=True) as mysql:
        yield mysql


@pytest.mark.parametrize("name", PHASES)
def test_the_database_server_dies_in(
    kafka: KafkaService, sql_server: MySqlService | MariaDbService, tmp_path: Path, name: str
) -> None:
    phase, scenario = PHASES[name], Scenario(kafka, {"facts": sql_server}, tmp_path)
    scenario.produce(BATCH)
    if phase.after:
        assert scenario.run(f"{phase.after}=kill").killed
    # one slot: no other task is further
    driver = scenario.start(f"{phase.point}=stop", master="local[1]")
    try:
        driver.wait_until_stopped(phase.point)
        assert scenario.state("facts") == phase.state
        sql_server.kill()
        sql_server.restart()
        driver.thaw()
        driver.wait_for(
            lambda: scenario.state("facts").committed == 0, "the job to go on by itself"
        )
        scenario.produce(BATCH)
        driver.wait_for(lambda: scenario.count("facts") == scenario.produced, "one more checkpoint")
    finally:
        driver.kill()
    scenario.finish()
    scenario.verify()


def under_load(scenario: SoakScenario, kafka: KafkaService, name: str, kills: int) -> None:
    """Kill and freeze one server while the job writes."""
    deck = [f"SIGKILL {name}"] * kills + [f"SIGSTOP {name}"] * FREEZES
    outcome: Outcome = Soak(scenario, kafka, faults(scenario, kafka), deck, SEED).run(
        Goal(len(deck))
    )
    Console().print(*tables(outcome))
    scenario.verify()
    assert outcome.exact
    struck = Counter(strike.strike.fault for strike in outcome.struck)
    assert struck == {f"SIGKILL {name}": kills, f"SIGSTOP {name}": FREEZES}


def test_a_database_server_dies_again_and_again(
    kafka: KafkaService,
    sql_server: MySqlService | MariaDbService,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    scenario = SoakScenario(kafka, {"facts": sql_server}, tmp_path, linger_ms=LINGER_MS)
    under_load(scenario, kafka, name_of(sql_server), request.config.getoption("--kills"))


def test_the_broker_dies_again_and_again(
    broker: KafkaService, database: MySqlService, tmp_path: Path
) -> None:
    under_load(
        SoakScenario(broker, {"facts": database}, tmp_path, linger_ms=LINGER_MS),
        broker,
        "Kafka",
        BROKER_KILLS,
    )
