"""Catalogs of Iceberg that are behind servers. Each test has a namespace or database of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.iceberg_places import MetastorePlace, MySqlPlace, Place, RestPlace

KINDS = ("mysql", "hive", "rest")
_SERVERS = {"mysql": "own_mysql", "hive": "metastore", "rest": "rest_server"}


def place_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> Place:
    """Return a place in a catalog of a kind, whose server is started if it is not.

    Its sessions end with the test.
    """
    server, warehouses = server_of(kind, request), request.getfixturevalue("warehouses")
    if kind == "mysql":
        place = MySqlPlace(folder / "lake", server)
        request.addfinalizer(place.end_sessions)
        return place
    if kind == "hive":
        return MetastorePlace(server.port, warehouses / kind)
    return RestPlace(server.uri, warehouses / kind)


def server_of(kind: str, request: pytest.FixtureRequest) -> Any:
    """Return the server of a kind of catalogs."""
    return request.getfixturevalue(_SERVERS[kind])
