"""Exactly-once sinks for PySpark Structured Streaming, by two-phase commit.

Names are imported on first use: Spark's Python workers import this package too, and
need a tenth of it.
"""

from typing import TYPE_CHECKING

from twophase.exports import export

if TYPE_CHECKING:
    from twophase.config import Options as Options
    from twophase.errors import DeclinedError as DeclinedError
    from twophase.errors import TwoPhaseError as TwoPhaseError
    from twophase.events import Event as Event
    from twophase.ids import Attempt as Attempt
    from twophase.ids import Subtask as Subtask
    from twophase.ids import TransactionId as TransactionId
    from twophase.protocol.committable import Committable as Committable
    from twophase.protocol.listener import CheckpointedFunction as CheckpointedFunction
    from twophase.protocol.listener import CheckpointListener as CheckpointListener
    from twophase.protocol.listener import InitializationContext as InitializationContext
    from twophase.protocol.listener import SnapshotContext as SnapshotContext
    from twophase.protocol.operator_state import BroadcastState as BroadcastState
    from twophase.protocol.operator_state import ListState as ListState
    from twophase.protocol.operator_state import OperatorStateStore as OperatorStateStore
    from twophase.protocol.outcome import AlreadyCommitted as AlreadyCommitted
    from twophase.protocol.outcome import CommitOutcome as CommitOutcome
    from twophase.protocol.outcome import Committed as Committed
    from twophase.protocol.outcome import Lost as Lost
    from twophase.protocol.outcome import RetryLater as RetryLater
    from twophase.protocol.serializer import StateSerializer as StateSerializer
    from twophase.protocol.serializer import register_serializer as register_serializer
    from twophase.protocol.sink import ArrowSink as ArrowSink
    from twophase.protocol.sink import BatchSink as BatchSink
    from twophase.protocol.sink import CommitRequest as CommitRequest
    from twophase.protocol.sink import Sink as Sink
    from twophase.protocol.sink import SinkContext as SinkContext
    from twophase.protocol.sink import SinkHistory as SinkHistory
    from twophase.protocol.writer import SinkWriter as SinkWriter
    from twophase.runtime.job import Job as Job
    from twophase.runtime.registration import register as register
    from twophase.runtime.stream_writer import StreamWriter as StreamWriter
    from twophase.runtime.stream_writer import write_stream as write_stream

export(
    __name__,
    {
        "twophase.config": ["Options"],
        "twophase.errors": ["DeclinedError", "TwoPhaseError"],
        "twophase.events": ["Event"],
        "twophase.ids": ["Attempt", "Subtask", "TransactionId"],
        "twophase.protocol.committable": ["Committable"],
        "twophase.protocol.listener": [
            "CheckpointedFunction",
            "CheckpointListener",
            "InitializationContext",
            "SnapshotContext",
        ],
        "twophase.protocol.operator_state": ["BroadcastState", "ListState", "OperatorStateStore"],
        "twophase.protocol.outcome": [
            "AlreadyCommitted",
            "CommitOutcome",
            "Committed",
            "Lost",
            "RetryLater",
        ],
        "twophase.protocol.serializer": ["StateSerializer", "register_serializer"],
        "twophase.protocol.sink": [
            "ArrowSink",
            "BatchSink",
            "CommitRequest",
            "Sink",
            "SinkContext",
            "SinkHistory",
        ],
        "twophase.protocol.writer": ["SinkWriter"],
        "twophase.runtime.job": ["Job"],
        "twophase.runtime.registration": ["register"],
        "twophase.runtime.stream_writer": ["StreamWriter", "write_stream"],
    },
)
