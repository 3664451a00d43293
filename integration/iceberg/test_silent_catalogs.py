"""A catalog that takes a connection and does not answer, or stops in its answer: everybody who
waits for it comes back, nothing is lost, and the job goes on once it answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

import pytest

from harness.iceberg_harness import IcebergHarness
from harness.iceberg_places import Place
from harness.tcp_proxy import MuteProxy
from integration.catalogs import server_of
from tests.sinks.iceberg.others import FIELDS, commit, ids_of, rows
from twophase.contract.outcome import AlreadyCommitted, Committed, RetryLater
from twophase.contract.sink import CommitRequest
from twophase.errors import TargetUnreachableError
from twophase.ids import Attempt
from twophase.sinks.iceberg import hive_catalog, rest_client
from twophase.sinks.iceberg.open_sink import OpenIcebergSink

pytestmark = [pytest.mark.part("files"), pytest.mark.server]

DEADLINE_S = 1.5
"""In these tests, instead of the promised 60."""
PAUSE_S = 10.0
"""What the machine may add."""


@dataclass
class Silent:
    """A catalog behind something that may fall silent.

    Attributes:
        proxy: falls silent.
        harness: its sink goes through the proxy, its readers do not.
        commit: what a client sends with a commit.
        module: has the deadline.
        deadline: its name, and what it is in seconds.
    """

    proxy: MuteProxy
    harness: IcebergHarness
    commit: bytes
    module: ModuleType
    deadline: tuple[str, float]

    @contextmanager
    def mute(self, passes: int, trigger: bytes = b"", *, reaches: bool = True) -> Iterator[None]:
        """Wait for answers that do not come for seconds only."""
        name, second = self.deadline
        with pytest.MonkeyPatch.context() as patch:
            assert getattr(self.module, name) == 60 * second
            patch.setattr(self.module, name, type(second)(DEADLINE_S * second))
            self.proxy.mute(passes, trigger, reaches=reaches)
            yield
        self.proxy.answer()


@pytest.fixture
def silent(kind: str, place: Place, request: pytest.FixtureRequest) -> Iterator[Silent]:
    with MuteProxy("127.0.0.1", server_of(kind, request).port) as proxy:
        scheme = "thrift" if kind == "hive" else "http"
        harness = IcebergHarness(place, FIELDS, catalog_uri=f"{scheme}://127.0.0.1:{proxy.port}")
        if kind == "hive":
            name = b"alter_table_with_environment_context"
            yield Silent(proxy, harness, name, hive_catalog, ("_DEADLINE_MS", 1000))
        else:
            yield Silent(proxy, harness, b'"requirements"', rest_client, ("_READ_S", 1.0))


def assert_back(call: Callable[[], object], answers: int) -> None:
    """It is unreachable, after so many deadlines at most."""
    began_s = time.monotonic()
    with pytest.raises(TargetUnreachableError, match=r"[Tt]imed out|timeout"):
        call()
    assert time.monotonic() - began_s < answers * DEADLINE_S + PAUSE_S


both = pytest.mark.parametrize("kind", ["hive", "rest"])


def waiting(silent: Silent) -> tuple[OpenIcebergSink, CommitRequest]:
    """A sink that has committed, and a piece that waits."""
    sink = silent.harness.opened()
    commit(silent.harness, sink, rows(0))
    return sink, CommitRequest(silent.harness.write(sink, rows(1), 1))


@both
@pytest.mark.parametrize("passes", [0, 9, 300], ids=["nothing", "a word", "a part"])
def test_a_catalog_that_hangs_is_unreachable_within_the_deadline_and_then_the_job_goes_on(
    silent: Silent, passes: int
) -> None:
    sink, request = waiting(silent)
    with silent.mute(passes):
        for call in (
            silent.harness.new_sink().check_connection,
            silent.harness.opened,
            sink.history,
            lambda: sink.commit([request]),
            lambda: sink.fence(Attempt(2, 0)),
        ):
            assert_back(call, 1)
    assert sink.commit([request]) == [Committed()]
    silent.harness.opened().close()
    assert ids_of(silent.harness) == [0, 1]


@both
def test_a_commit_whose_answer_does_not_come_is_found_by_its_proof(silent: Silent) -> None:
    sink, request = waiting(silent)
    with silent.mute(0, silent.commit):
        [outcome] = sink.commit([request])
    assert isinstance(outcome, AlreadyCommitted)
    assert ids_of(silent.harness) == [0, 1]


@both
def test_a_fence_whose_answer_does_not_come_is_raised_once(silent: Silent) -> None:
    sink, request = waiting(silent)
    with silent.mute(0, silent.commit):
        sink.fence(Attempt(2, 0))
    assert sink.history().generation == 2
    assert sink.commit([request]) == [Committed()]
    assert ids_of(silent.harness) == [0, 1]


@both
def test_a_catalog_that_hangs_in_commits_only_holds_up_nobody_for_long(silent: Silent) -> None:
    """It answers what is asked, and its disk is full, say: none of the commits is made."""
    sink, request = waiting(silent)
    with silent.mute(0, silent.commit, reaches=False):
        for call in (silent.harness.new_sink().check_connection, silent.harness.opened):
            assert_back(call, 2)
        [outcome] = sink.commit([request])
        assert isinstance(outcome, RetryLater)
        assert "timed out" in outcome.reason.lower() or "timeout" in outcome.reason
        assert_back(lambda: sink.fence(Attempt(2, 0)), 6)
    assert sink.commit([request]) == [Committed()]
    sink.fence(Attempt(2, 0))
    assert sink.history().generation == 2
    assert ids_of(silent.harness) == [0, 1]
