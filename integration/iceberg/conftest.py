"""A place in a catalog of the kind that a test is given, and a gateway before a REST catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.iceberg_places import Place
from harness.rest_gateway import Gateway, gateway
from integration.catalogs import place_of
from twophase.testing.services.iceberg_rest import IcebergRestService


@pytest.fixture
def place(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_of(kind, request, tmp_path)


@pytest.fixture
def before(rest_server: IcebergRestService) -> Iterator[Gateway]:
    """A gateway before the catalog."""
    with gateway(rest_server.uri) as made:
        yield made
