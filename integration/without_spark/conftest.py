"""Servers and the zygote, once for the whole folder: each test has a job, tables and folders
of its own on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.catalogs import place_of
from integration.catalogs import server_of as server_of_catalogs
from integration.without_spark.process import Zygote
from integration.without_spark.scenario import CATALOGS, SQL, TOPICS, Scenario
from twophase.testing.services import MariaDbService, MySqlService, Service, SqlService

MakeScenario = Callable[..., Scenario]
ServerOf = Callable[[str], Service]


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
def server_of(request: pytest.FixtureRequest) -> ServerOf:
    """Gives the server of a kind of target that a test may kill."""

    def find(kind: str) -> Service:
        found: Service
        if kind in CATALOGS:
            found = server_of_catalogs(kind.removeprefix("iceberg_"), request)
        elif kind in TOPICS:
            found = request.getfixturevalue("own_kafka")
        else:
            found = request.getfixturevalue("servers")[kind]
        return found

    return find


@pytest.fixture
def make_scenario(
    request: pytest.FixtureRequest,
    zygote: Zygote,
    tmp_path: Path,
) -> Iterator[MakeScenario]:
    made: list[Scenario] = []

    def make(kinds: tuple[str, ...], *, brokers: str = "", **options: Any) -> Scenario:
        folder = tmp_path / f"scenario-{len(made)}"
        folder.mkdir()
        # servers take seconds to start
        has_topic, has_table = (not {*some}.isdisjoint(kinds) for some in (TOPICS, SQL))
        servers = request.getfixturevalue("servers") if has_table else {}
        if has_topic and not brokers:
            brokers = request.getfixturevalue("kafka").bootstrap_servers
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
