"""Delta's jars, pinned and fetched once, for Spark processes that are started again and again.

Users need none of this: Spark fetches the package that the sink's settings name, and `twophase run`
records what it found.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from twophase.spark.startup.cache import cache_root, cached
from twophase.spark.startup.progress import show_progress
from twophase.spark_versions import DELTA, DELTA_ARTIFACT
from twophase.testing.services.maven import fetch_jars
from twophase.testing.services.pins import DELTA_VERSION, delta_coordinates, pins

_NAME = f"delta-{DELTA_VERSION}-{DELTA_ARTIFACT}"


def fetch_delta() -> dict[str, str]:
    """Return Spark's settings for the jars, fetched on first use, instead of the package.

    Raises:
        PreflightError: there is no Delta for this Spark.
    """
    DELTA.require()
    return delta_settings(tuple(sorted(cached(_NAME, _fetch).iterdir())))


def delta_jars() -> tuple[Path, ...]:
    """Return the jars, if they have been fetched."""
    folder = cache_root() / _NAME
    return tuple(sorted(folder.iterdir())) if folder.is_dir() else ()


def delta_settings(jars: Sequence[Path]) -> dict[str, str]:
    """Return Spark's settings that use jars instead of the package."""
    return {"spark.jars.packages": "", "spark.jars": ",".join(map(str, jars))}


def _fetch(folder: Path) -> None:
    with show_progress("Fetching Delta") as progress:
        fetch_jars(
            delta_coordinates(DELTA_ARTIFACT), folder, pins=pins(DELTA_ARTIFACT), progress=progress
        )
