"""Sources hear that the job has ended, whatever one of them does then."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from twophase.contract.source import Source, SourceLeg
from twophase.events import Event, GroupOffsetsDelayed, Observers
from twophase.spark.job import spark_host
from twophase.spark.job.spark_host import SourceNotifications


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
