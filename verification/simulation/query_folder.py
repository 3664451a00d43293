"""Spark's folder of one lineage on the simulated disk.

Real: `SparkFolder`, which reads, prepares, validates and syncs it. Simulated: what Spark writes
there, the offsets of a micro-batch before it runs and the note after it, each at once and durably.
"""

from __future__ import annotations

import json
from pathlib import Path

from twophase.spark.folder.spark_folder import SparkFolder
from twophase.state.journal.entries import Lineage
from verification.simulation.disk import Disk, File, Folder
from verification.simulation.spark import offsets_of

_HEADER = '{"batchWatermarkMs":0}'
_NOTE = 'v1\n{"nextBatchWatermarkMs":0}'


class QueryFolder(SparkFolder):
    """The folder, and how Spark reads and writes it while it runs the query.

    Args:
        disk: where it is.
        path: the folder, a path of that disk.
        lineage: the lineage.
        starting: the chunk of the input that a lineage without a start of its own begins with.
    """

    def __init__(self, disk: Disk, path: Path, lineage: Lineage, starting: int) -> None:
        super().__init__(path, lineage)
        self._disk = disk
        self._starting = starting

    def next(self) -> int:
        """The micro-batch that a query which starts runs first."""
        return self._last("commits") + 1

    def chunk(self, batch: int) -> int:
        """The chunk of the input that a micro-batch reads."""
        planned = self._last("offsets")
        if planned < 0:
            return self._starting + batch
        line = self._log("offsets").entries[str(planned)]
        assert isinstance(line, File)
        end = line.data.decode().rpartition("\n")[2]
        return int(json.loads(end)["next"]) - 1 + batch - planned

    def plan(self, batch: int) -> None:
        """Freeze the offsets of a micro-batch, unless they are."""
        line = offsets_of(self.chunk(batch)).end[0]
        self._write("offsets", batch, f"v1\n{_HEADER}\n{line}")

    def note(self, batch: int) -> None:
        """Note a micro-batch as finished."""
        self._write("commits", batch, _NOTE)

    def _last(self, log: str) -> int:
        return max(map(int, filter(str.isdecimal, self._log(log).entries)), default=-1)

    def _log(self, log: str) -> Folder:
        found = self._disk.find(f"{self.path}/{log}")
        assert isinstance(found, Folder)
        return found

    def _write(self, log: str, batch: int, text: str) -> None:
        folder = self._log(log)
        if str(batch) not in folder.entries:
            file = File()
            file.data, file.synced = bytearray(text.encode()), text.encode()
            folder.put(str(batch), file)
            self._disk.sync(folder)
