"""What an adoption finds in Spark's folder of the lineage that it takes over, and what a start with the new one checks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from twophase.errors import ConfigError, OffsetMismatchError
from twophase.runtime.spark_folder import SparkFolder
from twophase.state.checkpoint import FrozenOffsets
from twophase.state.records import Adoption, History, Lineage
from twophase.state.storage import LocalStorage


def frozen_in(storage: LocalStorage) -> Callable[[str, int], FrozenOffsets | None]:
    """Reads the frozen offsets of a micro-batch below a job's folder.

    Args:
        storage: the job's folder.
    """

    return lambda lineage, batch: frozen_at(storage.root / "spark" / lineage, lineage, batch)


def frozen_at(path: Path, lineage: str, batch: int) -> FrozenOffsets | None:
    """The frozen offsets of a micro-batch; None if the folder does not have them.

    Args:
        path: Spark's folder of the lineage.
        lineage: its id.
        batch: the number of the micro-batch.

    Raises:
        ConfigError: the lineage keeps state in Spark: none of it can be adopted.
    """
    check_without_state(path)
    try:
        return SparkFolder(path, Lineage(lineage)).offsets(batch)
    except OffsetMismatchError:
        return None


def check_without_state(path: Path) -> None:
    """Refuse a folder of Spark's that a micro-batch has left state in.

    Raises:
        ConfigError: none of it can be adopted.
    """
    if any((path / "state").glob("*/*")):
        raise ConfigError(
            f"Spark's folder {path} holds the state of a stateful plan: no target knows it, so nothing can be adopted.",
            remedy="put the job's folder back from a backup, or begin under another job name.",
        )


def begins_without_state(history: History) -> bool:
    """Whether the current lineage was begun by an adoption and has no checkpoint yet."""
    lineage = history.lineage
    if lineage is None or history.newest(lineage.id) is not None:
        return False
    return any(isinstance(repair, Adoption) and repair.lineage.id == lineage.id for repair in history.repairs)
