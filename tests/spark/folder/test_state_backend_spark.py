"""`state.backend` on real Spark: what lies on disk, and that a savepoint carries it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.operations.savepoint.test_savepoint_spark import _WINDOWS, Moved, windows
from twophase.errors import ConfigError
from twophase.operations.savepoint.make import open_savepoint
from twophase.spark.folder.state_backend import CHANGELOG, PROVIDER

pytestmark = [pytest.mark.spark, pytest.mark.part("runtime"), pytest.mark.thin(2)]

BACKENDS = {
    "hashmap": ({"state.backend": "hashmap"}, {"delta"}),
    "rocksdb": ({"state.backend": "rocksdb"}, {"changelog"}),
    "rocksdb, whole": (
        {"state.backend.type": "rocksdb", "execution.checkpointing.incremental": "false"},
        {"zip"},
    ),
}
"""Options, and the kind of files that each micro-batch leaves."""


@pytest.fixture
def moved(spark: SparkSession, tmp_path: Path) -> Iterator[Moved]:
    found = Moved(spark, tmp_path)
    found.build = windows
    yield found
    assert [spark.conf.get(key, None) for key in (PROVIDER, CHANGELOG)] == [None, None]


def kinds(folder: Path) -> set[str]:
    """The kinds of files of which the first partition has one for each of three versions."""
    found = [path.suffix[1:] for path in folder.glob("spark/*/state/0/0/[123].*")]
    return {kind for kind in found if found.count(kind) == 3}


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("backend", BACKENDS)
def test_state_lies_on_disk_as_the_backend_writes_it_and_a_savepoint_carries_it(
    moved: Moved, backend: str
) -> None:
    options, expected = BACKENDS[backend]
    for _ in range(3):
        moved.add()
    made, there = moved.root / "made", moved.root / "moved there"
    moved.stopped(made, **options)
    assert kinds(moved.root / "job") == expected
    made.rename(there)
    open_savepoint(str(there)).verify()
    moved.add()
    moved.add()
    _is_refused(moved, there, "rocksdb" if backend == "hashmap" else "hashmap")
    moved.run(moved.writing("again", **options, **{"restore.path": str(there)}))
    assert moved.ids() == _WINDOWS
    [kind] = expected
    assert [*moved.root.glob(f"again/spark/*/state/0/0/[4-9].{kind}")]


def _is_refused(moved: Moved, savepoint: Path, other: str) -> None:
    """The other backend is, for the folder and for the savepoint, and nothing is written."""
    before = contents(moved.root)
    for folder, more in (("job", {}), ("other", {"restore.path": str(savepoint)})):
        with pytest.raises(ConfigError, match=f"state.backend is {other}"):
            moved.writing(folder, **{"state.backend": other}, **more).start()
    assert contents(moved.root) == before
