"""The base of the contract tests: an open sink, and calls as the coordinator makes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pytest

from twophase.contract.committable import Committable
from twophase.contract.outcome import CommitOutcome, RetryLater
from twophase.contract.sink import CommitRequest, OpenSink, Predecessor, SinkContext
from twophase.errors import DeclinedError, FencedError
from twophase.ids import Subtask, TransactionId
from twophase.testing.harness import FIRST, JOB, LINEAGE, SINK, SinkHarness, transaction_id

CLOSED = (FencedError, DeclinedError)
_COMMIT_TRIES = 50


class ContractBase:
    """Fixtures and calls; no test."""

    @pytest.fixture
    def harness(self) -> SinkHarness:
        """The sink under test. Subclasses override this fixture."""
        raise NotImplementedError("override the fixture 'harness'")

    @pytest.fixture
    def sink(self, harness: SinkHarness) -> Iterable[OpenSink]:
        """An open sink, fenced for generation 1."""
        sink = self.opened(harness)
        sink.fence(FIRST)
        yield sink
        sink.close()

    @staticmethod
    def context(
        harness: SinkHarness, job: str = JOB, sink: str = SINK, schema: pa.Schema | None = None
    ) -> SinkContext:
        """Return the context of a job whose rows have the columns `schema`, or the harness's."""
        return SinkContext(job, sink, schema or harness.schema, parallelism=4)

    @classmethod
    def opened(
        cls, harness: SinkHarness, job: str = JOB, sink: str = SINK, schema: pa.Schema | None = None
    ) -> OpenSink:
        """Open a new sink."""
        return harness.new_sink().open(cls.context(harness, job, sink, schema))

    @staticmethod
    def opened_for_repair(harness: SinkHarness) -> OpenSink:
        """Open a new sink without columns: no rows will follow."""
        return harness.new_sink().open(SinkContext(JOB, SINK, None, parallelism=0))

    @staticmethod
    def batch(harness: SinkHarness, ids: Iterable[int]) -> pa.RecordBatch:
        """Return one batch of rows."""
        return pa.RecordBatch.from_pylist(harness.rows(ids), schema=harness.schema)

    @classmethod
    def prepare(
        cls,
        harness: SinkHarness,
        sink: OpenSink,
        ids: Iterable[int],
        transaction: TransactionId | None = None,
        subtask: Subtask | None = None,
    ) -> list[Committable]:
        """Pre-commit the rows of one task."""
        return harness.pre_commit(
            sink, transaction or transaction_id(), cls.batch(harness, ids), subtask or Subtask(0, 0)
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

    @classmethod
    def written(
        cls,
        harness: SinkHarness,
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
            [piece] = cls.prepare(harness, sink, ids, named)
            cls.commit(sink, [piece])
            pieces.append(piece)
        return pieces

    @staticmethod
    def ids_visible(harness: SinkHarness) -> list[int]:
        """Return the ids of the visible rows, sorted."""
        return sorted(row["id"] for row in harness.rows_visible())
