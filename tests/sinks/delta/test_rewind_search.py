"""Which data files a rewind removes, by the commits of a table's log. Without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from twophase.ids import Attempt, TransactionId
from twophase.sinks.common.rewind_point import RewindPoint
from twophase.sinks.delta.names import Owner, data_prefix, piece_of
from twophase.sinks.delta.rewind import LogSearch, UnprovenError
from twophase.testing.harness import JOB, LINEAGE, OTHER_LINEAGE, SINK

OWNER = Owner(JOB, SINK)


def file_of(number: int, lineage: str = LINEAGE, owner: Owner = OWNER, folder: str = "") -> str:
    named = TransactionId(owner.job, lineage, number, Attempt(1, 1), owner.sink, f"{number:064x}")
    return f"{folder}{data_prefix(owner, named)}part-00000-c000.snappy.parquet"


def commit(*actions: tuple[str, Mapping[str, Any]], operation: str = "WRITE") -> str:
    info = ("commitInfo", {"operation": operation})
    return "\n".join(json.dumps({kind: content}) for kind, content in (info, *actions))


def checkpoint(number: int, lineage: str = LINEAGE, owner: Owner = OWNER) -> str:
    """The commit of a checkpoint with one file."""
    txn = ("txn", {"appId": owner.app_id(lineage), "version": number})
    return commit(txn, ("add", {"path": file_of(number, lineage, owner)}))


def rewind(removed: str, to: int, owner: Owner = OWNER) -> str:
    note = {"twophase": {"job": owner.job, "sink": owner.sink, "taken_back": {LINEAGE: to}}}
    info = {"operation": "STREAMING UPDATE", "userMetadata": json.dumps(note)}
    txn = {"appId": owner.app_id(LINEAGE), "version": to}
    actions = ({"commitInfo": info}, {"txn": txn}, {"remove": {"path": removed}})
    return "\n".join(map(json.dumps, actions))


class Log:
    """Commits by version, and which of them were read."""

    def __init__(self, commits: Mapping[int, str], cleaned_to: int = 0) -> None:
        self.commits, self.cleaned_to = commits, cleaned_to
        self.read: list[int] = []

    def commit_text(self, version: int) -> str | None:
        self.read.append(version)
        return None if version < self.cleaned_to else self.commits[version]

    def transactions_at(self, version: int) -> dict[str, int] | None:
        if version < self.cleaned_to:
            return None
        found: dict[str, int] = {}
        for number in range(version + 1):
            for line in self.commits[number].splitlines():
                if txn := json.loads(line).get("txn"):
                    found[txn["appId"]] = txn["version"]
        return found


def added(
    log: Log, keep: dict[str, int], ahead: dict[str, int] | None = None, retention_ms: Any = None
) -> list[str]:
    """The paths of the files to remove."""
    snapshot: Any = SimpleNamespace(version=max(log.commits), retention_ms=retention_ms)
    any_log: Any = log
    search = LogSearch(OWNER, any_log, RewindPoint(keep))
    lines = search.added(snapshot, {LINEAGE: 9} if ahead is None else ahead)
    return [json.loads(line)["add"]["path"] for line in lines]


def table(*commits: str, cleaned_to: int = 0) -> Log:
    return Log(dict(enumerate(commits)), cleaned_to)


EMPTY = commit()


def test_files_of_later_checkpoints_alone_are_found() -> None:
    log = table(EMPTY, *map(checkpoint, range(4)))
    assert added(log, {LINEAGE: 1}) == [file_of(3), file_of(2)]
    assert log.read == [4, 3, 2]


def test_a_lineage_that_is_not_kept_is_found_whole() -> None:
    log = table(EMPTY, checkpoint(0), checkpoint(1), checkpoint(2, OTHER_LINEAGE))
    found = added(log, {LINEAGE: 0}, {LINEAGE: 1, OTHER_LINEAGE: 2})
    assert found == [file_of(2, OTHER_LINEAGE), file_of(1)]


@pytest.mark.parametrize("owner", [Owner("other", SINK), Owner(JOB, "other")])
def test_files_of_others_are_not_ours(owner: Owner) -> None:
    log = table(EMPTY, checkpoint(0), checkpoint(1, owner=owner), checkpoint(1))
    assert added(log, {LINEAGE: 0}) == [file_of(1)]
    assert piece_of(file_of(1, owner=owner), OWNER) is None


def test_a_file_is_ours_in_any_folder() -> None:
    for folder in ("", "dt=a%20b/", "x7/"):
        piece = piece_of(file_of(3, folder=folder), OWNER)
        assert piece is not None
        assert (piece.lineage, piece.checkpoint) == (LINEAGE, 3)
    assert piece_of("part-00000-c000.snappy.parquet", OWNER) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ([("remove", {"path": file_of(1)})], r"version 3 of the table \(OPTIMIZE\) has removed"),
        (
            [
                ("remove", {"path": file_of(1)}),
                ("add", {"path": file_of(1), "deletionVector": {"storageType": "u"}}),
            ],
            r"version 3 of the table \(OPTIMIZE\) has deleted rows of",
        ),
        (
            [
                ("add", {"path": file_of(1), "deletionVector": {"storageType": "u"}}),
                ("remove", {"path": file_of(1)}),
            ],
            "has deleted rows of",
        ),
    ],
)
def test_what_others_have_changed_is_refused(change: list[Any], message: str) -> None:
    log = table(EMPTY, checkpoint(0), checkpoint(1), commit(*change, operation="OPTIMIZE"), EMPTY)
    with pytest.raises(UnprovenError, match=message):
        added(log, {LINEAGE: 0})


def test_the_last_change_counts() -> None:
    """Statistics that were computed again, and a file that RESTORE has brought back."""
    again = ("add", {"path": file_of(1), "stats": "{}"})
    removal = commit(("remove", {"path": file_of(1)}), operation="OPTIMIZE")
    assert added(table(EMPTY, checkpoint(0), checkpoint(1), commit(again)), {LINEAGE: 0})
    log = table(EMPTY, checkpoint(0), checkpoint(1), removal, commit(again, operation="RESTORE"))
    assert added(log, {LINEAGE: 0}) == [file_of(1)]


def test_what_an_earlier_rewind_has_removed_is_done() -> None:
    log = table(EMPTY, checkpoint(0), checkpoint(1), checkpoint(2), rewind(file_of(2), 1))
    assert added(log, {LINEAGE: 0}) == [file_of(1)]


def test_a_rewind_of_another_sink_is_somebody_else() -> None:
    theirs = rewind(file_of(1), 0, Owner(JOB, "other"))
    with pytest.raises(UnprovenError, match="has removed"):
        added(table(EMPTY, checkpoint(0), checkpoint(1), theirs), {LINEAGE: 0})


@pytest.mark.parametrize("metadata", ["", "free text", "[]", '{"twophase": {}}', '{"twophase": 1}'])
def test_user_metadata_of_others_is_no_rewind(metadata: str) -> None:
    info = {"commitInfo": {"operation": "DELETE", "userMetadata": metadata}}
    theirs = "\n".join(map(json.dumps, (info, {"remove": {"path": file_of(1)}})))
    with pytest.raises(UnprovenError, match="has removed"):
        added(table(EMPTY, checkpoint(0), checkpoint(1), theirs), {LINEAGE: 0})


# -- how far back ----------------------------------------------------------------------------------


def test_a_cleaned_log_is_enough_if_it_begins_before_the_checkpoints() -> None:
    commits = [EMPTY, checkpoint(0), EMPTY, checkpoint(1), checkpoint(2)]
    assert added(table(*commits, cleaned_to=2), {LINEAGE: 0}) == [file_of(2), file_of(1)]
    with pytest.raises(UnprovenError, match="cleaned of the commits before version 4"):
        added(table(*commits, cleaned_to=4), {LINEAGE: 0})


def test_a_cleaned_log_is_not_enough_where_application_ids_are_forgotten() -> None:
    """An older version may not show the lineage because it was forgotten, not because it is new."""
    log = table(EMPTY, EMPTY, EMPTY, checkpoint(1), cleaned_to=2)
    assert added(log, {}) == [file_of(1)]
    with pytest.raises(UnprovenError, match="cleaned of the commits before version 2"):
        added(log, {}, retention_ms=1)


def test_a_log_without_a_beginning_is_read_to_version_0() -> None:
    log = table(EMPTY, EMPTY, checkpoint(1))
    assert added(log, {}, retention_ms=1) == [file_of(1)]
    assert log.read == [2, 1, 0]


def test_older_versions_are_looked_at_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    log = table(*[EMPTY] * 1000, checkpoint(1), *[EMPTY] * 500)
    looks: list[int] = []
    at = log.transactions_at

    def looked(version: int) -> dict[str, int] | None:
        looks.append(version)
        return at(version)

    monkeypatch.setattr(log, "transactions_at", looked)
    assert added(log, {}) == [file_of(1)]
    assert looks == [1500 - 64, 1500 - 192, 1500 - 448, 1500 - 960]
    assert len(log.read) == 961
