"""The id of an XA branch: which piece it is, in two parts of at most 64 bytes each.

    gtrid   <job 12 hex>-<lineage 32 hex>-<checkpoint>
    bqual   <generation>.<counter>-<sink 12 hex>-<subtask>.<task attempt>-<offsets 8 hex>-<session>

Everything that makes a piece unique is in it (I5), MySQL wants gtrid + bqual unique (H36), and all of it but the names
can be read back. The hashes of job and sink are salted with the id of the bookkeeping schema: two jobs of one name on
one server that keep their books apart never see each other's branches. The session's number is there because nobody
else may touch a branch before the session that prepared it is gone (session_exit.py).
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass

from twophase.errors import ConfigError, CorruptRecordError
from twophase.ids import Attempt, Subtask, TransactionId, short_hash

FORMAT_ID = 0x74777068
"""'twph': tells our branches from those of other applications on the server."""

_MAX_BYTES = 64
_LINEAGE = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GTRID = re.compile(r"(?P<job>[0-9a-f]{12})-(?P<lineage>[0-9a-f]{32})-(?P<checkpoint>\d+)")
_BQUAL = re.compile(
    r"(?P<generation>\d+)\.(?P<counter>\d+)-(?P<sink>[0-9a-f]{12})-"
    r"(?P<subtask>\d+)\.(?P<task_attempt>\d+)-(?P<offsets>[0-9a-f]{8})-(?P<session>\d+)"
)


@dataclass(frozen=True)
class Owner:
    """Whose branches are ours: one sink of one job, in one bookkeeping schema.

    Attributes:
        namespace: the id of the bookkeeping schema.
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
    """One branch. Only text that our own pattern matches ever becomes one, so it needs no quoting in SQL."""

    gtrid: str
    bqual: str

    def __post_init__(self) -> None:
        for part, pattern in ((self.gtrid, _GTRID), (self.bqual, _BQUAL)):
            if len(part) > _MAX_BYTES or not part.isascii() or not pattern.fullmatch(part):
                raise CorruptRecordError(
                    f"{part!r} is no part of an XA id of ours, or longer than {_MAX_BYTES} bytes.",
                    remedy="find out who changed the committables of the checkpoint.",
                )

    @classmethod
    def of(cls, owner: Owner, transaction: TransactionId, subtask: Subtask, session: int) -> Xid:
        """The branch of one task attempt, written in the session of that number.

        Raises:
            ConfigError: the lineage is no UUID in its usual form, or the offsets hash is not in hex.
        """
        lineage, offsets = transaction.lineage, transaction.offsets_hash[:8]
        if not _LINEAGE.fullmatch(lineage) or not re.fullmatch("[0-9a-f]{8}", offsets):
            raise ConfigError(
                f"{transaction}: lineage {lineage!r} or offsets hash {offsets!r} does not fit into an XA id."
            )
        return cls(
            gtrid=f"{owner.job_hash}-{lineage.replace('-', '')}-{transaction.checkpoint}",
            bqual=f"{transaction.attempt}-{owner.sink_hash}-{subtask}-{offsets}-{session}",
        )

    @classmethod
    def from_recover(cls, row: tuple[int, int, int, bytes]) -> Xid | None:
        """The branch that one row of XA RECOVER lists; None if it is not one of twophase."""
        format_id, gtrid_length, bqual_length, data = row
        if format_id != FORMAT_ID:
            return None
        try:
            text = data.decode("ascii")
            return cls(text[:gtrid_length], text[gtrid_length : gtrid_length + bqual_length])
        except (UnicodeDecodeError, CorruptRecordError):
            return None

    def belongs_to(self, owner: Owner) -> bool:
        """Whether the branch is of this sink of this job."""
        return self.gtrid.startswith(f"{owner.job_hash}-") and _match(_BQUAL, self.bqual)["sink"] == owner.sink_hash

    def identify(self, owner: Owner) -> tuple[TransactionId, Subtask]:
        """Whose piece it is. The offsets hash comes back shortened: only its first digits are in the id."""
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
        """The id as the XA statements take it."""
        return f"'{self.gtrid}','{self.bqual}',{FORMAT_ID}"

    def __str__(self) -> str:
        return f"{self.gtrid}/{self.bqual}"


def _match(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise CorruptRecordError(f"{text!r} is no part of an XA id of ours.")
    return match
