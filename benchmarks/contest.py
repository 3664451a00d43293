"""Runs pipelines in turn (A B C C B A ...) over the same records, and compares their median
batches.

The first full batches of a run, in which the JVM warms up, are left out, and so are all that are
not full. `twophase-kafka` begins with smaller ones: if these counted as warm-up, it would get less
of it than its peers.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import click

from benchmarks.launch import Run, began_s
from benchmarks.machine import OTHERS
from benchmarks.report import Ratio, Result, console, table
from twophase.sources.kafka.offsets import Limits
from twophase.sources.kafka.planner import SlowStart


def contest_options(
    *, records: int, batch_records: int, warm_up: int
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of a contest, with these defaults; two tasks and two rounds by default."""
    options = (
        click.option("--records", default=records, show_default=True, help="Records in the topic."),
        click.option(
            "--batch-records",
            default=batch_records,
            show_default=True,
            help="Records in a micro-batch.",
        ),
        click.option(
            "--partitions",
            default=2,
            show_default=True,
            help="Partitions of the topic; as many tasks.",
        ),
        click.option("--rounds", default=2, show_default=True, help="Runs of each pipeline."),
        click.option(
            "--warm-up",
            default=warm_up,
            show_default=True,
            help="Full batches at the start of a run that do not count.",
        ),
    )
    return lambda command: functools.reduce(
        lambda made, option: option(made), reversed(options), command
    )


@dataclass
class Pipeline:
    """One contestant and its runs."""

    name: str
    title: str
    guarantee: str
    runs: list[Run] = field(default_factory=list)

    def rates(self, warm_up: int, batch_records: int) -> list[float]:
        """Rows a second of each steady batch of all runs."""
        return [
            batch.rows / batch.duration_s
            for done in self.runs
            for batch in done.steady(warm_up, batch_records)
        ]

    def end_to_end(self) -> float:
        """Rows a second from the first trigger to the end of the last batch, warm-up included."""
        return statistics.median(_end_to_end(done) for done in self.runs)

    def cpu(self, warm_up: int, batch_records: int) -> dict[str, float]:
        """Median processor seconds for a million rows, by part, in steady batches."""
        found = [done.cpu_per_million(done.steady(warm_up, batch_records)) for done in self.runs]
        return {part: statistics.median(one.get(part, 0.0) for one in found) for part in found[0]}


def alternate(pipelines: Sequence[Pipeline], rounds: int, run: Callable[[str], Run]) -> None:
    """Run each pipeline `rounds` times."""
    for number in range(rounds):
        for pipeline in pipelines if number % 2 == 0 else pipelines[::-1]:
            console.print(f"Round {number + 1} of {rounds}: {pipeline.title}", style="dim")
            pipeline.runs.append(run(pipeline.name))


def check_batches(records: int, batch_records: int, warm_up: int) -> None:
    """Check that there are full batches after the warm-up."""
    full = full_batches(records, batch_records)
    if full <= warm_up:
        raise click.UsageError(
            f"{records} records are {full} full batches, {warm_up} of them warm-up."
        )


def full_batches(records: int, batch_records: int) -> int:
    """Return how many full batches `twophase-kafka` makes of so many records, at least."""
    slow_start, full = SlowStart(lambda: 0.0), Limits(per_trigger=batch_records)
    while (limit := slow_start.limit(full)) != full and records > 0:
        records -= limit.per_trigger or 0
        slow_start.admitted()
    return max(0, records) // batch_records


def _end_to_end(done: Run) -> float:
    last = done.batches[-1]
    return sum(batch.rows for batch in done.batches) / (
        began_s(last) + last.duration_s - began_s(done.batches[0])
    )


def compared(
    name: str,
    title: str,
    pipelines: Sequence[Pipeline],
    warm_up: int,
    batch_records: int,
    goals: Mapping[str, float] | None = None,
) -> Result:
    """Return the figures of pipelines, and the ratio of the first one to each of the others.

    Args:
        name: of the result.
        title: of its table.
        pipelines: that have run.
        warm_up: batches that do not count.
        batch_records: records in those that do.
        goals: of the ratio to other pipelines, by their names.
    """
    parts = [
        *dict.fromkeys(
            part
            for pipeline in pipelines
            for part in pipeline.cpu(warm_up, batch_records)
            if part != OTHERS
        )
    ]
    shown = table(
        title,
        *("pipeline", "guarantee", "rows/s, median batch", "slowest", "fastest", "end to end"),
    )
    costs = table(
        "Processor seconds for 1,000,000 rows, steady batches", "pipeline", *parts, "together"
    )
    for pipeline in pipelines:
        rates = pipeline.rates(warm_up, batch_records)
        figures = (statistics.median(rates), min(rates), max(rates), pipeline.end_to_end())
        shown.add_row(pipeline.title, pipeline.guarantee, *(f"{figure:,.0f}" for figure in figures))
        cpu = pipeline.cpu(warm_up, batch_records)
        used = [cpu.get(part, 0.0) for part in parts]
        costs.add_row(pipeline.title, *(f"{one:.2f}" for one in used), f"{sum(used):.2f}")
    ratios = []
    first, *others = pipelines
    ours = statistics.median(first.rates(warm_up, batch_records))
    for pipeline in others:
        theirs = statistics.median(pipeline.rates(warm_up, batch_records))
        by_run = [
            _median_rate(one, warm_up, batch_records) / _median_rate(other, warm_up, batch_records)
            for one, other in zip(first.runs, pipeline.runs, strict=True)
        ]
        goal = (goals or {}).get(pipeline.name)
        ratios.append(Ratio(first.title, pipeline.title, ours / theirs, "rows/s", by_run, goal))
    runs = [done for pipeline in pipelines for done in pipeline.runs]
    others_cores = statistics.mean(done.meter.others_cores() for done in runs)
    return Result(name, [shown, costs], ratios, others_cores=others_cores)


def _median_rate(done: Run, warm_up: int, batch_records: int) -> float:
    return statistics.median(
        batch.rows / batch.duration_s for batch in done.steady(warm_up, batch_records)
    )
