"""The cost of a commit to an Iceberg table that has some number of snapshots, without care and with
what the page of the sink advises: merged manifests, snapshots that expire, old metadata deleted.

Each commit is of one checkpoint with one piece of one file. The median is that of the last tenth of
the commits before each number of snapshots, at least five. Expiry runs after every 50 commits and
keeps the last 10 snapshots; its own time does not count, and is told.

    python -m benchmarks iceberg_commit --snapshots 10,100,1000 --catalog rest
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import click
import pyarrow as pa

from benchmarks.growth import counts, median_at
from benchmarks.iceberg_tables import new_piece, opened
from benchmarks.report import Curve, Ratio, Result, table
from harness.iceberg_places import MetastorePlace, MySqlPlace, Place, RestPlace, SqlitePlace
from harness.metastore_server import MetastoreService
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest
from twophase.sinks.iceberg.sink import IcebergSink
from twophase.testing.services import MySqlService
from twophase.testing.services.iceberg_rest import IcebergRestService

_ROWS = pa.table({"id": pa.array(range(1_000), pa.int64())})
_EVERY, _KEPT = 50, 10
_CARE = {
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
}
_LEFT, _CARED = "as it is", "merged and expired"
_KINDS = ("sqlite", "mysql", "hive", "rest")


@click.command("iceberg_commit")
@counts("snapshots")
@click.option(
    "--catalog",
    type=click.Choice(_KINDS),
    default="sqlite",
    show_default=True,
    help="What the table's catalog is.",
)
def command(snapshots: tuple[int, ...], catalog: str) -> None:
    """A commit to an Iceberg table with 10, 100 and 1,000 snapshots, with and without care."""
    shown = table(
        f"Commit of one file, catalog {catalog}",
        "commits before",
        *(f"ms, {one}" for one in (_LEFT, _CARED)),
    )
    with (
        tempfile.TemporaryDirectory(prefix="twophase-bench-") as folder,
        _place(catalog, Path(folder)) as place,
    ):
        left, _ = _commits(place, snapshots[-1], cares=False)
        cared, expiry_s = _commits(place.elsewhere(), snapshots[-1], cares=True)
    medians = {number: (median_at(left, number), median_at(cared, number)) for number in snapshots}
    for number, (one, other) in medians.items():
        shown.add_row(f"{number:,}", f"{1000 * one:.1f}", f"{1000 * other:.1f}")
    first, last = medians[snapshots[0]], medians[snapshots[-1]]
    said = [f"Expiry took {statistics.median(expiry_s):.2f} s (p50)."] if expiry_s else []
    Result(
        "iceberg_commit",
        [shown],
        [
            Ratio(
                f"{snapshots[-1]:,} commits", f"{snapshots[0]:,}, {name}", last[at] / first[at], "s"
            )
            for at, name in enumerate((_LEFT, _CARED))
        ],
        [
            Curve(
                f"ms, {name}",
                "commits",
                [(number, 1000 * found[at]) for number, found in medians.items()],
            )
            for at, name in enumerate((_LEFT, _CARED))
        ],
        said,
    ).show()


@contextmanager
def _place(kind: str, folder: Path) -> Iterator[Place]:
    """Start the server of a kind of catalog, and give a place in it."""
    tables = folder / "tables"
    tables.mkdir()
    if kind == "sqlite":
        yield SqlitePlace(tables / "lake")
    elif kind == "mysql":
        with MySqlService(own=True) as mysql:
            yield MySqlPlace(tables / "lake", mysql)
    elif kind == "hive":
        with MetastoreService(tables) as metastore:
            yield MetastorePlace(metastore.port, tables)
    else:
        with IcebergRestService(tables) as rest:
            yield RestPlace(rest.uri, tables)


def _commits(place: Place, count: int, *, cares: bool) -> tuple[Sequence[float], Sequence[float]]:
    """Return the seconds of each commit to a new table, and of each expiry."""
    commits_s, expiry_s = list[float](), list[float]()
    declared = IcebergSink(table=place.table, create=True, **place.options)
    with closing(opened(declared, _ROWS.schema)) as sink:
        if cares:
            with sink.table.load().transaction() as transaction:
                transaction.set_properties(_CARE)
        for number in range(count):
            piece = new_piece(sink, _ROWS, number)
            began_s = time.perf_counter()
            outcomes = sink.commit([CommitRequest(piece)])
            commits_s.append(time.perf_counter() - began_s)
            if outcomes != [Committed()]:
                raise click.ClickException(f"the commit failed: {outcomes}")
            sink.subsume(piece.transaction.lineage, number)
            if cares and number % _EVERY == _EVERY - 1:
                expiry_s.append(_expire(place))
    return commits_s, expiry_s


def _expire(place: Place) -> float:
    began_s = time.perf_counter()
    with closing(place.catalog()) as catalog:
        found = catalog.load_table(place.table)
        by_age = sorted(found.metadata.snapshots, key=lambda one: one.sequence_number or 0)
        old = [one.snapshot_id for one in by_age[:-_KEPT]]
        if old:
            found.maintenance.expire_snapshots().by_ids(old).commit()
    return time.perf_counter() - began_s
