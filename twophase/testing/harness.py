"""The harness that connects the contract suite to one sink, and its pieces' identities."""

from __future__ import annotations

import pickle
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

from twophase.contract.committable import Committable
from twophase.contract.sink import OpenArrowSink, OpenSink, Sink, WriterFactory
from twophase.contract.writer import SinkWriter
from twophase.ids import Attempt, Subtask, TransactionId, new_lineage_id

Row = dict[str, Any]
Identity = tuple[str, str, str, int, Attempt, Subtask]

JOB = "contract"
SINK = "facts"
LINEAGE = new_lineage_id()
OTHER_LINEAGE = new_lineage_id()
FIRST = Attempt(1, 1)
FIRST_SUBTASK = Subtask(0, 0)

_BEGIN = datetime(2026, 1, 1)  # noqa: DTZ001 - of columns with and without a zone
# The clocks of New York skip the first and show the second twice; they show 01:30 at the third and
# at the fourth, which are moments of UTC.
_EXTREME_TIMES = [
    datetime(2026, 3, 8, 2, 30),  # noqa: DTZ001
    datetime(2026, 11, 1, 1, 30),  # noqa: DTZ001
    datetime(2026, 11, 1, 5, 30),  # noqa: DTZ001
    datetime(2026, 11, 1, 6, 30),  # noqa: DTZ001
    datetime(1969, 12, 31, 23, 59, 59),  # noqa: DTZ001
]


def identity(committable: Committable) -> Identity:
    """The identity of a piece; one found in doubt may lack rows, offsets and handle."""
    transaction = committable.transaction
    return (
        transaction.job,
        transaction.sink,
        transaction.lineage,
        transaction.checkpoint,
        transaction.attempt,
        committable.subtask,
    )


class SinkHarness(ABC):
    """The suite's access to one sink. One harness is one target, empty at first.

    Attributes:
        schema: the columns of the rows. Add timestamps, with a zone and without, if the target can
            store them: the rows get values for them.
        has_key: whether the target takes each `id` once.
        has_one_order: whether the target has its columns in one order, and refuses another one.
    """

    schema: ClassVar[pa.Schema] = pa.schema(
        [("id", pa.int64()), ("name", pa.string()), ("amount", pa.float64())]
    )
    has_key: bool = False
    has_one_order: bool = False

    @abstractmethod
    def new_sink(self) -> Sink:
        """Return a sink for the target, as a job declares it."""

    @abstractmethod
    def rows_visible(self) -> list[Row]:
        """Return all rows of the target that any reader sees, in any order."""

    def contents(self) -> object:
        """Return all that the target holds, to be compared with ==: rows, bookkeeping, pieces.

        By default the visible rows only. Override it: bookkeeping that a dry run makes is found by
        this alone. `contents_of` does it for a folder.
        """
        return sorted(map(repr, self.rows_visible()))

    def rows(self, ids: Iterable[int]) -> list[Row]:
        """Return rows that fit `schema`, one for each id."""
        numbers = [*ids]
        rows = [{"id": number, "name": f"row {number}", "amount": number / 2} for number in numbers]
        return self._timed(rows, [_BEGIN + timedelta(seconds=number) for number in numbers])

    def rows_with_nulls(self) -> list[Row]:
        """Return rows that fit `schema`, by `id`, with NULL and empty texts where they can be."""
        rows: list[Row] = [
            {"id": 0, "name": None, "amount": None},
            {"id": 1, "name": "", "amount": 0.0},
        ]
        return self._timed(rows, [None, _BEGIN])

    def rows_of_extremes(self) -> list[Row]:
        """Return rows that fit `schema`, with the values that are lost most easily.

        Leave out what the target refuses by name. Timestamps are in the hours that a change of
        the clocks skips and repeats; the suite changes TZ while it writes them.
        """
        texts = ["Zoë, 北京 🚀", "\t\"'\\\n", " a ", "x" * 5000]
        numbers = [0.1, 2.0**53 + 2, -5e-324, 1.7976931348623157e308, -0.0]
        ids = [2**53 + 1, -(2**63), 2**63 - 1]
        rows = [
            {
                "id": ids[at] if at < len(ids) else at,
                "name": texts[at % len(texts)],
                "amount": numbers[at],
            }
            for at in range(len(numbers))
        ]
        return self._timed(rows, _EXTREME_TIMES)

    def _timed(self, rows: Sequence[Row], times: Sequence[datetime | None]) -> list[Row]:
        """Return rows with a time in each column of `schema` that has timestamps."""
        kinds = {field.name: field.type for field in self.schema}
        zones = {name: kind.tz for name, kind in kinds.items() if pa.types.is_timestamp(kind)}
        return [
            row
            | {
                name: time.replace(tzinfo=UTC) if time and zone else time
                for name, zone in zones.items()
            }
            for row, time in zip(rows, times, strict=True)
        ]

    def unreachable(self) -> Sink | None:
        """Return a sink whose target does not answer, if it has a `check_connection`."""
        return None

    @abstractmethod
    def elsewhere(self) -> SinkHarness:
        """Return a harness for another target of the same kind, empty."""

    def pre_commit(
        self,
        sink: OpenSink,
        transaction: TransactionId,
        batch: pa.RecordBatch,
        subtask: Subtask = FIRST_SUBTASK,
    ) -> list[Committable]:
        """Take the rows of one task through phase 1; override this for an `OpenBatchSink`."""
        assert isinstance(sink, OpenArrowSink)
        committable = write_piece(sink.writers(), transaction, subtask, [batch])
        return [committable] if committable else []


def new_writer(sink: OpenArrowSink, transaction: TransactionId, subtask: Subtask) -> SinkWriter:
    """Return a writer of what the executors get: a copy of `writers`, pickled and read back."""
    return as_sent(sink.writers())(transaction, subtask)


def write_piece(
    writers: WriterFactory,
    transaction: TransactionId,
    subtask: Subtask,
    batches: Iterable[pa.RecordBatch],
) -> Committable | None:
    """Pre-commit the rows of one task attempt; abort its writer on failure. Return its result."""
    writer: SinkWriter | None = None
    try:
        for batch in batches:
            if batch.num_rows:
                writer = writer or as_sent(writers)(transaction, subtask)
                writer.write(batch)
        return writer.pre_commit() if writer else None
    except BaseException:
        if writer:
            writer.abort()
        raise


SentT = TypeVar("SentT")


def as_sent(value: SentT) -> SentT:
    """Return a copy of what the executors get: pickled and read back."""
    found: SentT = pickle.loads(pickle.dumps(value))  # noqa: S301 our own bytes
    return found


def transaction_id(
    checkpoint: int = 0,
    attempt: Attempt = FIRST,
    lineage: str = LINEAGE,
    job: str = JOB,
    sink: str = SINK,
) -> TransactionId:
    """Return the transaction of one attempt; its offsets hash is that of its checkpoint."""
    return TransactionId(job, lineage, checkpoint, attempt, sink, f"{checkpoint:064x}")


def contents_of(folder: Path) -> dict[str, bytes | None]:
    """Return a folder and every name below it: a file with its bytes, another with None."""
    found = [folder, *folder.rglob("*")] if folder.exists() else []
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in found
    }


def fresh_name(prefix: str) -> str:
    """Return a name for a table, schema or folder that no other test uses."""
    return f"{prefix}_{uuid.uuid4().hex[:12]}"
