"""The time and the settings that Spark notes with the offsets of a micro-batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from twophase.spark.folder.spark_folder import SparkFolder
from twophase.state.journal.entries import Lineage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


def noted_conf(session: SparkSession) -> Mapping[str, str]:
    """Return the settings that all noted offsets need: Spark 4.2 fails if a start has others."""
    return {_SHUFFLE_PARTITIONS: str(session.conf.get(_SHUFFLE_PARTITIONS))}


def conf_in(path: Path) -> Mapping[str, str]:
    """Return the same settings from the newest planned micro-batch; empty if there is none."""
    try:
        conf = json.loads(newest_header(path))["conf"]
        return {_SHUFFLE_PARTITIONS: str(conf[_SHUFFLE_PARTITIONS])}
    except (ValueError, KeyError, TypeError):
        return {}


def shuffle_partitions(header: str) -> int | None:
    """Return how many partitions a header says that keyed state has; None if it does not say."""
    try:
        return int(json.loads(header)["conf"][_SHUFFLE_PARTITIONS])
    except (ValueError, KeyError, TypeError):
        return None


def newest_header(path: Path) -> str:
    """Return what Spark noted with the newest planned micro-batch; empty if there is none."""
    return header_of(path, SparkFolder(path, Lineage("")).planned())


def header_of(path: Path, batch: int) -> str:
    """Return what Spark noted with a micro-batch's offsets; empty if the folder does not say."""
    try:
        return (path / "offsets" / str(batch)).read_text().split("\n")[1]
    except (OSError, ValueError, IndexError):
        return ""
