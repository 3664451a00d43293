"""Exactly-once sinks for PySpark Structured Streaming, by two-phase commit.

Names are imported on first use: Spark's Python workers import this package too, and
need a tenth of it.
"""

from typing import TYPE_CHECKING

from twophase.exports import export

if TYPE_CHECKING:
    from twophase.config import Options as Options
    from twophase.errors import BadRecordError as BadRecordError
    from twophase.errors import ConfigError as ConfigError
    from twophase.errors import CorruptRecordError as CorruptRecordError
    from twophase.errors import DeclinedError as DeclinedError
    from twophase.errors import FencedError as FencedError
    from twophase.errors import NewerFormatError as NewerFormatError
    from twophase.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from twophase.errors import PartitionVanishedError as PartitionVanishedError
    from twophase.errors import PreflightError as PreflightError
    from twophase.errors import RangeChangedError as RangeChangedError
    from twophase.errors import RejectedRowsError as RejectedRowsError
    from twophase.errors import RestoreRefusedError as RestoreRefusedError
    from twophase.errors import SourceLossError as SourceLossError
    from twophase.errors import SourceUnavailableError as SourceUnavailableError
    from twophase.errors import StopJobError as StopJobError
    from twophase.errors import TargetChangedError as TargetChangedError
    from twophase.errors import TargetUnreachableError as TargetUnreachableError
    from twophase.errors import TopicRecreatedError as TopicRecreatedError
    from twophase.errors import TwoPhaseError as TwoPhaseError
    from twophase.events import Event as Event
    from twophase.failpoints import failpoint as failpoint
    from twophase.failure_reason import CheckpointFailureReason as CheckpointFailureReason
    from twophase.ids import Attempt as Attempt
    from twophase.ids import Subtask as Subtask
    from twophase.ids import TransactionId as TransactionId
    from twophase.protocol.committable import Committable as Committable
    from twophase.protocol.fencing import attempt_is_closed as attempt_is_closed
    from twophase.protocol.fencing import driver_is_fenced as driver_is_fenced
    from twophase.protocol.listener import CheckpointedFunction as CheckpointedFunction
    from twophase.protocol.listener import CheckpointListener as CheckpointListener
    from twophase.protocol.listener import InitializationContext as InitializationContext
    from twophase.protocol.listener import SnapshotContext as SnapshotContext
    from twophase.protocol.operator_state import BroadcastState as BroadcastState
    from twophase.protocol.operator_state import ListState as ListState
    from twophase.protocol.operator_state import OperatorStateStore as OperatorStateStore
    from twophase.protocol.operator_state import Redistribution as Redistribution
    from twophase.protocol.outcome import AlreadyCommitted as AlreadyCommitted
    from twophase.protocol.outcome import CommitOutcome as CommitOutcome
    from twophase.protocol.outcome import Committed as Committed
    from twophase.protocol.outcome import Lost as Lost
    from twophase.protocol.outcome import RetryLater as RetryLater
    from twophase.protocol.serializer import StateSerializer as StateSerializer
    from twophase.protocol.serializer import register_serializer as register_serializer
    from twophase.protocol.sink import ArrowSink as ArrowSink
    from twophase.protocol.sink import BatchSink as BatchSink
    from twophase.protocol.sink import CanRewind as CanRewind
    from twophase.protocol.sink import CommitRequest as CommitRequest
    from twophase.protocol.sink import NamesPieces as NamesPieces
    from twophase.protocol.sink import OpenArrowSink as OpenArrowSink
    from twophase.protocol.sink import OpenBatchSink as OpenBatchSink
    from twophase.protocol.sink import OpenSink as OpenSink
    from twophase.protocol.sink import Predecessor as Predecessor
    from twophase.protocol.sink import Sink as Sink
    from twophase.protocol.sink import SinkContext as SinkContext
    from twophase.protocol.sink import SinkHistory as SinkHistory
    from twophase.protocol.sink import TellsUnfinished as TellsUnfinished
    from twophase.protocol.sink import WriterFactory as WriterFactory
    from twophase.protocol.sink import another_target as another_target
    from twophase.protocol.sink import predecessor_missing as predecessor_missing
    from twophase.protocol.source import RereadsRanges as RereadsRanges
    from twophase.protocol.source import Source as Source
    from twophase.protocol.source import SourceLeg as SourceLeg
    from twophase.protocol.source import SourceRange as SourceRange
    from twophase.protocol.writer import SinkWriter as SinkWriter
    from twophase.runtime.job import Job as Job
    from twophase.runtime.registration import register as register
    from twophase.runtime.stream_writer import StreamWriter as StreamWriter
    from twophase.runtime.stream_writer import write_stream as write_stream
    from twophase.state.replay_guard import ReplayGuard as ReplayGuard

export(
    __name__,
    {
        "twophase.config": [
            "Options",
        ],
        "twophase.errors": [
            "BadRecordError",
            "ConfigError",
            "CorruptRecordError",
            "DeclinedError",
            "FencedError",
            "NewerFormatError",
            "OffsetOutOfRangeError",
            "PartitionVanishedError",
            "PreflightError",
            "RangeChangedError",
            "RejectedRowsError",
            "RestoreRefusedError",
            "SourceLossError",
            "SourceUnavailableError",
            "StopJobError",
            "TargetChangedError",
            "TargetUnreachableError",
            "TopicRecreatedError",
            "TwoPhaseError",
        ],
        "twophase.events": [
            "Event",
        ],
        "twophase.failpoints": [
            "failpoint",
        ],
        "twophase.failure_reason": [
            "CheckpointFailureReason",
        ],
        "twophase.ids": [
            "Attempt",
            "Subtask",
            "TransactionId",
        ],
        "twophase.protocol.committable": [
            "Committable",
        ],
        "twophase.protocol.fencing": [
            "attempt_is_closed",
            "driver_is_fenced",
        ],
        "twophase.protocol.listener": [
            "CheckpointListener",
            "CheckpointedFunction",
            "InitializationContext",
            "SnapshotContext",
        ],
        "twophase.protocol.operator_state": [
            "BroadcastState",
            "ListState",
            "OperatorStateStore",
            "Redistribution",
        ],
        "twophase.protocol.outcome": [
            "AlreadyCommitted",
            "CommitOutcome",
            "Committed",
            "Lost",
            "RetryLater",
        ],
        "twophase.protocol.serializer": [
            "StateSerializer",
            "register_serializer",
        ],
        "twophase.protocol.sink": [
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
        ],
        "twophase.protocol.source": [
            "RereadsRanges",
            "Source",
            "SourceLeg",
            "SourceRange",
        ],
        "twophase.protocol.writer": [
            "SinkWriter",
        ],
        "twophase.runtime.job": [
            "Job",
        ],
        "twophase.runtime.registration": [
            "register",
        ],
        "twophase.runtime.stream_writer": [
            "StreamWriter",
            "write_stream",
        ],
        "twophase.state.replay_guard": [
            "ReplayGuard",
        ],
    },
)
