"""Proofs and fences: properties of the table, in the same metadata as the snapshots (I4, I7).

    twophase/<job>/<sink>/<lineage>     what is committed of a lineage
    twophase-fence/<job>/<sink>         the fence, with a nonce: each time that it is written, a
                                        commit which has read it before fails

Each value is a record with version, length and SHA-256 (I9).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from twophase.errors import StopJobError
from twophase.ids import Attempt
from twophase.internals.json_values import decode, encode
from twophase.internals.record import DamagedRecordError
from twophase.sinks.common.staging.names import Owner, PieceName

_MAGIC = "twophase-iceberg/1"
_PROOF, _FENCE = "proof", "fence"


@dataclass(frozen=True)
class LineageProof:
    """What is committed of one lineage.

    Attributes:
        mark: the high-water mark; -1 if there is none.
        pieces: by checkpoint, as text, the committed pieces that the mark does not stand for, as
            `attempt/subtask`.
        snapshot: the id of the snapshot that the newest commit has made; 0 before the first.
        sequence: its sequence number, 0 in format version 1.
        first: the id of the snapshot that the lineage's first commit has made; 0 before it.
    """

    mark: int = -1
    pieces: Mapping[str, Sequence[str]] = field(default_factory=dict)
    snapshot: int = 0
    sequence: int = 0
    first: int = 0

    @property
    def highest(self) -> int:
        """The highest committed checkpoint."""
        return max([self.mark, *map(int, self.pieces)])

    def has(self, checkpoint: int) -> bool:
        """Return whether a checkpoint is committed."""
        return checkpoint <= self.mark or str(checkpoint) in self.pieces

    def names(self, name: PieceName) -> bool:
        """Return whether a piece is named among the committed ones."""
        return short(name) in self.pieces.get(str(name.checkpoint), ())

    def with_pieces(self, names: Iterable[PieceName]) -> LineageProof:
        """Return the proof with these pieces too."""
        pieces = {checkpoint: [*known] for checkpoint, known in self.pieces.items()}
        for name in names:
            pieces.setdefault(str(name.checkpoint), []).append(short(name))
        return replace(self, pieces=pieces)

    def made_by(self, snapshot: int, sequence: int) -> LineageProof:
        """Return the proof with the snapshot that a commit has made."""
        return replace(self, snapshot=snapshot, sequence=sequence, first=self.first or snapshot)

    def lowered(self, checkpoint: int, kept: int) -> LineageProof:
        """Return the proof of what stays up to `checkpoint`.

        Args:
            checkpoint: the last one that stays; -1 if none does.
            kept: the highest one up to it that is committed, for a mark above it; -1 if none is.
        """
        pieces = {text: names for text, names in self.pieces.items() if int(text) <= checkpoint}
        found = replace(self, mark=self.mark if self.mark <= checkpoint else kept, pieces=pieces)
        return found if found.highest >= 0 else replace(found, first=0)

    def folded(self, checkpoint: int) -> LineageProof:
        """Return the proof with a mark up to `checkpoint`, as far as it proves it."""
        old = [number for number in map(int, self.pieces) if number <= checkpoint]
        rest = {text: names for text, names in self.pieces.items() if int(text) > checkpoint}
        return replace(self, mark=max([self.mark, *old]), pieces=rest)


@dataclass(frozen=True)
class FenceRecord:
    """The fence as it was last written.

    Attributes:
        generation: of the attempt.
        counter: of the attempt.
        nonce: new each time.
    """

    generation: int
    counter: int
    nonce: str

    @property
    def attempt(self) -> Attempt:
        """Attempts below it are closed."""
        return Attempt(self.generation, self.counter)


class Proofs:
    """The properties of one job and sink in the metadata of a table.

    Args:
        owner: job and sink.
        properties: of the table.
    """

    def __init__(self, owner: Owner, properties: Mapping[str, str]) -> None:
        self._owner = owner
        self._properties = properties

    def fence(self) -> FenceRecord | None:
        """Return the fence; None if nobody has raised one."""
        text = self._properties.get(fence_key(self._owner))
        return None if text is None else _decode(_FENCE, fence_key(self._owner), text, FenceRecord)

    def lineage(self, lineage: str) -> LineageProof:
        """Return what is committed of a lineage."""
        key = proof_key(self._owner, lineage)
        text = self._properties.get(key)
        return LineageProof() if text is None else _decode(_PROOF, key, text, LineageProof)

    def committed(self) -> dict[str, int]:
        """Return, for each lineage, the highest committed checkpoint."""
        found = {lineage: self.lineage(lineage).highest for lineage in self._lineages()}
        return {lineage: highest for lineage, highest in found.items() if highest >= 0}

    def keys(self) -> list[str]:
        """Return the names of the properties that are proofs."""
        return [proof_key(self._owner, lineage) for lineage in self._lineages()]

    def made(self) -> dict[str, LineageProof]:
        """Return the proof of each lineage that has committed in a snapshot."""
        found = {lineage: self.lineage(lineage) for lineage in self._lineages()}
        return {lineage: proof for lineage, proof in found.items() if proof.snapshot}

    def others(self) -> Iterator[Owner]:
        """Yield the other jobs and sinks that have committed to the table."""
        found = dict.fromkeys(
            Owner(*parts[1:3])
            for key in self._properties
            if len(parts := key.split("/")) == 4 and parts[0] == "twophase"
        )
        yield from (owner for owner in found if owner != self._owner)

    def of(self, owner: Owner) -> Proofs:
        """Return those of another job and sink in the same table."""
        return Proofs(owner, self._properties)

    def _lineages(self) -> list[str]:
        start = proof_key(self._owner, "")
        return [key.removeprefix(start) for key in self._properties if key.startswith(start)]


def proof_key(owner: Owner, lineage: str) -> str:
    """Return the name of the property that proves what is committed of a lineage."""
    return f"twophase/{owner.job}/{owner.sink}/{lineage}"


def fence_key(owner: Owner) -> str:
    """Return the name of the property that is the fence."""
    return f"twophase-fence/{owner.job}/{owner.sink}"


def encode_proof(proof: LineageProof) -> str:
    """Return a proof as the value of a property."""
    return encode(_MAGIC, _PROOF, proof).decode()


def encode_fence(fence: FenceRecord) -> str:
    """Return a fence as the value of a property."""
    return encode(_MAGIC, _FENCE, fence).decode()


def short(name: PieceName) -> str:
    """Return a piece within its checkpoint, as `attempt/subtask`."""
    return f"{name.attempt}/{name.subtask}"


T = TypeVar("T")


def _decode(kind: str, key: str, text: str, form: type[T]) -> T:
    try:
        return decode(_MAGIC, kind, text.encode(), key, form)
    except DamagedRecordError as error:
        raise StopJobError(
            f"The property {key!r} of the table is damaged ({error}): somebody has changed it.",
            remedy="restore its former value, from an older metadata file of the table.",
        ) from error
