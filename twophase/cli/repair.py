"""`twophase repair`: leads a job out of a state in which it refuses to start. Shows what it would do, and asks."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from twophase.cli.options import verbose_option
from twophase.cli.repair_bench import repair_bench
from twophase.cli.text import clean, count
from twophase.coordinator.clock import SystemClock
from twophase.coordinator.repair import LossPlan, LossRepair
from twophase.state.records import Note

_WIDTH_ELSEWHERE = 200  # not a terminal: a row stays on one line


@click.group()
def repair() -> None:
    """Lead a job out of a state in which it refuses to start.

    The error that the job ends with names the command. Each shows first what it would give up, take over or write, and asks;
    the job's log keeps who has done it, when and why.
    """


def _repair_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        verbose_option,
        click.option("--yes", is_flag=True, help="Do not ask; --reason is required then."),
        click.option("--reason", metavar="TEXT", help="Why, for the job's log."),
        click.option("--checkpoint-location", metavar="FOLDER", help="The job's folder; sets checkpointLocation."),
        click.argument("job_file", metavar="JOB.yaml", type=click.Path(path_type=Path)),
    ):
        command = option(command)
    return command


@repair.command("accept-loss")
@click.option("--checkpoint", required=True, type=click.IntRange(min=0), help="The decided checkpoint.")
@click.option("--sink", required=True, help="The sink that has lost pieces of it.")
@_repair_options
def accept_loss(
    job_file: Path,
    checkpoint: int,
    sink: str,
    checkpoint_location: str | None,
    reason: str | None,
    yes: bool,
    verbose: bool,
) -> None:
    """Let a checkpoint commit without pieces that are gone for good (LostPreparedError).

    First it does what every start does: it takes the job over, so that a driver that still runs ends, and commits what it can.
    What the sink then proves lost is shown. Nothing is given up before the answer is yes.

    \b
    Example:
      twophase repair accept-loss orders.yaml --checkpoint 41 --sink facts
    """
    _require_reason(reason, yes=yes)
    with repair_bench(job_file, checkpoint_location, verbose=verbose) as (_, bench):
        repairing = LossRepair(bench)
        plan = repairing.plan(checkpoint, sink)
        _show(_loss(plan, bench.sinks[sink].target()))
        note = _ask("Give these rows up?", reason, yes=yes)
        repairing.accept(plan, note)
    _done(job_file, f"Checkpoint {checkpoint} is committed without them.")


def _loss(plan: LossPlan, target: str) -> Iterable[Table | str]:
    body = plan.checkpoint
    yield f"Job {body.job}, lineage {body.lineage}, checkpoint {body.checkpoint}, attempt {body.attempt}, sink {plan.sink}"
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("piece", "rows", "state"):
        table.add_column(name, justify="right" if name == "rows" else "left", overflow="fold")
    for piece, evidence in plan.lost:
        table.add_row(str(piece.subtask), f"{piece.rows:,}", Text(clean(f"lost: {evidence}"), style="red"))
    for piece in plan.kept:
        table.add_row(str(piece.subtask), f"{piece.rows:,}", Text("committed", style="green"))
    yield table
    yield f"To be given up: {count(plan.rows, 'row')} in {count(len(plan.lost), 'piece')}, missing in {target} from then on."
    yield "They are among the records from"
    yield from (f"- {line or 'the beginning'}" for line in body.offsets.start)
    yield "to"
    yield from (f"- {line or 'the beginning'}" for line in body.offsets.end)
    others = [f"{name} ({count(rows, 'row')})" for name, rows in body.rows_by_sink.items() if name != plan.sink]
    if others:
        yield f"Other sinks commit the checkpoint as it is: {', '.join(others)}."


def _require_reason(reason: str | None, *, yes: bool) -> None:
    if yes and not reason:
        raise click.UsageError("--yes asks nothing, so it needs --reason.")


def _show(lines: Iterable[Table | str]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_ELSEWHERE)
    for line in lines:
        console.print(Text(clean(line)) if isinstance(line, str) else line, soft_wrap=True)


def _ask(question: str, reason: str | None, *, yes: bool) -> Note:
    """Raises click.Abort if the answer is no, or nobody is there to answer."""
    if not yes:
        click.confirm(question, abort=True)
    why = reason or click.prompt("Why (for the job's log)")
    return Note(f"{getpass.getuser()}@{socket.gethostname()}", SystemClock().unix_ms(), clean(why))


def _done(job_file: Path, what: str) -> None:
    click.echo(f"{what} Start the job: twophase run {job_file}")
