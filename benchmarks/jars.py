"""The peers' jars: Spark's own Kafka connector, MySQL Connector/J for Spark's JDBC writer, and
Iceberg's runtime for Spark.

The connector of Spark 4.2.0 depends on a token provider of its own version, which Maven Central
does not have: the one of 4.1.0-preview1 is used instead. Not every release of Spark has a connector
there: one of the same version is taken, and for 4.3, which has none, that of 4.2. Spark gets them
by `spark.jars`, so that its own Ivy has nothing to resolve.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from twophase.spark.startup.cache import cached
from twophase.spark.startup.progress import show_progress
from twophase.spark_versions import SPARK, Version
from twophase.testing.services.maven import Coordinate, fetch_jars
from twophase.testing.services.pins import ICEBERG_VERSION

CONNECTORS = {(4, 1): "4.1.1", (4, 2): "4.2.0", (4, 3): "4.2.0"}
"""The release of the connector for each version of PySpark that has one."""
_COORDINATES = (
    Coordinate(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.1.0-preview1",
        transitive=False,
    ),
    Coordinate("org.apache.kafka", "kafka-clients", "3.9.2", transitive=False),
    Coordinate("org.apache.commons", "commons-pool2", "2.13.1", transitive=False),
    Coordinate("com.mysql", "mysql-connector-j", "9.4.0", transitive=False),
)
_PINS = {
    "commons-pool2-2.13.1.jar": "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f",
    "kafka-clients-3.9.2.jar": "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    "mysql-connector-j-9.4.0.jar": "49ed93c8b2bea9cb0929b85a8a28837b191d0f8eac6919fdcef16e36e2cd53b3",  # noqa: E501
    "spark-token-provider-kafka-0-10_2.13-4.1.0-preview1.jar": (
        "ab6e27a8a47ce63348dd0ecbd5543dc6212b4783180305cde5749e79684ea97b"
    ),
}


_CONNECTOR = "spark-sql-kafka-0-10_2.13"
_CONNECTOR_PINS = {
    "4.1.1": "9c1ce986f548e6b1dcb0e2dfe2f253a0bc58f2232a32a0c9c6c674dd25a8570c",
    "4.2.0": "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
}


_RUNTIME = "iceberg-spark-runtime-4.1_2.13"
_RUNTIME_PINS = {
    f"{_RUNTIME}-{ICEBERG_VERSION}.jar": (
        "d6ea6c5d099288daeb7d5a92061bd3d7d8f296492632b42378e5f2f0e3066242"
    )
}


def peer_jars(version: Version = SPARK) -> str:
    """Return the paths of the connectors for `spark.jars`; fetched on first use.

    Args:
        version: of PySpark; by default the one that runs.

    Raises:
        KeyError: there is no connector for this version of PySpark.
    """
    release = CONNECTORS[version]
    return _listed(cached(f"spark-peer-{release}", partial(_fetch, release)))


def iceberg_runtime() -> str:
    """Return the path of Iceberg's runtime for PySpark 4.1, likewise; there is none for a newer
    one.
    """
    return _listed(cached(f"iceberg-runtime-{ICEBERG_VERSION}", _fetch_runtime))


def _listed(jars: Path) -> str:
    return ",".join(str(path) for path in sorted(jars.iterdir()))


def _fetch(release: str, folder: Path) -> None:
    connector = Coordinate("org.apache.spark", _CONNECTOR, release, transitive=False)
    pins = {**_PINS, f"{_CONNECTOR}-{release}.jar": _CONNECTOR_PINS[release]}
    with show_progress("Fetching Spark's Kafka connector and MySQL Connector/J") as progress:
        fetch_jars((connector, *_COORDINATES), folder, pins=pins, progress=progress)


def _fetch_runtime(folder: Path) -> None:
    runtime = Coordinate("org.apache.iceberg", _RUNTIME, ICEBERG_VERSION, transitive=False)
    with show_progress("Fetching Iceberg's runtime for Spark") as progress:
        fetch_jars((runtime,), folder, pins=_RUNTIME_PINS, progress=progress)
