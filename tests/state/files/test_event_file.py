"""The file of events is for people: whatever happens to it, no job notices, and what is left of it
can be read.
"""

from __future__ import annotations

import errno
import json
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twophase import events
from twophase.events import (
    CheckpointCommitted,
    CheckpointDeclined,
    Event,
    JobRestarting,
    JobStopped,
    QueryProgressed,
)
from twophase.ids import Attempt
from twophase.internals.clock import SystemClock
from twophase.sources.kafka.offsets import PartitionOffset, SourceOffset
from twophase.state.files import event_file
from twophase.state.files.event_file import ROUTINE, EventFile, event_to_json, read_events
from twophase.state.files.storage import LocalStorage, ReadOnlyStorage

A = Attempt(3, 7)
OFFSETS = (SourceOffset("kafka", (PartitionOffset("orders", "id-1", 0, 512, 3),)).to_line(), "")
EVENTS: list[Event] = [
    events.RecoveryStarted("orders", 3),
    events.RecoveryFinished("orders", 3, 1, 2, 0.25),
    events.CheckpointNotTriggered("orders", 5, "IO_EXCEPTION", "no space"),
    CheckpointDeclined("orders", 5, A, "CHECKPOINT_EXPIRED", "slow \u6f22\x1b[2J", True),
    events.SinkDecided("orders", 5, A, "facts", 2, 10),
    events.CommitRetried("orders", 5, "facts", "down", 2, 1.5, 0.2),
    CheckpointCommitted("orders", 5, 15, OFFSETS, 1.25, 0.02, {"facts": 15}, 1, 0, 0.2, 9, ("A",)),
    events.TolerableFailuresExceeded("orders", 5, 4, "CHECKPOINT_EXPIRED", "slow"),
    events.GroupOffsetsDelayed("orders", 5, "down"),
    events.CheckpointReplayed("orders", 5, True),
    events.OrphansAborted("orders", "facts", ("5.1", "5.2")),
    events.SinkRewound("orders", "facts", "afae82c6", 5, -1),
    events.SinksChained("orders", ("facts", "files"), {"lake": "it is written from the driver"}),
    events.SavepointMade("orders", 5, "/savepoints/orders-5"),
    QueryProgressed("orders", 1000, None, 1310),
    JobRestarting("orders", "boom", 1, 5.0),
    JobStopped("orders", ""),
]


class Folder:
    """A job's folder, and its newest driver."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.storage = LocalStorage(root)
        self.start()

    def start(self) -> None:
        self.write = EventFile(self.storage, SystemClock())

    def read(self) -> list[Event | None]:
        found = read_events(ReadOnlyStorage(self.root))
        return [None if past is None else past.event for past in found]

    def file(self) -> Path:
        return max((self.root / "events").iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "job")


def as_read(event: Event) -> Event:
    """Offsets are text for people then, and no text controls a terminal."""
    match event:
        case CheckpointCommitted():
            return replace(event, offsets=("orders-0:512", "the beginning"))
        case CheckpointDeclined():
            return replace(event, cause="slow \u6f22\\x1b[2J")
        case _:
            return event


def test_every_kind_of_event_is_read_as_it_was_written(folder: Folder) -> None:
    kinds = {kind for kind in vars(events).values() if isinstance(kind, type)}
    told = {kind for kind in kinds if issubclass(kind, Event) and kind not in (Event, *ROUTINE)}
    assert {type(event) for event in EVENTS} == told
    for event in EVENTS:
        folder.write(event)
    assert folder.read() == [as_read(event) for event in EVENTS]


def test_what_comes_with_every_micro_batch_is_not_kept(folder: Folder) -> None:
    folder.write(events.CheckpointTriggered("orders", 0, A))
    for lag in (7, 7, 5, 5, None):
        folder.write(QueryProgressed("orders", 1, 1.0, lag))
    assert [vars(event)["lag"] for event in folder.read() if event] == [7, 5, None]


@given(st.data())
def test_a_kill_in_a_write_costs_no_more_than_that_event(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever was written of the line, the next driver's events are whole."""
    folder = Folder(tmp_path_factory.mktemp("torn"))
    before = data.draw(st.lists(st.sampled_from(EVENTS[:3]), max_size=3))
    for event in before:
        folder.write(event)
    whole = folder.file().read_bytes() if before else b""
    folder.write(EVENTS[6])
    written = folder.file().read_bytes()
    left = data.draw(st.integers(len(whole), len(written)))
    folder.file().write_bytes(written[:left])
    assert [event for event in folder.read() if event][: len(before)] == before
    folder.start()
    folder.write(JobStopped("orders", "next"))
    *rest, last = folder.read()
    assert last == JobStopped("orders", "next")
    assert rest[: len(before)] == before
    assert rest[len(before) :] in ([], [None], [as_read(EVENTS[6])])


@given(st.binary(max_size=300))
def test_no_damage_stops_a_reader(tmp_path_factory: pytest.TempPathFactory, junk: bytes) -> None:
    folder = Folder(tmp_path_factory.mktemp("damaged"))
    folder.write(EVENTS[0])
    with folder.file().open("ab") as file:
        file.write(junk)
    folder.start()
    folder.write(EVENTS[1])
    first, *_, last = folder.read()
    assert (first, last) == (EVENTS[0], EVENTS[1])


LINE = event_to_json(EVENTS[6], 1_700_000_000_000)


@pytest.mark.parametrize(
    "change",
    [
        {"event": "CheckpointMoved"},
        {"event": "Attempt"},
        {"event": None},
        {"at": "soon"},
        {"at": 10**30},
        {"checkpoint": "x"},
        {"rows": None},
        {"offsets": {"a": 1}},
        {"attempt": "3"},
    ],
)
def test_a_line_of_another_form_is_no_event(folder: Folder, change: dict[str, Any]) -> None:
    line = json.dumps({**LINE, **change}).encode()
    assert event_file.event_from_line(line) is None
    assert event_file.event_from_line(json.dumps(LINE).encode()) is not None


def test_the_newest_two_files_are_kept(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_file, "MAX_FILE_BYTES", 1000)
    for number in range(100):
        folder.write(events.CheckpointReplayed("orders", number, False))
        if number % 30 == 0:
            folder.start()
    files = [*(folder.root / "events").iterdir()]
    assert sum(path.stat().st_size for path in files) < 2 * (1000 + 200)
    numbers = [vars(event)["checkpoint"] for event in folder.read() if event]
    assert numbers == [*range(numbers[0], 100)]
    assert len(numbers) > 8


def test_no_event_makes_a_line_without_end(folder: Folder) -> None:
    folder.write(JobRestarting("orders", "x" * 10_000_000, 1, 0.0))
    folder.write(events.OrphansAborted("orders", "facts", ("5.1",) * 100_000))
    assert folder.file().stat().st_size < 20_000


def failing(error: OSError) -> Callable[..., int]:
    def append(*_: object) -> int:
        raise error

    return append


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES])
def test_a_file_that_cannot_be_written_is_logged_once_and_written_again_later(
    folder: Folder, code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "twophase")
    with monkeypatch.context() as patch:
        patch.setattr(folder.storage, "append", failing(OSError(code, "no")))
        folder.write(EVENTS[0])
        folder.write(EVENTS[1])
    folder.write(EVENTS[2])
    assert folder.read() == [EVENTS[2]]
    (message,) = caplog.messages
    assert "Events are not kept in the folder of job orders" in message


def test_a_folder_under_its_name_that_is_something_else_is_left_alone(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    (folder.root / "events").write_text("theirs")
    folder.write(EVENTS[0])
    assert (folder.root / "events").read_text() == "theirs"
    assert len(caplog.messages) == 1


def test_events_of_several_threads_and_drivers_do_not_mix(folder: Folder) -> None:
    writers = [EventFile(folder.storage, SystemClock()) for _ in range(4)]

    def write(writer: EventFile) -> None:
        for number in range(50):
            writer(events.CheckpointReplayed("orders", number, False))

    threads = [threading.Thread(target=write, args=(writer,)) for writer in writers * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in folder.read()
    assert len(folder.read()) == 400


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("mysql://app:s3cret@db/shop refused", "mysql://app:<redacted>@db/shop refused"),
        ("jdbc:mysql://db/shop?user=app&password=s3cret", "user=app&password=<redacted>"),
        ('sasl.jaas.config password="s3cret";', 'password="<redacted>";'),
        ("Secret=s3cret, then", "Secret=<redacted>, then"),
    ],
)
def test_a_password_in_a_cause_is_not_kept(folder: Folder, text: str, safe: str) -> None:
    folder.write(JobStopped("orders", text))
    (event,) = folder.read()
    assert safe in vars(event)["cause"]
    assert b"s3cret" not in folder.file().read_bytes()


def test_what_is_read_only_is_not_appended_to(folder: Folder) -> None:
    with pytest.raises(OSError, match="reading only"):
        ReadOnlyStorage(folder.root).append("events/1", b"x")
