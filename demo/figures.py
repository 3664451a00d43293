"""The figures of the demo, from the journals of all drivers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from demo.kills import Kill
from harness.checker import Verdict
from twophase.testing.journal import Entry

_MAY_MISS = 1
"""The number of planned kills that may be missing: one at a random moment may come when
everything is written.
"""


@dataclass(frozen=True)
class Life:
    """The life of one driver that has ended.

    Attributes:
        started_s: when its process was started.
        ended_s: when its process was gone.
        entries: its journal.
        kill: how it was killed; None if it has ended by itself.
    """

    started_s: float
    ended_s: float
    entries: Sequence[Entry]
    kill: Kill | None

    @property
    def running_s(self) -> float:
        """The time from the end of its recovery to its end, without the start of Python,
        the JVM and Spark.
        """
        ready = [entry.at_s for entry in self.entries if entry.kind == "RecoveryFinished"]
        return self.ended_s - ready[0] if ready else 0.0


@dataclass(frozen=True)
class Figures:
    """The figures of the whole demo.

    Attributes:
        kills: how many drivers were killed.
        decided: checkpoints with rows that were decided.
        overall_s: from the first driver's start to the last one's end.
        running_s: the part of it in which drivers ran after their recovery.
        durations_s: of the checkpoints with rows, from the trigger to the commit.
        protocol_s: the protocol's own part of each.
        rates: rows a second of each.
    """

    kills: int
    decided: int
    overall_s: float
    running_s: float
    durations_s: Sequence[float]
    protocol_s: Sequence[float]
    rates: Sequence[float]


def add_up(lives: Sequence[Life]) -> Figures:
    """Return the figures of all lives."""
    entries = [entry for life in lives for entry in life.entries if entry.fields.get("rows")]
    committed = [entry.fields for entry in entries if entry.kind == "CheckpointCommitted"]
    return Figures(
        kills=sum(life.kill is not None for life in lives),
        decided=sum(entry.kind == "CheckpointDecided" for entry in entries),
        overall_s=lives[-1].ended_s - lives[0].started_s,
        running_s=sum(life.running_s for life in lives),
        durations_s=[fields["duration_s"] for fields in committed],
        protocol_s=[fields["protocol_s"] for fields in committed],
        rates=[fields["rows"] / fields["duration_s"] for fields in committed],
    )


def what_is_wrong(
    verdicts: Mapping[str, Verdict],
    records: int,
    waiting: Mapping[str, int],
    kills: int,
    planned: int,
) -> str:
    """Return why the demo has failed; empty if every record is in each table exactly once, in
    spite of enough kills.
    """
    for sink, verdict in verdicts.items():
        if not verdict.exact:
            return f"Not exactly once in {sink}: {verdict.examples}."
        if verdict.produced != records:
            return f"Kafka has {verdict.produced:,} records, {records:,} were written."
        if waiting[sink]:
            return f"{waiting[sink]} pieces are left prepared or staged in {sink}."
    if kills < max(planned - _MAY_MISS, 1):
        return f"Only {kills} drivers were killed."
    return ""
