"""Which pieces in doubt were never pre-committed, as their records and the table's log show
it. Without Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sinks.delta.test_records import INTENT, MANIFEST
from twophase.errors import NewerFormatError
from twophase.sinks.delta.names import Owner, data_prefix
from twophase.sinks.delta.orphans import Orphans
from twophase.sinks.delta.pieces import Pieces
from twophase.sinks.delta.records import encode_intent, encode_manifest

OWNER = Owner(INTENT.transaction.job, INTENT.transaction.sink)
NEXT = INTENT.base + 1
WHOLE = {".intent": encode_intent(INTENT), ".manifest": encode_manifest(MANIFEST)}
NEVER = {".intent": encode_intent(INTENT)}
ABORTED = {".aborted": b""}
NO_FILE = {NEXT: '{"add":{"path":"part-00000.parquet"}}'}


def orphans(records: Mapping[str, bytes], commits: Mapping[int, str]) -> Orphans:
    """Of one piece with these records, in a table of which this is left of the commits
    since it was begun.
    """
    log: Any = SimpleNamespace(
        commit_text=commits.get, snapshot=lambda: SimpleNamespace(version=NEXT)
    )
    stem = (
        f"{INTENT.transaction.lineage}-{INTENT.transaction.checkpoint}-{INTENT.transaction.attempt}"
    )
    files = {f"{stem}{kind}": data for kind, data in records.items()}
    log.storage = SimpleNamespace(
        names=lambda _: list(files),
        read=lambda name: files.get(name.removeprefix(f"{OWNER.folder}/")),
        exists=lambda name: name.removeprefix(f"{OWNER.folder}/") in files,
        absolute=lambda name: f"file:/orders/{name}",
    )
    table: Any = SimpleNamespace(owner=OWNER, target="delta:orders", pieces=Pieces(OWNER, log))
    return Orphans(table)


def test_a_piece_with_an_intent_alone_was_never_pre_committed() -> None:
    found = orphans(NEVER, NO_FILE)
    [piece] = found.in_doubt()
    assert found.unfinished([piece]) == [piece]


@pytest.mark.parametrize(
    ("records", "commits"),
    [
        (WHOLE, NO_FILE),
        ({**WHOLE, ".manifest": WHOLE[".manifest"][:-1]}, NO_FILE),
        ({**WHOLE, ".manifest": b""}, NO_FILE),
        (NEVER, {}),
        ({**WHOLE, **ABORTED}, NO_FILE),
        ({**NEVER, **ABORTED}, NO_FILE),
        (ABORTED, NO_FILE),
    ],
    ids=[
        "whole",
        "its manifest is cut",
        "its manifest is empty",
        "the log was cleaned of a commit that may name it",
        "an abort of it died",
        "an abort of it died, which may have removed the manifest",
        "an abort of it died, which had removed the other records",
    ],
)
def test_a_piece_that_may_have_been_is_not_called_so(
    records: Mapping[str, bytes], commits: Mapping[int, str]
) -> None:
    found = orphans(records, commits)
    [piece] = found.in_doubt()
    assert found.unfinished([piece]) == []


def test_a_piece_that_cannot_be_committed_has_no_handle() -> None:
    """By that an adoption tells that it may not guess."""
    cut = {**WHOLE, ".manifest": WHOLE[".manifest"][:-1]}
    handles = [
        [piece.handle for piece in orphans(records, NO_FILE).in_doubt()]
        for records in (WHOLE, cut, NEVER, {**WHOLE, **ABORTED})
    ]
    assert [bool(handle) for [handle] in handles] == [True, False, False, False]


def test_a_piece_whose_abort_died_is_still_found_as_committed() -> None:
    start = data_prefix(OWNER, INTENT.transaction)
    commits = {NEXT: f'{{"add":{{"path":"{start}part-00000.parquet"}}}}'}
    for records in (WHOLE, {**WHOLE, **ABORTED}, {**WHOLE, **ABORTED, ".intent": b""}):
        assert orphans(records, commits).in_doubt() == []


@pytest.mark.parametrize("kind", WHOLE)
def test_a_piece_of_a_newer_version_is_neither_torn_nor_an_orphan(kind: str) -> None:
    """The storage of this test has no `delete`: an attempt to delete would be another error."""
    newer = {**WHOLE, kind: WHOLE[kind].replace(b"twophase-delta/1 ", b"twophase-delta/2 ", 1)}
    found = orphans(newer, NO_FILE)
    with pytest.raises(
        NewerFormatError,
        match=rf"file:/orders/.*{kind} was written by a newer twophase \(format 2; this",
    ):
        found.in_doubt()
    [piece] = orphans(WHOLE, NO_FILE).in_doubt()
    with pytest.raises(NewerFormatError):
        found.abort([piece])
    assert found.unfinished([piece]) == []
