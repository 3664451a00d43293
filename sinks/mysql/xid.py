"""The id of an XA branch, which identifies its piece, in two parts of at most 64 bytes each.

    gtrid   <job 12 hex>-<lineage 32 hex>-<checkpoint>
    bqual   <generation>.<counter>-<sink 12 hex>-<subtask>.<task attempt>-<offsets 8 hex>-<session>

It holds everything that makes a piece unique (I5), MySQL requires gtrid + bqual to be unique (H36),
and all of it but the names can be read back. The hashes of job and sink are salted with the id of
the metadata tables: two jobs of the same name on one server with metadata tables of their own never
see each other's branches. A copy of the tables has the same id, and is refused
(`MetadataTables.find`). The session's number is there because nobody else may touch a branch before
the session that prepared it is gone (session_exit.py).
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from twophase.errors import ConfigError, CorruptRecordError
from twophase.ids import Attempt, Subtask, TransactionId, short_hash

FORMAT_ID = 0x74777068
"""'twph': distinguishes our branches from those of other applications on the server."""

_MAX_BYTES = 64
_LINEAGE = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GTRID = re.compile(r"(?P<job>[0-9a-f]{12})-(?P<lineage>[0-9a-f]{32})-(?P<checkpoint>\d+)")
_BQUAL = re.compile(
    r"(?P<generation>\d+)\.(?P<counter>\d+)-(?P<sink>[0-9a-f]{12})-"
    r"(?P<subtask>\d+)\.(?P<task_attempt>\d+)-(?P<offsets>[0-9a-f]{8})-(?P<session>\d+)"
)


@dataclass(frozen=True)
class Owner:
    """The owner of branches: one sink of one job, with one set of metadata tables.

    Attributes:
        namespace: the id of the metadata tables.
        job: the job's name.
        sink: the sink's name.
    """

    namespace: str
    job: str
    sink: str

    @property
    def job_hash(self) -> str:
        """Stands for the job in a gtrid."""
        return short_hash(f"{self.namespace}/{self.job}")

    @property
    def sink_hash(self) -> str:
        """Stands for the sink in a bqual."""
        return short_hash(f"{self.namespace}/{self.job}/{self.sink}")


@dataclass(frozen=True)
class Xid:
    """One branch, by text that matches our own pattern, which needs no quoting in SQL."""

    gtrid: str
    bqual: str

    def __post_init__(self) -> None:
        for part, pattern in ((self.gtrid, _GTRID), (self.bqual, _BQUAL)):
            if len(part) > _MAX_BYTES or not part.isascii() or not pattern.fullmatch(part):
                raise CorruptRecordError(
                    f"{part!r} is not part of one of our XA ids, "
                    f"or is longer than {_MAX_BYTES} bytes.",
                    remedy="find out what changed the committables of the checkpoint.",
                )

    @classmethod
    def of(cls, owner: Owner, transaction: TransactionId, subtask: Subtask, session: int) -> Xid:
        """Return the branch of one task attempt, written in the session with that number.

        Raises:
            ConfigError: the lineage is no UUID in its usual form, or the offsets
                hash is not in hex.
        """
        lineage, offsets = transaction.lineage, transaction.offsets_hash[:8]
        if not _LINEAGE.fullmatch(lineage) or not re.fullmatch("[0-9a-f]{8}", offsets):
            raise ConfigError(
                f"{transaction}: lineage {lineage!r} or offsets hash {offsets!r} "
                "does not fit into an XA id."
            )
        return cls(
            gtrid=f"{owner.job_hash}-{lineage.replace('-', '')}-{transaction.checkpoint}",
            bqual=f"{transaction.attempt}-{owner.sink_hash}-{subtask}-{offsets}-{session}",
        )

    @classmethod
    def from_recover(cls, row: tuple[int, int, int, bytes]) -> Xid | None:
        """Return the branch in one row of XA RECOVER; None if it is not a branch of twophase."""
        format_id, gtrid_length, bqual_length, data = row
        if format_id != FORMAT_ID:
            return None
        try:
            text = data.decode("ascii")
            return cls(text[:gtrid_length], text[gtrid_length : gtrid_length + bqual_length])
        except (UnicodeDecodeError, CorruptRecordError):
            return None

    def belongs_to(self, owner: Owner) -> bool:
        """Return whether the branch belongs to this sink of this job."""
        return (
            self.gtrid.startswith(f"{owner.job_hash}-")
            and _match(_BQUAL, self.bqual)["sink"] == owner.sink_hash
        )

    def identify(self, owner: Owner) -> tuple[TransactionId, Subtask]:
        """Return the piece's transaction, with a shortened offsets hash, and its subtask."""
        gtrid, bqual = _match(_GTRID, self.gtrid), _match(_BQUAL, self.bqual)
        transaction = TransactionId(
            job=owner.job,
            lineage=str(uuid.UUID(gtrid["lineage"])),
            checkpoint=int(gtrid["checkpoint"]),
            attempt=Attempt(int(bqual["generation"]), int(bqual["counter"])),
            sink=owner.sink,
            offsets_hash=bqual["offsets"],
        )
        return transaction, Subtask(int(bqual["subtask"]), int(bqual["task_attempt"]))

    @property
    def session(self) -> int:
        """The number of the session that wrote the branch."""
        return int(_match(_BQUAL, self.bqual)["session"])

    @property
    def sql(self) -> str:
        """The id in the syntax of XA statements."""
        return f"'{self.gtrid}','{self.bqual}',{FORMAT_ID}"

    def __str__(self) -> str:
        return f"{self.gtrid}/{self.bqual}"


def _match(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise CorruptRecordError(f"{text!r} is not part of one of our XA ids.")
    return match
