"""Sources hear that the job has ended, whatever one of them does then."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from twophase.contract.source import Source, SourceLeg
from twophase.events import Event, GroupOffsetsDelayed, Observers
from twophase.spark.job import spark_host
from twophase.spark.job.spark_host import SourceNotifications
from twophase.state.journal.entries import Lineage


class Closing(Source):
    """Notes what is closed; some connections cannot be."""

    def __init__(self) -> None:
        self.closed: list[str] = []

    def owns(self, line: str) -> bool:
        return False

    def check_readable(self, leg: SourceLeg, line: str, log: Path | None) -> bool:
        return False

    def close(self, leg: SourceLeg) -> None:
        self.closed.append(leg.name)
        if error := leg.options.get("error"):
            raise OSError(error)


class Hearing(Closing):
    """Notes what it is told; one of its kind fails."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[tuple[str, str]] = []

    def notify_rewound(self, leg: SourceLeg, line: str) -> None:
        self.heard.append((leg.name, line))
        if error := leg.options.get("error"):
            raise OSError(error)

    def notify_committed(self, leg: SourceLeg, line: str) -> None:
        self.heard.append((f"{leg.name} has", line))


def leg(name: str, **options: str) -> SourceLeg:
    found: Mapping[str, str] = options
    return SourceLeg(name, found)


def test_every_source_is_closed_and_the_first_failure_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Closing()
    monkeypatch.setattr(spark_host, "source_of", lambda _: source)
    legs = [leg("a"), leg("b", error="first"), leg("c", error="second"), leg("d")]
    with pytest.raises(OSError, match="first"):
        SourceNotifications("orders", legs, Observers()).close()
    assert source.closed == ["a", "b", "c", "d"]


def test_each_source_with_an_offset_hears_of_a_rewind_and_a_failure_is_an_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, events = Hearing(), list[Event]()
    monkeypatch.setattr(spark_host, "source_of", lambda _: source)
    legs = [leg("a", error="no broker"), leg("b"), leg("c")]
    told = SourceNotifications("orders", legs, Observers(events.append))
    told.notify_rewound(7, ["1", None, "3"])
    assert source.heard == [("a", "1"), ("c", "3")]
    assert events == [GroupOffsetsDelayed("orders", 7, "OSError: no broker")]


RESTORED = Lineage("2", ancestors={"1": 4})


def test_what_a_rewind_could_not_take_back_is_taken_back_before_the_next_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether the driver that has rewound could is not known to a later one: each asks once."""
    source = Hearing()
    monkeypatch.setattr(spark_host, "source_of", lambda _: source)
    error = {"error": "no broker"}
    told = SourceNotifications("orders", [SourceLeg("a", error), leg("b")], Observers())

    def commit(checkpoint: int) -> list[tuple[str, str]]:
        source.heard.clear()
        told.remember(checkpoint, (str(checkpoint),) * 2)
        told.notify_checkpoint_complete(checkpoint)
        return [*source.heard]

    told.begin(RESTORED)
    assert commit(1) == [("a", "1"), ("b", "1"), ("b has", "1")]
    assert commit(2) == [("a", "2"), ("b has", "2")]
    error.clear()
    assert commit(3) == [("a", "3"), ("a has", "3"), ("b has", "3")]
    assert commit(4) == [("a has", "4"), ("b has", "4")]
    told.begin(RESTORED)
    assert commit(5) == [("a", "5"), ("a has", "5"), ("b", "5"), ("b has", "5")]
    told.begin(Lineage("3"))
    assert commit(6) == [("a has", "6"), ("b has", "6")]
