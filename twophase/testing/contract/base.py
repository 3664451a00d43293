"""The base of the contract tests: an open sink, and calls as the coordinator makes them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import pyarrow as pa
import pytest

from twophase.contract.committable import Committable
from twophase.contract.outcome import CommitOutcome, RetryLater
from twophase.contract.sink import CommitRequest, OpenSink, Predecessor, SinkContext
from twophase.errors import DeclinedError, FencedError
from twophase.ids import Attempt, Subtask, TransactionId
from twophase.testing.harness import (
    FIRST,
    FIRST_SUBTASK,
    JOB,
    LINEAGE,
    SINK,
    SinkHarness,
    transaction_id,
)

CLOSED = (FencedError, DeclinedError)
Closed = type[Exception] | tuple[type[Exception], ...]
_COMMIT_TRIES = 50
closed_by_each = pytest.mark.parametrize(
    ("closed_by", "error"),
    [(Attempt(2, 1), FencedError), (Attempt(1, 2), CLOSED)],
    ids=["next driver", "next attempt"],
)
"""For a test of the fences that close the first attempt. A driver that is told of a newer one
stops; one that is told of anything else tries again.
"""


class ContractBase:
    """Fixtures and calls; no test.

    Attributes:
        harness_in_use: whose target the calls go to.
        packages: those with code of the sink beside its own folder, by name: their lines count as
            lines of its methods, before which it is stopped or killed.
    """

    harness_in_use: SinkHarness
    packages: ClassVar[Sequence[str]] = ()

    @pytest.fixture
    def harness(self) -> SinkHarness:
        """The sink under test. Subclasses override this fixture."""
        raise NotImplementedError("override the fixture 'harness'")

    @pytest.fixture(autouse=True)
    def _in_use(self, harness: SinkHarness) -> None:
        self.use(harness)

    def use(self, harness: SinkHarness) -> None:
        """Let the calls go to the target of a harness; at first, to that of the fixture."""
        self.harness_in_use = harness

    @pytest.fixture
    def sink(self, _in_use: None) -> Iterable[OpenSink]:
        """An open sink, fenced for generation 1."""
        sink = self.opened()
        sink.fence(FIRST)
        yield sink
        sink.close()

    def context(
        self, job: str = JOB, sink: str = SINK, schema: pa.Schema | None = None
    ) -> SinkContext:
        """Return the context of a job whose rows have the columns `schema`, or the harness's."""
        return SinkContext(job, sink, schema or self.harness_in_use.schema, parallelism=4)

    def opened(self, job: str = JOB, sink: str = SINK, schema: pa.Schema | None = None) -> OpenSink:
        """Open a new sink."""
        return self.harness_in_use.new_sink().open(self.context(job, sink, schema))

    def opened_for_repair(self, job: str = JOB, sink: str = SINK) -> OpenSink:
        """Open a new sink without columns: no rows will follow."""
        return self.harness_in_use.new_sink().open(SinkContext(job, sink, None, parallelism=0))

    def batch(self, ids: Iterable[int]) -> pa.RecordBatch:
        """Return one batch of rows."""
        return pa.RecordBatch.from_pylist(
            self.harness_in_use.rows(ids), schema=self.harness_in_use.schema
        )

    def prepare(
        self,
        sink: OpenSink,
        ids: Iterable[int],
        transaction: TransactionId | None = None,
        subtask: Subtask = FIRST_SUBTASK,
    ) -> list[Committable]:
        """Pre-commit the rows of one task."""
        return self.harness_in_use.pre_commit(
            sink, transaction or transaction_id(), self.batch(ids), subtask
        )

    @staticmethod
    def commit(
        sink: OpenSink, committables: Sequence[Committable], predecessor: Predecessor | None = None
    ) -> list[CommitOutcome]:
        """Commit until no outcome is `RetryLater`, as the coordinator does."""
        for retries in range(_COMMIT_TRIES):
            outcomes = list(
                sink.commit([CommitRequest(piece, retries, predecessor) for piece in committables])
            )
            if not any(isinstance(outcome, RetryLater) for outcome in outcomes):
                return outcomes
        raise AssertionError(f"still {outcomes} after {_COMMIT_TRIES} tries")

    def written(
        self,
        sink: OpenSink,
        ids_by_checkpoint: Iterable[tuple[int, list[int]]],
        lineage: str = LINEAGE,
        job: str = JOB,
        name: str = SINK,
    ) -> list[Committable]:
        """Commit one piece a checkpoint; return the pieces."""
        pieces = []
        for number, ids in ids_by_checkpoint:
            named = transaction_id(number, lineage=lineage, job=job, sink=name)
            [piece] = self.prepare(sink, ids, named)
            self.commit(sink, [piece])
            pieces.append(piece)
        return pieces

    def ids_visible(self) -> list[int]:
        """Return the ids of the visible rows, sorted."""
        return sorted(row["id"] for row in self.harness_in_use.rows_visible())


@contextmanager
def local_time(zone: str) -> Iterator[None]:
    """Give this process, and those that it starts, the clocks of a zone."""
    before = os.environ.get("TZ")

    def use(found: str | None) -> None:
        os.environ.pop("TZ", None)
        os.environ.update({} if found is None else {"TZ": found})
        time.tzset()

    use(zone)
    try:
        yield
    finally:
        use(before)


def all_are(kind: type[CommitOutcome], outcomes: Iterable[CommitOutcome]) -> bool:
    """Return whether all outcomes are of one kind."""
    return all(isinstance(outcome, kind) for outcome in outcomes)
