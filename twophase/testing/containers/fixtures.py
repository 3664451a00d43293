"""Pytest fixtures: one container of each kind for a whole run, started when a test asks for it.

Without a Docker engine such a test is skipped, with the reason. With TWOPHASE_DOCKER=required it
fails instead: for continuous integration that has started an engine and must not pass without it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from twophase.testing.containers.engine import engine_problem
from twophase.testing.containers.kafka import KafkaContainer
from twophase.testing.containers.sql import MariaDbContainer, MySqlContainer

DOCKER_VARIABLE = "TWOPHASE_DOCKER"


@pytest.fixture(scope="session")
def docker_engine() -> None:
    """Skip the tests that ask for it if no Docker engine answers."""
    _need_engine()


@pytest.fixture(scope="session")
def kafka_container() -> Iterator[KafkaContainer]:
    """A Kafka broker."""
    _need_engine()
    with KafkaContainer() as container:
        yield container


@pytest.fixture(scope="session")
def mysql_container() -> Iterator[MySqlContainer]:
    """A MySQL server that allows LOAD DATA LOCAL."""
    _need_engine()
    with MySqlContainer(local_infile=True) as container:
        yield container


@pytest.fixture(scope="session")
def mariadb_container() -> Iterator[MariaDbContainer]:
    """A MariaDB server that allows LOAD DATA LOCAL."""
    _need_engine()
    with MariaDbContainer(local_infile=True) as container:
        yield container


def _need_engine() -> None:
    problem = engine_problem()
    if problem is None:
        return
    if os.environ.get(DOCKER_VARIABLE) == "required":
        pytest.fail(f"{problem} {DOCKER_VARIABLE} says that it is required.", pytrace=False)
    pytest.skip(problem)
