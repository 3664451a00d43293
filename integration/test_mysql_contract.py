"""The MySQL sink keeps the contract, on MySQL and on MariaDB."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration.mysql_harness import MySqlHarness, Server
from twophase.testing.contract import ArrowSinkContract
from twophase.testing.services import MariaDbService, MySqlService


@pytest.fixture(scope="module", params=[MySqlService, MariaDbService], ids=["mysql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    with request.param(local_infile=True) as service:
        yield service


class TestMySqlSink(ArrowSinkContract):
    @pytest.fixture
    def harness(self, server: Server) -> MySqlHarness:
        return MySqlHarness(server)
