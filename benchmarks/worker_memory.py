"""Peak memory of the Python workers (the source's readers and the sink's writers; Spark
uses them for either).

Batches of very different sizes go through the same job, Kafka to MySQL: rows stream through the
workers, so their memory should stay the same. It shows the kernel's own high-water mark (VmHWM) of
the largest worker.

    python -m benchmarks worker_memory --batch-records 100000 --batch-records 1000000
        --batch-records 4000000
"""

from __future__ import annotations

import click

from benchmarks.launch import Services, new_kafka, new_mysql, run
from benchmarks.orders import count_and_drop, create_table, produce
from benchmarks.report import Curve, Ratio, Result, console, table

_GOAL_MB = 300
_SIZES = (100_000, 1_000_000, 4_000_000)


@click.command("worker_memory")
@click.option(
    "--batch-records",
    "sizes",
    default=_SIZES,
    show_default=True,
    multiple=True,
    help="Records in a micro-batch.",
)
@click.option(
    "--partitions", default=2, show_default=True, help="Partitions of the topic; as many tasks."
)
@click.option("--chaining", type=click.Choice(["auto", "off"]), default="auto", show_default=True)
def command(sizes: tuple[int, ...], partitions: int, chaining: str) -> None:
    """Peak memory of the Python workers for small and large batches."""
    shown = table(
        f"Peak memory of a Python worker, Kafka to MySQL, {partitions} tasks, chaining {chaining}",
        *("records in a batch", "batches", "largest Python worker, MB", "JVM, MB"),
    )
    peaks = []
    with new_kafka() as kafka, new_mysql() as mysql:
        topic = produce(kafka, max(sizes), partitions)
        for size in sizes:
            console.print(f"Batches of {size:,}", style="dim")
            database = create_table(mysql)
            services, options = Services(kafka, mysql), {"chaining": chaining}
            done = run(services, "twophase", topic, database, size, options=options)
            count_and_drop(mysql, database)
            peaks.append(done.meter.peak_mb("Python workers"))
            shown.add_row(
                f"{size:,}",
                f"{len(done.batches)}",
                f"{peaks[-1]:.0f}",
                f"{done.meter.peak_mb('JVM'):.0f}",
            )
    kept = "kept" if max(peaks) < _GOAL_MB else "missed"
    growth = Ratio(f"batches of {sizes[-1]:,}", f"{sizes[0]:,}", peaks[-1] / peaks[0], "MB")
    points = [*zip(sizes, peaks, strict=True)]
    curve = Curve("MB, largest Python worker", "records in a batch", points)
    Result(
        "worker_memory" if chaining == "auto" else "worker_memory-unchained",
        [shown],
        [growth],
        [curve],
        [f"The goal of {_GOAL_MB} MB is {kept}."],
    ).show()
