"""Checks that this Python imports a pyspark that twophase runs on, without importing it.

Another one fails somewhere inside, as an import error or worse; a supervisor would restart that for
ever. What counts is what `import pyspark` would find: a Spark distribution may be on PYTHONPATH.
What differs between those that are right is in `twophase/spark_versions.py`.
"""

from __future__ import annotations

import re
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from twophase.errors import PreflightError

OLDEST: Final = (4, 1)
NEWEST: Final = (4, 3)
"""The versions, both included, of which every release is right; as in `setup.cfg`."""
RANGE: Final = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
SPECIFIER: Final = f"pyspark>={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"
"""As pip takes it."""

_VERSION = re.compile(r"__version__[^=\n]*=\s*['\"]((\d+)\.(\d+)\.\d+)")


def check_pyspark() -> None:
    """Refuse a pyspark that twophase does not run on.

    Raises:
        PreflightError: there is such a one, or none.
    """
    version, found = _installed()
    if not OLDEST <= version <= NEWEST:
        raise PreflightError(
            f"twophase needs pyspark {RANGE}, and {sys.executable} has {found or 'none'}.",
            remedy=f"run: {shlex.quote(sys.executable)} -m pip install '{SPECIFIER}'; "
            "and leave other versions out of PYTHONPATH.",
        )


def _installed() -> tuple[tuple[int, int], str]:
    """Return the version that would be imported, and where it is; "" if there is none."""
    spec = find_spec("pyspark")
    # `spark-submit` puts pyspark on the path as an archive, whose files only its loader reads.
    loader: Any = spec.loader if spec else None
    if spec is None or not hasattr(loader, "get_data"):
        return (0, 0), ""
    for place in spec.submodule_search_locations or ():
        try:
            match = _VERSION.search(loader.get_data(str(Path(place, "version.py"))).decode())
        except OSError:
            continue
        if match:
            return (int(match[2]), int(match[3])), f"pyspark {match[1]} in {place}"
    return (0, 0), ""
