"""What phase 2 of the file sink costs: files renamed into the folders of their partitions, synced, and proven.

Each commit is of one checkpoint with some number of pieces, each with one file for every partition. The partitions are new in
every commit: their folders are made and synced too. The cost of a file has to stay the same when there are more of them.

    python -m benchmarks file_commit --files 1000 --partitions 100
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import click
import pyarrow as pa

from benchmarks.report import console, table
from sinks.file.sink import FileSink
from twophase.ids import Attempt, Subtask, TransactionId, new_lineage_id
from twophase.protocol.committable import Committable
from twophase.protocol.outcome import Committed
from twophase.protocol.sink import CommitRequest, SinkContext

_SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
_GOAL_S = 2.0
_FIRST = Attempt(1, 1)


@click.command("file_commit")
@click.option("--files", default=1_000, show_default=True, help="Files of the commit the goal is for.")
@click.option("--partitions", default=100, show_default=True, help="Partitions they are in.")
@click.option("--repeat", default=5, show_default=True, help="Commits of each size.")
@click.option(
    "--folder", type=click.Path(path_type=Path), default=None, help="Where to write; a temporary folder else."
)
def command(files: int, partitions: int, repeat: int, folder: Path | None) -> None:
    """Commit files over partitions: seconds, and the cost of a file at four sizes."""
    shown = table(f"Commit of files over {partitions} new partitions", "files", "p50 s", "max s", "p50 ms a file")
    sizes = [files // 4, files // 2, files, 2 * files]
    medians = {}
    with tempfile.TemporaryDirectory(prefix="twophase-bench-", dir=folder) as path:
        for size in sizes:
            costs = [
                _commit(Path(path) / f"{size}-{number}", size // partitions, partitions) for number in range(repeat)
            ]
            medians[size] = statistics.median(costs)
            shown.add_row(
                f"{size:,}", f"{medians[size]:.3f}", f"{max(costs):.3f}", f"{1000 * medians[size] / size:.3f}"
            )
    console.print(shown)
    growth = (medians[sizes[-1]] / sizes[-1]) / (medians[sizes[0]] / sizes[0])
    kept = "kept" if medians[files] < _GOAL_S else "missed"
    console.print(
        f"A file of {sizes[-1]:,} / a file of {sizes[0]:,}: [bold]{growth:.2f}[/bold] (1 or less: linear or better); the goal "
        f"of {_GOAL_S:g} s for {files:,} files (p50) is {kept}."
    )


def _commit(folder: Path, tasks: int, partitions: int) -> float:
    sink = FileSink(path=str(folder), partition_by=["part"])
    sink.open(SinkContext("bench", "files", _SCHEMA, parallelism=tasks))
    sink.fence(_FIRST)
    transaction = TransactionId("bench", new_lineage_id(), 0, _FIRST, "files", "0" * 64)
    pieces = [_write(sink, transaction, Subtask(task, task), partitions) for task in range(tasks)]
    began_s = time.perf_counter()
    outcomes = sink.commit([CommitRequest(piece) for piece in pieces])
    took_s = time.perf_counter() - began_s
    if outcomes != [Committed()] * tasks or len(list(folder.glob("part=*/*.parquet"))) != tasks * partitions:
        raise click.ClickException(f"the commit failed: {outcomes}")
    return took_s


def _write(sink: FileSink, transaction: TransactionId, subtask: Subtask, partitions: int) -> Committable:
    writer = sink.writer(transaction, subtask)
    rows = [{"id": number, "part": f"p{number:03d}"} for number in range(partitions)]
    writer.write(pa.RecordBatch.from_pylist(rows, schema=_SCHEMA))
    piece = writer.pre_commit()
    if piece is None:
        raise click.ClickException("nothing was written")
    return piece
