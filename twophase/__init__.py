"""Exactly-once sinks for PySpark Structured Streaming, by two-phase commit."""

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
