"""The format of a table's files, as the metastore tells it: by Hive's serde or Spark's provider."""

from __future__ import annotations

from typing import Any

from twophase.sinks.common.staging.formats import Format

_SERDES = {"ParquetHiveSerDe": Format.PARQUET, "OrcSerde": Format.ORC}


def table_format(found: Any) -> Format | None:
    """Return the format of a table's files; None if the sink does not support it.

    Args:
        found: the table, as Spark's catalog describes it.
    """
    provider = found.provider().get() if found.provider().isDefined() else ""
    serde = found.storage().serde().get() if found.storage().serde().isDefined() else ""
    if provider == "hive":
        return serde_format(serde)
    return Format(provider) if provider in (Format.PARQUET, Format.ORC) else None


def serde_format(serde: str) -> Format | None:
    """Return the format that a serde of Hive reads and writes; None as in `table_format`."""
    return _SERDES.get(serde.rpartition(".")[2])
