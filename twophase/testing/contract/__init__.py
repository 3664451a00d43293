"""The contract suite that every sink inherits. A sink is complete when it passes."""

from twophase.testing.contract.arrow import ArrowSinkContract
from twophase.testing.contract.kill import SinkKillContract
from twophase.testing.contract.rewind import RewindContract
from twophase.testing.contract.rewind_kill import RewindKillContract
from twophase.testing.contract.sink import SinkContract

__all__ = [
    "ArrowSinkContract",
    "RewindContract",
    "RewindKillContract",
    "SinkContract",
    "SinkKillContract",
]
