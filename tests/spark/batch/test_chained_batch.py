"""A micro-batch of which some sinks chain: what runs, in which order, and what Spark is told."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from twophase.contract.sink import OpenArrowSink
from twophase.engine.host import Plan
from twophase.options.job_options import JobOptions
from twophase.spark.batch import batch
from twophase.spark.batch.chain import Written
from twophase.spark.plan import logical_plan


class Micro:
    """A micro-batch of three sinks whose Spark jobs run here, and only say so.

    Args:
        chains: the sinks that chain in this micro-batch.
        patch: takes Spark away.
    """

    def __init__(self, chains: Sequence[str], patch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.counted: list[int] = []
        self.again: list[bool] = []
        self.sinks: Any = {name: mock.MagicMock(transform=None) for name in "abc"}
        self._chains = chains
        patch.setattr(batch, "SparkJobs", lambda *_: SimpleNamespace(run=self._run))
        patch.setattr(batch, "pre_commit", lambda *_: [])
        patch.setattr(logical_plan, "is_empty", lambda _: False)

    def written(self, *, chaining: bool, planned: int = -1, asked: str = "abc") -> list[str]:
        """What is done for it, in its order."""
        unused: Any = mock.MagicMock()
        options = JobOptions.parse({"checkpointLocation": "/job"}, "job")
        opened = {name: mock.MagicMock(spec=OpenArrowSink) for name in self.sinks}
        coordinator: Any = SimpleNamespace(
            options=options, sinks=opened, context=SimpleNamespace(observers=unused)
        )
        pending = mock.MagicMock(checkpoint=7, decided={}, missing=lambda: [*asked])
        pending.acknowledge = lambda sink, _: self.done.append(f"+{sink}")
        fake: Any = SimpleNamespace(
            chained=("a", "b"), chain=self._chain, add_to_progress=self.counted.append
        )
        micro = batch.SparkBatch(
            coordinator,
            self.sinks,
            unused,
            unused,
            Plan(stateful=False, keeps_state=False),
            unused,
            7,
            chaining=fake if chaining else None,
            planned=planned,
        )
        micro.pre_commit(pending)
        return self.done

    def _chain(self, _: object, __: object, sinks: Iterable[str], *, again: bool) -> Any:
        self.again.append(again)
        names = [name for name in sinks if name in self._chains]
        if not names:
            return None
        written = Written({name: [] for name in names}, 70)
        return SimpleNamespace(
            name="chain of " + ", ".join(names),
            links=[SimpleNamespace(sink=name) for name in names],
            run=lambda _: written,
        )

    def _run(self, jobs: dict[str, Any], done: Any) -> None:
        for name, job in jobs.items():
            self.done.append(name)
            done(name, job())


MICRO_BATCHES: dict[str, tuple[str, list[str]]] = {
    "two of three": ("ab", ["chain plan", "c", "+c", "chain of a, b", "+a", "+b"]),
    "one of three": (
        "a",
        ["chain plan", "materialise", "b", "+b", "c", "+c", "chain of a", "+a"],
    ),
    "none of three": ("", ["chain plan", "materialise", "a", "+a", "b", "+b", "c", "+c"]),
}


@pytest.mark.parametrize("name", MICRO_BATCHES)
def test_the_others_go_through_spark_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chains, done = MICRO_BATCHES[name]
    micro = Micro([*chains], monkeypatch)
    micro.sinks["c"].transform = mock.MagicMock()
    assert micro.written(chaining=True) == done
    assert micro.counted == []  # Spark counts what it reads
    assert micro.sinks["c"].rows.call_count == 1


@pytest.mark.parametrize(
    ("chains", "asked", "calls"), [("a", "ab", [1, 1, 0]), ("", "abc", [2, 2, 1])]
)
def test_a_function_that_was_planned_is_planned_again_only_over_materialised_rows(
    chains: str, asked: str, calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    micro = Micro(chains, monkeypatch)
    micro.written(chaining=True, asked=asked)
    assert [sink.rows.call_count for sink in micro.sinks.values()] == calls


def test_spark_is_told_of_the_records_that_it_has_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    micro = Micro("ab", monkeypatch)
    assert micro.written(chaining=True, asked="ab") == [
        "chain plan",
        "chain of a, b",
        "+a",
        "+b",
    ]
    assert micro.counted == [70]


@pytest.mark.parametrize(("planned", "again"), [(-1, False), (6, False), (7, True)])
def test_what_an_earlier_run_has_planned_may_be_gone(
    monkeypatch: pytest.MonkeyPatch, planned: int, *, again: bool
) -> None:
    micro = Micro("ab", monkeypatch)
    micro.written(chaining=True, planned=planned)
    assert micro.again == [again]


def test_without_chaining_everything_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    micro = Micro("ab", monkeypatch)
    assert micro.written(chaining=False) == ["materialise", "a", "+a", "b", "+b", "c", "+c"]
    assert all(sink.rows.call_count == 1 for sink in micro.sinks.values())
