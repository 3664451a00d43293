"""What other applications do to the table, at each moment of a checkpoint, in each kind of catalog
that is behind a server: the table of tests of the SQLite catalog.
"""

from __future__ import annotations

import pytest

from harness.iceberg_harness import IcebergHarness
from harness.iceberg_places import Place
from integration.catalogs import KINDS
from tests.sinks.iceberg import others
from tests.sinks.iceberg import test_moments as moments

pytestmark = [pytest.mark.part("files"), pytest.mark.server]

IN_EVERY_RUN = [
    (others.append, moments.IN_FLIGHT),
    (others.compact, moments.IN_FLIGHT),
    (others.drop_a_column, moments.IN_FLIGHT),
    (others.roll_back, moments.IN_FLIGHT),
    (others.append_and_roll_back, moments.IN_FLIGHT),
    (others.move, moments.REPLY_LOST),
]
CASES = [
    pytest.param(
        row,
        moment,
        marks=[] if (row.what, moment) in IN_EVERY_RUN else pytest.mark.proof,
        id=f"{row.what.__name__}-{moment}",
    )
    for row in moments.TABLE
    for moment in moments.MOMENTS
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("row", "moment"), CASES)
def test_what_others_do_is_exact_or_stops_the_job_by_name_until_it_is_undone(
    place: Place, kind: str, row: moments.Row, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if (kind, row.what) == ("hive", others.retype_a_column):
        row = row._replace(undo=others.restore)  # no metastore sets such a type back
    test = moments.test_what_others_do_is_exact_or_stops_the_job_by_name_until_it_is_undone
    test(IcebergHarness(place, others.FIELDS), row, moment, monkeypatch)
