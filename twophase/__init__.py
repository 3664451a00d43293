"""Exactly-once sinks for PySpark Structured Streaming, by two-phase commit.

Names are imported on first use: Spark's Python workers import this package too, and
need a tenth of it.
"""

from typing import TYPE_CHECKING

from twophase.exports import lazy_exports

if TYPE_CHECKING:
    from twophase.config import Options
    from twophase.errors import (
        ConfigError,
        DeclinedError,
        FencedError,
        PreflightError,
        RejectedRowsError,
        RestoreRefusedError,
        StopJobError,
        TargetChangedError,
        TargetUnreachableError,
        TwoPhaseError,
    )
    from twophase.events import Event
    from twophase.failpoints import failpoint
    from twophase.failure_reason import CheckpointFailureReason
    from twophase.ids import Attempt, Subtask, TransactionId
    from twophase.protocol.committable import Committable
    from twophase.protocol.fencing import attempt_is_closed, driver_is_fenced
    from twophase.protocol.listener import (
        CheckpointedFunction,
        CheckpointListener,
        InitializationContext,
        SnapshotContext,
    )
    from twophase.protocol.operator_state import BroadcastState, ListState, OperatorStateStore
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
        CanRewind,
        CommitRequest,
        NamesPieces,
        OpenArrowSink,
        OpenBatchSink,
        OpenSink,
        Predecessor,
        Sink,
        SinkContext,
        SinkHistory,
        TellsUnfinished,
        WriterFactory,
        another_target,
        predecessor_missing,
    )
    from twophase.protocol.writer import SinkWriter
    from twophase.runtime.job import Job
    from twophase.runtime.registration import register
    from twophase.runtime.stream_writer import StreamWriter, write_stream

__all__ = [
    "AlreadyCommitted",
    "ArrowSink",
    "Attempt",
    "BatchSink",
    "BroadcastState",
    "CanRewind",
    "CheckpointFailureReason",
    "CheckpointListener",
    "CheckpointedFunction",
    "CommitOutcome",
    "CommitRequest",
    "Committable",
    "Committed",
    "ConfigError",
    "DeclinedError",
    "Event",
    "FencedError",
    "InitializationContext",
    "Job",
    "ListState",
    "Lost",
    "NamesPieces",
    "OpenArrowSink",
    "OpenBatchSink",
    "OpenSink",
    "OperatorStateStore",
    "Options",
    "Predecessor",
    "PreflightError",
    "RejectedRowsError",
    "RestoreRefusedError",
    "RetryLater",
    "Sink",
    "SinkContext",
    "SinkHistory",
    "SinkWriter",
    "SnapshotContext",
    "StateSerializer",
    "StopJobError",
    "StreamWriter",
    "Subtask",
    "TargetChangedError",
    "TargetUnreachableError",
    "TellsUnfinished",
    "TransactionId",
    "TwoPhaseError",
    "WriterFactory",
    "another_target",
    "attempt_is_closed",
    "driver_is_fenced",
    "failpoint",
    "predecessor_missing",
    "register",
    "register_serializer",
    "write_stream",
]

_HOMES = {
    "twophase.config": ("Options",),
    "twophase.errors": (
        "ConfigError",
        "DeclinedError",
        "FencedError",
        "PreflightError",
        "RejectedRowsError",
        "RestoreRefusedError",
        "StopJobError",
        "TargetChangedError",
        "TargetUnreachableError",
        "TwoPhaseError",
    ),
    "twophase.events": ("Event",),
    "twophase.failpoints": ("failpoint",),
    "twophase.failure_reason": ("CheckpointFailureReason",),
    "twophase.ids": (
        "Attempt",
        "Subtask",
        "TransactionId",
    ),
    "twophase.protocol.committable": ("Committable",),
    "twophase.protocol.fencing": (
        "attempt_is_closed",
        "driver_is_fenced",
    ),
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
    ),
    "twophase.protocol.outcome": (
        "AlreadyCommitted",
        "CommitOutcome",
        "Committed",
        "Lost",
        "RetryLater",
    ),
    "twophase.protocol.serializer": (
        "StateSerializer",
        "register_serializer",
    ),
    "twophase.protocol.sink": (
        "ArrowSink",
        "BatchSink",
        "CanRewind",
        "CommitRequest",
        "NamesPieces",
        "OpenArrowSink",
        "OpenBatchSink",
        "OpenSink",
        "Predecessor",
        "Sink",
        "SinkContext",
        "SinkHistory",
        "TellsUnfinished",
        "WriterFactory",
        "another_target",
        "predecessor_missing",
    ),
    "twophase.protocol.writer": ("SinkWriter",),
    "twophase.runtime.job": ("Job",),
    "twophase.runtime.registration": ("register",),
    "twophase.runtime.stream_writer": (
        "StreamWriter",
        "write_stream",
    ),
}

__getattr__, __dir__ = lazy_exports(
    __name__, {name: module for module, names in _HOMES.items() for name in names}
)
