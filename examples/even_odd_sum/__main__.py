"""`python -m examples.even_odd_sum`: two sums in Spark's keyed state, a kill in the middle, and
what MySQL says then.

Two Kafka partitions carry 1, 2, 3, ... Spark keeps two keyed sums, even and odd. After each
micro-batch a row for each sum goes to MySQL: the increment of the micro-batch, and the sum in
Spark's state. A reader of the table adds up the increments.

The same query runs twice, with the protocol and without it: an ordinary `foreachBatch` that writes
each micro-batch in a transaction. Both drivers are killed in the same micro-batch at the same
moment: its rows are in MySQL, but Spark has not yet recorded that it is done. So Spark runs it
again. Its keyed state starts from the version before and is right in both runs. But the ordinary
run writes its rows a second time, and MySQL counts them twice; with the protocol the micro-batch
only updates Spark's state again, and nothing is written.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click
from rich.table import Table

from examples.even_odd_sum.comparison import WRITTEN
from examples.even_odd_sum.driver import DriverFailedError, run_driver
from examples.even_odd_sum.numbers import PARTITIONS, TOPIC, expected, produce
from examples.even_odd_sum.query import PARITIES
from examples.even_odd_sum.screen import Screen
from examples.even_odd_sum.target import Sums, Target
from twophase.errors import TwoPhaseError
from twophase.internals import failpoints
from twophase.testing.services import KafkaService, MySqlService

_CHECKPOINTS = 3
_KILLED_IN = 1


@dataclass(frozen=True)
class Run:
    """One of the two runs.

    Attributes:
        title: the title on the screen.
        module: the program of its drivers.
        point: the crash point of the first one: the rows are in MySQL, Spark has not recorded it.
        table: the table that it writes into.
    """

    title: str
    module: str
    point: str
    table: str


WITH = Run("with twophase", "examples.even_odd_sum.job", "C16", "with_twophase")
WITHOUT = Run("without", "examples.even_odd_sum.comparison", WRITTEN, "without_twophase")


@click.command(help=__doc__)
@click.option(
    "--numbers",
    default=3_000,
    show_default=True,
    type=click.IntRange(100),
    help="For each partition.",
)
def main(numbers: int) -> None:
    """Entry point."""
    screen = Screen()
    # so that drivers and servers end with us
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = Path(tempfile.mkdtemp(prefix="twophase-even-odd-sum-"))
    try:
        good = _Example(screen, numbers, folder).run()
    except (TwoPhaseError, DriverFailedError) as error:
        screen.console.print(f"[bold red]{type(error).__name__}[/bold red]: {error}", markup=True)
        sys.exit(1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(0 if good else 1)


class _Example:
    def __init__(self, screen: Screen, numbers: int, folder: Path) -> None:
        self._screen = screen
        self._numbers = numbers
        self._folder = folder

    def run(self) -> bool:
        """Return whether the sums are exact with the protocol, and not without it."""
        self._screen.console.print(
            f"{PARTITIONS} Kafka partitions carry 1 to {self._numbers:,} each. Spark keeps two "
            "sums, even and odd, and writes what each micro-batch adds\n"
            "to MySQL: once with the protocol, once without. A kill hits both between MySQL and "
            "Spark's note that it is done.\n"
        )
        with KafkaService() as kafka, MySqlService(local_infile=True) as mysql:
            produce(kafka.bootstrap_servers, self._numbers)
            self._screen.line(
                f"Kafka and MySQL are up, {PARTITIONS * self._numbers:,} numbers are in Kafka"
            )
            target = Target(mysql)
            environment = {
                "SUMS_KAFKA": kafka.bootstrap_servers,
                "SUMS_TOPIC": TOPIC,
                "SUMS_RECORDS_PER_CHECKPOINT": str(-(-PARTITIONS * self._numbers // _CHECKPOINTS)),
                "SUMS_MYSQL": target.url,
                "SUMS_MYSQL_PASSWORD": mysql.password,
            }
            for run in (WITH, WITHOUT):
                self._run(run, target, environment)
            wanted = expected(self._numbers)
            found = {run: target.sums(run.table) for run in (WITH, WITHOUT)}
        self._show(wanted, found)
        exact = {
            run: {parity: sums.added for parity, sums in found[run].items()} == wanted
            for run in found
        }
        return exact[WITH] and not exact[WITHOUT]

    def _run(self, run: Run, target: Target, environment: Mapping[str, str]) -> None:
        """Run one driver that is killed, and another one that continues."""
        target.create(run.table)
        more = {
            **environment,
            "SUMS_TABLE": run.table,
            "SUMS_FOLDER": str(self._folder / run.table),
        }
        # the first micro-batch is 0
        kill = {failpoints.VARIABLE: f"{run.point}=kill@{_KILLED_IN + 1}"}
        if run_driver(run.module, self._folder / f"{run.table}-1.log", {**more, **kill}):
            raise DriverFailedError(
                f"the driver {run.title} has ended by itself and was to be killed"
            )
        self._screen.line(
            f"{run.title}: [bold red]KILL[/bold red]  SIGKILL in micro-batch {_KILLED_IN}."
        )
        self._screen.more(
            f"In MySQL now: {target.rows(run.table)} rows, two of each micro-batch, "
            f"those of {_KILLED_IN} too."
        )
        run_driver(run.module, self._folder / f"{run.table}-2.log", more)
        self._screen.line(
            f"{run.title}: the next driver has read everything. In MySQL now: "
            f"{target.rows(run.table)} rows."
        )

    def _show(self, wanted: Mapping[str, int], found: Mapping[Run, Mapping[str, Sums]]) -> None:
        table = Table(box=None, padding=(0, 3, 0, 0))
        for column in ("", *PARITIES):
            table.add_column(column, justify="right" if column else "left")
        table.add_column(style="dim")
        table.add_row(
            "in Kafka", *(f"{wanted[parity]:,}" for parity in PARITIES), "1 to n, twice, added up"
        )
        for run, sums in found.items():
            table.add_section()
            table.add_row(
                run.title,
                *(_judged(sums[parity].added, wanted[parity]) for parity in PARITIES),
                "SUM(added) in MySQL",
            )
            table.add_row(
                "",
                *(_judged(sums[parity].total, wanted[parity]) for parity in PARITIES),
                "in Spark's state",
            )
            surplus = {parity: sums[parity].added - wanted[parity] for parity in PARITIES}
            if any(surplus.values()):
                table.add_row(
                    "", *(f"{surplus[parity]:+,}" for parity in PARITIES), "counted twice"
                )
        self._screen.console.print()
        self._screen.console.print(table)


def _judged(value: int, wanted: int) -> str:
    return f"[bold {'green' if value == wanted else 'red'}]{value:,}[/]"


if __name__ == "__main__":
    main(prog_name="python -m examples.even_odd_sum")
