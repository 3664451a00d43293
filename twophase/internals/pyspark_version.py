"""Checks that this Python imports the pyspark that twophase needs, without importing it.

Another one fails somewhere inside, as an import error or worse; a supervisor would restart that for
ever. What counts is what `import pyspark` would find: a Spark distribution may be on PYTHONPATH.
"""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path

from twophase.errors import PreflightError

_NEEDED = re.compile(r"pyspark\s*==\s*([\d.]+)")
_VERSION = re.compile(r"__version__[^=\n]*=\s*['\"](\d+\.\d+\.\d+)([^'\"]*)")


def check_pyspark() -> None:
    """Refuse another pyspark than the required one.

    Raises:
        PreflightError: there is another one, or none.
    """
    needed, (found, place) = required(), _installed()
    if needed and found != needed:
        raise PreflightError(
            f"twophase needs pyspark {needed}, and {sys.executable} has "
            f"{f'pyspark {found} in {place}' if found else 'none'}.",
            remedy=f"run: {sys.executable} -m pip install pyspark=={needed}; "
            "and leave other versions out of PYTHONPATH.",
        )


def required() -> str:
    """Return the version that the installed twophase requires; "" if it is not installed."""
    try:
        listed = requires("twophase") or ()
    except PackageNotFoundError:  # its files are on the path all the same
        return ""
    return next((match[1] for one in listed if (match := _NEEDED.match(one))), "")


def _installed() -> tuple[str, Path]:
    """Return the version that would be imported, and where it is; "" if there is none."""
    spec = find_spec("pyspark")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        try:
            match = _VERSION.search((Path(place) / "version.py").read_text())
        except OSError:
            continue
        if match:
            return match[1], Path(place)
    return "", Path()
