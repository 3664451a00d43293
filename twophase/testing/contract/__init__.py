"""The contract suites that every sink and every source inherits: complete when they pass."""

from twophase.testing.contract.arrow import ArrowSinkContract
from twophase.testing.contract.kill import SinkKillContract
from twophase.testing.contract.rewind import RewindContract
from twophase.testing.contract.rewind_kill import RewindKillContract
from twophase.testing.contract.sink import SinkContract
from twophase.testing.contract.source import (
    NotifyingSourceContract,
    RereadsRangesContract,
    SourceContract,
    SourceHarness,
)

__all__ = [
    "ArrowSinkContract",
    "NotifyingSourceContract",
    "RereadsRangesContract",
    "RewindContract",
    "RewindKillContract",
    "SinkContract",
    "SinkKillContract",
    "SourceContract",
    "SourceHarness",
]
