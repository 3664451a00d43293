"""The sink in memory with one mistake each: values that SQLite cannot store, and optional powers
that the SQLite sink does not have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from tests.testing.test_memory_sink import MemoryHarness
from twophase import (
    CommitOutcome,
    CommitRequest,
    Committed,
    Subtask,
    TransactionId,
)
from twophase.testing.harness import Row, identity
from twophase.testing.memory import MemoryTarget, MemoryWriter, MemoryWriters, OpenMemorySink

# -- values ----------------------------------------------------------------------------------------


class ChangingWriter(MemoryWriter):
    """Changes values."""

    def write(self, batch: pa.RecordBatch) -> None:
        rows = [
            {name: self.changed(value) for name, value in row.items()} for row in batch.to_pylist()
        ]
        super().write(pa.RecordBatch.from_pylist(rows, schema=batch.schema))

    def changed(self, value: Any) -> Any:
        """What the target gets."""
        raise NotImplementedError


class OpenChangingSink(OpenMemorySink):
    """Its writers change values."""

    writer: type[ChangingWriter]

    def writers(self) -> MemoryWriters:
        return WritersOfAKind(self._target, self.writer)


class WritersOfAKind(MemoryWriters):
    def __init__(self, target: MemoryTarget, kind: type[MemoryWriter]) -> None:
        super().__init__(target)
        object.__setattr__(self, "kind", kind)

    def __call__(self, transaction: TransactionId, subtask: Subtask) -> MemoryWriter:
        kind: type[MemoryWriter] = vars(self)["kind"]
        return kind(self.target, transaction, subtask)


class ZeroWithoutSign(OpenChangingSink):
    """-0.0 becomes 0.0."""

    class writer(ChangingWriter):  # noqa: N801
        def changed(self, value: Any) -> Any:
            return value + 0.0 if isinstance(value, float) else value


class InfinityAsTheLargest(OpenChangingSink):
    """A number that is too large becomes the largest one."""

    class writer(ChangingWriter):  # noqa: N801
        def changed(self, value: Any) -> Any:
            largest = 1.7976931348623157e308
            return max(-largest, min(largest, value)) if isinstance(value, float) else value


class LocalClock(OpenChangingSink):
    """A moment becomes what the clocks of the executor show."""

    class writer(ChangingWriter):  # noqa: N801
        def changed(self, value: Any) -> Any:
            if isinstance(value, datetime) and value.tzinfo:
                return value.astimezone().replace(tzinfo=UTC)
            return value


class ByWayOfTheLocalClock(OpenChangingSink):
    """The second of two hours that the clocks show alike becomes the first."""

    class writer(ChangingWriter):  # noqa: N801
        def changed(self, value: Any) -> Any:
            if isinstance(value, datetime) and value.tzinfo:
                return value.astimezone().replace(tzinfo=None, fold=0).astimezone(UTC)
            return value


class ByWayOfALocalMoment(OpenChangingSink):
    """A time that the clocks of the executor skip becomes another one."""

    class writer(ChangingWriter):  # noqa: N801
        def changed(self, value: Any) -> Any:
            if isinstance(value, datetime) and not value.tzinfo:
                return datetime.fromtimestamp(value.timestamp())
            return value


# -- other names -----------------------------------------------------------------------------------

Proven = tuple[str, str, str, int]


class OthersOfProofs(OpenMemorySink):
    """No mistake: what it tells is in steps that can be spoiled."""

    def other_names(self) -> Mapping[tuple[str, str], Mapping[str, int]]:
        found: dict[tuple[str, str], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for job, sink, lineage, checkpoint in self.proven():
            if self.is_other(job, sink):
                found[job, sink][lineage].append(checkpoint)
        return {name: self.told(lineages) for name, lineages in found.items()}

    def proven(self) -> Iterable[Proven]:
        """Each proof: job, sink, lineage and checkpoint."""
        marks = [(*key, mark) for key, mark in self._target.high_water.items()]
        return [key[:4] for key in self._target.ledger] + marks

    def is_other(self, job: str, sink: str) -> bool:
        return (job, sink) != (self._job, self._sink)

    def told(self, lineages: Mapping[str, Sequence[int]]) -> Mapping[str, int]:
        return {lineage: max(numbers) for lineage, numbers in lineages.items()}


class NamesItself(OthersOfProofs):
    def is_other(self, job: str, sink: str) -> bool:
        return True


class NamesOtherJobsOnly(OthersOfProofs):
    def is_other(self, job: str, sink: str) -> bool:
        return job != self._job


class NamesOtherSinksOnly(OthersOfProofs):
    def is_other(self, job: str, sink: str) -> bool:
        return sink != self._sink


class NamesWhoHasPrepared(OthersOfProofs):
    def proven(self) -> Iterable[Proven]:
        return [*super().proven(), *(key[:4] for key in self._target.prepared)]


class ForgetsWhatIsFolded(OthersOfProofs):
    def proven(self) -> Iterable[Proven]:
        return [key[:4] for key in self._target.ledger]


class KnowsTheMarksOnly(OthersOfProofs):
    def proven(self) -> Iterable[Proven]:
        return [(*key, mark) for key, mark in self._target.high_water.items()]


class TellsTheFirstCheckpoint(OthersOfProofs):
    def told(self, lineages: Mapping[str, Sequence[int]]) -> Mapping[str, int]:
        return {lineage: min(numbers) for lineage, numbers in lineages.items()}


class TellsTheHighestText(OthersOfProofs):
    def told(self, lineages: Mapping[str, Sequence[int]]) -> Mapping[str, int]:
        return {lineage: max(numbers, key=str) for lineage, numbers in lineages.items()}


class TellsOneLineage(OthersOfProofs):
    def told(self, lineages: Mapping[str, Sequence[int]]) -> Mapping[str, int]:
        return dict([*super().told(lineages).items()][:1])


# -- partitions that wait --------------------------------------------------------------------------


class WaitingHarness(MemoryHarness):
    """A target whose rows wait; which of them, it remembers."""

    def __init__(self, kind: type[OpenMemorySink]) -> None:
        super().__init__(kind)
        self.target = WaitingTarget()


class WaitingTarget(MemoryTarget):
    """Remembers the rows that wait, by partition."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: dict[str, list[Row]] = {}


class KeepsRowsWaiting(OpenMemorySink):
    """No mistake: rows wait in two partitions."""

    def waiting(self) -> dict[str, list[Row]]:
        """Kept in the target."""
        assert isinstance(self._target, WaitingTarget)
        return self._target.waiting

    def _commit_one(self, request: CommitRequest) -> CommitOutcome:
        outcome = super()._commit_one(request)
        if isinstance(outcome, Committed):
            self.hide(self._target.written[identity(request.committable)])
        return outcome

    def hide(self, rows: Sequence[Row]) -> None:
        """Rows that were committed wait."""
        self._target.visible[:] = [row for row in self._target.visible if row not in rows]
        self.name(rows)

    def name(self, rows: Sequence[Row]) -> None:
        """They are in a partition that waits."""
        for row in rows:
            self.waiting().setdefault(f"part={row['id'] % 2}", []).append(row)

    def waiting_partitions(self) -> Sequence[str]:
        return [*self.waiting()]

    def complete_partitions(self, names: Sequence[str]) -> None:
        for name in [name for name in self.waiting() if self.is_meant(name, names)]:
            self._target.visible += self.waiting().pop(name)

    def is_meant(self, name: str, names: Sequence[str]) -> bool:
        """Whether a partition is among those to complete."""
        return name in names


class ShowsWhatWaits(KeepsRowsWaiting):
    def hide(self, rows: Sequence[Row]) -> None:
        self.name(rows)


class CompletesAll(KeepsRowsWaiting):
    def is_meant(self, name: str, names: Sequence[str]) -> bool:
        return True


class CompletesByPrefix(KeepsRowsWaiting):
    def is_meant(self, name: str, names: Sequence[str]) -> bool:
        return any(name.startswith(one) for one in names)


class CompletesWhatItKnowsOnly(KeepsRowsWaiting):
    """It is asked twice, and raises."""

    def complete_partitions(self, names: Sequence[str]) -> None:
        for name in names:
            self._target.visible += self.waiting().pop(name)


class ShowsRowsTwice(KeepsRowsWaiting):
    """What is complete stays, unnamed, and is completed again."""

    def complete_partitions(self, names: Sequence[str]) -> None:
        for name in names:
            self._target.visible += self.waiting().get(name, [])

    def waiting_partitions(self) -> Sequence[str]:
        waits = self.waiting().items()
        return [name for name, rows in waits if rows[0] not in self._target.visible]


class ForgetsWhatWaits(KeepsRowsWaiting):
    """Known to the driver alone."""

    def __init__(self, target: MemoryTarget, job: str, sink: str) -> None:
        super().__init__(target, job, sink)
        self.known: dict[str, list[Row]] = {}

    def waiting(self) -> dict[str, list[Row]]:
        return self.known


class NamesWhatIsPrepared(KeepsRowsWaiting):
    def waiting_partitions(self) -> Sequence[str]:
        prepared = [rows for _, rows in self._target.prepared.values()]
        return [*super().waiting_partitions(), *(f"part={rows[0]['id'] % 2}" for rows in prepared)]
