"""MySQL, MariaDB and Kafka die and freeze again and again under load, and the job outlives it by itself.

One driver a test, which may not end. The moments are random, those in which a decided checkpoint is being committed among
them: how many kills fell into which phase is printed, and asserted for the two longest. `--kills` says how many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from integration.soak_arena import SoakArena
from integration.soak_faults import faults, name_of
from integration.soak_report import COMMIT, PRE_COMMIT, phases, tables
from integration.soak_run import Goal, Outcome, Soak
from twophase.testing.services import KafkaService, MariaDbService, MySqlService

SEED = 20
BROKER_KILLS = 10
FREEZES = 2
LINGER_MS = 75

pytestmark = pytest.mark.timeout(7200)


@pytest.fixture
def broker() -> Iterator[KafkaService]:
    """One that may be killed, as may the database below."""
    with KafkaService(own=True) as kafka:
        yield kafka


@pytest.fixture
def database() -> Iterator[MySqlService]:
    with MySqlService(local_infile=True, own=True) as mysql:
        yield mysql


def under_load(arena: SoakArena, kafka: KafkaService, name: str, kills: int) -> Outcome:
    """Kill and freeze one server while the job writes."""
    deck = [f"SIGKILL {name}"] * (kills // FREEZES) + [f"SIGSTOP {name}"]
    outcome = Soak(arena, kafka, faults(arena, kafka), deck, SEED).run(Goal(kills + FREEZES))
    Console().print(*tables(outcome))
    arena.verify()
    assert outcome.exact
    struck = Counter(strike.strike.fault for strike in outcome.struck)
    assert struck == {f"SIGKILL {name}": kills, f"SIGSTOP {name}": FREEZES}
    return outcome


def test_a_database_server_dies_again_and_again(
    kafka: KafkaService, sql_server: MySqlService | MariaDbService, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    arena = SoakArena(kafka, {"facts": sql_server}, tmp_path, linger_ms=LINGER_MS)
    outcome = under_load(arena, kafka, name_of(sql_server), request.config.getoption("--kills"))
    assert {PRE_COMMIT, COMMIT} <= phases(outcome).keys()


def test_the_broker_dies_again_and_again(broker: KafkaService, database: MySqlService, tmp_path: Path) -> None:
    under_load(SoakArena(broker, {"facts": database}, tmp_path, linger_ms=LINGER_MS), broker, "Kafka", BROKER_KILLS)
