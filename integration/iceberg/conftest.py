"""A place in a catalog of the kind that a test is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.iceberg_places import Place
from integration.catalogs import place_of


@pytest.fixture
def place(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_of(kind, request, tmp_path)
