"""The application ids of a Delta table from the files of its log: what is read, and
what is left to Delta.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from twophase.sinks.delta import log_segment
from twophase.sinks.delta.log_segment import LogFile, LogFiles, LogSegment, UnreadableLogError

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


class Folder:
    """Files in memory, and how often each was read."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = dict(files)
        self.reads: list[str] = []

    def read(self, name: str) -> bytes | None:
        self.reads.append(name)
        return self.files.get(name)

    @contextmanager
    def opened(self, name: str) -> Iterator[io.IOBase]:
        self.reads.append(name)
        yield io.BytesIO(self.files[name])


def txn(app_id: str, version: Any, updated_ms: Any = None) -> dict[str, Any]:
    return {
        "appId": app_id,
        "version": version,
        **({} if updated_ms is None else {"lastUpdated": updated_ms}),
    }


def lines(*actions: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(action).encode() + b"\n" for action in actions)


def commit(*marks: dict[str, Any]) -> bytes:
    add = {"add": {"path": "a.parquet", "stats": '{"txn": 1}'}}
    return lines({"commitInfo": {}}, *({"txn": mark} for mark in marks), add)


def parquet(*marks: dict[str, Any] | None, column: str = "txn") -> bytes:
    fields = pa.struct(
        [("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]
    )
    out = io.BytesIO()
    adds = pa.array([{"path": "a"}] * len(marks))
    pq.write_table(pa.table({"add": adds, column: pa.array(marks, fields)}), out)
    return out.getvalue()


def segment(version: int, checkpoint: int, folder: Folder, names: Sequence[str]) -> LogSegment:
    files = tuple(LogFile(name, len(folder.files[name]), 1) for name in names)
    is_checkpoint = [".checkpoint." in name for name in names]
    return LogSegment(
        version,
        checkpoint,
        tuple(file for file, is_part in zip(files, is_checkpoint, strict=True) if is_part),
        tuple(file for file, is_part in zip(files, is_checkpoint, strict=True) if not is_part),
    )


def read(
    files: Mapping[str, bytes], version: int, checkpoint: int = -1, until_ms: int | None = None
) -> dict[str, int]:
    folder = Folder(files)
    return LogFiles(folder).transactions(
        segment(version, checkpoint, folder, list(files)), until_ms
    )


def name(version: int, suffix: str = "json") -> str:
    return f"_delta_log/{version:020d}.{suffix}"


def test_the_latest_commit_wins_also_when_it_is_lower() -> None:
    files = {
        name(0): commit(txn("a", 7), txn("b", 1)),
        name(1): commit(),
        name(2): commit(txn("a", 3)),
    }
    assert read(files, 2) == {"a": 3, "b": 1}


def test_commits_count_after_the_checkpoint() -> None:
    files = {
        name(4, "checkpoint.parquet"): parquet(None, txn("a", 1), txn("b", 2)),
        name(5): commit(txn("a", 9)),
    }
    assert read(files, 5, 4) == {"a": 9, "b": 2}


def test_a_checkpoint_in_parts_is_read_whole() -> None:
    parts = [parquet(txn("a", 1)), parquet(None, None), parquet(txn("b", 2))]
    files = {
        name(4, f"checkpoint.{part:010d}.{3:010d}.parquet"): data
        for part, data in enumerate(parts, 1)
    }
    assert read(files, 4, 4) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (
            "json",
            lines(
                {"checkpointMetadata": {"version": 4}},
                {"txn": txn("a", 5)},
                {"sidecar": {"path": "s"}},
            ),
        ),
        ("parquet", parquet(txn("a", 5), None)),
    ],
)
def test_a_v2_checkpoint_has_them_in_its_main_file(kind: str, data: bytes) -> None:
    assert read({name(4, f"checkpoint.{UUID}.{kind}"): data}, 4, 4) == {"a": 5}


def test_a_compaction_stands_for_its_commits() -> None:
    compacted = f"_delta_log/{1:020d}.{3:020d}.compacted.json"
    files = {
        name(0): commit(txn("a", 0)),
        compacted: commit(txn("a", 3)),
        name(4): commit(txn("b", 4)),
    }
    assert read(files, 4) == {"a": 3, "b": 4}


def test_a_staged_commit_counts_like_any_other() -> None:
    files = {
        name(0): commit(txn("a", 0)),
        f"_delta_log/_staged_commits/{1:020d}.{UUID}.json": commit(txn("a", 1)),
    }
    assert read(files, 1) == {"a": 1}


def test_what_is_too_old_is_forgotten_after_the_latest_has_won() -> None:
    files = {
        name(0): commit(
            txn("old", 1, 10), txn("undated", 2), txn("back", 3, 30), txn("kept", 4, 21)
        ),
        name(1): commit(txn("back", 4, 20)),
    }
    assert read(files, 1, until_ms=20) == {"kept": 4}


def test_a_table_without_commits_has_none() -> None:
    assert read({}, -1) == {}


def test_a_file_is_read_once_until_it_is_another() -> None:
    folder = Folder({name(0): commit(txn("a", 0)), name(1): commit(txn("a", 1))})
    files = LogFiles(folder)
    files.transactions(segment(0, -1, folder, [name(0)]), None)
    assert files.transactions(segment(1, -1, folder, [name(0), name(1)]), None) == {"a": 1}
    assert folder.reads == [name(0), name(1)]
    folder.files[name(1)] = commit(txn("a", 11))
    assert files.transactions(segment(1, -1, folder, [name(0), name(1)]), None) == {"a": 11}
    assert folder.reads == [name(0), name(1), name(1)]


SOUND = {name(0): commit(txn("a", 0)), name(1): commit(txn("a", 1)), name(2): commit()}
CHECKPOINT = name(2, "checkpoint.parquet")
UNREADABLE = {
    "a gap": ({name(0): commit(), name(2): commit()}, 2, -1),
    "a log that begins late": ({name(1): commit()}, 1, -1),
    "a log that ends early": (SOUND, 3, -1),
    "a log that ends late": (SOUND, 1, -1),
    "a version twice": (
        {**SOUND, f"_delta_log/_staged_commits/{2:020d}.{UUID}.json": commit()},
        2,
        -1,
    ),
    "a compaction that overlaps": (
        {**SOUND, f"_delta_log/{2:020d}.{3:020d}.compacted.json": commit()},
        3,
        -1,
    ),
    "a compaction that ends before it begins": (
        {f"_delta_log/{0:020d}.{-1:020d}.compacted.json": commit()},
        -1,
        -1,
    ),
    "a file of an unknown kind": ({name(0, "avro"): commit()}, 0, -1),
    "a checkpoint of an unknown kind": ({name(2, "checkpoint.avro"): b""}, 2, 2),
    "a checkpoint of another version": ({CHECKPOINT: parquet(None)}, 3, 3),
    "a checkpoint without a file": ({}, 2, 2),
    "a file of a checkpoint that is not there": ({CHECKPOINT: parquet(None)}, 2, -1),
    "a part that is missing": (
        {name(2, f"checkpoint.{1:010d}.{2:010d}.parquet"): parquet(None)},
        2,
        2,
    ),
    "two checkpoints": (
        {CHECKPOINT: parquet(None), name(2, f"checkpoint.{UUID}.parquet"): parquet(None)},
        2,
        2,
    ),
    "an application id in two parts": (
        {
            name(2, f"checkpoint.{part:010d}.{2:010d}.parquet"): parquet(txn("a", part))
            for part in (1, 2)
        },
        2,
        2,
    ),
    "an application id twice in a commit": ({name(0): commit(txn("a", 1), txn("a", 2))}, 0, -1),
    "a version that is a text": ({name(0): commit(txn("a", "1"))}, 0, -1),
    "a version that is a truth value": ({name(0): commit(txn("a", True))}, 0, -1),
    "a date that is a text": ({name(0): commit(txn("a", 1, "now"))}, 0, -1),
    "an application id that is a number": ({name(0): commit({"appId": 1, "version": 1})}, 0, -1),
    "an empty commit": ({name(0): b""}, 0, -1),
    "a line that is no action": ({name(0): b"[1]\n"}, 0, -1),
    "a checkpoint without the column": ({CHECKPOINT: parquet(None, column="other")}, 2, 2),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_left_to_delta(case: str) -> None:
    files, version, checkpoint = UNREADABLE[case]
    with pytest.raises(UnreadableLogError):
        read(files, version, checkpoint)


@pytest.mark.parametrize(
    ("file", "data"),
    [
        (name(2), commit()[:-9]),
        (name(2), b'{"txn":{"version":1}}\n'),
        (CHECKPOINT, parquet(txn("a", 1))[:-4]),
        (CHECKPOINT, b"PAR1"),
    ],
    ids=["torn JSON", "no application id", "torn parquet", "no parquet"],
)
def test_a_damaged_file_is_an_error(file: str, data: bytes) -> None:
    files = {CHECKPOINT: data} if file == CHECKPOINT else {**SOUND, file: data}
    with pytest.raises((ValueError, KeyError, OSError)):
        read(files, 2, 2 if file == CHECKPOINT else -1)


def test_a_file_that_is_gone_or_has_changed_since_is_left_to_delta() -> None:
    folder = Folder(SOUND)
    whole = segment(2, -1, folder, list(SOUND))
    folder.files[name(1)] += b"\n"
    with pytest.raises(UnreadableLogError, match="Delta has listed"):
        LogFiles(folder).transactions(whole, None)
    del folder.files[name(1)]
    with pytest.raises(UnreadableLogError, match="gone"):
        LogFiles(folder).transactions(whole, None)


def test_a_checkpoint_that_has_changed_since_is_left_to_delta() -> None:
    folder = Folder({CHECKPOINT: parquet(txn("a", 1))})
    whole = segment(2, 2, folder, [CHECKPOINT])
    folder.files[CHECKPOINT] = parquet(txn("a", 1), txn("b", 2))
    with pytest.raises(UnreadableLogError, match="Delta has listed"):
        LogFiles(folder).transactions(whole, None)


def test_a_log_that_is_too_long_is_left_to_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    long = {name(version): commit() for version in range(251)}
    with pytest.raises(UnreadableLogError, match="251 files"):
        read(long, 250)
    assert read(dict(list(long.items())[:250]), 249) == {}
    monkeypatch.setattr(log_segment, "_MOST_JSON_BYTES", 100)
    with pytest.raises(UnreadableLogError, match="bytes of JSON"):
        read(SOUND, 2)
