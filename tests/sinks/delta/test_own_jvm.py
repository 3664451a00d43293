"""A job stops where this JVM has the table's lock for a commit that nobody waits for: no retry
gets it. Without Spark.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sinks.delta.test_records import INTENT, LAYOUT, MANIFEST
from twophase.contract.outcome import RetryLater
from twophase.contract.sink import CommitRequest
from twophase.errors import StopJobError
from twophase.ids import Attempt
from twophase.internals.record import digest
from twophase.sinks.delta.committer import Committer
from twophase.sinks.delta.fence import Fence
from twophase.sinks.delta.names import FOLDER, Owner, PieceName
from twophase.sinks.delta.pieces import InLog, Piece
from twophase.sinks.delta.records import encode_manifest
from twophase.sinks.delta.table_lock import JVM_NAME, python_lock, table_lock

TARGET = "delta:orders"
PIECE = Piece(PieceName.of(INTENT.transaction), INTENT, MANIFEST, digest(encode_manifest(MANIFEST)))
REMEDY = (
    "end this JVM (in a notebook, restart the kernel), then start the job again: "
    "it commits decided checkpoints."
)


class Table:
    """A table on a local disk, whose lock this JVM has or has not; nothing can be committed to it.

    Args:
        folder: of the table.
        before: what the JVM's property of the lock was.
    """

    def __init__(self, folder: Path, before: str | None) -> None:
        (folder / FOLDER).mkdir()
        self.folder = folder
        self.tries = 0
        self._jvm: Any = SimpleNamespace(
            set_property=lambda _key, _path: before,
            clear_property=lambda _: None,
            open_file=self._no_file,
        )
        snapshot = SimpleNamespace(
            version=INTENT.base,
            transactions={},
            checksum_transactions={},
            layout=LAYOUT,
            retention_ms=None,
        )
        transaction = SimpleNamespace(
            snapshot=snapshot, watch=lambda _: None, defer_checkpoint=lambda: None
        )
        log = SimpleNamespace(storage=self)
        pieces = SimpleNamespace(
            get=lambda _: PIECE, named_by=lambda _: InLog.ABSENT, missing_files=lambda _: []
        )
        owner = Owner(INTENT.transaction.job, INTENT.transaction.sink)
        self.opened: Any = SimpleNamespace(
            owner=owner,
            target=TARGET,
            log=log,
            transactions=SimpleNamespace(begin=lambda: transaction),
            pieces=pieces,
            check_unchanged=lambda _: None,
        )

    @contextmanager
    def commit_lock(self) -> Any:
        self.tries += 1
        with table_lock(self.folder, self._jvm):
            yield

    def _no_file(self, path: Path) -> None:
        raise TimeoutError(f"{path} could not be locked")


def commit(table: Table) -> Any:
    [outcome] = Committer(table.opened, recovering=False).commit(
        [CommitRequest(MANIFEST.committable(TARGET))]
    )
    return outcome


@pytest.fixture
def held(tmp_path: Path) -> Table:
    """The lock is kept for a commit that was interrupted."""
    return Table(tmp_path, "held")


def test_a_commit_that_only_another_jvm_can_make_stops_the_job(held: Table) -> None:
    """Decided checkpoints stay decided: nothing is called lost, and the next start asks again."""
    with pytest.raises(StopJobError, match="this JVM has locked") as stop:
        commit(held)
    assert stop.value.remedy == REMEDY
    assert str(INTENT.transaction) in stop.value.what
    assert str(held.folder / JVM_NAME) in stop.value.what
    assert "is decided" in stop.value.what


def test_a_fence_that_only_another_jvm_can_raise_stops_the_start_at_once(held: Table) -> None:
    with pytest.raises(StopJobError, match=r"The fence .* 9\.1.* this JVM has locked") as stop:
        Fence(held.opened).raise_to(Attempt(9, 1))
    assert stop.value.remedy == REMEDY
    assert held.tries == 1


def test_python_s_lock_is_free_behind_it(held: Table) -> None:
    with pytest.raises(StopJobError):
        commit(held)
    with python_lock(held.folder, 0):
        pass


def test_a_lock_that_somebody_else_has_is_waited_for(tmp_path: Path) -> None:
    outcome = commit(Table(tmp_path, None))
    assert isinstance(outcome, RetryLater)
    assert "could not be locked" in outcome.reason
