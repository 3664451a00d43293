"""The names by which pieces are recognised in a table.

    twophase/<job>/<sink>/<lineage>                        application id: its version is the
                                                           highest committed checkpoint
    twophase-fence/<job>/<sink>                            application id: its version is the fence
    _twophase/<job>/<sink>/<piece>.intent, .manifest,      next to the table's data, where Delta and
                                   .aborted                VACUUM do not look
    twophase-<owner>-<piece>-<offsets>-part-00000-<uuid>.c000.snappy.parquet         a data file

A piece is `<lineage>-<checkpoint>-<generation>.<counter>`. The part number of a data file is the
subtask; the uuid is new for every task attempt (invariant I5).
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from twophase.contract.piece import BatchPieceName, PieceOwner
from twophase.ids import Attempt, TransactionId, short_hash

FOLDER = "_twophase"
_COUNTER_BITS = 31
_DATA_FILE = re.compile(r"(.{36}-\d+-\d+\.\d+)-[0-9a-f]+-.*", re.ASCII)


class Owner(PieceOwner):
    """The owner of pieces, with its names in a Delta table."""

    @property
    def folder(self) -> str:
        """The folder of the records, below the table's folder."""
        return f"{FOLDER}/{self.job}/{self.sink}"

    @property
    def all_data_files(self) -> str:
        """The prefix that the data files of all its pieces have, and no file of another owner."""
        return f"twophase-{short_hash(f'{self.job}/{self.sink}')}-"

    @property
    def fence_id(self) -> str:
        """The application id whose version is the fence."""
        return f"twophase-fence/{self.job}/{self.sink}"

    def app_id(self, lineage: str) -> str:
        """Return the application id whose version is a lineage's highest committed checkpoint."""
        return f"twophase/{self.job}/{self.sink}/{lineage}"

    def other(self, app_id: str) -> tuple[Owner, str] | None:
        """Return owner and lineage of another owner's application id; None for any other id."""
        match app_id.split("/"):
            case ["twophase", job, sink, lineage] if (job, sink) != (self.job, self.sink):
                return Owner(job, sink), lineage
        return None

    def lineage_of(self, app_id: str) -> str | None:
        """Return the lineage of one of this owner's application ids; None for any other."""
        start = self.app_id("")
        return app_id.removeprefix(start) if app_id.startswith(start) else None


class PieceName(BatchPieceName):
    """The name of a piece, unique among its owner's pieces."""

    def data_files(self, owner: Owner) -> str:
        """Return the prefix that all its data files have, and no other file."""
        return owner.file_prefix(self)


def piece_of(path: str, owner: Owner) -> PieceName | None:
    """Return the piece of a data file in the log; None if it is not this owner's.

    Args:
        path: as an action has it: relative to the table's folder, as a URI.
        owner: job and sink.
    """
    name = unquote(path).rpartition("/")[2]
    match = _DATA_FILE.fullmatch(name.removeprefix(owner.all_data_files))
    if match is None or not name.startswith(owner.all_data_files):
        return None
    return PieceName.parse(match[1])


def data_prefix(owner: Owner, transaction: TransactionId) -> str:
    """Return the prefix that Delta puts before its own name of each data file."""
    return f"{PieceName.of(transaction).data_files(owner)}{transaction.offsets_hash[:12]}-"


def fence_version(attempt: Attempt) -> int:
    """Return an attempt as the version of an application id: later attempts have greater versions.

    Raises:
        ValueError: it does not fit: over two thousand million drivers of one job, or
            attempts of one driver.
    """
    if not (0 <= attempt.generation < 1 << 31 and 0 <= attempt.counter < 1 << _COUNTER_BITS):
        raise ValueError(f"attempt {attempt} does not fit in a fence")
    return attempt.generation << _COUNTER_BITS | attempt.counter


def fence_attempt(version: int) -> Attempt:
    """Return the attempt in a version; the reverse of `fence_version`."""
    return Attempt(version >> _COUNTER_BITS, version & ((1 << _COUNTER_BITS) - 1))
