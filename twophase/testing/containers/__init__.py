"""Kafka, MySQL and MariaDB in containers, for test suites: classes and pytest fixtures.

    from twophase.testing.containers import docker_engine, kafka_container, mysql_container # in a
        conftest.py


    def test_a_job(kafka_container: KafkaContainer, mysql_container: MySqlContainer) -> None: ...

The interface is that of `twophase.testing.services`. Images: TWOPHASE_KAFKA_IMAGE,
TWOPHASE_MYSQL_IMAGE, TWOPHASE_MARIADB_IMAGE, otherwise public ones. Needs
`pip install 'twophase[testing]'`.
"""

from twophase.testing.containers.engine import engine_problem
from twophase.testing.containers.fixtures import (
    docker_engine,
    kafka_container,
    mariadb_container,
    mysql_container,
)
from twophase.testing.containers.kafka import KafkaContainer
from twophase.testing.containers.sql import MariaDbContainer, MySqlContainer, SqlContainer

__all__ = [
    "KafkaContainer",
    "MariaDbContainer",
    "MySqlContainer",
    "SqlContainer",
    "docker_engine",
    "engine_problem",
    "kafka_container",
    "mariadb_container",
    "mysql_container",
]
