"""Values of partition columns are values of rows: messages show them as such, also where
they are in a path.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.staged_sink_harness import FileHarness, commit, orders
from twophase.contract.committable import Committable
from twophase.contract.outcome import RetryLater
from twophase.errors import StopJobError, TwoPhaseError
from twophase.ids import Attempt
from twophase.internals.failpoints import FailpointError
from twophase.internals.redaction import REDACTED, VARIABLE
from twophase.sinks.common.staging import committer
from twophase.sinks.common.staging.formats import Format
from twophase.sinks.common.staging.open_sink import OpenStagedSink
from twophase.sinks.hive.storage_descriptor import StorageDescriptor, check_storage

SECRET = "4111-1111\N{RIGHT-TO-LEFT OVERRIDE}"
"""No character that a folder's name has to escape: a path has it as it is."""


@pytest.fixture
def piece(table: FileHarness, sink: OpenStagedSink) -> Committable:
    rows = orders([1, 2])
    return table.write(sink, [rows[0] | {"name": SECRET}, rows[1] | {"name": "open"}])


Provoke = Callable[[FileHarness, OpenStagedSink, Committable, pytest.MonkeyPatch], str]


def refused(sink: OpenStagedSink, piece: Committable) -> str:
    with pytest.raises(StopJobError) as caught:
        commit(sink, piece)
    return str(caught.value)


def moved(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The file with the secret, where it is after a commit that has died."""

    def dies(point: str) -> None:
        if point == "F04":
            raise FailpointError(point)

    with monkeypatch.context() as context:
        context.setattr(committer, "failpoint", dies)
        with pytest.raises(FailpointError):
            commit(sink, piece)
    (path,) = (table.path / f"name={SECRET}").iterdir()
    return path


def foreign_file(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, monkeypatch: pytest.MonkeyPatch
) -> str:
    moved(table, sink, piece, monkeypatch).write_text("theirs")
    return refused(sink, piece)


def link(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, _: pytest.MonkeyPatch
) -> str:
    (table.path / f"name={SECRET}").symlink_to(table.path)
    return refused(sink, piece)


def link_beside_a_lost_piece(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, _: pytest.MonkeyPatch
) -> str:
    (table.path / f"name={SECRET}").symlink_to(table.path)
    (table.staged()[0] / "manifest").unlink()
    return refused(sink, piece)


def copy_of_a_lost_file(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, monkeypatch: pytest.MonkeyPatch
) -> str:
    path = moved(table, sink, piece, monkeypatch)
    (table.staged()[0] / "manifest").unlink()
    (table.path / path.name).write_bytes(path.read_bytes())
    return refused(sink, piece)


def system_error(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, monkeypatch: pytest.MonkeyPatch
) -> str:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"name={SECRET}")

    monkeypatch.setattr(committer, "rename_new", full)
    (outcome,) = commit(sink, piece)
    assert isinstance(outcome, RetryLater)
    assert "OSError (ENOSPC)" in outcome.reason  # with or without what the system says
    return outcome.reason


def orphan(
    table: FileHarness, sink: OpenStagedSink, piece: Committable, monkeypatch: pytest.MonkeyPatch
) -> str:
    moved(table, sink, piece, monkeypatch)
    again = table.opened(Attempt(1, 2))
    with pytest.raises(StopJobError) as caught:
        again.abort(again.in_doubt())
    return str(caught.value)


def other_files(table: FileHarness, *_: object) -> str:
    folder = table.path / f"name={SECRET}"
    folder.mkdir()
    (folder / "a.orc").write_text("")
    return not_opened(table)


def damaged_file(table: FileHarness, *_: object) -> str:
    folder = table.path / f"name={SECRET}"
    folder.mkdir()
    (folder / "a.parquet").write_text("")
    return not_opened(table)


def not_opened(table: FileHarness) -> str:
    with pytest.raises(TwoPhaseError) as caught:
        table.opened()
    return str(caught.value)


def moved_partition(*_: object) -> str:
    known, expected = (
        StorageDescriptor(f"/{folder}/name={SECRET}", Format.PARQUET)
        for folder in ("there", "here")
    )
    with pytest.raises(StopJobError) as caught:
        check_storage("orders", {f"name={SECRET}": known}, {f"name={SECRET}": expected})
    return str(caught.value)


def partition_of_another_format(*_: object) -> str:
    known, expected = (
        StorageDescriptor(f"/name={SECRET}", kind) for kind in (Format.ORC, Format.PARQUET)
    )
    with pytest.raises(StopJobError) as caught:
        check_storage("orders", {f"name={SECRET}": known}, {f"name={SECRET}": expected})
    return str(caught.value)


PLACES: list[Provoke] = [
    foreign_file,
    link,
    link_beside_a_lost_piece,
    copy_of_a_lost_file,
    system_error,
    orphan,
    other_files,
    damaged_file,
    moved_partition,
    partition_of_another_format,
]


@pytest.mark.parametrize("place", PLACES)
def test_a_partition_value_is_quoted_on_one_line(
    place: Provoke,
    table: FileHarness,
    sink: OpenStagedSink,
    piece: Committable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    message = place(table, sink, piece, monkeypatch)
    assert "4111-1111" in message
    assert message.isprintable()


@pytest.mark.parametrize("place", PLACES)
def test_a_partition_value_is_left_out_where_the_application_says_so(
    place: Provoke,
    table: FileHarness,
    sink: OpenStagedSink,
    piece: Committable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "true")
    message = place(table, sink, piece, monkeypatch)
    assert "4111" not in message
    assert REDACTED in message


def test_what_is_wrong_with_the_table_itself_is_said_openly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "true")
    with pytest.raises(StopJobError, match="the table is at /there, its new files are in /here"):
        check_storage(
            "orders",
            {"": StorageDescriptor("/there", Format.PARQUET)},
            {"": StorageDescriptor("/here", Format.PARQUET)},
        )
