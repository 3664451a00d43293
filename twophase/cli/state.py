"""`twophase state`: looks at the operator state in checkpoints and savepoints, entry by entry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
from rich.text import Text

from twophase.cli.checkpoint_list import Entry, read_checkpoints
from twophase.cli.display.console import plain_table, print_lines
from twophase.cli.display.streams import expect_printed
from twophase.cli.display.text import clean, count
from twophase.cli.options import verbose_option
from twophase.errors import ConfigError
from twophase.functions.operator_state import Redistribution
from twophase.functions.serializer import ArrowSerializer
from twophase.operations.savepoint.make import open_savepoint
from twophase.operations.savepoint.savepoint_restore import is_savepoint
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.checkpoints.function_state import FunctionState
from twophase.state.checkpoints.store import FOLDER
from twophase.state.files.folder_rights import owner_named

_VALUE_CHARS = 100
_COLUMNS = ("operator", "state", "scheme", "serializer", "index", "key", "value")
_SCHEMA = pa.schema(
    [
        ("operator", pa.string()),
        ("state", pa.string()),
        ("scheme", pa.string()),
        ("serializer", pa.string()),
        ("index", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("key_text", pa.string()),
        ("value_text", pa.string()),
    ]
)


@click.group()
def state() -> None:
    """Look at the state in checkpoints and savepoints.

    \b
    Examples:
      twophase state read /chk/orders
    """


@state.command()
@click.argument("path", metavar="PATH")
@click.option("--operator", metavar="UID", help="Of this source or function only.")
@click.option("--output", metavar="FILE.parquet", type=click.Path(path_type=Path), help="Export.")
@verbose_option
@owner_named()
def read(path: str, operator: str | None, output: Path | None) -> None:
    """Print or export the operator state of sources and driver-side functions.

    PATH is a checkpoint's folder, as `twophase checkpoints` shows it; a savepoint; or a job's
    checkpointLocation, for its newest checkpoint. Only reads, so it can be used while the job runs.
    The state that a plan keeps in Spark is not shown.

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
                f"Checkpoint {checkpoint.checkpoint} of job {checkpoint.job!r} has no state of "
                f"operator {operator!r}.",
                remedy=f"leave out --operator, or name one of: {', '.join(known) or 'none'}.",
            )
    if output is not None:
        write_parquet(entries, output)
        click.echo(f"{count(len(entries), 'row')} written to {output}")
        return
    head = f"Job {checkpoint.job}, checkpoint {checkpoint.checkpoint} of {checkpoint.lineage}"
    _print(clean(head), entries)
    expect_printed()


def _print(head: str, entries: list[StateEntry]) -> None:
    table = plain_table(_COLUMNS)
    for entry in entries:
        key = "-" if entry.key is None else _shown(entry.key, entry.key_text)
        value = _shown(entry.value, entry.value_text)
        cells = (entry.operator, entry.state, entry.scheme, entry.serializer, str(entry.index))
        table.add_row(*(Text(clean(cell)) for cell in (*cells, key, value)))
    print_lines((head, table))


def _shown(data: bytes, text: str | None) -> str:
    shown = text if text is not None else f"0x{data.hex()}"
    return shown if len(shown) <= _VALUE_CHARS else f"{shown[:_VALUE_CHARS]}..."


@dataclass(frozen=True)
class StateEntry:
    """One entry of a state.

    Attributes:
        operator: the uid of the function, or of the source.
        state: the state's name: `offsets` of a source, `returned` by `snapshot_state`, `raw`.
        scheme: how it is redistributed.
        serializer: of the value.
        index: the entry's place in the state, from 0.
        key: the bytes of the key; None but for broadcast state.
        value: the bytes of the value.
        key_text: the key as text; None if its serializer is not a built-in one.
        value_text: the value likewise.
    """

    operator: str
    state: str
    scheme: str
    serializer: str
    index: int
    key: bytes | None
    value: bytes
    key_text: str | None
    value_text: str | None


def read_checkpoint(path: str) -> CompletedCheckpoint:
    """Read a checkpoint, even while the job runs.

    Args:
        path: the folder of a checkpoint, as `twophase checkpoints` shows it; a savepoint; or the
            job's folder, for its newest checkpoint.

    Raises:
        ConfigError: it is none of them.
        StopJobError: the checkpoint is damaged, or is of a newer version of twophase.
    """
    if is_savepoint(path):
        return open_savepoint(path).checkpoint()
    folder = Path(path.removeprefix("file://")).absolute()
    if folder.parent.name == FOLDER:
        found = read_checkpoints(str(folder.parent.parent)).entries
        chosen = [entry for entry in found if entry.path.name == folder.name]
    else:
        chosen = list(read_checkpoints(str(folder)).entries)[-1:]
    return _body(chosen, folder)


def state_entries(checkpoint: CompletedCheckpoint) -> Iterator[StateEntry]:
    """Return all entries of all states: of sources, then of functions."""
    for source in checkpoint.sources:
        uid = source.uid or source.format
        yield from _json_entries(uid, "offsets", source.scheme.value, source.entries)
    for uid, value in checkpoint.functions.items():
        if value:
            yield from _json_entries(uid, "returned", Redistribution.SPLIT.value, [value])
        for state in checkpoint.function_states.get(uid, ()):
            yield from _entries_of(uid, state)


def write_parquet(entries: Sequence[StateEntry], path: Path) -> None:
    """Write entries to a parquet file, one row each; an existing file is not replaced.

    Raises:
        ConfigError: the file exists, or cannot be created.
    """
    table = pa.Table.from_pylist([asdict(entry) for entry in entries], schema=_SCHEMA)
    try:
        with path.open("xb") as file:
            pq.write_table(table, file)
    except OSError as error:
        raise ConfigError(
            f"Cannot write {path}: {error.strerror}.", remedy="name a new file for --output."
        ) from error


def _body(chosen: Sequence[Entry], folder: Path) -> CompletedCheckpoint:
    if not chosen:
        raise ConfigError(
            f"{folder} is not a decided checkpoint.",
            remedy="`twophase checkpoints FOLDER` lists the decided checkpoints.",
        )
    [entry] = chosen
    if entry.problem is not None:
        raise entry.problem
    if entry.body is None:
        raise ConfigError(
            f"Checkpoint {entry.decision.checkpoint} in {folder} was deleted: newer checkpoints "
            "subsumed it.",
            remedy="`twophase checkpoints FOLDER` lists the retained checkpoints.",
        )
    return entry.body


def _json_entries(uid: str, name: str, scheme: str, values: Sequence[Any]) -> Iterator[StateEntry]:
    for index, value in enumerate(values):
        text = value if isinstance(value, str) else json.dumps(value)
        yield StateEntry(uid, name, scheme, "json", index, None, text.encode(), None, text)


def _entries_of(uid: str, state: FunctionState) -> Iterator[StateEntry]:
    entries = state.serialized().entries
    name, scheme, serializer = state.name or "raw", state.scheme.value, state.serializers[-1]
    if state.scheme is Redistribution.BROADCAST:
        pairs = zip(entries[::2], entries[1::2], strict=True)
        for index, (key, value) in enumerate(pairs):
            texts = _text(state.serializers[0], key), _text(serializer, value)
            yield StateEntry(uid, name, scheme, serializer, index, key, value, *texts)
        return
    for index, value in enumerate(entries):
        text = _text(serializer, value)
        yield StateEntry(uid, name, scheme, serializer, index, None, value, None, text)


def _text(serializer: str, data: bytes) -> str | None:
    """Return a value as text; None if only the job knows its serializer."""
    match serializer:
        case "json":
            return data.decode()
        case "bytes":
            return data.hex(" ")
        case "arrow":
            return json.dumps(ArrowSerializer().deserialize(data).to_pylist(), default=str)
        case _:
            return None
