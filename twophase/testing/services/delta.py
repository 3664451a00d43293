"""Delta's jars, pinned and fetched once, for Sparks that are started again and again.

Users need none of this: Spark fetches the package that the sink's settings name.
"""

from __future__ import annotations

from pathlib import Path

from twophase.testing.services.cache import cached
from twophase.testing.services.maven import fetch_jars
from twophase.testing.services.pins import DELTA_COORDINATES, DELTA_PINS, DELTA_VERSION
from twophase.testing.services.progress import show_progress


def fetch_delta() -> dict[str, str]:
    """Spark's settings that put the jars in place of the package; they are fetched on first use."""
    jars = sorted(cached(f"delta-{DELTA_VERSION}", _fetch).iterdir())
    return {"spark.jars.packages": "", "spark.jars": ",".join(map(str, jars))}


def _fetch(folder: Path) -> None:
    with show_progress("Fetching Delta") as progress:
        fetch_jars(DELTA_COORDINATES, folder, pins=DELTA_PINS, progress=progress)
