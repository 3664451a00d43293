"""`twophase state`: looks at the state in checkpoints."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from twophase.cli.display.text import clean, count
from twophase.cli.options import verbose_option
from twophase.cli.state_entries import (
    StateEntry,
    read_checkpoint,
    state_entries,
    write_parquet,
)
from twophase.errors import ConfigError

_WIDTH_ELSEWHERE = 200  # not a terminal: a row stays on one line
_VALUE_CHARS = 100
_COLUMNS = ("operator", "state", "scheme", "serializer", "index", "key", "value")


@click.group()
def state() -> None:
    """Look at the state in checkpoints.

    \b
    Examples:
      twophase state read /chk/orders
    """


@state.command()
@click.argument("path", metavar="CHECKPOINT_OR_FOLDER")
@click.option("--operator", metavar="UID", help="Of this source or function only.")
@click.option("--output", metavar="FILE.parquet", type=click.Path(path_type=Path), help="Export.")
@verbose_option
# verbose is for the display of errors
def read(path: str, operator: str | None, output: Path | None, verbose: bool) -> None:  # noqa: ARG001
    """Print or export the operator state of sources and driver-side functions.

    CHECKPOINT_OR_FOLDER is a checkpoint's folder, as `twophase checkpoints` shows it, or a job's
    checkpointLocation, for its newest checkpoint. Only reads, so it can be used while the job runs.
    The state that a plan keeps in Spark is not in it.

    \b
    Examples:
      twophase state read /chk/orders
      twophase state read /chk/orders/chk/LINEAGE-41-3.17 --operator announced
      twophase state read /chk/orders --output state.parquet
    """
    checkpoint = read_checkpoint(path)
    entries = list(state_entries(checkpoint))
    if operator is not None:
        known = sorted({entry.operator for entry in entries})
        entries = [entry for entry in entries if entry.operator == operator]
        if not entries:
            raise ConfigError(
                f"Checkpoint {checkpoint.checkpoint} of job {checkpoint.job!r} has no state of an "
                f"operator {operator!r}.",
                remedy=f"name one of: {', '.join(known) or 'none has state'}.",
            )
    if output is not None:
        write_parquet(entries, output)
        click.echo(f"{count(len(entries), 'row')} written to {output}")
        return
    head = f"Job {checkpoint.job}, checkpoint {checkpoint.checkpoint} of {checkpoint.lineage}"
    _print(clean(head), entries)


def _print(head: str, entries: list[StateEntry]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_ELSEWHERE)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in _COLUMNS:
        table.add_column(name, overflow="fold")
    for entry in entries:
        key = "-" if entry.key is None else _shown(entry.key, entry.key_text)
        value = _shown(entry.value, entry.value_text)
        cells = (entry.operator, entry.state, entry.scheme, entry.serializer, str(entry.index))
        table.add_row(*(Text(clean(cell)) for cell in (*cells, key, value)))
    console.print(Text(head), soft_wrap=True)
    console.print(table)


def _shown(data: bytes, text: str | None) -> str:
    shown = text if text is not None else f"0x{data.hex()}"
    return shown if len(shown) <= _VALUE_CHARS else f"{shown[:_VALUE_CHARS]}..."
