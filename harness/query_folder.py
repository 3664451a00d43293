"""Spark's folder of a lineage, written here as Spark writes it, and checked by the product."""

from __future__ import annotations

from pathlib import Path

from twophase.spark.folder.spark_folder import SparkFolder
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Lineage
from twophase.testing.plain_host import PlainFolder


class QueryFolder(SparkFolder, PlainFolder):
    """See `twophase.testing.plain_host.PlainFolder`. A plan has one source.

    Args:
        path: the folder.
        lineage: the lineage it belongs to.

    Attributes:
        header: what Spark notes with the offsets of a micro-batch.
    """

    def __init__(self, path: Path, lineage: Lineage) -> None:
        super().__init__(path, lineage)
        self.header = '{"batchWatermarkMs":0}'
        self._storage = LocalStorage(path)

    def plan(self, end: str) -> int:
        """See `PlainFolder.plan`."""
        number = self.planned() + 1
        self._create(f"offsets/{number}", self.header, end)
        return number

    def note_finished(self, batch: int) -> None:
        """See `PlainFolder.note_finished`."""
        self._create(f"commits/{batch}", '{"nextBatchWatermarkMs":0}')

    def end(self) -> str | None:
        """See `PlainFolder.end`."""
        planned = self.planned()
        return self.offsets(planned).end[0] if planned >= 0 else None

    def _create(self, name: str, *lines: str) -> None:
        self._storage.create(name, "\n".join(["v1", *lines]).encode())


def last_number(log: Path) -> int:
    """The newest entry of one of Spark's logs; -1 if it has none."""
    names = [path.name for path in log.iterdir()] if log.exists() else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)
