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
from benchmarks.report import console, foot, table

_GOAL_MB = 400
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
def command(sizes: tuple[int, ...], partitions: int) -> None:
    """Peak memory of the Python workers for small and large batches."""
    shown = table(
        f"Peak memory of a Python worker, Kafka to MySQL, {partitions} tasks",
        *("records in a batch", "batches", "largest Python worker, MB", "JVM, MB"),
    )
    peaks = []
    with new_kafka() as kafka, new_mysql() as mysql:
        topic = produce(kafka, max(sizes), partitions)
        for size in sizes:
            console.print(f"Batches of {size:,}", style="dim")
            database = create_table(mysql)
            done = run(Services(kafka, mysql), "twophase", topic, database, size)
            count_and_drop(mysql, database)
            peaks.append(done.meter.peak_mb("Python workers"))
            shown.add_row(
                f"{size:,}",
                f"{len(done.batches)}",
                f"{peaks[-1]:.0f}",
                f"{done.meter.peak_mb('JVM'):.0f}",
            )
    console.print(shown)
    kept = "kept" if max(peaks) < _GOAL_MB else "missed"
    console.print(
        f"Largest batch / smallest batch: [bold]{peaks[-1] / peaks[0]:.2f}[/bold] times the memory "
        f"for {sizes[-1] / sizes[0]:.0f} times the records; the goal of {_GOAL_MB} MB is {kept}."
    )
    foot()
