"""The server of a catalog dies before, in and after a commit, or its replies get lost; several
applications write at once.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from sqlalchemy.orm import Session

from harness.iceberg_harness import IcebergHarness
from harness.iceberg_places import Place
from harness.tcp_proxy import CuttingProxy
from integration.catalogs import KINDS, server_of
from tests.sinks.iceberg.others import FIELDS, before_the_swap, commit, ids_of, rival_of, rows
from twophase.contract.outcome import AlreadyCommitted, CommitOutcome, Committed, RetryLater
from twophase.contract.sink import CommitRequest, SinkContext
from twophase.errors import TargetUnreachableError
from twophase.ids import Attempt, Subtask
from twophase.sinks.iceberg.catalog import Catalog
from twophase.sinks.iceberg.open_sink import OpenIcebergSink
from twophase.testing.harness import LINEAGE, SINK, transaction_id

pytestmark = [pytest.mark.part("files"), pytest.mark.server, pytest.mark.thin(3)]

NEVER = b"\0nothing is cut yet"
EACH = pytest.mark.parametrize("kind", KINDS)
# A connection to MySQL is encrypted: what SQLite's tests lose in pyiceberg is lost there too.
BY_PROXY = pytest.mark.parametrize("kind", ["hive", "rest"])


@pytest.fixture
def server(kind: str, request: pytest.FixtureRequest) -> Any:
    return server_of(kind, request)


def swap_of(kind: str, place: Place) -> bytes:
    """What a client sends when it swaps the metadata of a table."""
    return {
        "hive": b"alter_table_with_environment_context",
        "rest": f"POST /v1/namespaces/{place.table.split('.')[0]}/tables/orders".encode(),
    }[kind]


def through(place: Place, server: Any, proxy: CuttingProxy) -> IcebergHarness:
    """Its sink goes through a proxy, its readers do not."""
    uri = place.options["catalog_uri"].replace(f":{server.port}", f":{proxy.port}")
    return IcebergHarness(place, FIELDS, catalog_uri=uri)


def outcome_of(sink: OpenIcebergSink, piece: Any) -> CommitOutcome | None:
    """The outcome of a commit; None if the catalog does not even say what the table has."""
    try:
        [found] = sink.commit([CommitRequest(piece)])
    except TargetUnreachableError:
        return None
    return found


def dies_before(kind: str, server: Any, proxy: CuttingProxy, place: Place, patch: Any) -> None:
    before_the_swap(patch, server.kill)


def dies_in_it(kind: str, server: Any, proxy: CuttingProxy, place: Place, patch: Any) -> None:
    """It may have done it or not."""
    if kind == "mysql":  # before it has the COMMIT of the transaction
        patch.setattr(Session, "commit", lambda _: server.kill())
    else:
        proxy.trigger, proxy.then = swap_of(kind, place), server.kill


def dies_after(kind: str, server: Any, proxy: CuttingProxy, place: Place, patch: Any) -> None:
    swap = Catalog._swap

    def last(self: Catalog, change: Any) -> None:
        swap(self, change)
        server.kill()

    patch.setattr(Catalog, "_swap", last)


@EACH
@pytest.mark.parametrize("dies", [dies_before, dies_in_it, dies_after])
def test_a_commit_whose_catalog_dies_is_made_once(
    kind: str,
    place: Place,
    server: Any,
    dies: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with CuttingProxy("127.0.0.1", server.port, NEVER) as proxy:
        harness = through(place, server, proxy)
        sink = harness.opened()
        commit(harness, sink, rows(0), 0)
        piece = harness.write(sink, rows(1), 1)
        with monkeypatch.context() as patch:
            dies(kind, server, proxy, place, patch)
            assert outcome_of(sink, piece) is None
            proxy.join()
        server.restart()
        found = outcome_of(sink, piece)
        assert isinstance(found, Committed | AlreadyCommitted), found
        if dies is not dies_in_it:
            assert isinstance(found, Committed) == (dies is dies_before)
        assert ids_of(harness) == [0, 1]
        after = rival_of(harness)
        after.fence(Attempt(2, 0))
        assert after.history().committed == {LINEAGE: 1}
        last = harness.write(after, rows(2), 2, Attempt(2, 0))
        assert after.commit([CommitRequest(last)]) == [Committed()]
        assert ids_of(harness) == [0, 1, 2]
        assert harness.staged() == []


@BY_PROXY
def test_a_commit_whose_reply_is_lost_is_found_and_not_made_again(
    kind: str, place: Place, server: Any
) -> None:
    with CuttingProxy("127.0.0.1", server.port, NEVER) as proxy:
        harness = through(place, server, proxy)
        sink = harness.opened()
        piece = harness.write(sink, rows(0))
        proxy.trigger = swap_of(kind, place)
        found = outcome_of(sink, piece)
        assert proxy.cuts == 1
        if isinstance(found, RetryLater):  # the server had not done it yet
            found = outcome_of(sink, piece)
        assert isinstance(found, Committed | AlreadyCommitted)
        assert ids_of(harness) == [0]
        commit(harness, sink, rows(1), 1)
        assert ids_of(harness) == [0, 1]


@BY_PROXY
def test_a_fence_whose_reply_is_lost_holds(kind: str, place: Place, server: Any) -> None:
    with CuttingProxy("127.0.0.1", server.port, NEVER) as proxy:
        harness = through(place, server, proxy)
        sink = harness.opened()
        piece = harness.write(sink, rows(0))
        proxy.trigger = swap_of(kind, place)
        sink.fence(Attempt(2, 0))
        assert proxy.cuts == 1
        assert sink.history().generation == 2
        assert sink.commit([CommitRequest(piece)]) == [Committed()]
        assert ids_of(harness) == [0]


@EACH
def test_rows_of_several_applications_that_write_at_once_are_exact(kind: str, place: Place) -> None:
    """Two jobs and one that knows nothing of them."""
    harness = IcebergHarness(place, FIELDS)
    harness.opened().close()

    def job(name: str, first: int) -> None:
        context = SinkContext(name, SINK, FIELDS, parallelism=1)
        with closing(harness.new_sink().open(context)) as sink:
            sink.fence(Attempt(1, 0))
            for number in range(6):
                transaction = transaction_id(number, Attempt(1, 0), job=name)
                writer = sink.writers()(transaction, Subtask(0, number))
                writer.write(pa.RecordBatch.from_pylist(rows(first + number), schema=FIELDS))
                piece = writer.pre_commit()
                assert piece is not None
                while isinstance(outcome_of(sink, piece), RetryLater | None):
                    """Others were faster ten times."""

    def other(first: int) -> None:
        with closing(harness.catalog()) as catalog:
            for number in range(6):
                table = catalog.load_table(place.table)
                made = pa.Table.from_pylist(rows(first + number), schema=FIELDS)
                while True:
                    try:
                        table.append(made)
                        break
                    except CommitFailedException:
                        table.refresh()

    with ThreadPoolExecutor() as pool:
        at_once = [
            pool.submit(job, "one", 0),
            pool.submit(job, "two", 100),
            pool.submit(other, 200),
        ]
        for one in at_once:
            one.result()
    assert ids_of(harness) == [*range(6), *range(100, 106), *range(200, 206)]
