"""Servers and the zygote, once for the whole folder: each test has a job, tables and folders
of its own on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.catalogs import place_of
from integration.without_spark.process import Zygote
from integration.without_spark.scenario import TOPICS, Scenario
from twophase.testing.services import MariaDbService, MySqlService, SqlService

MakeScenario = Callable[..., Scenario]


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    zygote = Zygote()
    yield zygote
    zygote.close()


@pytest.fixture(scope="session")
def servers(own_mysql: MySqlService, own_mariadb: MariaDbService) -> dict[str, SqlService]:
    """Our own whatever the environment says: tests kill them, and bring them back."""
    return {"mysql": own_mysql, "mariadb": own_mariadb}


@pytest.fixture
def make_scenario(
    request: pytest.FixtureRequest,
    zygote: Zygote,
    servers: dict[str, SqlService],
    tmp_path: Path,
) -> Iterator[MakeScenario]:
    made: list[Scenario] = []

    def make(kinds: tuple[str, ...], **options: Any) -> Scenario:
        folder = tmp_path / f"scenario-{len(made)}"
        folder.mkdir()
        has_topic = not TOPICS.keys().isdisjoint(kinds)  # a broker takes seconds to start
        brokers = request.getfixturevalue("kafka").bootstrap_servers if has_topic else ""
        scenario = Scenario(
            zygote,
            servers,
            kinds,
            folder,
            options,
            brokers,
            lambda kind, lake: place_of(kind, request, lake),
        )
        made.append(scenario)
        return scenario

    yield make
    for scenario in made:
        scenario.end()
