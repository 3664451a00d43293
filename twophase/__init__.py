"""Exactly-once sinks for PySpark Structured Streaming, by two-phase commit.

Names are imported on first use: Spark's Python workers import this package too, and
need a tenth of it.
"""

from typing import TYPE_CHECKING

from twophase.exports import lazy_exports

if TYPE_CHECKING:
    from twophase.config import Options
    from twophase.errors import (
        BadRecordError,
        ConfigError,
        CorruptRecordError,
        DeclinedError,
        NewerFormatError,
        OffsetOutOfRangeError,
        PartitionVanishedError,
        PreflightError,
        RangeChangedError,
        SourceLossError,
        SourceUnavailableError,
        StopJobError,
        TopicRecreatedError,
        TwoPhaseError,
    )
    from twophase.events import Event
    from twophase.ids import Attempt, Subtask, TransactionId
    from twophase.protocol.committable import Committable
    from twophase.protocol.listener import (
        CheckpointedFunction,
        CheckpointListener,
        InitializationContext,
        SnapshotContext,
    )
    from twophase.protocol.operator_state import (
        BroadcastState,
        ListState,
        OperatorStateStore,
        Redistribution,
    )
    from twophase.protocol.outcome import (
        AlreadyCommitted,
        CommitOutcome,
        Committed,
        Lost,
        RetryLater,
    )
    from twophase.protocol.serializer import StateSerializer, register_serializer
    from twophase.protocol.sink import (
        ArrowSink,
        BatchSink,
        CommitRequest,
        Sink,
        SinkContext,
        SinkHistory,
    )
    from twophase.protocol.source import RereadsRanges, Source, SourceLeg, SourceRange
    from twophase.protocol.writer import SinkWriter
    from twophase.runtime.job import Job
    from twophase.runtime.registration import register
    from twophase.runtime.stream_writer import StreamWriter, write_stream
    from twophase.state.replay_guard import ReplayGuard

__all__ = [
    "AlreadyCommitted",
    "ArrowSink",
    "Attempt",
    "BadRecordError",
    "BatchSink",
    "BroadcastState",
    "CheckpointListener",
    "CheckpointedFunction",
    "CommitOutcome",
    "CommitRequest",
    "Committable",
    "Committed",
    "ConfigError",
    "CorruptRecordError",
    "DeclinedError",
    "Event",
    "InitializationContext",
    "Job",
    "ListState",
    "Lost",
    "NewerFormatError",
    "OffsetOutOfRangeError",
    "OperatorStateStore",
    "Options",
    "PartitionVanishedError",
    "PreflightError",
    "RangeChangedError",
    "Redistribution",
    "ReplayGuard",
    "RereadsRanges",
    "RetryLater",
    "Sink",
    "SinkContext",
    "SinkHistory",
    "SinkWriter",
    "SnapshotContext",
    "Source",
    "SourceLeg",
    "SourceLossError",
    "SourceRange",
    "SourceUnavailableError",
    "StateSerializer",
    "StopJobError",
    "StreamWriter",
    "Subtask",
    "TopicRecreatedError",
    "TransactionId",
    "TwoPhaseError",
    "register",
    "register_serializer",
    "write_stream",
]

_HOMES = {
    "twophase.config": ("Options",),
    "twophase.errors": (
        "BadRecordError",
        "ConfigError",
        "CorruptRecordError",
        "DeclinedError",
        "NewerFormatError",
        "OffsetOutOfRangeError",
        "PartitionVanishedError",
        "PreflightError",
        "RangeChangedError",
        "SourceLossError",
        "SourceUnavailableError",
        "StopJobError",
        "TopicRecreatedError",
        "TwoPhaseError",
    ),
    "twophase.events": ("Event",),
    "twophase.ids": ("Attempt", "Subtask", "TransactionId"),
    "twophase.protocol.committable": ("Committable",),
    "twophase.protocol.listener": (
        "CheckpointListener",
        "CheckpointedFunction",
        "InitializationContext",
        "SnapshotContext",
    ),
    "twophase.protocol.operator_state": (
        "BroadcastState",
        "ListState",
        "OperatorStateStore",
        "Redistribution",
    ),
    "twophase.protocol.outcome": (
        "AlreadyCommitted",
        "CommitOutcome",
        "Committed",
        "Lost",
        "RetryLater",
    ),
    "twophase.protocol.serializer": ("StateSerializer", "register_serializer"),
    "twophase.protocol.sink": (
        "ArrowSink",
        "BatchSink",
        "CommitRequest",
        "Sink",
        "SinkContext",
        "SinkHistory",
    ),
    "twophase.protocol.source": ("RereadsRanges", "Source", "SourceLeg", "SourceRange"),
    "twophase.protocol.writer": ("SinkWriter",),
    "twophase.runtime.job": ("Job",),
    "twophase.runtime.registration": ("register",),
    "twophase.runtime.stream_writer": ("StreamWriter", "write_stream"),
    "twophase.state.replay_guard": ("ReplayGuard",),
}

__getattr__, __dir__ = lazy_exports(
    __name__, {name: module for module, names in _HOMES.items() for name in names}
)
