"""What other applications do to the table, at each moment of a checkpoint, in each kind of catalog
that is behind a server: the table of the SQLite catalog, with what a server does otherwise.
"""

from __future__ import annotations

import pytest

from harness.iceberg_harness import IcebergHarness
from harness.iceberg_places import Place
from integration.catalogs import KINDS
from tests.sinks.iceberg import test_moments as moments
from tests.sinks.iceberg.others import FIELDS

pytestmark = [pytest.mark.part("files"), pytest.mark.server, pytest.mark.thin(150)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", moments.MOMENTS)
@pytest.mark.parametrize("row", moments.TABLE, ids=lambda row: row.what.__name__)
def test_what_others_do_is_exact_or_stops_the_job_by_name_until_it_is_undone(
    place: Place, row: moments.Row, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = IcebergHarness(place, FIELDS)
    test = moments.test_what_others_do_is_exact_or_stops_the_job_by_name_until_it_is_undone
    test(harness, row, moment, monkeypatch)
