"""Iceberg tables of the benchmarks, written without Spark."""

from __future__ import annotations

from pathlib import Path

import click
import pyarrow as pa

from twophase.contract.committable import Committable
from twophase.contract.sink import SinkContext
from twophase.ids import Attempt, Subtask, TransactionId, new_lineage_id
from twophase.sinks.iceberg.open_sink import OpenIcebergSink
from twophase.sinks.iceberg.sink import IcebergSink

_FIRST = Attempt(1, 1)
_LINEAGE = new_lineage_id()


def new_table(folder: Path) -> IcebergSink:
    """Return the sink of a table that it creates in a folder, in a catalog of SQLite."""
    return IcebergSink(
        catalog_uri=f"sqlite:///{folder}/catalog.db",
        warehouse=str(folder / "warehouse"),
        table="shop.orders",
        create=True,
    )


def opened(declared: IcebergSink, schema: pa.Schema) -> OpenIcebergSink:
    """Return a sink that is open for rows."""
    sink = declared.open(SinkContext("bench", "lake", schema, parallelism=1))
    sink.fence(_FIRST)
    return sink


def new_piece(sink: OpenIcebergSink, rows: pa.Table, checkpoint: int) -> Committable:
    """Pre-commit rows as the only piece of a checkpoint."""
    transaction = TransactionId("bench", _LINEAGE, checkpoint, _FIRST, "lake", "0" * 64)
    writer = sink.writers()(transaction, Subtask(0, checkpoint))
    for batch in rows.to_batches():
        writer.write(batch)
    piece = writer.pre_commit()
    if piece is None:
        raise click.ClickException("nothing was written")
    return piece
