"""A sink that tapes the Arrow rows which its writers get, beside those of a `FolderSink`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from harness.folder_sink import FolderSink, WrappedWriter, with_writers
from twophase.contract.committable import Committable
from twophase.contract.writer import SinkWriter

_TAPE = "tape"


def taping_sink(path: Path) -> FolderSink:
    """Return a sink over a folder that tapes what is written to it."""
    return with_writers(path, Taping(path / _TAPE))


def taped(path: Path) -> dict[str, pa.Table]:
    """Return the rows with their schema, by checkpoint and index of the subtask."""
    found = {}
    for file in sorted((path / _TAPE).glob("*")):
        with pa.OSFile(str(file)) as source:
            found[file.name] = pa.ipc.open_file(source).read_all().combine_chunks()
    return found


@dataclass(frozen=True)
class Taping:
    """Wraps a writer.

    Attributes:
        path: the folder of the tapes.
    """

    path: Path

    def __call__(self, writer: SinkWriter) -> TapingWriter:
        """Return the writer with its tape."""
        return TapingWriter(writer, self.path)


class TapingWriter(WrappedWriter):
    """Writes a tape when it pre-commits."""

    def __init__(self, writer: SinkWriter, path: Path) -> None:
        super().__init__(writer)
        self._path = path
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """See `SinkWriter.write`."""
        self._batches.append(batch)
        # other values may be none of Python's, such as the year 1 in New York
        rows = batch.select([one.name for one in batch.schema if pa.types.is_integer(one.type)])
        super().write(rows.append_column("row", pa.array(range(batch.num_rows))))

    def pre_commit(self) -> Committable | None:
        """See `SinkWriter.pre_commit`."""
        piece = super().pre_commit()
        if piece is not None:
            self._path.mkdir(parents=True, exist_ok=True)
            name = f"{piece.transaction.checkpoint}-{piece.subtask.index}"
            with (
                pa.OSFile(str(self._path / name), "wb") as file,
                pa.ipc.new_file(file, self._batches[0].schema) as tape,
            ):
                for batch in self._batches:
                    tape.write_batch(batch)
        return piece
