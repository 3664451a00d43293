"""Runs one job for long while everything around it dies: its driver, its workers, both
servers, the broker.

    python -m integration.soak [--minutes N] [--records N] [--kills N] [--seed S] [--report FILE]

Each checkpoint goes to MySQL and to MariaDB. A reader looks at both tables all the time; at the end
the independent checker compares them with Kafka. The same seed makes the same choices.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live

from integration.soak.faults import faults
from integration.soak.report import markdown, phase_at, tables
from integration.soak.run import Goal, Outcome, Soak, Struck
from integration.soak.scenario import BATCH, SoakScenario
from twophase.testing.services import KafkaService, MariaDbService, MySqlService

_MINUTES = 10.0
_RECORDS_A_KILL = 20_000
_BATCHES_A_KILL = 10
_CHECKPOINTS = 400
_LARGEST_BATCH = 10_000
_SHARE = 0.8
"""Of the records a strike is given: the job goes on while a fault is mended."""


@click.command(help=__doc__)
@click.option("--minutes", type=float, default=0.0, help="No more strikes after so long.")
@click.option("--records", type=int, default=0, help="Write at least so many.")
@click.option("--kills", type=int, default=None, help="So many strikes.")
@click.option("--seed", type=int, default=None, help="Of all choices; a new one if there is none.")
@click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the figures there, as Markdown.",
)
def main(
    minutes: float, records: int, kills: int | None, seed: int | None, report: Path | None
) -> None:
    """Entry point."""
    console = Console(soft_wrap=True, highlight=False)
    scratch = Path(tempfile.mkdtemp(prefix="twophase-soak-"))
    seed = time.time_ns() % 2**32 if seed is None else seed
    console.print(f"seed {seed}; the drivers' logs: {scratch}")
    outcome = soak(_goal(minutes, records, kills), seed, scratch, console)
    for table in tables(outcome):
        console.print(table)
    if report is not None:
        report.write_text(markdown(outcome), encoding="utf-8")
    if not outcome.exact:
        console.print(
            f"Not exactly once: {[verdict.examples for verdict in outcome.verdicts.values()]}"
        )
        sys.exit(1)
    shutil.rmtree(scratch)


def soak(goal: Goal, seed: int, scratch: Path, console: Console) -> Outcome:
    """Run one with servers of its own: each strike is printed, and how far the job is."""
    with KafkaService(own=True) as kafka, MySqlService(local_infile=True, own=True) as mysql:
        with MariaDbService(local_infile=True, own=True) as mariadb:
            scenario = SoakScenario(kafka, {"facts": mysql, "copy": mariadb}, scratch, _batch(goal))
            screen = Screen(scenario, console)
            known = faults(scenario, kafka)
            rows = _rows(goal, scenario.batch)
            running = Soak(scenario, kafka, known, list(known), seed, rows=rows, tell=screen.tell)
            with Live(screen, console=console, transient=True, refresh_per_second=2):
                return running.run(goal)


class Screen:
    """The live line, and a line for each strike.

    Args:
        scenario: the job.
        console: where to.
    """

    def __init__(self, scenario: SoakScenario, console: Console) -> None:
        self._scenario = scenario
        self._console = console
        self._began_s = time.monotonic()
        self._strikes = 0

    def __rich__(self) -> str:
        took_s = time.monotonic() - self._began_s
        return (
            f"{took_s:7.1f} s  {self._scenario.journals.rows:,} records committed, "
            f"{self._strikes} strikes"
        )

    def tell(self, struck: Struck) -> None:
        """Print one strike."""
        self._strikes += 1
        phase = phase_at(self._scenario.journals.entries(), struck.at_s)
        mended_s = struck.mended_s - struck.at_s
        self._console.print(
            f"{struck.at_s - self._began_s:7.1f} s  {self._strikes:3}  {struck.strike.fault:21} "
            f"in {phase:10} mended after {mended_s:4.1f} s, "
            f"{self._scenario.journals.rows:,} records committed"
        )


def _goal(minutes: float, records: int, kills: int | None) -> Goal:
    if not minutes and not records and kills is None:
        return Goal(minutes=_MINUTES)
    if not minutes and kills is None:
        kills = max(1, records // _RECORDS_A_KILL)
    return Goal(kills, records, minutes)


def _batch(goal: Goal) -> int:
    """Records of a checkpoint: however many there are to be, there are some hundred checkpoints."""
    return min(max(BATCH, goal.records // _CHECKPOINTS), _LARGEST_BATCH)


def _rows(goal: Goal, batch: int) -> int:
    """Between two strikes."""
    if goal.kills and goal.records:
        return round(_SHARE * goal.records / goal.kills)
    return _BATCHES_A_KILL * batch


if __name__ == "__main__":
    main()
