"""The contract suite that every sink inherits.

    class TestMySqlSink(ArrowSinkContract):
        @pytest.fixture
        def harness(self, mysql) -> MySqlHarness:
            return MySqlHarness(mysql)

The suite follows the order in which the coordinator calls a sink (`twophase.protocol.sink`): pieces
in doubt are committed or aborted before the fence is raised. Each subject has its own
module in this package.
"""

from __future__ import annotations

from twophase.testing.contract.abort import AbortContract
from twophase.testing.contract.declared import DeclaredContract
from twophase.testing.contract.fencing import FenceContract
from twophase.testing.contract.phases import PhasesContract
from twophase.testing.contract.predecessors import PredecessorContract
from twophase.testing.contract.proofs import ProofContract
from twophase.testing.contract.rows import RowContract


class SinkContract(
    DeclaredContract,
    PhasesContract,
    PredecessorContract,
    RowContract,
    AbortContract,
    FenceContract,
    ProofContract,
):
    """The contract of every sink: subclass it, and provide the fixture `harness` only."""
