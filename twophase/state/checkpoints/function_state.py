"""States of driver-side functions as a checkpoint's body has them: inline, or in a file of
their own.

The entries of a state are one Arrow IPC stream with one binary column. In the body it is base64;
in a file it follows the header of every durable record (`twophase/1 STATE ...`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pyarrow as pa

from twophase.functions.operator_state import Redistribution, SerializedState

_FILE_NAME = re.compile(r"[0-9]{1,6}")


@dataclass(frozen=True)
class StateFile:
    """A file that holds a state.

    Attributes:
        name: within the folder of the checkpoint's state files.
        length: of the whole file, in bytes.
        sha256: of the whole file, in hex.
    """

    name: str
    length: int
    sha256: str

    def __post_init__(self) -> None:
        if not _FILE_NAME.fullmatch(self.name):
            raise ValueError(f"a state's file is named {self.name!r}")


@dataclass(frozen=True)
class FunctionState:
    """A state in a checkpoint.

    Attributes:
        name: given by the function; empty for raw state.
        scheme: how it is redistributed.
        serializers: the names of its serializers, as in `SerializedState`.
        entries: how many entries there are.
        data: the entries, as an Arrow IPC stream; None if they are in a file.
        file: where they are, if not here.
    """

    name: str
    scheme: Redistribution
    serializers: tuple[str, ...]
    entries: int
    data: bytes | None
    file: StateFile | None = None

    def __post_init__(self) -> None:
        if (self.data is None) == (self.file is None):
            raise ValueError("a state is in the body or in a file")

    @classmethod
    def of(cls, state: SerializedState) -> FunctionState:
        """Return the state with its entries as one stream."""
        column = pa.array(state.entries, pa.large_binary())
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([column], names=["entry"])
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        data = bytes(sink.getvalue())
        return cls(state.name, state.scheme, state.serializers, len(state.entries), data)

    def serialized(self) -> SerializedState:
        """Return the state with its entries one by one, the inverse of `of`; it must be read."""
        if self.data is None:
            raise AssertionError(f"state {self.name!r} was not read from its file")
        with pa.ipc.open_stream(self.data) as reader:
            column = reader.read_all().column("entry")
        entries = tuple(value.as_py() for value in column)
        return SerializedState(self.name, self.scheme, self.serializers, entries)
