"""A task of a chain reads its range once, and no piece is durable before every row is sent."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from twophase import seal
from twophase.contract.committable import Committable
from twophase.contract.source import RangeReader
from twophase.contract.writer import SinkWriter
from twophase.errors import (
    BadRecordError,
    ConfigError,
    DeclinedError,
    RejectedRowsError,
    carried,
)
from twophase.ids import Subtask, TransactionId, check_name
from twophase.spark.batch.chain import Chain, Link
from twophase.testing.harness import as_sent, transaction_id

SUBTASK = Subtask(1, 7)
ROWS = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("name", pa.string())])
NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)


@dataclass
class Reader(RangeReader[Any]):
    """Gives a batch for each number of rows in a range; -1 is a bad record."""

    read_again: list[bool] = field(default_factory=list)

    def read(self, item: Sequence[int], *, again: bool, begun: bool) -> Iterator[pa.RecordBatch]:
        self.read_again.append(again)
        for count in item:
            if count < 0:
                raise BadRecordError("bad.")
            rows = [{"id": i, "at": NOON, "name": f"n{i}"} for i in range(count)]
            yield pa.RecordBatch.from_pylist(rows, ROWS)


@dataclass
class Writers:
    """Writers of one sink that note their calls.

    Attributes:
        name: of the sink.
        calls: shared by all sinks.
        fails: the call that fails, and with what.
        batches: what was written.
    """

    name: str
    calls: list[str]
    fails: dict[str, Exception] = field(default_factory=dict)
    batches: list[pa.RecordBatch] = field(default_factory=list)

    def __call__(self, transaction: TransactionId, subtask: Subtask) -> SinkWriter:
        self.note("create")
        return Writer(self, transaction, subtask)

    def note(self, call: str) -> None:
        self.calls.append(f"{self.name}.{call}")
        if call in self.fails:
            raise self.fails[call]


class Writer(SinkWriter):
    def __init__(self, writers: Writers, transaction: TransactionId, subtask: Subtask) -> None:
        self._writers, self._transaction, self._subtask = writers, transaction, subtask

    def write(self, batch: pa.RecordBatch) -> None:
        self._writers.note("write")
        self._writers.batches.append(batch)

    def flush(self) -> None:
        self._writers.note("flush")

    def pre_commit(self) -> Committable | None:
        self._writers.note("pre_commit")
        rows = sum(batch.num_rows for batch in self._writers.batches)
        return Committable(self._transaction, self._subtask, self._writers.name, rows)

    def abort(self) -> None:
        self._writers.note("abort")


def link(writers: Writers, *columns: int, zone: str = "UTC") -> Link:
    fields = [ROWS.field(place) for place in columns or range(len(ROWS))]
    fields = [
        pa.field(f"{one.name}_{n}", pa.timestamp("us", zone) if one.name == "at" else one.type)
        for n, one in enumerate(fields)
    ]
    transaction = transaction_id(sink=writers.name)
    places = columns or tuple(range(len(ROWS)))
    return Link(writers.name, places, pa.schema(fields), writers, transaction)


def chain(ranges: Sequence[Any], *links: Link, again: bool = False) -> Chain:
    return Chain(Reader(), ranges, again, True, links)


def test_each_sink_gets_its_columns_of_one_read() -> None:
    calls = list[str]()
    one, two = Writers("one", calls), Writers("two", calls)
    links = link(one, zone="America/New_York"), link(two, 2, 0)
    task = chain([[9], [2, 0, 3]], *links, again=True)
    pieces = list[Committable | None]()
    records = task.write(SUBTASK, pieces)
    assert task.reader.read_again == [True]  # type: ignore[attr-defined]
    assert records == 5
    assert [piece and (piece.target, piece.rows, piece.subtask) for piece in pieces] == [
        ("one", 5, SUBTASK),
        ("two", 5, SUBTASK),
    ]
    assert [batch.num_rows for batch in one.batches] == [2, 3]
    assert one.batches[0].schema == links[0].schema
    assert one.batches[0].column(1).type.tz == "America/New_York"
    assert one.batches[0].column(1)[0].as_py() == NOON
    assert two.batches[1].to_pydict() == {"name_0": ["n0", "n1", "n2"], "id_1": [0, 1, 2]}


def test_every_row_is_sent_before_the_first_piece_is_durable() -> None:
    calls = list[str]()
    chain([[], [1]], link(Writers("one", calls)), link(Writers("two", calls))).write(SUBTASK, [])
    assert calls[-4:] == ["one.flush", "two.flush", "one.pre_commit", "two.pre_commit"]


FAILURES: dict[str, tuple[str, list[str]]] = {
    "create": ("two", ["one.create", "one.write", "two.create", "one.abort"]),
    "write": (
        "two",
        ["one.create", "one.write", "two.create", "two.write", "one.abort", "two.abort"],
    ),
    "flush": ("two", ["one.flush", "two.flush", "one.abort", "two.abort"]),
    "pre_commit": ("two", ["one.pre_commit", "two.pre_commit", "two.abort"]),
}


@pytest.mark.parametrize("call", FAILURES)
def test_what_is_not_durable_is_aborted_after_an_error(call: str) -> None:
    calls, (name, expected) = list[str](), FAILURES[call]
    one, two = Writers("one", calls), Writers(name, calls, {call: OSError("full")})
    with pytest.raises(DeclinedError, match=r"two.*the writer of subtask 1\.7 failed: OSError"):
        chain([[], [1]], link(one), link(two)).write(SUBTASK, [])
    assert calls[-len(expected) :] == expected


class Task:
    """What Spark tells a task of itself."""

    def partitionId(self) -> int:
        return 1

    def taskAttemptId(self) -> int:
        return 7

    def getLocalProperty(self, _: str) -> str:
        return ""


class Session:
    """Runs a chain's tasks here, one attempt each, and carries an error's traceback as Spark does.

    Args:
        patch: has the tasks find themselves in Spark.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.sparkContext = SimpleNamespace(environment=os.environ)
        self.conf: dict[str, str] = {}
        patch.setattr(TaskContext, "get", lambda: Task())
        patch.setattr(seal, "_keys", set())
        patch.setenv(seal.VARIABLE, "a key")

    def range(self, *_: int) -> Session:
        return self

    def mapInArrow(self, run: Chain, _: str) -> Session:
        self._rows = [row for found in run(iter([])) for row in found.to_pylist()]
        return self

    def collect(self) -> list[Any]:
        return [SimpleNamespace(**row) for row in self._rows]


def test_what_fails_after_a_piece_is_durable_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second attempt of the task would wait for the rows of that piece, and name that wait."""
    session: Any = Session(monkeypatch)
    calls = list[str]()
    full = {"pre_commit": RejectedRowsError("too long", remedy="shorten it", fingerprint="1")}
    links = link(Writers("one", calls)), link(Writers("two", calls, dict(full)))
    with pytest.raises(RuntimeError) as raised:
        chain([[], [1]], *links).run(session)
    found = carried(raised.value)
    assert isinstance(found, RejectedRowsError)
    assert (found.what, found.remedy, found.fingerprint) == ("too long", "shorten it", "1")


def test_what_fails_before_a_piece_is_durable_is_the_task_s_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session: Any = Session(monkeypatch)
    calls = list[str]()
    links = link(Writers("one", calls, {"pre_commit": OSError("full")})), link(Writers("two", []))
    with pytest.raises(DeclinedError, match="full"):
        chain([[], [1]], *links).run(session)


def test_an_error_of_the_source_stays_its_own() -> None:
    calls = list[str]()
    with pytest.raises(BadRecordError, match="bad"):
        chain([[], [1, -1]], link(Writers("one", calls)), link(Writers("two", calls))).write(
            SUBTASK, []
        )
    assert calls[-2:] == ["one.abort", "two.abort"]
    assert not any("pre_commit" in call for call in calls)


def test_a_range_without_rows_creates_no_writer() -> None:
    calls = list[str]()
    tasks: list[list[list[int]]] = [[[], []], [[], [0]]]
    for ranges in tasks:
        made = list[Committable | None]()
        assert chain(ranges, link(Writers("one", calls))).write(SUBTASK, made) == 0
        assert made == [None]
    assert calls == []


def test_no_sink_has_the_name_of_a_chain() -> None:
    task = chain([[1]], link(Writers("chain", [])))
    assert task.name == "chain of chain"
    with pytest.raises(ConfigError):
        check_name("sink", task.name)


def test_a_task_is_sent_to_the_executors() -> None:
    sent = as_sent(chain([[], [2]], link(Writers("one", []))))
    assert sent.write(SUBTASK, []) == 2
