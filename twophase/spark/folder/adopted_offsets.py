"""Spark's folder in an adoption: its frozen offsets are read; one with state is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from twophase.errors import ConfigError, OffsetMismatchError
from twophase.spark.folder.spark_folder import SparkFolder
from twophase.state.checkpoints.checkpoint import FrozenOffsets
from twophase.state.files.listing import listed_below
from twophase.state.files.storage import LocalStorage
from twophase.state.journal.entries import Adoption, Lineage, StartingOffsets
from twophase.state.journal.history import History


def frozen_in(storage: LocalStorage) -> Callable[[str, int], FrozenOffsets | None]:
    """Return a function that reads the frozen offsets of a micro-batch below a job's folder.

    Args:
        storage: the job's folder.
    """

    return lambda lineage, batch: frozen_at(storage.root / "spark" / lineage, lineage, batch)


def frozen_at(path: Path, lineage: str, batch: int) -> FrozenOffsets | None:
    """Return the frozen offsets of a micro-batch, or None if the folder does not have them.

    Args:
        path: Spark's folder of the lineage.
        lineage: its id.
        batch: the number of the micro-batch.

    Raises:
        ConfigError: the lineage keeps state in Spark, which cannot be adopted.
        OSError: they cannot be read.
    """
    check_without_state(path)
    try:
        return SparkFolder(path, Lineage(lineage)).offsets(batch)
    except OffsetMismatchError:
        return None


def check_without_state(path: Path) -> None:
    """Refuse a Spark folder in which a micro-batch has left state.

    Raises:
        ConfigError: it has, and state cannot be adopted.
    """
    if listed_below(path / "state"):
        raise ConfigError(
            f"Spark's folder {path} holds the state of a stateful plan, which no target can "
            "rebuild. Nothing was adopted or written.",
            remedy="restore the job's folder from a backup, or start under another job name.",
        )


def begins_without_state(history: History) -> bool:
    """Return whether an adoption began the current lineage and it has no checkpoint yet."""
    return _begun_by(history) is not None


def confirmed_start(history: History) -> Sequence[StartingOffsets]:
    """Return where an adoption has the sources begin, if it says and no checkpoint has followed."""
    adoption = _begun_by(history)
    return adoption.starting if adoption else ()


def _begun_by(history: History) -> Adoption | None:
    """Return the adoption that began the current lineage, if that has no checkpoint yet."""
    lineage = history.lineage
    if lineage is None or history.newest(lineage.id) is not None:
        return None
    adoptions = (one for one in history.repairs if isinstance(one, Adoption))
    return next((one for one in adoptions if one.lineage and one.lineage.id == lineage.id), None)
