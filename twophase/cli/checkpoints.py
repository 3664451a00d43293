"""`twophase checkpoints`: lists the checkpoints in a job's folder, as a table or as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import click
from rich.text import Text

from twophase.cli.checkpoint_list import CheckpointList, Entry, offsets_of, read_checkpoints
from twophase.cli.display.console import plain_table, table_console
from twophase.cli.display.streams import expect_printed
from twophase.cli.display.text import clean, count, duration, local_time, on_one_line, size
from twophase.cli.event_history import show_history
from twophase.cli.options import verbose_option
from twophase.contract.offset_text import line_text, offset_text
from twophase.coordinator.recovery.refusal import GIVE_UP, finishing
from twophase.state.checkpoints.checkpoint import CompletedCheckpoint
from twophase.state.files.event_file import utc
from twophase.state.files.folder_rights import owner_named
from twophase.state.journal.entries import (
    AbandonedRewind,
    AcceptedLoss,
    Adoption,
    Release,
    Repair,
    Rewinding,
    Rewrite,
    SinkDecision,
)
from twophase.state.journal.history import History
from twophase.state.journal.stats import CheckpointStats

_LINEAGE_CHARS = 8
_PARTITIONS = 6
_STATE_STYLES = {
    "committed": "green",
    "decided": "yellow",
    "subsumed": "dim",
    "damaged": "bold red",
    "newer": "bold red",
}
_COLUMNS = (
    "id",
    "lineage",
    "attempt",
    "state",
    "trigger time",
    "duration",
    "pre-commit",
    "commit",
    "size",
    "rows",
    "declined",
    "offsets",
    "pending commits",
)
_RIGHT = ("id", "duration", "pre-commit", "commit", "size", "rows")


@click.command()
@click.argument("folder", metavar="FOLDER")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with full paths and offsets.")
@click.option(
    "--history",
    is_flag=True,
    help="Print what has happened in the last hours instead, oldest first.",
)
@verbose_option
@owner_named()
def checkpoints(folder: str, as_json: bool, history: bool) -> None:
    """List the decided checkpoints in FOLDER, a job's checkpointLocation.

    Only reads, so it can be used while the job runs. Exits with 3 if something in the folder
    is damaged, or was written by a newer version.

    \b
    States:
      committed  visible in every sink
      decided    will be committed, now or by the next start
      subsumed   newer ones have replaced it; it can no longer be restored
      damaged    its body or a file of its states is gone, or not the one that was decided
      newer      its body was written by a newer version of twophase

    \b
    Examples:
      twophase checkpoints /chk/orders
      twophase checkpoints /chk/orders --json | jq -r '.checkpoints[-1].path'
      twophase checkpoints /chk/orders --history
    """
    if history:
        show_history(folder, as_json=as_json)
        return
    found = read_checkpoints(folder)
    if as_json:
        click.echo(json.dumps(_to_json(found), indent=2))
    else:
        _print(found)
    if found.problem is not None:
        raise found.problem
    expect_printed()


def _print(found: CheckpointList) -> None:
    console = table_console()
    table = plain_table(_COLUMNS, _RIGHT)
    for entry in found.entries:
        table.add_row(*_cells(entry))
    console.print(Text(_head(found)), soft_wrap=True)
    console.print(table)
    for name in found.undecided:
        console.print(Text(f"undecided: {clean(name)}", style="dim"), soft_wrap=True)
    for ahead in found.history.ahead:
        console.print(Text(f"ahead: {clean(_ahead(ahead))}", style="yellow"), soft_wrap=True)
    for repair in found.history.repairs:
        console.print(Text(f"repaired: {clean(_repair(repair))}", style="yellow"), soft_wrap=True)
    whole = [entry for entry in found.entries if entry.body is not None]
    if found.history.rewinding is not None:
        console.print(
            Text(on_one_line(_rewinding(found.history.rewinding, found.history))), soft_wrap=True
        )
    elif whole:
        console.print(Text(_after(found, whole[-1])), soft_wrap=True)


def _after(found: CheckpointList, newest: Entry) -> str:
    number = newest.decision.checkpoint
    if found.is_of_plugin_form:
        return f"The query goes on after checkpoint {number}, with its checkpointLocation."
    after = f"`twophase run JOB.yaml` goes on after checkpoint {number}, without a restore."
    return f"{after} Its path: {newest.path}"


def _rewinding(begun: Rewinding, history: History) -> str:
    return (
        f"rewinding: no start goes on before the rewind to {begun.restored_from} is finished: "
        f"{finishing(begun, history)}. {GIVE_UP}"
    )


def _ahead(decision: SinkDecision) -> str:
    rows = count(sum(piece.rows for piece in decision.pieces), "row")
    return (
        f"sink {decision.sink} has or gets {rows} of checkpoint {decision.checkpoint} "
        f"({decision.attempt}), which is not decided in the others"
    )


def _repair(repair: Repair) -> str:
    match repair:
        case AcceptedLoss():
            rows = count(repair.rows, "row")
            if repair.emptied:
                rows = f"at least {rows}"
            what = f"{rows} of checkpoint {repair.checkpoint} given up in sink {repair.sink}"
        case Adoption(lineage=begun):
            ends = begun.ancestors.items() if begun else ()
            adopted = ", ".join(f"{lineage[:8]} up to {last}" for lineage, last in ends)
            what = f"adopted from the targets: {adopted or 'this folder, as it is'}"
        case Rewrite(decision=decision):
            rows = count(repair.rows, "row")
            what = (
                f"{rows} of checkpoint {decision.checkpoint} written again to sink "
                f"{repair.sink} ({decision.attempt})"
            )
        case AbandonedRewind(rewinding=rewinding):
            what = f"the rewind to {rewinding.restored_from} given up"
        case Release(parts=parts):
            what = f"released at {' '.join(map(line_text, parts))}"
    return f"{local_time(repair.note.at_ms)} {what}, by {repair.note.by}: {repair.note.reason}"


def _head(found: CheckpointList) -> str:
    lineage = found.history.lineage
    parts = [f"Job {found.job}", f"generation {found.history.generation}"]
    if lineage is not None:
        parts.append(f"lineage {lineage.id}")
        if lineage.restored_from:
            parts.append(f"restored from {lineage.restored_from}")
    return clean(", ".join(parts))


def _cells(entry: Entry) -> Iterable[str | Text]:
    decision, body = entry.decision, entry.body
    yield str(decision.checkpoint)
    yield decision.lineage[:_LINEAGE_CHARS]
    yield str(decision.attempt)
    yield Text(entry.state, style=_STATE_STYLES[entry.state])
    if body is None:
        yield from ("-",) * (len(_COLUMNS) - 4)
        return
    yield local_time(body.trigger_time_ms)
    yield duration(body.duration_ms / 1000)
    yield duration(entry.stats.pre_commit_ms / 1000) if entry.stats else "-"
    yield duration(entry.stats.commit_ms / 1000) if entry.stats else "-"
    yield size(entry.size or 0)
    yield Text(_rows(body.rows_by_sink))
    yield Text(_declined(entry) or "-")
    yield Text(_offsets(body))
    yield Text(
        ", ".join(f"{count(pieces, 'piece')} of {sink}" for sink, pieces in entry.pending.items())
        or "-"
    )


def _declined(entry: Entry) -> str:
    """Return the reasons of the attempts before it as text, each with how often it came."""
    reasons = Counter(one.reason for one in entry.stats.declined) if entry.stats else Counter[str]()
    return clean(", ".join(f"{many} {name}" for name, many in reasons.items()))


def _rows(by_sink: Mapping[str, int]) -> str:
    """Return the row counts as text: '1,000', '1,000 each', or 'facts 1,000, lake 310'."""
    numbers = {*by_sink.values()}
    if len(numbers) > 1:
        return clean(", ".join(f"{sink} {rows:,}" for sink, rows in by_sink.items()))
    rows = f"{max(numbers, default=0):,}"
    return f"{rows} each" if len(by_sink) > 1 else rows


def _offsets(body: CompletedCheckpoint) -> str:
    texts = [offset_text(entries, _PARTITIONS) for _, entries in offsets_of(body)]
    return clean("; ".join(text or "-" for text in texts)) or "-"


def _to_json(found: CheckpointList) -> dict[str, Any]:
    lineage, rewinding = found.history.lineage, found.history.rewinding
    return {
        "job": found.job,
        "generation": found.history.generation,
        "lineage": lineage.id if lineage else None,
        "restored_from": lineage.restored_from or None if lineage else None,
        "checkpoints": [_entry_to_json(entry) for entry in found.entries],
        "rewinding": rewinding.restored_from if rewinding else None,
        "undecided": list(found.undecided),
        "ahead": [
            {"sink": one.sink, "checkpoint": one.checkpoint, "attempt": str(one.attempt)}
            for one in found.history.ahead
        ],
        "repairs": [asdict(repair) for repair in found.history.repairs],
    }


def _entry_to_json(entry: Entry) -> dict[str, Any]:
    decision, body = entry.decision, entry.body
    value: dict[str, Any] = {
        "id": decision.checkpoint,
        "lineage": decision.lineage,
        "attempt": str(decision.attempt),
        "state": entry.state,
        "path": str(entry.path),
        "offsets_hash": decision.offsets_hash,
    }
    if entry.problem is not None:
        value["problem"] = str(entry.problem)
    if body is not None:
        value |= {
            "trigger_time": utc(body.trigger_time_ms),
            "duration_ms": body.duration_ms,
            "size_bytes": entry.size,
            "rows": body.rows,
            "rows_by_sink": body.rows_by_sink,
            "sources": [{"format": name, "offsets": entries} for name, entries in offsets_of(body)],
            "pending_commits": dict(entry.pending),
        }
    if entry.stats is not None:
        value |= _stats_to_json(entry.stats)
    return value


def _stats_to_json(stats: CheckpointStats) -> dict[str, Any]:
    return {
        "pre_commit_ms": stats.pre_commit_ms,
        "decide_ms": stats.decide_ms,
        "commit_ms": stats.commit_ms,
        "declined": [
            {"attempt": str(one.attempt), "reason": one.reason, "cause": one.cause}
            for one in stats.declined
        ],
    }
