"""The identity of the metastore's table that the partitions were added to (docs/decisions/0026).

    fence-<...>/table/<n>   the table's creation time in the metastore, in milliseconds since 1970

A table that is dropped and recreated over the same folder keeps its files and the proofs next
to them. Without partition columns its rows are there; with them, no reader finds a row, because the
partitions are gone.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from twophase.sinks.common.staging.disk import sync
from twophase.sinks.hive.catalog import HiveTable

_FOLDER = "table"


def why_replaced(
    table: HiveTable, created: str, has_partitions: Callable[[], bool], stage: Path
) -> str:
    """Return why a table is not the recorded one that partitions were added to; else empty.

    Args:
        table: as it was when it was looked up.
        created: the creation time of the table that has this name now.
        has_partitions: the metastore has a partition of that table.
        stage: the folder of the fence.
    """
    known = _known(stage)
    if not known or created in known or not table.partition_columns or has_partitions():
        return ""
    return (
        f"table {table.name} was dropped and recreated over the same folder, "
        f"and has no partitions; MSCK REPAIR TABLE {table.name} adds them again"
    )


def record(created: str, stage: Path) -> None:
    """Record that the proofs belong to this table from here on.

    Args:
        created: its creation time in the metastore.
        stage: the folder of the fence.
    """
    known, folder = _known(stage), stage / _FOLDER
    if known == {created}:
        return
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / created).touch(mode=0o600)  # empty, so never torn
    sync(folder, stage)
    for other in known - {created}:
        (folder / other).unlink(missing_ok=True)


def _known(stage: Path) -> set[str]:
    """Return the recorded times: more than one if a driver died while it recorded the newer one."""
    try:
        return {path.name for path in (stage / _FOLDER).iterdir()}
    except FileNotFoundError:
        return set()
