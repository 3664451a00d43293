"""Exactly-once sinks for PySpark Structured Streaming, by two-phase commit.

Names are imported on first use: Spark's Python workers import this package too, and
need a tenth of it.
"""

from typing import TYPE_CHECKING

from twophase.internals.exports import export

if TYPE_CHECKING:
    from twophase.contract.committable import Committable as Committable
    from twophase.contract.fencing import attempt_is_closed as attempt_is_closed
    from twophase.contract.fencing import driver_is_fenced as driver_is_fenced
    from twophase.contract.listener import CheckpointedFunction as CheckpointedFunction
    from twophase.contract.listener import CheckpointListener as CheckpointListener
    from twophase.contract.listener import InitializationContext as InitializationContext
    from twophase.contract.listener import SnapshotContext as SnapshotContext
    from twophase.contract.outcome import AlreadyCommitted as AlreadyCommitted
    from twophase.contract.outcome import CommitOutcome as CommitOutcome
    from twophase.contract.outcome import Committed as Committed
    from twophase.contract.outcome import Lost as Lost
    from twophase.contract.outcome import RetryLater as RetryLater
    from twophase.contract.sink import ArrowSink as ArrowSink
    from twophase.contract.sink import BatchSink as BatchSink
    from twophase.contract.sink import CanRewind as CanRewind
    from twophase.contract.sink import CommitRequest as CommitRequest
    from twophase.contract.sink import CompletesPartitions as CompletesPartitions
    from twophase.contract.sink import KnowsOtherNames as KnowsOtherNames
    from twophase.contract.sink import NamesPieces as NamesPieces
    from twophase.contract.sink import OpenArrowSink as OpenArrowSink
    from twophase.contract.sink import OpenBatchSink as OpenBatchSink
    from twophase.contract.sink import OpenSink as OpenSink
    from twophase.contract.sink import Predecessor as Predecessor
    from twophase.contract.sink import RewindsInSteps as RewindsInSteps
    from twophase.contract.sink import Sink as Sink
    from twophase.contract.sink import SinkContext as SinkContext
    from twophase.contract.sink import SinkHistory as SinkHistory
    from twophase.contract.sink import TellsUnfinished as TellsUnfinished
    from twophase.contract.sink import Waits as Waits
    from twophase.contract.sink import WriterFactory as WriterFactory
    from twophase.contract.sink import another_target as another_target
    from twophase.contract.sink import commit_each as commit_each
    from twophase.contract.sink import predecessor_missing as predecessor_missing
    from twophase.contract.source import RangeReader as RangeReader
    from twophase.contract.source import ReadsInTasks as ReadsInTasks
    from twophase.contract.source import ReleasesTopics as ReleasesTopics
    from twophase.contract.source import RereadsRanges as RereadsRanges
    from twophase.contract.source import Source as Source
    from twophase.contract.source import SourceLeg as SourceLeg
    from twophase.contract.source import SourceRange as SourceRange
    from twophase.contract.source import option as option
    from twophase.contract.writer import SinkWriter as SinkWriter
    from twophase.errors import BadRecordError as BadRecordError
    from twophase.errors import CheckpointExpiredError as CheckpointExpiredError
    from twophase.errors import CheckpointMissingError as CheckpointMissingError
    from twophase.errors import ConfigError as ConfigError
    from twophase.errors import CorruptRecordError as CorruptRecordError
    from twophase.errors import DeclinedError as DeclinedError
    from twophase.errors import FencedError as FencedError
    from twophase.errors import FenceLostError as FenceLostError
    from twophase.errors import InDoubtError as InDoubtError
    from twophase.errors import LostCommittableError as LostCommittableError
    from twophase.errors import NewerFormatError as NewerFormatError
    from twophase.errors import OffsetMismatchError as OffsetMismatchError
    from twophase.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from twophase.errors import PartitionVanishedError as PartitionVanishedError
    from twophase.errors import PreflightError as PreflightError
    from twophase.errors import RangeChangedError as RangeChangedError
    from twophase.errors import RejectedRowsError as RejectedRowsError
    from twophase.errors import RepeatedFailureError as RepeatedFailureError
    from twophase.errors import ReplayLostError as ReplayLostError
    from twophase.errors import RestoreRefusedError as RestoreRefusedError
    from twophase.errors import SavepointError as SavepointError
    from twophase.errors import SavepointUnfinishedError as SavepointUnfinishedError
    from twophase.errors import ServiceError as ServiceError
    from twophase.errors import SourceLossError as SourceLossError
    from twophase.errors import SourceUnavailableError as SourceUnavailableError
    from twophase.errors import SparkLostError as SparkLostError
    from twophase.errors import StopJobError as StopJobError
    from twophase.errors import TargetChangedError as TargetChangedError
    from twophase.errors import TargetUnreachableError as TargetUnreachableError
    from twophase.errors import TopicRecreatedError as TopicRecreatedError
    from twophase.errors import TwoPhaseError as TwoPhaseError
    from twophase.errors import fingerprint_of as fingerprint_of
    from twophase.events import Event as Event
    from twophase.failure_reason import CheckpointFailureReason as CheckpointFailureReason
    from twophase.functions.operator_state import BroadcastState as BroadcastState
    from twophase.functions.operator_state import ListState as ListState
    from twophase.functions.operator_state import OperatorStateStore as OperatorStateStore
    from twophase.functions.operator_state import Redistribution as Redistribution
    from twophase.functions.serializer import StateSerializer as StateSerializer
    from twophase.functions.serializer import register_serializer as register_serializer
    from twophase.ids import Attempt as Attempt
    from twophase.ids import Subtask as Subtask
    from twophase.ids import TransactionId as TransactionId
    from twophase.internals.failpoints import failpoint as failpoint
    from twophase.internals.redaction import shown as shown
    from twophase.options.parsing import Duration as Duration
    from twophase.options.parsing import Names as Names
    from twophase.options.parsing import Options as Options
    from twophase.spark.job.job import Job as Job
    from twophase.spark.job.stream_writer import StreamWriter as StreamWriter
    from twophase.spark.job.stream_writer import write_stream as write_stream
    from twophase.spark.plugin.registration import register as register
    from twophase.state.checkpoints.replay_guard import ReplayGuard as ReplayGuard

export(
    __name__,
    {
        "twophase.contract.committable": ["Committable"],
        "twophase.contract.fencing": ["attempt_is_closed", "driver_is_fenced"],
        "twophase.contract.listener": [
            "CheckpointListener",
            "CheckpointedFunction",
            "InitializationContext",
            "SnapshotContext",
        ],
        "twophase.contract.outcome": [
            "AlreadyCommitted",
            "CommitOutcome",
            "Committed",
            "Lost",
            "RetryLater",
        ],
        "twophase.contract.sink": [
            "ArrowSink",
            "BatchSink",
            "CanRewind",
            "CommitRequest",
            "CompletesPartitions",
            "KnowsOtherNames",
            "NamesPieces",
            "OpenArrowSink",
            "OpenBatchSink",
            "OpenSink",
            "Predecessor",
            "RewindsInSteps",
            "Sink",
            "SinkContext",
            "SinkHistory",
            "TellsUnfinished",
            "Waits",
            "WriterFactory",
            "another_target",
            "commit_each",
            "predecessor_missing",
        ],
        "twophase.contract.source": [
            "RangeReader",
            "ReadsInTasks",
            "ReleasesTopics",
            "RereadsRanges",
            "Source",
            "SourceLeg",
            "SourceRange",
            "option",
        ],
        "twophase.contract.writer": ["SinkWriter"],
        "twophase.errors": [
            "BadRecordError",
            "CheckpointExpiredError",
            "CheckpointMissingError",
            "ConfigError",
            "CorruptRecordError",
            "DeclinedError",
            "FenceLostError",
            "FencedError",
            "InDoubtError",
            "LostCommittableError",
            "NewerFormatError",
            "OffsetMismatchError",
            "OffsetOutOfRangeError",
            "PartitionVanishedError",
            "PreflightError",
            "RangeChangedError",
            "RejectedRowsError",
            "RepeatedFailureError",
            "ReplayLostError",
            "RestoreRefusedError",
            "SavepointError",
            "SavepointUnfinishedError",
            "ServiceError",
            "SourceLossError",
            "SourceUnavailableError",
            "SparkLostError",
            "StopJobError",
            "TargetChangedError",
            "TargetUnreachableError",
            "TopicRecreatedError",
            "TwoPhaseError",
            "fingerprint_of",
        ],
        "twophase.events": ["Event"],
        "twophase.failure_reason": ["CheckpointFailureReason"],
        "twophase.functions.operator_state": [
            "BroadcastState",
            "ListState",
            "OperatorStateStore",
            "Redistribution",
        ],
        "twophase.functions.serializer": ["StateSerializer", "register_serializer"],
        "twophase.ids": ["Attempt", "Subtask", "TransactionId"],
        "twophase.internals.failpoints": ["failpoint"],
        "twophase.internals.redaction": ["shown"],
        "twophase.options.parsing": ["Duration", "Names", "Options"],
        "twophase.spark.job.job": ["Job"],
        "twophase.spark.job.stream_writer": ["StreamWriter", "write_stream"],
        "twophase.spark.plugin.registration": ["register"],
        "twophase.state.checkpoints.replay_guard": ["ReplayGuard"],
    },
)
