"""The program that Spark runs as its workers' Python: this one, with pyspark compiled.

Spark puts pyspark.zip first on the path of its Python processes. It holds no bytecode, so each of
them compiles pyspark again. The installed pyspark is the same, and is already compiled.
"""

from __future__ import annotations

import hashlib
import shlex
import sys
from pathlib import Path

from twophase.spark.startup.cache import cached, is_ours

_NAME = "python"
_PROGRAM = """\
#!/bin/sh
left=
IFS=:
for entry in $PYTHONPATH; do
  case $entry in
    */pyspark.zip | */py4j-*-src.zip) ;;
    *) left=$left${{left:+:}}$entry ;;
  esac
done
PYTHONPATH=$left exec {python} "$@"
"""


def worker_python() -> Path:
    """Return the program; create it on first use.

    Raises:
        OSError: the cache folder cannot be written, or others can write to the program.
    """
    text = _text()
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]

    def write(folder: Path) -> None:
        (folder / _NAME).write_text(text)
        (folder / _NAME).chmod(0o755)

    program = (
        cached(f"worker-python-{digest}", write, lambda folder: (folder / _NAME).is_file()) / _NAME
    )
    if not is_ours(program):
        raise PermissionError(f"{program} may be written by others")
    return program


def is_this_python(program: str) -> bool:
    """Return whether a program is this same Python, or runs it."""
    try:
        return program == sys.executable or Path(program).read_text() == _text()
    except (OSError, ValueError):
        return False


def _text() -> str:
    return _PROGRAM.format(python=shlex.quote(sys.executable))
