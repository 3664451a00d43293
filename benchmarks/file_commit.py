"""The cost of phase 2 in the sinks that write files: rename files into the folders of their
partitions, sync, and write proof.

Each commit is of one checkpoint with some number of pieces, each with one file for every partition.
The partitions are new in every commit: their folders are created and synced too, and with
`--metastore` they are added to Spark's embedded metastore, on disk, as the Hive sink does. The cost
of a file must not grow with the number of files.

    python -m benchmarks file_commit --files 1000 --partitions 100 --metastore
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.report import Curve, Ratio, Result, table
from twophase.contract.committable import Committable
from twophase.contract.outcome import Committed
from twophase.contract.sink import ArrowSink, CommitRequest, OpenArrowSink, SinkContext
from twophase.ids import Attempt, Subtask, TransactionId, new_lineage_id
from twophase.sinks.file.sink import FileSink
from twophase.sinks.hive.sink import HiveSink

_SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
_GOAL_S = 2.0
_FIRST = Attempt(1, 1)

NewSink = Callable[[str], tuple[ArrowSink, Path]]
"""Makes the sink of a new table with that name, and returns its folder."""


@click.command("file_commit")
@click.option(
    "--files", default=1_000, show_default=True, help="Files of the commit the goal is for."
)
@click.option("--partitions", default=100, show_default=True, help="Partitions they are in.")
@click.option("--repeat", default=5, show_default=True, help="Commits of each size.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=None,
    help="Where to write; a temporary folder else.",
)
@click.option(
    "--metastore",
    is_flag=True,
    help="Add the partitions to Spark's embedded metastore: the Hive sink.",
)
def command(files: int, partitions: int, repeat: int, folder: Path | None, metastore: bool) -> None:
    """Commit files over partitions: seconds, and the cost of a file at up to four sizes."""
    if not files or files % partitions:
        raise click.UsageError(
            f"{files} files are not as many, and at least one, for each of {partitions} partitions."
        )
    where = "and the metastore" if metastore else ""
    shown = table(
        f"Commit of files over {partitions} new partitions {where}",
        "files",
        "p50 s",
        "max s",
        "p50 ms a file",
    )
    sizes = _sizes(files, partitions)
    medians = {}
    with (
        tempfile.TemporaryDirectory(prefix="twophase-bench-", dir=folder) as path,
        _sinks(Path(path), metastore) as new,
    ):
        _commit(new, "orders_warm_up", 1, partitions)
        for size in sizes:
            costs = [
                _commit(new, f"orders_{size}_{number}", size // partitions, partitions)
                for number in range(repeat)
            ]
            medians[size] = statistics.median(costs)
            shown.add_row(
                f"{size:,}",
                f"{medians[size]:.3f}",
                f"{max(costs):.3f}",
                f"{1000 * medians[size] / size:.3f}",
            )
    growth = (medians[sizes[-1]] / sizes[-1]) / (medians[sizes[0]] / sizes[0])
    kept = "kept" if medians[files] < _GOAL_S else "missed"
    Result(
        "file_commit-metastore" if metastore else "file_commit",
        [shown],
        [Ratio(f"{sizes[-1]:,} files", f"{sizes[0]:,}", growth, "s a file")],
        [Curve("s", "files", [(size, medians[size]) for size in sizes])],
        [f"The goal of {_GOAL_S:g} s for {files:,} files (p50) is {kept}."],
    ).show()


@contextmanager
def _sinks(folder: Path, metastore: bool) -> Iterator[NewSink]:
    if not metastore:
        yield lambda name: (FileSink(path=str(folder / name), partition_by=["part"]), folder / name)
        return
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config(
            "spark.hadoop.javax.jdo.option.ConnectionURL",
            f"jdbc:derby:{folder / 'metastore'};create=true",
        )
        .config(
            "spark.driver.extraJavaOptions", f"-Dderby.stream.error.file={folder / 'derby.log'}"
        )
        .enableHiveSupport()
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield lambda name: (
            HiveSink(table=name, create=True, partition_by=["part"]),
            folder / "warehouse" / name,
        )
    finally:
        spark.stop()


def _sizes(files: int, partitions: int) -> list[int]:
    """Return a quarter, half, all and twice of a number of files, rounded to whole pieces of a file
    for every partition.
    """
    pieces = files // partitions
    return [
        partitions * number
        for number in sorted({max(pieces // 4, 1), max(pieces // 2, 1), pieces, 2 * pieces})
    ]


def _commit(new: NewSink, name: str, tasks: int, partitions: int) -> float:
    declared, folder = new(name)
    sink = declared.open(SinkContext("bench", "files", _SCHEMA, parallelism=tasks))
    sink.fence(_FIRST)
    transaction = TransactionId("bench", new_lineage_id(), 0, _FIRST, "files", "0" * 64)
    pieces = [_write(sink, transaction, Subtask(task, task), partitions) for task in range(tasks)]
    began_s = time.perf_counter()
    outcomes = sink.commit([CommitRequest(piece) for piece in pieces])
    took_s = time.perf_counter() - began_s
    if (
        outcomes != [Committed()] * tasks
        or len(list(folder.glob("part=*/*.parquet"))) != tasks * partitions
    ):
        raise click.ClickException(f"the commit failed: {outcomes}")
    return took_s


def _write(
    sink: OpenArrowSink, transaction: TransactionId, subtask: Subtask, partitions: int
) -> Committable:
    writer = sink.writers()(transaction, subtask)
    rows = [{"id": number, "part": f"p{number:03d}"} for number in range(partitions)]
    writer.write(pa.RecordBatch.from_pylist(rows, schema=_SCHEMA))
    piece = writer.pre_commit()
    if piece is None:
        raise click.ClickException("nothing was written")
    return piece
