"""Exactly-once sinks for PySpark Structured Streaming, by two-phase commit.

Names are imported on first use: Spark's Python workers import this package too, and need a tenth of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twophase.errors import TwoPhaseError
    from twophase.protocol.committable import Committable
    from twophase.protocol.listener import (
        CheckpointedFunction,
        CheckpointListener,
        InitializationContext,
        SnapshotContext,
    )
    from twophase.protocol.outcome import AlreadyCommitted, CommitOutcome, Committed, Lost, RetryLater
    from twophase.protocol.sink import ArrowSink, BatchSink, CommitRequest, Sink, SinkContext, SinkHistory
    from twophase.protocol.writer import SinkWriter
    from twophase.runtime.job import Job
    from twophase.runtime.registration import register
    from twophase.runtime.stream_writer import StreamWriter, write_stream

__all__ = [
    "AlreadyCommitted",
    "ArrowSink",
    "BatchSink",
    "CheckpointListener",
    "CheckpointedFunction",
    "CommitOutcome",
    "CommitRequest",
    "Committable",
    "Committed",
    "InitializationContext",
    "Job",
    "Lost",
    "RetryLater",
    "Sink",
    "SinkContext",
    "SinkHistory",
    "SinkWriter",
    "SnapshotContext",
    "StreamWriter",
    "TwoPhaseError",
    "register",
    "write_stream",
]

_HOMES = {
    "twophase.errors": ("TwoPhaseError",),
    "twophase.protocol.committable": ("Committable",),
    "twophase.protocol.listener": (
        "CheckpointListener",
        "CheckpointedFunction",
        "InitializationContext",
        "SnapshotContext",
    ),
    "twophase.protocol.outcome": ("AlreadyCommitted", "CommitOutcome", "Committed", "Lost", "RetryLater"),
    "twophase.protocol.sink": ("ArrowSink", "BatchSink", "CommitRequest", "Sink", "SinkContext", "SinkHistory"),
    "twophase.protocol.writer": ("SinkWriter",),
    "twophase.runtime.job": ("Job",),
    "twophase.runtime.registration": ("register",),
    "twophase.runtime.stream_writer": ("StreamWriter", "write_stream"),
}


def __getattr__(name: str) -> Any:
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
