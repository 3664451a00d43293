"""What Iceberg's own means keep few stays few, and fence and proof are in none of it."""

from __future__ import annotations

import pytest
from pyiceberg.table import Table

from harness.iceberg_harness import IcebergHarness
from tests.sinks.iceberg.others import Change, change, ids_of, rows
from twophase.contract.outcome import AlreadyCommitted, Committed
from twophase.contract.sink import CommitRequest, Predecessor
from twophase.errors import FencedError
from twophase.ids import Attempt
from twophase.testing.harness import LINEAGE

pytestmark = pytest.mark.part("files")

VERSIONS = 5


def keep_few(manifests: int) -> Change:
    """As docs/sinks/iceberg.md says."""

    def set_properties(table: Table) -> None:
        with table.transaction() as transaction:
            transaction.set_properties({
                "commit.manifest-merge.enabled": "true",
                "commit.manifest.min-count-to-merge": str(manifests),
                "write.metadata.delete-after-commit.enabled": "true",
                "write.metadata.previous-versions-max": str(VERSIONS),
            })  # fmt: skip

    return set_properties


def expire_all_but_the_newest(table: Table) -> None:
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    old = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id not in heads]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def manifests(harness: IcebergHarness) -> int:
    table = harness.table()
    head = table.current_snapshot()
    assert head is not None
    return len(head.manifests(table.io))


@pytest.mark.parametrize(
    ("checkpoints", "at_most"),
    [(24, 5), pytest.param(300, 100, marks=pytest.mark.proof)],
    ids=["few", "as many as by default"],
)
def test_what_stays_few_is_not_what_tells_what_is_committed(
    harness: IcebergHarness, checkpoints: int, at_most: int
) -> None:
    sink = harness.opened()
    change(harness, keep_few(at_most))
    pieces, most = [], 0
    for number in range(checkpoints):
        pieces.append(harness.write(sink, rows(number), number))
        before = Predecessor(LINEAGE, number - 1) if number else None
        assert sink.commit([CommitRequest(pieces[-1], predecessor=before)]) == [Committed()]
        sink.subsume(LINEAGE, number - 1)
        most = max(most, manifests(harness))
        if number % at_most == at_most // 2:
            change(harness, expire_all_but_the_newest)
    assert most <= at_most, "manifests are merged"
    assert len(harness.table().metadata.snapshots) <= at_most
    files = [*harness.folder.rglob("*.metadata.json")]
    assert len(files) <= VERSIONS + 1, "metadata files are deleted"

    change(harness, expire_all_but_the_newest)
    again = harness.opened(Attempt(2, 0))
    assert again.history().committed == {LINEAGE: checkpoints - 1}
    assert again.history().replaced == ""
    assert again.in_doubt() == []
    with pytest.raises(FencedError):
        sink.fence(Attempt(1, 5))
    for piece in (pieces[0], pieces[checkpoints // 2], pieces[-1]):
        [outcome] = again.commit([CommitRequest(piece)])
        assert isinstance(outcome, AlreadyCommitted)
    last = harness.write(again, rows(checkpoints), checkpoints, Attempt(2, 0))
    before = Predecessor(LINEAGE, checkpoints - 1)
    assert again.commit([CommitRequest(last, predecessor=before)]) == [Committed()]
    assert ids_of(harness) == [*range(checkpoints + 1)]
