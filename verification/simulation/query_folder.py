"""Spark's folder of one lineage on the simulated disk, for runs with savepoints, which copy it.

Real: `SparkFolder`, which reads, prepares and checks it. Simulated: what Spark writes there, the
offsets of a micro-batch before it runs and the note after it, each at once and durably.
"""

from __future__ import annotations

import json
from typing import Any

from twophase.spark.folder.spark_folder import SparkFolder
from twophase.state.checkpoints.checkpoint import FrozenOffsets
from twophase.state.journal.entries import Decision, Lineage
from verification.simulation.disk import Disk, File
from verification.simulation.spark import offsets_of

_HEADER = '{"batchWatermarkMs":0}'
_NOTE = 'v1\n{"nextBatchWatermarkMs":0}'


class QueryFolder:
    """Has the parts of `spark.QueryLog` that run a query.

    Args:
        disk: where it is.
        path: the folder, a path of that disk.
        lineage: the lineage.
    """

    def __init__(self, disk: Disk, path: Any, lineage: Lineage) -> None:
        self._disk = disk
        self._path = path
        self._folder = SparkFolder(path, lineage)

    def prepare(self, newest: Decision | None) -> None:
        """What a start does with it before the query begins."""
        self._folder.prepare(newest)
        self._folder.finish(newest)

    @property
    def planned(self) -> int:
        """The newest micro-batch with frozen offsets."""
        return self._folder.planned()

    @planned.setter
    def planned(self, batch: int) -> None:
        line = offsets_of(self.chunk(batch)).end[0]
        self._write("offsets", batch, f"v1\n{_HEADER}\n{line}")

    @property
    def finished(self) -> int:
        """The newest that has returned."""
        return self._folder.finished()

    @finished.setter
    def finished(self, batch: int) -> None:
        self._write("commits", batch, _NOTE)

    def chunk(self, batch: int) -> int:
        """The chunk of the input that a micro-batch reads."""
        planned = self.planned
        if planned < 0:
            return batch
        [line] = self._folder.offsets(planned).end
        return int(json.loads(line or "")["next"]) - 1 + batch - planned

    def offsets(self, batch: int) -> FrozenOffsets:
        """The frozen offsets of a micro-batch that is planned."""
        return self._folder.offsets(batch)

    def _write(self, log: str, batch: int, text: str) -> None:
        folder, name = self._disk.folder_of(f"{self._path}/{log}/{batch}")
        if name not in folder.entries:
            file = File()
            file.data, file.synced = bytearray(text.encode()), text.encode()
            folder.put(name, file)
            self._disk.sync(folder)
