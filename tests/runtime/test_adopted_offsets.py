"""What an adoption reads from Spark's folder, and what it refuses to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from twophase.errors import ConfigError
from twophase.ids import Attempt
from twophase.runtime.adopted_offsets import begins_without_state, frozen_in
from twophase.state.checkpoint import FrozenOffsets
from twophase.state.entries import Adoption, Decision, FenceRecord, Lineage, Note
from twophase.state.history import History
from twophase.state.storage import LocalStorage

LINEAGE = "11111111-2222-3333-4444-555555555555"


@pytest.fixture
def spark(tmp_path: Path) -> Path:
    folder = tmp_path / "spark" / LINEAGE
    (folder / "offsets").mkdir(parents=True)
    for number in (0, 1):
        (folder / "offsets" / str(number)).write_text(f"v1\n{{}}\n{{n: {number}}}")
    return folder


def test_the_offsets_of_a_micro_batch_are_those_that_spark_froze(
    spark: Path, tmp_path: Path
) -> None:
    assert frozen_in(LocalStorage(tmp_path))(LINEAGE, 1) == FrozenOffsets(("{n: 0}",), ("{n: 1}",))


def test_the_folder_may_be_named_by_its_url(spark: Path, tmp_path: Path) -> None:
    assert frozen_in(LocalStorage(f"file://{tmp_path}"))(LINEAGE, 1) is not None


@pytest.mark.parametrize(("lineage", "batch"), [(LINEAGE, 2), ("another", 1)])
def test_what_spark_does_not_have_is_not_known(
    spark: Path, tmp_path: Path, lineage: str, batch: int
) -> None:
    assert frozen_in(LocalStorage(tmp_path))(lineage, batch) is None


def test_a_lineage_with_state_is_refused(spark: Path, tmp_path: Path) -> None:
    (spark / "state" / "0" / "0").mkdir(parents=True)
    with pytest.raises(ConfigError, match="holds the state of a stateful plan"):
        frozen_in(LocalStorage(tmp_path))(LINEAGE, 1)


def test_a_stateful_plan_finds_no_state_until_the_adopted_lineage_has_a_checkpoint() -> None:
    history = History().apply(FenceRecord(1)).apply(Lineage("a"))
    assert not begins_without_state(History())
    assert not begins_without_state(history)
    history = history.apply(Adoption(Note("ann", 1, "why"), Lineage("b")))
    assert begins_without_state(history)
    decided = history.apply(Decision("b", 0, Attempt(1, 1), "hash", "digest"))
    assert not begins_without_state(decided)
