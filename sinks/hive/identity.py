"""Which table of the metastore the partitions were added to (docs/decisions/0026).

    fence-<...>/table/<n>   when the metastore made the table, in milliseconds since 1970

A table that is dropped and made anew over the same folder keeps its files and the proofs beside them. Its rows are there
without partition columns; with them, no reader finds a row, for the partitions are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from twophase.sinks.common.staging.disk import sync
from twophase.sinks.hive.catalog import HiveTable

_FOLDER = "table"


def why_another(table: HiveTable, created: str, has_partitions: Callable[[], bool], stage: Path) -> str:
    """Why a table is not the one that partitions were added to; empty if it is, or nobody has noted which one it was.

    Args:
        table: as it was when it was looked up.
        created: when the metastore made the table that has its name now.
        has_partitions: whether the metastore has a partition of that one.
        stage: what lies below the fence.
    """
    known = _known(stage)
    if not known or created in known or not table.partition_columns or has_partitions():
        return ""
    return (
        f"table {table.name} was dropped and made anew over the same folder, and has no partitions; "
        f"MSCK REPAIR TABLE {table.name} adds them again"
    )


def note(created: str, stage: Path) -> None:
    """From here on the proofs are of this table.

    Args:
        created: when the metastore made it.
        stage: what lies below the fence.
    """
    known, folder = _known(stage), stage / _FOLDER
    if known == {created}:
        return
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / created).touch(mode=0o600)  # no content: there whole, or not
    sync(folder, stage)
    for other in known - {created}:
        (folder / other).unlink(missing_ok=True)


def _known(stage: Path) -> set[str]:
    """More than one if a driver died while it noted the newer one."""
    try:
        return {path.name for path in (stage / _FOLDER).iterdir()}
    except FileNotFoundError:
        return set()
