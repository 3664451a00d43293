"""Iceberg's REST server as a service for tests: the reference one, over a database of SQLite.

It is among the test fixtures of Iceberg itself. It knows no accounts, and takes any token.
"""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from typing_extensions import override

from twophase.spark.startup.cache import cached
from twophase.spark.startup.java import java, pyspark_jars
from twophase.spark.startup.progress import show_progress
from twophase.testing.services.local_server import LocalServer
from twophase.testing.services.maven import fetch_jars
from twophase.testing.services.pins import ICEBERG_REST_COORDINATES, ICEBERG_VERSION, pins
from twophase.testing.services.ports import LOOPBACK
from twophase.testing.services.process import Launch
from twophase.testing.services.program import Program
from twophase.testing.services.service import Service

_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError")
_PROBE_TIMEOUT_S = 5.0


def iceberg_rest_jars() -> Path:
    """Return the folder with the server's jars, fetched on first use."""
    return cached(f"iceberg-rest-{ICEBERG_VERSION}", _fetch)


def _fetch(folder: Path) -> None:
    with show_progress(f"Fetching Iceberg's REST server {ICEBERG_VERSION}") as progress:
        fetch_jars(ICEBERG_REST_COORDINATES, folder, pins=pins("iceberg_rest"), progress=progress)


class _IcebergRestProgram(Program):
    """The server.

    Args:
        warehouse: the folder of new tables.
    """

    name = "Iceberg-REST"

    def __init__(self, warehouse: Path) -> None:
        super().__init__()
        self._warehouse = warehouse

    @override
    def prepare(self, data: Path) -> None:
        data.mkdir()

    @override
    def launch(self, data: Path) -> Launch:
        hadoop = sorted(Path(pyspark_jars()).glob("hadoop-client-*.jar"))
        classes = ":".join([f"{iceberg_rest_jars()}/*", *map(str, hadoop)])
        options = [*_OPTIONS, "-Xmx256m", f"-Djava.io.tmpdir={data}"]
        main = "org.apache.iceberg.rest.RESTCatalogServer"
        settings = {
            "CATALOG_REST_PORT": str(self.port),
            "CATALOG_URI": f"jdbc:sqlite:{data}/catalog.db",
            "CATALOG_CLIENTS": "1",  # SQLite has one writer
            "CATALOG_WAREHOUSE": str(self._warehouse),
        }
        return Launch([java(), *options, "-cp", classes, main], settings)

    @override
    def probe(self) -> None:
        address = f"http://{LOOPBACK}:{self.port}/v1/config"
        with urllib.request.urlopen(address, timeout=_PROBE_TIMEOUT_S) as reply:
            json.load(reply)


class IcebergRestService(Service):
    """A REST catalog of Iceberg, with tables in a folder.

    Args:
        warehouse: the folder, which exists.
        startup_timeout_s: how long a start may take.
    """

    def __init__(self, warehouse: Path, *, startup_timeout_s: float = 120.0) -> None:
        self._program = _IcebergRestProgram(warehouse)
        server = LocalServer(self._program, detached=False, startup_timeout_s=startup_timeout_s)
        super().__init__(server)

    @property
    def port(self) -> int:
        """Its port on the loopback interface."""
        return self._program.port

    @property
    def uri(self) -> str:
        """As clients expect it."""
        return f"http://{LOOPBACK}:{self.port}"
