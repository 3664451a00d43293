"""A checkpoint into a Paimon table, both phases, beside pypaimon's own writer with the same rows.

Each round writes the same rows with one and then with the other, into tables of their own: first
many rows in one commit, then few rows in each of many commits, as each snapshot lists the manifests
of all before it. The median is that of the last tenth of the commits before each number of
snapshots, at least five. The sink syncs what it writes, and pypaimon does not.

    .venv-paimon/bin/python -m benchmarks paimon_commit --rows 1000000 --snapshots 10,100,1000
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from benchmarks.growth import counts, median_at
from benchmarks.report import Curve, Ratio, Result, table
from twophase.contract.outcome import Committed
from twophase.contract.sink import CommitRequest, SinkContext
from twophase.ids import Attempt, Subtask, TransactionId, new_lineage_id
from twophase.internals.sink_entry_points import load_sink

_FIRST = Attempt(1, 1)
_FEW = 1_000
_OURS, _THEIRS = "twophase", "pypaimon"

Write = Callable[[pa.Table, int], None]
"""Writes rows as the commit of some number."""


@click.command("paimon_commit")
@click.option("--rows", default=1_000_000, show_default=True, help="Of the one large commit.")
@counts("snapshots")
@click.option("--rounds", default=3, show_default=True, help="Of the large commit.")
def command(rows: int, snapshots: tuple[int, ...], rounds: int) -> None:
    """A checkpoint into a Paimon table beside pypaimon's own writer. Needs pypaimon."""
    many, few = _rows(rows), _rows(_FEW)
    with tempfile.TemporaryDirectory(prefix="twophase-bench-") as folder:
        writers = {_OURS: _ours(Path(folder), many.schema), _THEIRS: _theirs(Path(folder), many)}
        for write in writers.values():
            write(few, 0)  # imports, and the table's first snapshot
        large = {
            name: [_seconds(write, many, 1 + number) for number in range(rounds)]
            for name, write in writers.items()
        }
        small: dict[str, list[float]] = {name: [] for name in writers}
        for number in range(snapshots[-1]):
            for name, write in writers.items():
                small[name].append(_seconds(write, few, 1 + rounds + number))
    shown = table("Written and committed", "", _OURS, _THEIRS)
    p50 = {name: statistics.median(found) for name, found in large.items()}
    shown.add_row(f"s, {rows:,} rows (p50)", *(f"{p50[name]:.2f}" for name in writers))
    medians = {
        name: [(count, median_at(found, count)) for count in snapshots]
        for name, found in small.items()
    }
    for (count, ours), (_, theirs) in zip(medians[_OURS], medians[_THEIRS], strict=True):
        said = f"ms, {_FEW:,} rows, {count:,} snapshots (p50)"
        shown.add_row(said, *(f"{1000 * one:.1f}" for one in (ours, theirs)))
    Result(
        "paimon_commit",
        [shown],
        [
            Ratio(
                *(_OURS, _THEIRS, p50[_OURS] / p50[_THEIRS], f"s for {rows:,} rows"),
                goal=1.0,
                at_most=True,
            )
        ],
        [
            Curve(f"ms, {name}", "snapshots", [(count, 1000 * one) for count, one in found])
            for name, found in medians.items()
        ],
    ).show()


def _rows(count: int) -> pa.Table:
    ids = pa.array(range(count), pa.int64())
    return pa.table(
        {
            "id": ids,
            "customer": ids.cast(pa.string()),
            "amount": ids.cast(pa.float64()),
            "at": ids.cast(pa.timestamp("us")),
            "flag": pa.array([number % 2 == 0 for number in range(count)]),
        }
    )


def _seconds(write: Write, rows: pa.Table, number: int) -> float:
    began_s = time.perf_counter()
    write(rows, number)
    return time.perf_counter() - began_s


def _ours(folder: Path, schema: pa.Schema) -> Write:
    kind = load_sink("the benchmark", "paimon")
    sink = kind(warehouse=str(folder), table="shop.ours", create=True).open(
        SinkContext("bench", "lake", schema, parallelism=1)
    )
    sink.fence(_FIRST)
    lineage = new_lineage_id()

    def write(rows: pa.Table, number: int) -> None:
        transaction = TransactionId("bench", lineage, number, _FIRST, "lake", "0" * 64)
        writer = sink.writers()(transaction, Subtask(0, number))
        for batch in rows.to_batches(max_chunksize=10_000):
            writer.write(batch)
        if (outcomes := sink.commit([CommitRequest(writer.pre_commit())])) != [Committed()]:
            raise click.ClickException(f"the commit failed: {outcomes}")
        sink.subsume(lineage, number)

    return write


def _theirs(folder: Path, rows: pa.Table) -> Write:
    pypaimon: Any = import_module("pypaimon")
    catalog = pypaimon.CatalogFactory.create({"warehouse": str(folder)})
    catalog.create_database("shop", True)
    catalog.create_table("shop.theirs", pypaimon.Schema.from_pyarrow_schema(rows.schema), False)

    def write(rows: pa.Table, number: int) -> None:
        del number
        builder = catalog.get_table("shop.theirs").new_batch_write_builder()
        written, commit = builder.new_write(), builder.new_commit()
        for batch in rows.to_batches(max_chunksize=10_000):
            written.write_arrow_batch(batch)
        commit.commit(written.prepare_commit())
        written.close()
        commit.close()

    return write
