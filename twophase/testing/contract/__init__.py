"""The contract suites that every sink and every source inherits: complete when they pass."""

from twophase.testing.contract.arrow import ArrowSinkContract
from twophase.testing.contract.kill import SinkKillContract
from twophase.testing.contract.powers import (
    CompletesPartitionsContract,
    KnowsOtherNamesContract,
    NamesPiecesContract,
    RewindContract,
    RewindKillContract,
    RewindRefusedContract,
    RewindStepsContract,
    RewindStepsKillContract,
    TellsUnfinishedContract,
    UnbegunRewindContract,
)
from twophase.testing.contract.sink import FenceContract, PhasesContract, SinkContract
from twophase.testing.contract.source import (
    NotifyingSourceContract,
    ReadsInTasksContract,
    ReleasesTopicsContract,
    RereadsRangesContract,
    SourceContract,
    SourceHarness,
)
from twophase.testing.harness import SinkHarness

__all__ = [
    "ArrowSinkContract",
    "CompletesPartitionsContract",
    "FenceContract",
    "KnowsOtherNamesContract",
    "NamesPiecesContract",
    "NotifyingSourceContract",
    "PhasesContract",
    "ReadsInTasksContract",
    "ReleasesTopicsContract",
    "RereadsRangesContract",
    "RewindContract",
    "RewindKillContract",
    "RewindRefusedContract",
    "RewindStepsContract",
    "RewindStepsKillContract",
    "SinkContract",
    "SinkHarness",
    "SinkKillContract",
    "SourceContract",
    "SourceHarness",
    "TellsUnfinishedContract",
    "UnbegunRewindContract",
]
