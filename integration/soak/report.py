"""What a soak has shown, as a table on the screen and as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from harness.figures import percentile
from integration.soak.run import Outcome, Struck
from integration.soak.scenario import DRIVER_STARTED
from twophase.testing.journal import Entry

PRE_COMMIT, COMMIT, RECOVERY, BETWEEN = "pre-commit", "commit", "recovery", "between"
_PHASES = {
    "CheckpointTriggered": PRE_COMMIT,
    "SinkAcknowledged": PRE_COMMIT,
    "CheckpointDecided": COMMIT,
    "CommitRetried": COMMIT,
    "PieceCommitted": COMMIT,
    "CheckpointDeclined": RECOVERY,
    "OrphansAborted": RECOVERY,
    "JobRestarting": RECOVERY,
    DRIVER_STARTED: RECOVERY,
    "RecoveryStarted": RECOVERY,
}


def phase_at(entries: Sequence[Entry], at_s: float) -> str:
    """What the job was doing at a moment, by the last thing that it had reported.

    `commit` is between the decision and the proof that all of it is committed.
    """
    before = [entry.kind for entry in entries if entry.at_s <= at_s]
    return _PHASES.get(before[-1], BETWEEN) if before else BETWEEN


def recovery_s(entries: Sequence[Entry], struck: Struck) -> float | None:
    """From the strike to the next checkpoint that was committed; None if there was none."""
    commits = (entry.at_s for entry in entries if entry.kind == "CheckpointCommitted")
    return next((at_s - struck.at_s for at_s in commits if at_s > struck.at_s), None)


@dataclass(frozen=True)
class Line:
    """All strikes of one fault.

    Attributes:
        fault: its name.
        strikes: how many.
        phases: how many of them in which phase.
        p50_s: half of all recoveries took no longer.
        p95_s: 95 of 100 took no longer.
    """

    fault: str
    strikes: int
    phases: Counter[str]
    p50_s: float
    p95_s: float


def lines(outcome: Outcome) -> list[Line]:
    """One for each fault, and one for all."""
    faults = sorted({struck.strike.fault for struck in outcome.struck})
    chosen = [(fault, [s for s in outcome.struck if s.strike.fault == fault]) for fault in faults]
    return [
        _line(outcome, name, struck) for name, struck in [*chosen, ("all", list(outcome.struck))]
    ]


def _line(outcome: Outcome, fault: str, struck: Sequence[Struck]) -> Line:
    times = [found for s in struck if (found := recovery_s(outcome.entries, s)) is not None]
    fell = Counter(phase_at(outcome.entries, s.at_s) for s in struck)
    return Line(fault, len(struck), fell, percentile(times, 0.5), percentile(times, 0.95))


def facts(outcome: Outcome) -> list[tuple[str, str]]:
    """The figures, each with its name."""
    counts = Counter(entry.kind for entry in outcome.entries)
    verdicts = outcome.verdicts
    return [
        ("seed", str(outcome.seed)),
        ("records", f"{max(verdict.produced for verdict in verdicts.values()):,}"),
        ("rows", ", ".join(f"{verdict.stored:,} in {sink}" for sink, verdict in verdicts.items())),
        ("lost", str(sum(verdict.lost for verdict in verdicts.values()))),
        ("duplicated", str(sum(verdict.duplicated for verdict in verdicts.values()))),
        ("foreign", str(sum(verdict.foreign for verdict in verdicts.values()))),
        ("prepared left", str(outcome.prepared)),
        ("strikes", str(len(outcome.struck))),
        ("checkpoints committed", f"{counts['CheckpointCommitted']:,}"),
        ("attempts declined", f"{counts['CheckpointDeclined']:,}"),
        ("restarts of the query", f"{counts['JobRestarting']:,}"),
        ("drivers that found a server away", str(outcome.refused)),
        ("looks of the reader", f"{outcome.looks:,}"),
        ("duration", f"{outcome.took_s:.0f} s"),
    ]


_HEAD = ("fault", "strikes", PRE_COMMIT, COMMIT, RECOVERY, BETWEEN, "p50", "p95")


def _cells(line: Line) -> list[str]:
    fell = [str(line.phases[phase]) for phase in (PRE_COMMIT, COMMIT, RECOVERY, BETWEEN)]
    return [line.fault, str(line.strikes), *fell, f"{line.p50_s:.1f} s", f"{line.p95_s:.1f} s"]


_LOOK: dict[str, Any] = {"box": None, "pad_edge": False, "title_justify": "left"}


def tables(outcome: Outcome) -> list[Table]:
    """For the screen."""
    figures = Table("figure", "value", **_LOOK)
    for row in facts(outcome):
        figures.add_row(*row)
    strikes = Table(*_HEAD, title="When the strikes fell, and the time to the next commit", **_LOOK)
    for line in lines(outcome):
        strikes.add_row(*_cells(line))
    return [figures, strikes]


def markdown(outcome: Outcome) -> str:
    """For a file."""
    figures = [("figure", "value"), ("---", "---"), *facts(outcome)]
    strikes = [_HEAD, ("---",) * len(_HEAD), *map(_cells, lines(outcome))]
    shown = ["\n".join(f"| {' | '.join(row)} |" for row in rows) for rows in (figures, strikes)]
    return (
        f"# Soak\n\n{shown[0]}\n\n"
        "When the strikes fell, by the last thing that the job had reported (commit: decided, not "
        "yet proven committed), and\n"
        "the time from a strike to the next checkpoint that was committed (half, and 95 of 100, "
        "took no longer):\n\n"
        f"{shown[1]}\n"
    )
