"""The contract suite that every sink inherits. A sink is complete when it passes."""

from twophase.testing.contract.arrow import ArrowSinkContract
from twophase.testing.contract.kill import SinkKillContract
from twophase.testing.contract.powers import (
    NamesPiecesContract,
    RewindContract,
    RewindKillContract,
    RewindRefusedContract,
    TellsUnfinishedContract,
)
from twophase.testing.contract.sink import FenceContract, PhasesContract, SinkContract

__all__ = [
    "ArrowSinkContract",
    "FenceContract",
    "NamesPiecesContract",
    "PhasesContract",
    "RewindContract",
    "RewindKillContract",
    "RewindRefusedContract",
    "SinkContract",
    "SinkKillContract",
    "TellsUnfinishedContract",
]
