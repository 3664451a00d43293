"""Spark's own checkpoint folder of one lineage: read its offset log, prepare it, and hold it against the store.

    metadata      the query id, which is the lineage id
    offsets/<n>   written by Spark before micro-batch n runs
    commits/<n>   written by Spark after micro-batch n

Formats: Spark's OffsetSeqLog and CommitLog, version 1, as Spark 4.2 writes them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from twophase.errors import CheckpointMissingError, OffsetMismatchError
from twophase.state.checkpoint import FrozenOffsets
from twophase.state.records import Decision, Lineage

_NO_OFFSET = "-"
_VERSION = "v1"
_RESTORE = (
    "put the job's folder back from one backup, or start a new lineage with restore.path set to the newest checkpoint."
)


class SparkFolder:
    """The folder of one lineage.

    Args:
        path: the folder.
        lineage: the lineage it belongs to.
    """

    def __init__(self, path: Path, lineage: Lineage) -> None:
        self.path = path
        self._lineage = lineage

    def planned(self) -> int:
        """The newest micro-batch whose offsets are frozen; -1 before the first."""
        return self._newest("offsets")

    def offsets(self, batch: int) -> FrozenOffsets:
        """The frozen offsets of micro-batch `batch`, start and end.

        Raises:
            OffsetMismatchError: Spark has not written them, or in a form this version does not know.
        """
        end = self._read_offsets(batch)
        start = self._read_offsets(batch - 1) if batch > 0 else (None,) * len(end)
        return FrozenOffsets(start, end)

    def prepare(self, newest: Decision | None) -> None:
        """Make the folder ready for the start of the query.

        A lineage without a decision gets its folder written: a fresh one starts at batch 0, a restored one after a batch
        0 that ends at the restored offsets. Otherwise the folder must be the one that belongs to the store.

        Args:
            newest: the newest decided checkpoint of the lineage.

        Raises:
            CheckpointMissingError: the folder is gone, the store has decisions.
            OffsetMismatchError: the folder is foreign, or an old copy.
        """
        if not (self.path / "metadata").exists():
            if newest is not None:
                raise CheckpointMissingError(
                    f"Spark's folder {self.path} is gone, but checkpoint {newest.checkpoint} of this lineage is decided. "
                    "No data is lost; nothing was written.",
                    remedy=_RESTORE,
                )
            self._write_new()
        self.check(newest)

    def check(self, newest: Decision | None) -> None:
        """Hold the folder against the store.

        Args:
            newest: the newest decided checkpoint of the lineage.

        Raises:
            OffsetMismatchError: the folder is foreign, or an old copy.
        """
        if (found := query_id(self.path)) != self._lineage.id:
            raise OffsetMismatchError(
                f"Spark's folder {self.path} belongs to query {found}, not to lineage {self._lineage.id}. Nothing was "
                "written.",
                remedy=_RESTORE,
            )
        self._check_position(newest)

    def _write_new(self) -> None:
        for folder in (self.path.parent, self.path, self.path / "offsets", self.path / "commits"):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._lineage.start:
            lines = [line or _NO_OFFSET for line in self._lineage.start]
            header = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}})
            _write(self.path / "offsets" / "0", "\n".join([_VERSION, header, *lines]))
            _write(self.path / "commits" / "0", "\n".join([_VERSION, json.dumps({"nextBatchWatermarkMs": 0})]))
        _write(self.path / "metadata", json.dumps({"id": self._lineage.id}))

    def _check_position(self, newest: Decision | None) -> None:
        """Spark may be at the newest decided batch (it replays it) or have the next one planned; nowhere else."""
        planned, finished = self.planned(), self._newest("commits")
        decided = newest.checkpoint if newest else self._lineage.first_checkpoint - 1
        if planned in (decided, decided + 1) and finished in (decided - 1, decided):
            return
        raise OffsetMismatchError(
            f"Spark's folder {self.path} does not belong to the checkpoint store: it has planned micro-batch {planned} "
            f"and finished {finished} (-1: none), while the newest decided checkpoint is {decided}. Nothing was written.",
            remedy=_RESTORE,
        )

    def _newest(self, log: str) -> int:
        try:
            names = os.listdir(self.path / log)
        except FileNotFoundError:
            return -1
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def _read_offsets(self, batch: int) -> tuple[str | None, ...]:
        path = self.path / "offsets" / str(batch)
        try:
            version, _, *lines = path.read_text().split("\n")
        except (OSError, ValueError) as error:
            raise OffsetMismatchError(f"Spark's offset log {path} cannot be read: {error}.", remedy=_RESTORE) from None
        if version != _VERSION or not lines:
            raise OffsetMismatchError(
                f"Spark's offset log {path} has the form {version[:20]!r}, expected {_VERSION!r}.",
                remedy="use the Spark version that twophase names in setup.cfg.",
            )
        return tuple(None if line == _NO_OFFSET else line for line in lines)


def query_id(path: Path) -> str:
    """The id of the query that a folder of Spark's belongs to; "unreadable" if it does not say."""
    try:
        return str(json.loads((path / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return "unreadable"


def _write(path: Path, text: str) -> None:
    """Durable before Spark starts; a file torn by a crash is written anew, because `metadata` is written last."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
