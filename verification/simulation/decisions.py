"""What the oracle knows a piece and a decision by: read off the durable bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

FORMAT_ID = 0x74777068
Checkpoint = tuple[str, int, tuple[int, int]]
"""Lineage, number and attempt."""


@dataclass(frozen=True)
class Piece:
    """Whose branch it is, read off its xid."""

    sink: str
    lineage: str
    checkpoint: int
    attempt: tuple[int, int]
    subtask: int
    task_attempt: int

    @classmethod
    def of(cls, xid: str) -> Piece:
        gtrid, bqual = (part.strip("'").split("-") for part in xid.split(",")[:2])
        attempt, sink, subtask, _, _ = bqual
        generation, counter = attempt.split(".")
        index, task_attempt = subtask.split(".")
        return cls(
            sink,
            gtrid[1],
            int(gtrid[2]),
            (int(generation), int(counter)),
            int(index),
            int(task_attempt),
        )

    @property
    def of_task(self) -> Piece:
        """It, whichever try of its task has written it."""
        return replace(self, task_attempt=0)

    def is_after(self, keep: Mapping[str, int]) -> bool:
        """Whether it is not of what a lineage continues.

        Args:
            keep: the last checkpoint of each lineage.
        """
        kept = {lineage.replace("-", ""): last for lineage, last in keep.items()}
        return self.checkpoint > kept.get(self.lineage, -1)


@dataclass
class Decision:
    """A record DECIDED and the body it names; `sinks` has the sink's name of each piece."""

    path: str
    body: str
    lineage: str
    checkpoint: int
    attempt: tuple[int, int]
    chunk: int
    xids: tuple[str, ...]
    durable: bool = False
    committed: bool = False
    sinks: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_piece(cls, decisions: Iterable[Decision], xid: str) -> Decision | None:
        """The one of the checkpoint that a piece is of, whether it lists the piece or not."""
        piece = Piece.of(xid)
        mine = (piece.lineage, piece.checkpoint)
        return next(
            (one for one in decisions if (one.lineage.replace("-", ""), one.checkpoint) == mine),
            None,
        )

    @property
    def root(self) -> str:
        """The job's folder."""
        return self.path.rsplit("/", 2)[0]

    @property
    def key(self) -> tuple[str, str, int]:
        """The job's folder, the lineage and the number."""
        return self.root, self.lineage, self.checkpoint
