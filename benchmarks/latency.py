"""How long after a record was produced its row is visible in MySQL, without a trigger, at a steady
rate; with chained tasks and without.

The first records are sent alone, and the others when these are visible: a start is not counted. A
reader asks again and again how far the rows of each partition go. Those that appeared since its
last question are visible now. Half of all rows, and the oldest row of each appearance, which has
waited for a whole micro-batch and its own. A second table says where the time of a micro-batch
goes, by Spark's names and by the steps of a checkpoint, which Spark counts as `addBatch`.

    python -m benchmarks latency --rate 1000 --seconds 60 --rounds 2
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import click
from confluent_kafka import Producer
from rich.table import Table

from benchmarks.driver import Batch
from benchmarks.kafka_to_mysql import CHAINED, CHAINING, UNCHAINED
from benchmarks.launch import Run, Services, new_kafka, new_mysql, run
from benchmarks.orders import TABLE, create_table, order, produce
from benchmarks.report import Ratio, Result, console, table
from harness.figures import percentile

_MEASURED = "half of the rows", "95 % of the oldest"
_GOALS_S = 0.30, 0.50
_PARTITIONS = 2
_STEP_S, _PAUSE_S = 0.01, 0.002
_BATCH_RECORDS = 1_000_000  # more than there ever are: a micro-batch takes all
_PHASES = "latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch"
_STEPS = {
    "acknowledged_s": "until the sinks have acknowledged",
    "decided_s": "until the decision",
    "committed_s": "until the commit",
}
_TITLES = {CHAINED: "twophase, chained", UNCHAINED: "twophase, not chained"}


@dataclass
class Seen:
    """What a reader has seen, after the warm-up.

    Attributes:
        rows_s: of each row.
        oldest_s: of the oldest row of each appearance.
    """

    rows_s: list[float] = field(default_factory=list)
    oldest_s: list[float] = field(default_factory=list)


@dataclass
class Stream:
    """The records of a run.

    Attributes:
        rate: records a second.
        records: how many there are.
        skipped: the first ones, which do not count.
        produced_s: when each was sent, so far.
        ready: the first ones are visible, and the others follow.
    """

    rate: int
    records: int
    skipped: int
    produced_s: list[float] = field(default_factory=list)
    ready: threading.Event = field(default_factory=threading.Event)


@click.command("latency")
@click.option("--rate", default=1000, show_default=True, help="Records a second.")
@click.option("--seconds", default=60, show_default=True, help="Seconds that count.")
@click.option("--warm-up", default=20, show_default=True, help="Seconds before that.")
@click.option("--rounds", default=2, show_default=True, help="Runs of each pipeline.")
def command(rate: int, seconds: int, warm_up: int, rounds: int) -> None:
    """From Kafka to a reader of MySQL at a steady rate, chained and not chained."""
    seen = {name: Seen() for name in _TITLES}
    runs: dict[str, list[Run]] = {name: [] for name in _TITLES}
    with new_kafka() as kafka, new_mysql() as mysql:
        services = Services(kafka, mysql)
        for number in range(rounds):
            for name in [*_TITLES] if number % 2 == 0 else reversed(_TITLES):
                console.print(f"Round {number + 1} of {rounds}: {_TITLES[name]}", style="dim")
                runs[name].append(_run(services, name, rate, seconds, warm_up, seen[name]))
    measured = f"{rate:,} records a second, no trigger, {_PARTITIONS} tasks"
    _show(seen, measured, runs, phases(runs, rate * warm_up))


def _run(services: Services, name: str, rate: int, seconds: int, warm_up: int, seen: Seen) -> Run:
    """Run a pipeline while records are produced and looked for."""
    topic, database = produce(services.kafka, 0, _PARTITIONS), create_table(services.mysql)
    stream = Stream(rate, rate * (warm_up + seconds), rate * warm_up)
    options = {"chaining": CHAINING[name]}
    with ThreadPoolExecutor(2) as pool:
        driver = pool.submit(
            run, services, "twophase", topic, database, _BATCH_RECORDS,
            options=options, until=stream.records,
        )  # fmt: skip
        producer = pool.submit(_produce, services, topic, stream)
        try:
            _look(services, database, stream, seen, driver.running)
        finally:
            stream.ready.set()
        producer.result()
        return driver.result()


def _produce(services: Services, topic: str, stream: Stream) -> None:
    """Send orders at a rate, in small steps, and note when each was sent."""
    producer = Producer({"bootstrap.servers": services.kafka.bootstrap_servers, "linger.ms": 0})

    def send(until: int) -> None:
        for number in range(len(stream.produced_s), until):
            stream.produced_s.append(time.time())
            producer.produce(topic, order(number), partition=number % _PARTITIONS)
        producer.poll(0)

    send(_PARTITIONS)
    stream.ready.wait()
    began_s = time.time()
    while len(stream.produced_s) < stream.records:
        send(min(_PARTITIONS + int((time.time() - began_s) * stream.rate), stream.records))
        time.sleep(_STEP_S)
    if left := producer.flush(60):
        raise RuntimeError(f"{left} of {stream.records} records did not reach {topic}")


def _look(
    services: Services,
    database: str,
    stream: Stream,
    seen: Seen,
    is_running: Callable[[], bool],
) -> None:
    """Ask how far the rows of each partition go, until all are there or the driver has ended."""
    lasts = [number - _PARTITIONS for number in range(_PARTITIONS)]
    question = f"SELECT MAX(id) FROM {TABLE} WHERE id > %s AND MOD(id, {_PARTITIONS}) = %s"
    visible = 0
    with services.mysql.connect(database) as connection, connection.cursor() as cursor:
        while visible < stream.records and is_running():
            for partition, last in enumerate(lasts):
                cursor.execute(question, (last, partition))
                [(newest,)] = cursor.fetchall()
                if newest is None:
                    continue
                now_s = time.time()
                numbers = range(last + _PARTITIONS, newest + 1, _PARTITIONS)
                waited_s = [
                    now_s - stream.produced_s[one] for one in numbers if one >= stream.skipped
                ]
                seen.rows_s += waited_s
                seen.oldest_s += waited_s[:1]
                visible += len(numbers)
                lasts[partition] = newest
                stream.ready.set()
            time.sleep(_PAUSE_S)


def phases(runs: Mapping[str, Sequence[Run]], skipped: int) -> Table:
    """Return where the time of a micro-batch goes.

    Args:
        runs: of each pipeline.
        skipped: records at the start of a run that do not count.
    """
    shown = table("Milliseconds of a micro-batch, p50", "phase", *map(_TITLES.__getitem__, runs))
    counted = [
        [_figures(*both) for one in done for both in _counted(one, skipped)]
        for done in runs.values()
    ]
    for phase in counted[0][0]:
        medians = (statistics.median(one[phase] for one in found) for found in counted)
        shown.add_row(phase, *(f"{median:,.0f}" for median in medians))
    return shown


def _figures(batch: Batch, checkpoint: Mapping[str, float]) -> dict[str, float]:
    """Return the rows of a micro-batch and the milliseconds of each phase, in their order."""
    spent = batch.phases_ms
    return {
        "rows, not ms": batch.rows,
        **{phase: spent.get(phase, 0) for phase in _PHASES},
        **{title: 1000 * checkpoint[step] for step, title in _STEPS.items()},
        "commitOffsets": spent.get("commitOffsets", 0),
        "triggerExecution, all of it": 1000 * batch.duration_s,
    }


def _counted(done: Run, skipped: int) -> Sequence[tuple[Batch, Mapping[str, float]]]:
    """Return the micro-batches after the first records of a run, each with its checkpoint."""
    begins = itertools.accumulate((batch.rows for batch in done.batches), initial=0)
    batches = [
        batch for batch, begin in zip(done.batches, begins, strict=False) if begin >= skipped
    ]
    checkpoints = done.checkpoints[len(done.checkpoints) - len(batches) :]
    return list(zip(batches, checkpoints, strict=True))


def _show(
    seen: dict[str, Seen], measured: str, runs: Mapping[str, Sequence[Run]], where: Table
) -> None:
    shown = table(
        f"From Kafka to a reader of MySQL: {measured}",
        *("pipeline", *(f"s, {what}" for what in _MEASURED), "appearances"),
    )
    figures = {
        name: (statistics.median(one.rows_s), percentile(one.oldest_s, 0.95))
        for name, one in seen.items()
    }
    for name, both in figures.items():
        texts = (f"{figure:.2f}" for figure in both)
        shown.add_row(_TITLES[name], *texts, f"{len(seen[name].oldest_s):,}")
    kept = all(figure <= goal for figure, goal in zip(figures[CHAINED], _GOALS_S, strict=True))
    goals = " and ".join(f"{goal:.2f} s" for goal in _GOALS_S)
    Result(
        "latency",
        [shown, where],
        [
            Ratio(_TITLES[CHAINED], _TITLES[UNCHAINED], chained_s / unchained_s, f"s, {what}")
            for what, chained_s, unchained_s in zip(
                _MEASURED, figures[CHAINED], figures[UNCHAINED], strict=True
            )
        ],
        said=[f"The goals of {goals} are {'kept' if kept else 'missed'}."],
        others_cores=statistics.mean(
            one.meter.others_cores() for done in runs.values() for one in done
        ),
    ).show()
