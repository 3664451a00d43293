"""The fixtures, imported as users do it. Without a Docker engine the tests here are
skipped, and say why.
"""

from __future__ import annotations

from twophase.testing.containers import (
    docker_engine,
    kafka_container,
    mariadb_container,
    mysql_container,
)

__all__ = ["docker_engine", "kafka_container", "mariadb_container", "mysql_container"]
