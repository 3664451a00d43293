"""What `twophase repair` shows before it asks: the plan of each repair, as lines and tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from twophase.cli.display.console import plain_table
from twophase.cli.display.text import clean, count
from twophase.contract.committable import Committable
from twophase.contract.offset_text import line_text
from twophase.coordinator.commit.context import JobContext
from twophase.operations.repair.abandon_rewind import AbandonPlan
from twophase.operations.repair.accept_loss import LossPlan
from twophase.operations.repair.adoption_plan import AdoptionPlan
from twophase.operations.repair.release import ReleasePlan
from twophase.operations.repair.rewrite import RewritePlan

_ADOPTION_COLUMNS = (
    "sink",
    "proven by the target",
    "to be committed",
    "to be aborted by the next start",
)


def adoption_lines(plan: AdoptionPlan, job: str, begins: Sequence[str]) -> Iterable[Table | str]:
    """Yield what an adoption would take over, and where the job would go on."""
    yield _adopted(plan, job)
    yield _sinks_table(plan)
    yield from _unknowns(plan)
    yield f"The new lineage begins at {begins[0]}"
    yield from begins[1:]


def missed_lines(plan: AdoptionPlan, job: str) -> Iterable[Table | str]:
    """Yield what it means to go on with a folder that has missed a driver."""
    after = f"after checkpoint {plan.checkpoint}" if plan.checkpoint >= 0 else "from its beginning"
    yield (
        f"Job {job}: a driver of generation {plan.missed} has taken over the targets, and this "
        "folder does not know of it. It knows all that the targets have."
    )
    yield _sinks_table(plan)
    yield (
        "What that driver has decided in a newer folder and not committed is lost. Do not restore "
        "or finish checkpoints and savepoints of a newer folder: this one will write others under "
        "their numbers. "
        f"Lineage {plan.lineage} goes on {after}."
    )


def _adopted(plan: AdoptionPlan, job: str) -> str:
    if plan.is_empty:
        return (
            f"Job {job}: nothing to adopt: a driver has taken over the targets, "
            "but none of them has rows of the job."
        )
    newest = f"lineage {plan.lineage} up to checkpoint {plan.checkpoint}"
    if not plan.lineage or plan.checkpoint < 0:
        newest = lineages_text(plan)
    return f"Job {job}: to be adopted: {newest}"


def _sinks_table(plan: AdoptionPlan) -> Table:
    table = plain_table(_ADOPTION_COLUMNS)
    waiting = [piece for sink in plan.sinks.values() for piece in (*sink.commits, *sink.aborts)]
    several = len({piece.transaction.lineage for piece in waiting}) > 1
    for name, sink in plan.sinks.items():
        proven = ", ".join(
            f"{lineage[:8]} up to {number}" for lineage, number in sink.committed.items()
        )
        commits, aborts = _pieces(sink.commits, several), _pieces(sink.aborts, several)
        table.add_row(name, proven or "nothing", commits, aborts)
    return table


def _unknowns(plan: AdoptionPlan) -> Iterable[str]:
    """Yield what the targets do not tell."""
    for name in plan.sinks:
        if plan.lineage and not plan.has_newest(name):
            yield (
                f"Sink {name} has no rows of checkpoint {plan.checkpoint}: "
                "either the checkpoint had none for it, or they are lost."
            )
    if not plan.lineage and not plan.is_empty:
        yield (
            "The targets do not show which of these lineages is the newest, "
            "nor which sink lacks its newest checkpoint."
        )
    for folder in plan.gave_up:
        yield (
            f"Cannot read {folder}: which pieces it lists is unknown; "
            "the pieces found in the targets are adopted as above."
        )
    if not plan.is_empty:
        yield (
            "The targets do not show whether a sink has all pieces of the newest checkpoint: "
            "compare its rows if in doubt."
        )


def lineages_text(plan: AdoptionPlan) -> str:
    """Return text that names every lineage of which something is adopted."""
    adopted = {one: last for one, last in plan.ancestors.items() if last >= 0}
    return ", ".join(f"lineage {one} up to checkpoint {last}" for one, last in adopted.items())


def _pieces(pieces: Sequence[Committable], with_lineage: bool) -> str:
    """Return the text of a table cell with pieces, or with none."""
    return ", ".join(_piece(one, with_lineage) for one in pieces) or "-"


def _piece(one: Committable, with_lineage: bool) -> str:
    transaction = one.transaction
    lineage = f"{transaction.lineage[:8]} " if with_lineage else ""
    return f"{lineage}{transaction.checkpoint}: {transaction.attempt}/{one.subtask}"


def rewrite_lines(plan: RewritePlan, context: JobContext) -> Iterable[Table | str]:
    """Yield what a rewrite would write again, and from which records."""
    loss = plan.loss
    yield from _lost_pieces(loss, context.job)
    what = f"{count(loss.rows, 'row')} in {count(len(loss.lost), 'piece')}"
    yield f"To be written again: {what}, to {loss.target}, from these records:"
    yield from (f"- {records}" for records in plan.ranges)


def abandon_lines(plan: AbandonPlan, context: JobContext) -> Iterable[Table | str]:
    """Yield what giving up a rewind leaves in each sink, and what it does not."""
    yield f"Job {context.job}, the rewind to {plan.rewinding.restored_from}"
    table = plain_table(("sink", "state"))
    for name, why in plan.whole.items():
        found = f": {why}" if why else ""
        table.add_row(name, Text(clean(f"not rewound, keeps what it has{found}"), style="green"))
    for loss in plan.losses:
        found = ", ".join(f"{one.lineage[:8]} up to {one.checkpoint}" for one in loss.before)
        table.add_row(loss.sink, Text(f"rewound, has {found or 'nothing'}", style="red"))
    for name in plan.again:
        table.add_row(name, "rewound, writes the checkpoint that is not decided yet again")
    for name in plan.unknown:
        table.add_row(name, Text("has nothing newer; what it had is not known", style="red"))
    yield table
    for loss in plan.losses:
        yield from loss_lines(loss, context)
    if plan.is_behind:
        yield (
            "This folder does not know all that the sinks have: the next start names the command "
            "that adopts it. Do not start the job in a newer folder that is found later."
        )
    elif not plan.losses:
        yield "No rows of decided checkpoints are gone."


def release_lines(plan: ReleasePlan, job: str) -> Iterable[str]:
    """Yield what a job would go on without."""
    yield f"Job {job} has read, up to checkpoint {plan.checkpoint} of lineage {plan.lineage}:"
    yield from offset_lines(plan.parts)
    yield "To be given up: what follows there."
    yield from (f"- {what}" for what in plan.lost)


def loss_lines(plan: LossPlan, context: JobContext) -> Iterable[Table | str]:
    """Yield what accepting a loss would give up."""
    yield from _lost_pieces(plan, context.job)
    rows = f"{count(plan.rows, 'row')} in {count(len(plan.lost), 'piece')}"
    if plan.gap:
        newest = f"; the newest has {rows}" if plan.lost else ""
        rows = f"all rows of these checkpoints{newest}"
    yield (
        f"To be given up: {rows}, which {plan.target} will lack for good. Other sinks keep theirs."
    )
    yield "They come from the records between"
    yield from offset_lines(plan.start)
    yield "and"
    yield from offset_lines(plan.end)


def _lost_pieces(plan: LossPlan, job: str) -> Iterable[Table | str]:
    yield f"Job {job}, lineage {plan.lineage}, checkpoint {plan.number}, sink {plan.sink}"
    if plan.gap:
        yield plan.gap
    table = plain_table(("piece", "rows", "state"), right=("rows",))
    for piece, evidence in plan.lost:
        table.add_row(
            str(piece.subtask), f"{piece.rows:,}", Text(clean(f"lost: {evidence}"), style="red")
        )
    for piece in plan.kept:
        table.add_row(str(piece.subtask), f"{piece.rows:,}", Text("committed", style="green"))
    if table.row_count:
        yield table


def offset_lines(lines: Sequence[str | None]) -> list[str]:
    """Return the offset lines of a checkpoint as a list for people."""
    listed = [f"- {line_text(line)}" for line in lines]
    return listed or ["- an offset that is no longer in the log"]
